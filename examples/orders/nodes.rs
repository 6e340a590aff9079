//! Five servers on this machine, by `examples/ops/nodes.sh`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::AnyError;

/// Servers that are stopped with this value, or when this process dies: the script ends when its input does.
pub(crate) struct Nodes {
    script: Child,
    input: Option<ChildStdin>,
    pub(crate) urls: Vec<String>,
}

impl Nodes {
    /// Starts them, and waits until they take commands; `set` may change where.
    pub(crate) fn start(set: impl FnOnce(&mut Command)) -> Result<Self, AnyError> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/ops/nodes.sh");
        let mut script = Command::new("sh");
        script.arg(path);
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-c is for this process, which gives its locks back before the servers go.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut script, 0);
        set(&mut script);
        let mut script = script.spawn()?;
        let (input, output) = (script.stdin.take(), script.stdout.take());
        let mut nodes = Self {
            script,
            input,
            urls: Vec::new(),
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

    #[tokio::test]
    async fn orders_are_locked_on_five_servers_that_end_with_the_example() {
        let free: Vec<_> = (0..5)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let places: Vec<SocketAddr> = free.iter().map(|free| free.local_addr().unwrap()).collect();
        let ports: Vec<_> = places.iter().map(|at| at.port().to_string()).collect();
        drop(free);
        let nodes = Nodes::start(|script| {
            script.env("PORTS", ports.join(" "));
        });
        let nodes = nodes.unwrap();
        let locks = crate::connect(Some(&nodes)).await.unwrap();
        assert_eq!(locks.snapshot().nodes.len(), 5);
        let guard = locks.acquire("order:42").await.unwrap();
        guard.release().await.unwrap();
        locks.shutdown(std::time::Duration::from_secs(5)).await;
        drop(nodes);
        for place in places {
            assert!(TcpStream::connect(place).is_err(), "{place} is still there");
        }
    }
}
