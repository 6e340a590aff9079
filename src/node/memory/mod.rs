//! [`MemoryNode`]: a node inside the process.

#[cfg(feature = "test-util")]
mod faults;
pub(super) mod keyed;
pub(super) mod store;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

#[cfg(all(feature = "test-util", tower_redlock_tests))]
pub use self::faults::MemorySnapshot;
#[cfg(feature = "test-util")]
use self::faults::{Faults, Mode};
use self::keyed::Now;
#[cfg(feature = "test-util")]
use self::store::Data;
use self::store::Store;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::namespace::{NodeKey, NodeKeys};
use crate::node::{
    AcquireReply, AcquireRequest, CheckInReply, CheckInRequest, ExtendReplies, ExtendRequest,
    KeyReply, Node, NodeContext, NodeError, NodeFuture, NodeState, NoticeSender, Notifier,
    PromoteRequest, RaiseReply, RaiseRequest, ReleaseReply, ReleaseRequest, ScanReply, ScanRequest,
    Subscription, TakeOverRequest,
};
#[cfg(feature = "idempotency")]
use crate::node::{CompleteReply, CompleteRequest, RecallRequest};

/// A node that keeps its locks in the memory of this process, for development, tests and services with a single
/// process.
///
/// It behaves like a Redis node in everything that the lock protocol can see. Clones share one state, so several
/// managers in a process can share a node. With the feature `test-util`, you can pass it to a manager, and make it fail
/// by `go_down`, `freeze` and `forget`.
///
/// # Examples
///
/// ```
/// # #[cfg(not(feature = "test-util"))] fn main() {}
/// # #[cfg(feature = "test-util")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_redlock::{LockManager, node::MemoryNode};
///
/// let nodes: Vec<_> = (0..5).map(|n| MemoryNode::new(format!("node-{n}"))).collect();
/// let locks = LockManager::builder().memory_nodes(nodes).connect().await?;
/// let guard = locks.try_acquire("order:42").await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryNode {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    clock: OnceLock<Arc<dyn Clock>>,
    store: Mutex<Store>,
    #[cfg(feature = "test-util")]
    faults: Faults,
}

impl MemoryNode {
    /// Creates an empty node with this name.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            inner: Arc::new(Inner {
                name: name.into(),
                clock: OnceLock::new(),
                store: Mutex::new(Store::default()),
                #[cfg(feature = "test-util")]
                faults: Faults::default(),
            }),
        }
    }

    /// Runs `command` on the store when the future is polled. An injected fault can delay or prevent that.
    fn run<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Store, Now) -> Result<T, NodeError> + Send + 'static,
    ) -> NodeFuture<Result<T, NodeError>> {
        self.run_apart(move |store, now| {
            #[cfg(feature = "test-util")]
            {
                store.commands += 1;
            }
            command(store, now)
        })
    }

    /// Like [`run`](Self::run), but does not count the command.
    fn run_apart<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Store, Now) -> Result<T, NodeError> + Send + 'static,
    ) -> NodeFuture<Result<T, NodeError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            #[cfg(feature = "test-util")]
            return inner
                .faults
                .run(command, |command| inner.execute(command))
                .await?;
            #[cfg(not(feature = "test-util"))]
            return inner.execute(command);
        })
    }
}

#[cfg(feature = "test-util")]
impl MemoryNode {
    /// Makes commands fail immediately, as if no server listened. The keys remain.
    pub fn go_down(&self) {
        let mut backlog = self.inner.faults.backlog();
        self.inner.faults.mode.send_replace(Mode::Down);
        self.inner.store().listeners.set_deaf(true);
        // A frozen server that dies loses the commands in its sockets.
        backlog.clear();
    }

    /// Accepts commands again, after [`go_down`](Self::go_down).
    pub fn come_up(&self) {
        self.thaw();
    }

    /// Makes commands wait, as if the server process were stopped. They run in order when the node is thawed.
    pub fn freeze(&self) {
        self.inner.faults.mode.send_replace(Mode::Frozen);
    }

    /// Runs the waiting commands and continues, after [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        let mut backlog = self.inner.faults.backlog();
        self.inner.faults.mode.send_replace(Mode::Up);
        self.inner.store().listeners.set_deaf(false);
        for queued in backlog.drain(..) {
            self.inner.execute(queued);
        }
    }

    /// Loses every key, the counters and the memory of having voted, like a server that restarts without persistence.
    pub fn forget(&self) {
        let mut store = self.inner.store();
        store.data = Data::default();
        store.data.markers.restart("");
    }

    /// The keys that are held right now, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let now = self.inner.now().moment;
        let store = self.inner.store();
        let held = store
            .data
            .entries
            .iter()
            .filter(|(_, entry)| entry.expires > now);
        let mut keys: Vec<String> = held.map(|(key, _)| key.as_str().to_owned()).collect();
        keys.sort_unstable();
        keys
    }
}

#[cfg(all(feature = "test-util", tower_redlock_tests))]
impl MemoryNode {
    /// The secret that holds `key` now. The key includes its namespace.
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<Vec<u8>> {
        let now = self.inner.now().moment;
        self.inner
            .store()
            .data
            .entries
            .iter()
            .find(|(name, entry)| name.as_str() == key && entry.expires > now)
            .map(|(_, entry)| entry.token.expose().to_vec())
    }

