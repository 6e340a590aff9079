//! An address that leads now to one server and now to another.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Forwards connections to one port of this machine. Ends with this value.
#[derive(Debug)]
pub(crate) struct Forwarder {
    port: u16,
    target: watch::Sender<u16>,
    _task: JoinSet<()>,
}

impl Forwarder {
    pub(crate) async fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = watch::Sender::new(target);
        let mut task = JoinSet::new();
        task.spawn(serve(listener, target.clone()));
        Self {
            port,
            target,
            _task: task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Leads to `target` from now on, and cuts what leads elsewhere.
    pub(crate) fn lead_to(&self, target: u16) {
        self.target.send_replace(target);
    }
}

async fn serve(listener: TcpListener, target: watch::Sender<u16>) {
    let mut served = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        served.spawn(forward(client, target.subscribe()));
    }
}

async fn forward(mut client: TcpStream, mut target: watch::Receiver<u16>) {
    let port = *target.borrow_and_update();
    let passed = async {
        let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        copy_bidirectional(&mut client, &mut server).await
    };
    tokio::select! {
        biased;
        _ = target.changed() => {}
        // Whichever way it ended, both sides are closed.
        _ = passed => {}
    }
}
