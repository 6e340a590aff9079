//! The script that starts local nodes.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use tower_redlock::LockManager;
use tower_redlock::idempotency::IdempotentRun;

use super::promtool::path;
use super::support::eventually;
use super::support::server::{Kind, Server, free_port};

/// The script with its five servers. It ends them when its input ends.
struct Script {
    child: Child,
    input: Option<ChildStdin>,
    urls: Vec<String>,
}

fn nodes_sh(ports: &str) -> Command {
    let mut script = Command::new("sh");
    script.arg(path("nodes.sh")).env("PORTS", ports);
    script.env("REDIS_SERVER", Kind::Redis.binary());
    script
}

fn start() -> Script {
    let ports: Vec<_> = (0..5).map(|_| free_port().to_string()).collect();
    let mut child = nodes_sh(&ports.join(" "))
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
    assert_eq!(locks.snapshot().nodes.len(), 5);
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
    let other = nodes_sh(port).stdin(Stdio::null()).output().unwrap();
    assert!(!other.status.success());
    let told = String::from_utf8(other.stderr).unwrap();
    let why = format!("the node on port {port} does not start");
    assert!(told.contains(&why), "{told}");
}

/// Some servers (Redis 7.0 and 8.0, Valkey 8.1) check what they read from the append-only file against the rights of
/// the default user, and leave out whole scripts that it may not run.
#[tokio::test]
async fn stored_responses_survive_a_restart_with_the_file_of_users() {
    let users = path("users.acl");
    // As the script starts them, but for the second: while a disk is slow the end of the file may be a second behind.
    let args = [
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--aclfile",
        users.to_str().unwrap(),
    ];
    let mut server = Server::start(Kind::Redis, &args);
    let url = server.url_as("locks", "change-me");
    let run = async || {
        let builder = LockManager::builder().redis([&url]).bootstrap(true);
        let locks = builder.connect().await.unwrap();
        let (day, no_wait) = (Duration::from_secs(86_400), Duration::ZERO);
        let run = locks.begin_idempotent("order:1", day, no_wait).await;
        run.unwrap()
    };
    let IdempotentRun::Execute(first) = run().await else {
        panic!("nobody has done it");
    };
    first.complete(b"paid".as_slice()).await.unwrap();
    server.restart();
    let again = run().await;
    let is_stored = matches!(&again, IdempotentRun::Replay(stored) if stored == b"paid".as_slice());
    assert!(is_stored, "{again:?}");
}
