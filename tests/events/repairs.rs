//! What is told when that works again which a node refused.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;
use tower_redlock::LockManager;
use tower_redlock::node::MemoryNode;
use tower_redlock::node::{Credentials, RedisNode};
use tower_redlock::node::{Node as _, NodeError, NodeErrorKind};

use super::support::eventually;
use super::support::nodes::{context, settled};
use super::support::server::{Kind, Server};
use super::support::wrapper::{Between, Call, Reply, Wrapped};
use super::{Book, here, listen};

const MS: Duration = Duration::from_millis(1);

fn count(book: &Book, words: &str) -> usize {
    let lines = book.lines();
    lines.iter().filter(|line| line.contains(words)).count()
}

/// A node that refuses releases, or check-ins, while it is told to.
#[derive(Clone, Debug)]
struct Refusing {
    node: MemoryNode,
    call: Call,
    refuses: Arc<AtomicBool>,
}

impl Between for Refusing {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        let (it, refuses) = (self.call, Arc::clone(&self.refuses));
        Box::pin(async move {
            if call == it && refuses.load(Relaxed) {
                let text = "NOPERM no permission";
                return Err(NodeError::of(NodeErrorKind::Rejected, text));
            }
            reply.await
        })
    }
}

/// A manager over five nodes, of which the first refuses this while the flag is up.
async fn refusing(call: Call) -> (Arc<AtomicBool>, LockManager) {
    let refuses = Arc::new(AtomicBool::new(false));
    let node = |number: usize| {
        let node = MemoryNode::new(format!("n{number}"));
        let refuses = match number {
            0 => Arc::clone(&refuses),
            _ => Arc::default(),
        };
        Wrapped(Refusing {
            node,
            call,
            refuses,
        })
    };
    let builder = here().nodes((0..5).map(node));
    let locks = builder.connect().await.unwrap();
    (refuses, locks)
}

#[tokio::test(start_paused = true)]
async fn a_command_that_runs_again_is_told_once_it_has_for_a_while() {
    let (book, _listening) = listen();
    let (refuses, locks) = refusing(Call::Release).await;
    let release = async || {
        let guard = locks.acquire("order:1").await.unwrap();
        guard.release().await.unwrap();
        sleep(MS).await;
    };
    let (refused, runs) = (
        "WARN message=a node refused a command",
        "INFO message=a node runs",
    );
    refuses.store(true, Relaxed);
    release().await;
    // Until then it is tried again, after pauses of half a second at most.
    sleep(Duration::from_secs(11)).await;
    refuses.store(false, Relaxed);
    sleep(Duration::from_secs(45)).await;
    release().await;
    assert_eq!(count(&book, runs), 0, "others may be refused yet");
    sleep(Duration::from_secs(15)).await;
    release().await;
    release().await;
    let line = book.line(runs);
    assert!(
        line.contains("node=\"n0\"") && line.contains("command=\"release\""),
        "{line}"
    );
    let (_, times) = line.split_once(" refused=").unwrap();
    let times: u32 = times.parse().unwrap();
    assert!((20..100).contains(&times), "{line}");
    assert_eq!(count(&book, refused), 1);
    refuses.store(true, Relaxed);
    release().await;
    assert_eq!(count(&book, refused), 2, "it is another time");
}

#[tokio::test(start_paused = true)]
async fn a_check_in_that_is_refused_no_more_is_told_once() {
    let (book, _listening) = listen();
    let (refuses, locks) = refusing(Call::CheckIn).await;
    refuses.store(true, Relaxed);
    sleep(Duration::from_secs(3)).await;
    let line = book.line("WARN message=a node refused a command");
    assert!(line.contains("command=\"check-in\""), "{line}");
    refuses.store(false, Relaxed);
    locks.all_voting().await.unwrap();
    sleep(Duration::from_secs(3)).await;
    let line = book.line("INFO message=a node no longer refuses a command");
    assert!(
        line.contains("node=\"n0\"") && line.contains("command=\"check-in\""),
        "{line}"
    );
}

#[tokio::test]
async fn a_password_that_is_accepted_again_is_told_once() {
    let (book, _listening) = listen();
    let servers = Server::start_many(Kind::Redis, 3);
    let allow = |password: &str| {
        for server in &servers {
            server.run(&format!(
                "ACL SETUSER locks on resetpass >{password} ~* &* +@all"
            ));
        }
    };
    allow("s3cret");
    let urls = servers
        .iter()
        .map(|server| server.url_as("locks", "s3cret"));
    let builder = here().redis(urls).bootstrap(true);
    let locks = builder.connect().await.unwrap();
    assert_eq!(count(&book, "INFO message=node is up"), 3);
    servers[0].run("ACL SETUSER locks resetpass >other");
    servers[0].run("CLIENT KILL USER locks");
    let (wrong, back) = ("refused the credentials", "INFO message=node is up");
    eventually("refused", || count(&book, wrong) > 0).await;
    allow("s3cret");
    locks.all_voting().await.unwrap();
    assert_eq!(count(&book, back), 4, "{:#?}", book.lines());
    assert!(!book.lines().concat().contains("s3cret"));
}

#[tokio::test]
async fn credentials_that_can_be_renewed_again_are_told_once() {
    let (book, _listening) = listen();
    let server = Server::start(Kind::Redis, &[]);
    server.run("ACL SETUSER locks on >s3cret ~* &* +@all");
    let good = || {
        Ok(Credentials::password("s3cret")
            .user("locks")
            .valid_for(200 * MS))
    };
    let vault: Arc<Mutex<Result<Credentials, String>>> = Arc::new(Mutex::new(good()));
    let source = Arc::clone(&vault);
    let node = RedisNode::new(&server.url()).credentials(move || {
        let credentials = source.lock().unwrap().clone();
        async move { credentials.map_err(std::io::Error::other) }
    });
    let node = node.build().unwrap();
    node.start(context());
    settled(&node).await.unwrap();
    *vault.lock().unwrap() = Err("the vault is sealed".to_owned());
    let (stale, renewed) = (
        "could not be renewed",
        "INFO message=the credentials of a node are",
    );
    eventually("stale", || count(&book, stale) > 0).await;
    assert_eq!(count(&book, renewed), 0);
    *vault.lock().unwrap() = good();
    eventually("renewed", || count(&book, renewed) > 0).await;
    assert!(book.line(stale).contains("the vault is sealed"));
    assert!(book.line(renewed).contains(node.name()));
    assert!(!book.lines().concat().contains("s3cret"));
}
