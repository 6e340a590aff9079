//! The script that starts local nodes.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};

use tower_redlock::LockManager;

use super::promtool::path;
use super::support::eventually;
use super::support::server::{Kind, free_port};

/// The script with its five servers. It ends them when its input ends.
struct Script {
    child: Child,
    input: Option<ChildStdin>,
    urls: Vec<String>,
}

fn start() -> Script {
    let ports: Vec<_> = (0..5).map(|_| free_port().to_string()).collect();
    let mut child = Command::new("sh")
        .arg(path("nodes.sh"))
        .env("PORTS", ports.join(" "))
        .env("REDIS_SERVER", Kind::Redis.binary())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let urls = line.trim().strip_prefix("REDLOCK_NODES=");
    let urls = urls.unwrap_or_else(|| panic!("no nodes: {line:?}"));
    Script {
        urls: urls.split(',').map(str::to_owned).collect(),
        input: child.stdin.take(),
        child,
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn it_starts_five_nodes_and_ends_them_with_its_input() {
    let mut script = start();
    assert_eq!(script.urls.len(), 5);
    let builder = LockManager::builder().redis(&script.urls);
    let locks = builder.bootstrap(true).connect().await.unwrap();
    let guard = locks.acquire("order:1").await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(locks.nodes().len(), 5);
    drop(script.input.take());
    assert!(script.child.wait().unwrap().success());
    let refused = |url: &String| {
        let (_, address) = url.rsplit_once('@').unwrap();
        std::net::TcpStream::connect(address).is_err()
    };
    let gone = || script.urls.iter().all(refused);
    eventually("all servers are gone", gone).await;
}

#[tokio::test]
async fn it_says_why_a_node_does_not_start() {
    let script = start();
    let (_, port) = script.urls[0].rsplit_once(':').unwrap();
    let other = Command::new("sh")
        .arg(path("nodes.sh"))
        .env("PORTS", port)
        .env("REDIS_SERVER", Kind::Redis.binary())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!other.status.success());
    let told = String::from_utf8(other.stderr).unwrap();
    assert!(
        told.contains(&format!("the node on port {port} does not start")),
        "{told}"
    );
}
