//! The lock manager over memory nodes that fail in the ways servers fail, on paused time: every claim about
//! acquiring, holding, losing and releasing that needs no network.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, also in its helpers"
)]

mod acquire;
mod hold;
mod release;
mod settings;
mod shutdown;
mod slow;

use std::time::Duration;

use tower_redlock::clock::TokioClock;
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::{LockManager, LockManagerBuilder};

const TTL: Duration = Duration::from_secs(10);
const MS: Duration = Duration::from_millis(1);

/// Five memory nodes and what a test asks about them.
struct Nodes(Vec<MemoryNode>);

impl Nodes {
    fn five() -> Self {
        Self((0..5).map(|n| MemoryNode::new(format!("n{n}"))).collect())
    }

    fn builder(&self) -> LockManagerBuilder {
        LockManager::builder()
            .nodes(self.0.iter().cloned())
            .clock(TokioClock::new())
            .ttl(TTL)
    }

    /// A manager over these nodes. All managers of a test share the nodes' clock, which the first one brings.
    fn manager(&self) -> LockManager {
        self.builder().lazy().unwrap()
    }

    fn each(&self, nodes: impl IntoIterator<Item = usize>, act: impl Fn(&MemoryNode)) {
        nodes.into_iter().for_each(|n| act(&self.0[n]));
    }

    /// How many nodes hold `order` (in the default namespace).
    fn holding(&self, key: &str) -> usize {
        let key = format!("lk:{key}");
        self.0.iter().filter(|n| n.holder(&key).is_some()).count()
    }

    fn commands(&self) -> u64 {
        self.0.iter().map(MemoryNode::commands).sum()
    }

    /// Lets everything that is ready run, without any time passing, until `done`.
    async fn settle(&self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..1_000 {
            if done(self) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("not without time passing: {what}");
    }

    async fn settle_free(&self, key: &str) {
        self.settle("every node free", |nodes| nodes.holding(key) == 0)
            .await;
    }
}
