//! [`MemoryNode`]: a node inside the process, for development, tests and single-process services.

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

/// A node that keeps its locks in the memory of this process. It behaves like a Redis node in everything that the lock
/// protocol can see. Clones share one state, so several managers in one process can share nodes. With the feature
/// `test-util` it can be given to a manager, and made to fail: `go_down`, `freeze` and `forget`.
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
    /// An empty node called `name`.
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

    /// Runs `command` on the store when it is polled: with faults, also later or not at all.
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

    /// The same, not counted among the commands for locks.
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

/// Fault hooks and a look inside.
#[cfg(feature = "test-util")]
impl MemoryNode {
    /// From now on commands fail at once, as if nothing listened on the port. The keys stay.
    pub fn go_down(&self) {
        let mut backlog = self.inner.faults.backlog();
        self.inner.faults.mode.send_replace(Mode::Down);
        self.inner.store().listeners.set_deaf(true);
        // A frozen server that dies takes the commands in its sockets with it.
        backlog.clear();
    }

    /// Takes commands again, after [`go_down`](Self::go_down).
    pub fn come_up(&self) {
        self.inner.faults.mode.send_replace(Mode::Up);
        self.inner.store().listeners.set_deaf(false);
    }

    /// From now on commands wait, as if the server process were stopped, and run in their order when it is thawed.
    pub fn freeze(&self) {
        self.inner.faults.mode.send_replace(Mode::Frozen);
    }

    /// Runs again, after [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        let mut backlog = self.inner.faults.backlog();
        self.inner.faults.mode.send_replace(Mode::Up);
        for queued in backlog.drain(..) {
            self.inner.execute(queued);
        }
    }

    /// Loses every key, the counters and the memory of having voted, as a restart without persistence does.
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

/// More of both, for our own tests.
#[cfg(all(feature = "test-util", tower_redlock_tests))]
impl MemoryNode {
    /// The secret that holds `key` (as the node knows it, with its namespace) right now.
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

    /// Its data right now, for a later [`restore`](Self::restore), as a server saves it to a file.
    #[must_use]
    pub fn snapshot(&self) -> MemorySnapshot {
        MemorySnapshot(Arc::new(self.inner.store().data.clone()))
    }

    /// Restores that data and loses all later data, as a server that restarts from its file. What has expired meanwhile
    /// is gone. It does not vote before it was promoted.
    pub fn restore(&self, snapshot: &MemorySnapshot) {
        use std::sync::atomic::{AtomicU64, Ordering};

        static RESTORED: AtomicU64 = AtomicU64::new(0);

        // No two quarantines have one name.
        let id = format!("restored:{}", RESTORED.fetch_add(1, Ordering::Relaxed));
        let mut store = self.inner.store();
        store.data.clone_from(&snapshot.0);
        store.data.markers.restart(&id);
    }

    /// How many commands have run so far.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.inner.store().commands
    }

    /// How many subscriptions to releases there are.
    #[must_use]
    pub fn subscriptions(&self) -> usize {
        self.inner.store().listeners.len()
    }

    /// From now on releases are not announced, as if the right to subscribe were missing or the connection lost; the
    /// node serves all the same.
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
        // A panic inside the store's short methods leaves it whole, so poison means nothing here.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn execute<T>(&self, command: impl FnOnce(&mut Store, Now) -> T) -> T {
        let mut store = self.store();
        // Under the mutex, so that times go up from command to command.
        let now = self.now();
        command(&mut store, now)
    }
}

impl Node for MemoryNode {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn start(&self, context: NodeContext) {
        // The first manager's clock stays: entries of two clocks could not be compared.
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
        return self.inner.faults.well();
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
