//! The lock manager over memory nodes that fail in the ways servers fail, on paused time: every claim about
//! acquiring, holding, losing and releasing that needs no network.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, also in its helpers"
)]

mod acquire;
mod blocked;
mod deadline;
mod fairness;
mod far;
mod fence;
mod groups;
mod groups_ends;
mod hand_off;
mod handles;
mod hold;
mod holders;
mod idempotent;
mod idempotent_ends;
mod idempotent_histories;
mod idempotent_steps;
mod links;
mod members;
mod old_data;
mod overlap;
mod permits;
mod promotion;
mod queue;
mod readers;
mod release;
#[path = "../support/requests.rs"]
mod requests;
mod restart;
mod scope;
mod settings;
mod several;
mod several_crowds;
mod several_leaving;
mod several_waiting;
mod shutdown;
mod slow;
mod snapshot;
mod standing;
mod ttls;
mod waiting;
#[path = "../support/wrapper.rs"]
mod wrapper;

use std::time::Duration;

use tokio::task::JoinHandle;

use tower_redlock::clock::TokioClock;
use tower_redlock::node::MemoryNode;
use tower_redlock::snapshot::{NodeStatus, VotingStatus};
use tower_redlock::{AcquireError, LockGuard, LockManager, Settings};

const TTL: Duration = Duration::from_secs(10);
const MS: Duration = Duration::from_millis(1);

/// Five memory nodes and what a test asks about them.
struct Nodes(Vec<MemoryNode>);

impl Nodes {
    fn five() -> Self {
        Self((0..5).map(|n| MemoryNode::new(format!("n{n}"))).collect())
    }

    fn builder(&self) -> Settings {
        LockManager::builder()
            .nodes(self.0.iter().cloned())
            .clock(TokioClock::new())
            .ttl(TTL)
    }

    /// A builder of managers that do not mind what nodes may have forgotten.
    fn unguarded(&self) -> Settings {
        self.builder().without_restart_guard()
    }

    /// A manager that does not mind what these nodes may have forgotten.
    fn forgetful(&self) -> LockManager {
        self.unguarded().connect_lazy().unwrap()
    }

    /// A manager over these nodes. All managers of a test share the nodes' clock, which the first one brings.
    fn manager(&self) -> LockManager {
        self.builder().connect_lazy().unwrap()
    }

    /// A manager that knows already that these nodes vote.
    async fn met(&self) -> LockManager {
        let locks = self.manager();
        meet(&locks).await;
        locks
    }

    fn each(&self, nodes: impl IntoIterator<Item = usize>, act: impl Fn(&MemoryNode)) {
        nodes.into_iter().for_each(|n| act(&self.0[n]));
    }

    /// How many nodes hold `order` (in the default namespace).
    fn holding(&self, key: &str) -> usize {
        let key = format!("lk:{key}");
        self.0.iter().filter(|n| n.holder(&key).is_some()).count()
    }

    /// The owner token of `order` on the first node.
    fn token(&self, key: &str) -> Option<Vec<u8>> {
        self.0[0].holder(&format!("lk:{key}"))
    }

    fn subscriptions(&self) -> usize {
        self.0.iter().map(MemoryNode::subscriptions).sum()
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

/// Lets a manager find that its nodes vote, without any time passing.
async fn meet(locks: &LockManager) {
    let votes = |node: &NodeStatus| node.voting == VotingStatus::Voting;
    for _ in 0..1_000 {
        if locks.snapshot().nodes.iter().all(votes) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("they do not vote: {:?}", locks.snapshot().nodes);
}

/// What an acquire comes to.
type Outcome = Result<LockGuard, AcquireError>;

/// Starts to wait for `key`, and returns when it is in line, or going for it.
async fn wait_for(locks: &LockManager, key: &'static str) -> JoinHandle<Outcome> {
    let locks = locks.clone();
    let waiter = tokio::spawn(async move { locks.acquire(key).await });
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    waiter
}

/// Polls once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = std::future::ready(()) => None,
    }
}

/// Nothing is left of a manager's callers: no lock, no turn, no place in line.
async fn assert_idle(locks: &LockManager) {
    for _ in 0..1_000 {
        let snapshot = locks.snapshot();
        if (snapshot.held, snapshot.keys, snapshot.waiting) == (0, 0, 0) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("left behind: {:?}", locks.snapshot());
}