    /// The present data, like the file that a server saves. See [`restore`](Self::restore).
    #[must_use]
    pub fn snapshot(&self) -> MemorySnapshot {
        MemorySnapshot(Arc::new(self.inner.store().data.clone()))
    }

    /// Replaces all data by `snapshot`, like a server that restarts from its file. Locks that have expired since then
    /// are gone. The node does not vote until it is promoted.
    pub fn restore(&self, snapshot: &MemorySnapshot) {
        use std::sync::atomic::{AtomicU64, Ordering};

        static RESTORED: AtomicU64 = AtomicU64::new(0);

        // Give each quarantine a name of its own.
        let id = format!("restored:{}", RESTORED.fetch_add(1, Ordering::Relaxed));
        let mut store = self.inner.store();
        store.data.clone_from(&snapshot.0);
        store.data.markers.restart(&id);
    }

    /// The number of commands that have run so far.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.inner.store().commands
    }

    /// The number of subscriptions to releases.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.inner.store().listeners.len()
    }

    /// Stops announcing releases, as if the right to subscribe were missing.
    pub fn fall_silent(&self) {
        self.inner.store().listeners.set_deaf(true);
    }

    /// Announces releases again, after [`fall_silent`](Self::fall_silent).
    pub fn speak_up(&self) {
        self.inner.store().listeners.set_deaf(false);
    }
}

impl Inner {
    fn now(&self) -> Now {
        let system = || Arc::new(SystemClock::new()) as Arc<dyn Clock>;
        Now::read(&**self.clock.get_or_init(system))
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // Ignore poison, because a panic in one of the store's short methods leaves it whole.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn execute<T>(&self, command: impl FnOnce(&mut Store, Now) -> T) -> T {
        let mut store = self.store();
        // Read the clock under the mutex, so that time never goes back from one command to the next.
        let now = self.now();
        command(&mut store, now)
    }
}

impl Node for MemoryNode {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn start(&self, context: NodeContext) {
        // Keep the first manager's clock, because entries of two clocks could not be compared.
        let _ = self.inner.clock.set(context.clock);
    }

    fn state(&self) -> NodeState {
        #[cfg(feature = "test-util")]
        return self.inner.faults.state();
        #[cfg(not(feature = "test-util"))]
        return NodeState::Up;
    }

    fn ready(&self) -> NodeFuture<Result<(), NodeError>> {
        #[cfg(feature = "test-util")]
        return self.inner.faults.until_up();
        #[cfg(not(feature = "test-util"))]
        return Box::pin(std::future::ready(Ok(())));
    }

    fn acquire(&self, request: AcquireRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        self.run(move |store, now| store.acquire(&request, now))
    }

    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies> {
        self.run(move |store, now| {
            let replies = requests.iter();
            let replies = replies.map(|request| store.extend(request, now.moment));
            Ok(replies.collect())
        })
    }

    fn release(&self, request: ReleaseRequest) -> NodeFuture<Result<ReleaseReply, NodeError>> {
        self.run(move |store, now| Ok(store.release(&request, now.moment)))
    }

    fn raise(&self, request: RaiseRequest) -> NodeFuture<Result<RaiseReply, NodeError>> {
        self.run(move |store, now| store.raise(&request, now.moment))
    }

    #[cfg(feature = "idempotency")]
    fn recall(&self, request: RecallRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        self.run(move |store, now| store.recall(&request, now))
    }

    #[cfg(feature = "idempotency")]
    fn complete(&self, request: CompleteRequest) -> NodeFuture<Result<CompleteReply, NodeError>> {
        self.run(move |store, now| store.complete(&request, now))
    }

    fn check_in(&self, request: CheckInRequest) -> NodeFuture<Result<CheckInReply, NodeError>> {
        self.run_apart(move |store, _| store.check_in(&request))
    }

    fn promote(&self, request: PromoteRequest) -> NodeFuture<Result<bool, NodeError>> {
        self.run_apart(move |store, _| store.promote(&request))
    }

    fn holders(&self, keys: NodeKeys) -> NodeFuture<Result<Vec<KeyReply>, NodeError>> {
        self.run_apart(move |store, now| Ok(store.holders(&keys, now)))
    }

    fn scan(&self, request: ScanRequest) -> NodeFuture<Result<ScanReply, NodeError>> {
        self.run_apart(move |store, now| Ok(store.scan(&request, now.moment)))
    }

    fn take_over(
        &self,
        request: TakeOverRequest,
    ) -> NodeFuture<Result<Option<Duration>, NodeError>> {
        self.run(move |store, now| Ok(store.take_over(&request, now.moment)))
    }

    /// Does nothing: a memory node has no connection, and other managers may share it.
    fn close(&self) -> NodeFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        Some(Arc::new(self.clone()))
    }
}

impl Notifier for MemoryNode {
    fn subscribe(&self, key: &NodeKey, sender: NoticeSender) -> Subscription {
        let id = self.inner.store().listeners.add(key, sender);
        let (inner, key) = (Arc::clone(&self.inner), key.clone());
        Subscription::new(move || inner.store().listeners.remove(&key, id))
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode")
            .field("name", &self.inner.name)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
