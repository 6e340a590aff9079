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
mod idempotent_steps;
mod links;
mod members;
mod odd;
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

// What most files need, for which they say `use super::*`.
use std::fmt;
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower_redlock::clock::{Clock, Moment, TokioClock};
use tower_redlock::error::{ConnectError, KeyError, LossReason, NoQuorum, ReleaseError};
use tower_redlock::idempotency::{IdempotentRun, RunGuard};
use tower_redlock::key::LockKeys;
use tower_redlock::node::{
    AcquireReply, AcquireRequest, Fence, MemoryNode, Namespace, Node, NodeContext, NodeError,
    NodeErrorKind, NodeKey, NodeKeys, NodeState, NoticeSender, Notifier, OwnerToken,
    ReleaseRequest, ServerRegistry, Subscription,
};
use tower_redlock::snapshot::{NodeStatus, VotingStatus};
use tower_redlock::{AcquireError, FencingToken, LockGuard, LockKey, LockManager};
use tower_redlock::{LockScope, Settings};

use self::far::{Far, Gate};
use self::links::{Link, Process};
use self::odd::{Fate, Odd};
use self::requests::*;
use self::wrapper::{Between, Call, Reply, Wrapped};

/// The ttl of a manager that is not told otherwise.
const TTL: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);

/// Nodes called `n0`, `n1`, and so on.
fn nodes(count: usize) -> Vec<MemoryNode> {
    let name = |n| MemoryNode::new(format!("n{n}"));
    (0..count).map(name).collect()
}

/// A builder of managers over these nodes, on tokio's time.
fn over<N: Node>(nodes: impl IntoIterator<Item = N>) -> Settings {
    let builder = LockManager::builder().nodes(nodes);
    builder.clock(TokioClock::new())
}

/// A manager that connects later.
#[track_caller]
fn lazy(builder: Settings) -> LockManager {
    builder.connect_lazy().unwrap()
}

async fn connected(builder: Settings) -> LockManager {
    builder.connect().await.unwrap()
}

/// Memory nodes and what a test asks about them.
struct Nodes(Vec<MemoryNode>);

impl Nodes {
    fn of(count: usize) -> Self {
        Self(nodes(count))
    }

    fn five() -> Self {
        Self::of(5)
    }

    fn builder(&self) -> Settings {
        over(self.0.iter().cloned())
    }

    /// A builder of managers that do not mind what nodes may have forgotten.
    fn unguarded(&self) -> Settings {
        self.builder().without_restart_guard()
    }

    /// A manager that does not mind what these nodes may have forgotten.
    fn forgetful(&self) -> LockManager {
        lazy(self.unguarded())
    }

