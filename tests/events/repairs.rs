//! What is told when that works again which a node refused.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::sleep;
use tower_redlock::LockManager;
use tower_redlock::node::MemoryNode;
use tower_redlock::node::{NodeError, NodeErrorKind};

use super::support::eventually;
use super::support::server::{Kind, Server};
use super::support::wrapper::{Between, Call, Reply, Wrapped};
use super::{MS, here, listen};

/// A node that refuses releases, or check-ins, while it is told to.
#[derive(Clone, Debug)]
struct Refusing {
    node: MemoryNode,
    call: Call,
    kind: NodeErrorKind,
    refuses: Arc<AtomicBool>,
}

impl Between for Refusing {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        let (it, kind, refuses) = (self.call, self.kind, Arc::clone(&self.refuses));
        Box::pin(async move {
            if call == it && refuses.load(Relaxed) {
                let text = "NOPERM no permission";
                return Err(NodeError::of(kind, text));
            }
            reply.await
        })
    }
}

/// A manager over five nodes, of which the first refuses this while the flag is up.
async fn refusing(call: Call, kind: NodeErrorKind) -> (Arc<AtomicBool>, LockManager) {
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
            kind,
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
    let (refuses, locks) = refusing(Call::Release, NodeErrorKind::Rejected).await;
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
    assert_eq!(book.count(runs), 0, "others may be refused yet");
    sleep(Duration::from_secs(15)).await;
    release().await;
    release().await;
    let parts = ["node=\"n0\"", "command=\"release\""];
    let line = book.assert_line(runs, "INFO", &parts);
    let (_, times) = line.split_once(" refused=").unwrap();
    let times: u32 = times.parse().unwrap();
    assert!((20..100).contains(&times), "{line}");
    assert_eq!(book.count(refused), 1);
    refuses.store(true, Relaxed);
    release().await;
    assert_eq!(book.count(refused), 2, "it is another time");
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_refused_for_good_is_told_and_not_tried_again() {
    let (book, _listening) = listen();
    let (refuses, locks) = refusing(Call::Release, NodeErrorKind::WrongType).await;
    refuses.store(true, Relaxed);
    let guard = locks.acquire("order:1").await.unwrap();
    guard.release().await.unwrap();
    let parts = ["node=\"n0\"", "command=\"release\""];
    book.assert_line("a node refused a command", "WARN", &parts);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(locks.snapshot().keys, 0, "it is given up");
    assert!(locks.try_acquire("order:1").await.is_ok(), "by the others");
}

#[tokio::test(start_paused = true)]
async fn a_check_in_that_is_refused_no_more_is_told_once() {
    let (book, _listening) = listen();
    let (refuses, locks) = refusing(Call::CheckIn, NodeErrorKind::Rejected).await;
    refuses.store(true, Relaxed);
    sleep(Duration::from_secs(3)).await;
    let command = "command=\"check-in\"";
    book.assert_line("a node refused a command", "WARN", &[command]);
    refuses.store(false, Relaxed);
    locks.all_voting().await.unwrap();
    sleep(Duration::from_secs(3)).await;
    let words = "a node no longer refuses a command";
    book.assert_line(words, "INFO", &["node=\"n0\"", command]);
}

#[tokio::test]
async fn a_password_that_is_accepted_again_is_told_once() {
    let (book, _listening) = listen();
    let servers = Server::start_many(Kind::Redis, 3);
    let allow = |password: &str| {
        for server in &servers {
            let user = format!("locks on resetpass >{password} ~* &* +@all");
            server.run(&format!("ACL SETUSER {user}"));
        }
    };
    allow("s3cret");
    let urls = servers.iter().map(|it| it.url_as("locks", "s3cret"));
    let builder = here().redis(urls).bootstrap(true);
    let locks = builder.connect().await.unwrap();
    assert_eq!(book.count("INFO message=node is up"), 3);
    servers[0].run("ACL SETUSER locks resetpass >other");
    servers[0].run("CLIENT KILL USER locks");
    let (wrong, back) = ("refused the credentials", "INFO message=node is up");
    eventually("refused", || book.count(wrong) > 0).await;
    allow("s3cret");
    locks.all_voting().await.unwrap();
    assert_eq!(book.count(back), 4, "{:#?}", book.lines());
    book.assert_without("s3cret");
}
