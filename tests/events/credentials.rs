//! What is told of credentials that cannot be renewed.

use std::io::Error;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use tower_redlock::node::Node as _;
use tower_redlock::node::{Credentials, RedisNode};

use super::listen;
use super::support::eventually;
use super::support::nodes::{context, settled};
use super::support::server::{Kind, Server};

const TOLD: &str = "WARN message=the credentials of a node could not be renewed";
const RENEWED: &str = "INFO message=the credentials of a node are renewed again";

/// What the callbacks of this file ask. It is theirs as long as the program runs.
#[derive(Default)]
struct Vault {
    asked: AtomicUsize,
    is_sealed: AtomicBool,
}

impl Vault {
    async fn get(&self) -> Result<Credentials, Error> {
        self.asked.fetch_add(1, Relaxed);
        match self.is_sealed.load(Relaxed) {
            true => Err(Error::other("the vault is sealed for s3cret")),
            false => Ok(Credentials::password("s3cret")
                .user("a")
                .valid_for(Duration::from_millis(100))),
        }
    }

    /// Waits until it was asked so often from now on.
    async fn asked(&self, times: usize) {
        let enough = self.asked.load(Relaxed) + times;
        eventually("it was asked", || self.asked.load(Relaxed) >= enough).await;
    }
}

#[tokio::test]
async fn credentials_that_cannot_be_renewed_are_told_once_until_they_can() {
    let (book, _listening) = listen();
    let server = Server::start(Kind::Redis, &[]);
    server.run("ACL SETUSER a on >s3cret ~* &* +@all");
    let vault: &'static Vault = Box::leak(Box::default());
    let node = RedisNode::new(&server.url()).credentials(|| vault.get());
    let node = node.build().unwrap();
    node.start(context());
    settled(&node).await.unwrap();
    vault.asked(2).await;
    // They were renewed.
    book.assert_without(TOLD);
    for times in 1..=2 {
        vault.is_sealed.store(true, Relaxed);
        // Before it is asked again the refusal is told; that of the second is not.
        vault.asked(2).await;
        book.assert_count(TOLD, times);
        book.assert_count("the vault is sealed for", times);
        assert!(book.with(TOLD)[0].contains(node.name()));
        book.assert_count(RENEWED, times - 1);
        vault.is_sealed.store(false, Relaxed);
        vault.asked(2).await;
        eventually("renewed", || book.count(RENEWED) == times).await;
        assert!(book.with(RENEWED)[0].contains(node.name()));
    }
    book.assert_without("s3cret");
}