    /// A manager over these nodes. All managers of a test share the nodes' clock, which the first one brings.
    fn manager(&self) -> LockManager {
        lazy(self.builder())
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

    /// Until so many nodes hold `key`.
    async fn settle_on(&self, key: &str, count: usize) {
        let what = format!("{count} nodes hold {key}");
        self.settle(&what, |nodes| nodes.holding(key) == count)
            .await;
    }

    async fn settle_free(&self, key: &str) {
        self.settle_on(key, 0).await;
    }

    /// Nothing is left of the callers of these managers: no key on a node, no subscription, no place in line.
    async fn assert_nothing_left(&self, managers: &[&LockManager]) {
        let free = |nodes: &Self| nodes.0.iter().all(|node| node.keys().is_empty());
        self.settle("every node free", free).await;
        assert_eq!(self.subscriptions(), 0);
        for locks in managers {
            assert_idle(locks).await;
        }
    }
}

/// Five nodes, and so many managers over them.
fn five<const N: usize>() -> (Nodes, [LockManager; N]) {
    let nodes = Nodes::five();
    let managers = std::array::from_fn(|_| nodes.manager());
    (nodes, managers)
}

/// Five nodes, and so many managers that know already that they vote.
async fn five_met<const N: usize>() -> (Nodes, [LockManager; N]) {
    let (nodes, managers) = five();
    for locks in &managers {
        meet(locks).await;
    }
    (nodes, managers)
}

/// Five nodes, a manager over them, and its lock on `key`.
async fn held(key: &str) -> (Nodes, LockManager, LockGuard) {
    let (nodes, [locks]) = five();
    let guard = locks.try_acquire(key).await.unwrap();
    (nodes, locks, guard)
}

/// Lets a manager find that its nodes vote, without any time passing.
async fn meet(locks: &LockManager) {
    for _ in 0..1_000 {
        if voting(locks) == locks.snapshot().nodes.len() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("they do not vote: {:?}", locks.snapshot().nodes);
}

/// A clock whose date is wrong by so many milliseconds.
#[derive(Clone, Copy, Debug)]
struct Wrong(TokioClock, i64);

impl Clock for Wrong {
    fn follows_runtime(&self) -> bool {
        true
    }

    fn now(&self) -> Moment {
        self.0.now()
    }

    fn unix_micros(&self) -> u64 {
        self.0.unix_micros().saturating_add_signed(self.1 * 1_000)
    }
}

/// What an acquire comes to.
type Outcome = Result<LockGuard, AcquireError>;

#[track_caller]
fn assert_contended<T: fmt::Debug>(outcome: Result<T, AcquireError>) {
    match outcome {
        Err(AcquireError::Contended { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_timed_out<T: fmt::Debug>(outcome: Result<T, AcquireError>) {
    match outcome {
        Err(AcquireError::WaitTimeout { .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// It goes on in the background.
#[track_caller]
fn assert_unconfirmed(outcome: &Result<(), ReleaseError>) {
    let is_unconfirmed = matches!(outcome, Err(ReleaseError::Unconfirmed { .. }));
    assert!(is_unconfirmed, "{outcome:?}");
}

/// How long others hold `key` yet, as who does not wait for it is told.
async fn remaining(locks: &LockManager, key: &str) -> Option<Duration> {
    match locks.try_acquire(key).await {
        Err(AcquireError::Contended { remaining, .. }) => remaining,
        other => panic!("{other:?}"),
    }
}

/// Why there was no quorum for `key`.
async fn no_quorum(locks: &LockManager, key: &str) -> NoQuorum {
    match locks.try_acquire(key).await {
        Err(AcquireError::NoQuorum(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// The work of a caller that is told to do it.
#[track_caller]
fn to_run(begun: Result<IdempotentRun, AcquireError>) -> RunGuard {
    match begun {
        Ok(IdempotentRun::Execute(run)) => run,
        other => panic!("not to be run: {other:?}"),
    }
}

/// What a caller is told that work came to.
#[track_caller]
fn replayed(begun: Result<IdempotentRun, AcquireError>) -> Bytes {
    match begun {
        Ok(IdempotentRun::Replay(body)) => body,
        other => panic!("not replayed: {other:?}"),
    }
}

/// How many nodes vote as far as a manager knows.
fn voting(locks: &LockManager) -> usize {
    let nodes = locks.snapshot().nodes.into_iter();
    nodes
        .filter(|node| node.voting == VotingStatus::Voting)
        .count()
}

#[track_caller]
fn assert_quarantined(standing: &VotingStatus) {
    let is_quarantined = matches!(standing, VotingStatus::Quarantined { .. });
    assert!(is_quarantined, "{standing:?}");
}

/// `key` as nodes know it.
fn place(key: &str) -> NodeKey {
    Namespace::default().node_key(&LockKey::new(key).unwrap())
}

/// An owner that is no manager's.
fn owner(number: u8) -> OwnerToken {
    OwnerToken::from_entropy([number; OwnerToken::ENTROPY_LEN])
}

/// Has an owner that is no manager's take a key of `node`.
async fn occupy(node: &MemoryNode, keys: impl Into<NodeKeys>, number: u8, ttl: Duration) {
    let request = AcquireRequest::new(keys, owner(number), ttl);
    node.acquire(request).await.unwrap();
}

/// Has `node` grant `key` under this number once, so that it counts on from there.
async fn count_up(node: &MemoryNode, key: NodeKey, number: u64) {
    let fence = Fence::new(FencingToken::new(number).unwrap(), DAY);
    let request = AcquireRequest::new(key.clone(), owner(2), TTL);
    node.acquire(request.fenced(Some(fence))).await.unwrap();
    let release = ReleaseRequest::new(key, owner(2), false);
    node.release(release).await.unwrap();
}

/// Starts `work` with a manager of its own.
fn spawn<W>(locks: &LockManager, work: impl FnOnce(LockManager) -> W) -> JoinHandle<W::Output>
where
    W: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(work(locks.clone()))
}

/// Starts to wait for `keys`, and returns when it is in line, or going for them.
async fn wait_for<K>(locks: &LockManager, keys: K) -> JoinHandle<Outcome>
where
    K: TryInto<LockKeys, Error: Into<KeyError>> + Send + 'static,
{
    let waiter = spawn(locks, |locks| async move { locks.acquire(keys).await });
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

/// A runtime of one thread, whose time is paused.
fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

/// Lets everything that is ready run a while, without any time passing.
async fn breathe() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// `work` that was polled once, and is not done then.
async fn begun<W: Future>(work: W) -> Pin<Box<W>> {
    let mut work = Box::pin(work);
    assert!(poll_once(&mut work).await.is_none());
    work
}

/// Ends a task half-way.
async fn cancel<T: fmt::Debug>(task: JoinHandle<T>) {
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
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
