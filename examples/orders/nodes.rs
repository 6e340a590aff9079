//! Servers on this machine, by `examples/ops/nodes.sh`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::AnyError;

/// Servers that are stopped with this value, or when this process dies: the script ends when its input does.
pub(crate) struct Nodes {
    script: Child,
    input: Option<ChildStdin>,
    pub(crate) urls: Vec<String>,
    /// They are one cluster.
    pub(crate) in_cluster: bool,
}

impl Nodes {
    /// Starts them, and waits until they take commands; `set` may change where.
    pub(crate) fn start(
        in_cluster: bool,
        set: impl FnOnce(&mut Command),
    ) -> Result<Self, AnyError> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/ops/nodes.sh");
        let mut script = Command::new("sh");
        script.arg(path);
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-c is for this process, which gives its locks back before the servers go.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut script, 0);
        if in_cluster {
            script.env("CLUSTER", "1");
        }
        set(&mut script);
        let mut script = script.spawn()?;
        let (input, output) = (script.stdin.take(), script.stdout.take());
        let mut nodes = Self {
            script,
            input,
            urls: Vec::new(),
            in_cluster,
        };
        let mut line = String::new();
        BufReader::new(output.ok_or("no output")?).read_line(&mut line)?;
        let urls = line.trim().strip_prefix("REDLOCK_NODES=");
        let urls = urls.ok_or("the servers did not start")?;
        nodes.urls = urls.split(',').map(str::to_owned).collect();
        Ok(nodes)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.script.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use super::*;

    /// Below 55,000 there is room for the port of a cluster's bus, ten thousand above.
    fn free_places(count: usize) -> Vec<SocketAddr> {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let is_low = |free: &TcpListener| free.local_addr().unwrap().port() < 55_000;
        let free = std::iter::repeat_with(listen).filter(is_low);
        let free: Vec<TcpListener> = free.take(count).collect();
        free.iter().map(|free| free.local_addr().unwrap()).collect()
    }

    #[tokio::test]
    async fn orders_are_locked_on_five_servers_that_end_with_the_example() {
        are_locked(false, 5).await;
    }

    #[tokio::test]
    async fn orders_are_locked_on_a_cluster_that_ends_with_the_example() {
        are_locked(true, 3).await;
    }

    async fn are_locked(in_cluster: bool, servers: usize) {
        let places = free_places(servers);
        let ports: Vec<_> = places.iter().map(|at| at.port().to_string()).collect();
        let nodes = Nodes::start(in_cluster, |script| {
            script.env("PORTS", ports.join(" "));
        });
        let nodes = nodes.unwrap();
        let locks = crate::connect(Some(&nodes)).await.unwrap();
        assert_eq!(locks.snapshot().nodes.len(), servers);
        let guard = locks.acquire("order:42").await.unwrap();
        guard.release().await.unwrap();
        locks.shutdown(std::time::Duration::from_secs(5)).await;
        drop(nodes);
        for place in places {
            assert!(TcpStream::connect(place).is_err(), "{place} is still there");
        }
    }
}
