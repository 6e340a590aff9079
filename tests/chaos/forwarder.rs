//! An address that leads now to one server and now to another, and at times to none.

use tokio::io::copy;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What becomes of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    port: u16,
    flow: Flow,
    // Connections that were made under an earlier number lead elsewhere.
    number: u64,
}

/// How a cut looks to those who are cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Bytes pass.
    Open,
    /// Bytes stand, in both directions, and pass later: an old connection that drains late.
    Stalled,
    /// Replies pass, requests stand.
    OnlyReplies,
    /// Requests pass, replies stand: what is asked is done, and the process does not know.
    OnlyRequests,
    /// Connections are closed, those that are there and new ones.
    Closed,
}

impl Flow {
    const CUTS: [Self; 4] = [
        Self::Stalled,
        Self::OnlyReplies,
        Self::OnlyRequests,
        Self::Closed,
    ];

    /// A cut of some kind.
    pub(crate) fn cut() -> Self {
        Self::CUTS[fastrand::usize(..Self::CUTS.len())]
    }

    const fn passes_requests(self) -> bool {
        matches!(self, Self::Open | Self::OnlyRequests)
    }

    const fn passes_replies(self) -> bool {
        matches!(self, Self::Open | Self::OnlyReplies)
    }
}

/// Forwards connections to one port of this machine. Ends with this value.
#[derive(Debug)]
pub(crate) struct Forwarder {
    port: u16,
    way: watch::Sender<Way>,
    _task: JoinSet<()>,
}

impl Forwarder {
    pub(crate) async fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let way = watch::Sender::new(Way {
            port: target,
            flow: Flow::Open,
            number: 0,
        });
        let mut task = JoinSet::new();
        task.spawn(serve(listener, way.clone()));
        Self {
            port,
            way,
            _task: task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Leads to `target` from now on, and closes what leads elsewhere.
    pub(crate) fn lead_to(&self, target: u16) {
        self.way.send_modify(|way| {
            way.port = target;
            way.number += 1;
        });
    }

    /// Lets bytes pass, or not.
    pub(crate) fn set(&self, flow: Flow) {
        self.way.send_modify(|way| way.flow = flow);
    }
}

async fn serve(listener: TcpListener, way: watch::Sender<Way>) {
    let mut served = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        served.spawn(forward(client, way.subscribe()));
    }
}

async fn forward(mut client: TcpStream, mut way: watch::Receiver<Way>) {
    let first = *way.borrow_and_update();
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", first.port)).await else {
        return;
    };
    for end in [&client, &server] {
        if end.set_nodelay(true).is_err() {
            return;
        }
    }
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let requests = copy(&mut from_client, &mut to_server);
    let replies = copy(&mut from_server, &mut to_client);
    tokio::pin!(requests, replies);
    let mut now = first;
    while now.number == first.number && now.flow != Flow::Closed {
        tokio::select! {
            biased;
            changed = way.changed() => match changed {
                Ok(()) => now = *way.borrow_and_update(),
                Err(_) => return,
            },
            // Whichever way it ended, both sides are closed.
            _ = &mut requests, if now.flow.passes_requests() => return,
            _ = &mut replies, if now.flow.passes_replies() => return,
        }
    }
}
