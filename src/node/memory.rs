//! [`MemoryNode`]: a node inside the process, for development, tests and single-process services.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

#[cfg(feature = "test-util")]
use super::NodeErrorKind;
use super::{
    AcquireReply, AcquireRequest, ExtendReplies, ExtendReply, ExtendRequest, Holder, Node,
    NodeContext, NodeError, NodeFuture, NodeState, ReleaseReply, ReleaseRequest,
};
use crate::clock::{Clock, SystemClock};
use crate::moment::Moment;
use crate::namespace::NodeKey;
use crate::token::OwnerToken;

/// A node that keeps its locks in the memory of this process.
///
/// It behaves like a Redis node in everything the lock protocol can see: expiry, compare-and-delete, release
/// notices. Clones share one state, so several managers in one process can share nodes. Nothing is shared
/// between processes: use it for development, for tests, and where one process is all there is.
///
/// With the feature `test-util` it can be made to fail in the ways servers fail: see
/// `go_down`, `freeze` and `forget`.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_redlock::{LockManager, node::memory::MemoryNode};
///
/// let nodes: Vec<_> = (0..5).map(|n| MemoryNode::new(format!("node-{n}"))).collect();
/// let locks = LockManager::builder().nodes(nodes).connect().await?;
/// let guard = locks.try_acquire("order:42").await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryNode {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    clock: OnceLock<Arc<dyn Clock>>,
    store: Mutex<Store>,
    mode: watch::Sender<Mode>,
    commands: AtomicU64,
    // What stands in the sockets of a frozen node: it runs when the node is thawed, wanted or not.
    #[cfg(feature = "test-util")]
    backlog: Mutex<Vec<Queued>>,
}

/// A command that waits in the socket of a frozen node.
#[cfg(feature = "test-util")]
type Queued = Box<dyn FnOnce(&Shared) + Send>;

/// What becomes of a command.
#[cfg(feature = "test-util")]
enum Fate<C, T> {
    Now(C),
    Ran(T),
}

/// How the node behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Up,
    #[cfg(feature = "test-util")]
    Down,
    #[cfg(feature = "test-util")]
    Frozen,
}

impl MemoryNode {
    /// An empty node called `name`.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            shared: Arc::new(Shared {
                name: name.into(),
                clock: OnceLock::new(),
                store: Mutex::new(Store::default()),
                mode: watch::Sender::new(Mode::Up),
                commands: AtomicU64::new(0),
                #[cfg(feature = "test-util")]
                backlog: Mutex::default(),
            }),
        }
    }

    /// Runs `command` as the server would: not at all while down, later while frozen.
    fn run<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Store, Moment) -> T + Send + 'static,
    ) -> NodeFuture<Result<T, NodeError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            #[cfg(feature = "test-util")]
            let command = match shared.fate(command).await? {
                Fate::Now(command) => command,
                Fate::Ran(answer) => return Ok(answer),
            };
            Ok(shared.execute(command))
        })
    }
}

impl Shared {
    fn now(&self) -> Moment {
        self.clock
            .get_or_init(|| Arc::new(SystemClock::new()))
            .now()
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // A panic inside the store's short methods leaves it whole, so poison means nothing here.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn execute<T>(&self, command: impl FnOnce(&mut Store, Moment) -> T) -> T {
        self.commands.fetch_add(1, Ordering::Relaxed);
        let now = self.now();
        command(&mut self.store(), now)
    }
}

impl Node for MemoryNode {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn start(&self, context: NodeContext) {
        // The first manager's clock stays: entries of two clocks could not be compared.
        let _ = self.shared.clock.set(context.clock);
    }

    fn state(&self) -> NodeState {
        match *self.shared.mode.borrow() {
            Mode::Up => NodeState::Up,
            #[cfg(feature = "test-util")]
            Mode::Down => NodeState::Down(NodeError::new(
                NodeErrorKind::Unavailable,
                "the node is down",
            )),
            #[cfg(feature = "test-util")]
            Mode::Frozen => NodeState::Up,
        }
    }

    fn ready(&self) -> NodeFuture<Result<(), NodeError>> {
        let mut mode = self.shared.mode.subscribe();
        Box::pin(async move {
            // The sender cannot go while a node exists that could be waited for.
            let _ = mode.wait_for(|mode| *mode == Mode::Up).await;
            Ok(())
        })
    }

    fn acquire(&self, request: AcquireRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        self.run(move |store, now| store.acquire(&request, now))
    }

    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies> {
        self.run(move |store, now| {
            requests
                .iter()
                .map(|request| Ok(store.extend(request, now)))
                .collect()
        })
    }

    fn release(&self, request: ReleaseRequest) -> NodeFuture<Result<ReleaseReply, NodeError>> {
        self.run(move |store, now| store.release(&request, now))
    }

    /// Does nothing: a memory node has no connection, and other managers may share it.
    fn close(&self) -> NodeFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode")
            .field("name", &self.shared.name)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// The keys of one node.
#[derive(Default)]
struct Store {
    entries: HashMap<NodeKey, Entry>,
    // Sweep when the map has grown to this.
    sweep_at: usize,
    #[cfg(feature = "test-util")]
    listeners: Vec<tokio::sync::mpsc::UnboundedSender<String>>,
}

struct Entry {
    token: OwnerToken,
    expires: Moment,
}

impl Entry {
    fn holder(&self, now: Moment) -> Holder {
        let mut hasher = DefaultHasher::new();
        self.token.hash(&mut hasher);
        Holder::new(hasher.finish(), Some(self.expires.since(now)))
    }
}

impl Store {
    fn live(&mut self, key: &NodeKey, now: Moment) -> Option<&mut Entry> {
        self.entries
            .get_mut(key)
            .filter(|entry| entry.expires > now)
    }

    fn set(&mut self, key: NodeKey, token: OwnerToken, ttl: Duration, now: Moment) {
        if self.entries.len() >= self.sweep_at.max(64) {
            self.entries.retain(|_, entry| entry.expires > now);
            // Twice what is live: each sweep is paid for by as many inserts.
            self.sweep_at = self.entries.len().saturating_mul(2);
        }
        let expires = now + ttl;
        self.entries.insert(key, Entry { token, expires });
    }

    fn acquire(&mut self, request: &AcquireRequest, now: Moment) -> AcquireReply {
        if let Some(entry) = self.live(&request.key, now)
            && entry.token != request.token
        {
            return AcquireReply::Held(entry.holder(now));
        }
        self.set(request.key.clone(), request.token, request.ttl, now);
        AcquireReply::Granted
    }

    fn extend(&mut self, request: &ExtendRequest, now: Moment) -> ExtendReply {
        match self.live(&request.key, now) {
            Some(entry) if entry.token == request.token => {
                entry.expires = now + request.ttl;
                ExtendReply::Extended
            }
            Some(entry) => ExtendReply::Held(entry.holder(now)),
            None if request.refill => {
                self.set(request.key.clone(), request.token, request.ttl, now);
                ExtendReply::Refilled
            }
            None => ExtendReply::Absent,
        }
    }

    fn release(&mut self, request: &ReleaseRequest, now: Moment) -> ReleaseReply {
        let ours = self
            .live(&request.key, now)
            .is_some_and(|entry| entry.token == request.token);
        if !ours {
            return ReleaseReply::NotOwner;
        }
        self.entries.remove(&request.key);
        ReleaseReply::Released {
            listeners: self.announce(&request.key),
        }
    }

    #[cfg(feature = "test-util")]
    fn announce(&mut self, key: &NodeKey) -> u32 {
        self.listeners
            .retain(|listener| listener.send(key.channel()).is_ok());
        u32::try_from(self.listeners.len()).unwrap_or(u32::MAX)
    }

    #[cfg(not(feature = "test-util"))]
    #[expect(clippy::unused_self, reason = "the same signature as with test-util")]
    fn announce(&self, _key: &NodeKey) -> u32 {
        0
    }
}

#[cfg(feature = "test-util")]
impl Shared {
    fn backlog(&self) -> MutexGuard<'_, Vec<Queued>> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `command` runs now, or ran when the node was thawed, or not at all.
    async fn fate<C, T>(&self, command: C) -> Result<Fate<C, T>, NodeError>
    where
        C: FnOnce(&mut Store, Moment) -> T + Send + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        {
            // Modes change under this mutex, so no command slips in after a thaw has emptied the backlog.
            let mut backlog = self.backlog();
            let mode = *self.mode.borrow();
            match mode {
                Mode::Up => return Ok(Fate::Now(command)),
                Mode::Down => {
                    let kind = NodeErrorKind::Unavailable;
                    return Err(NodeError::new(kind, "the node is down"));
                }
                Mode::Frozen => backlog.push(Box::new(move |shared: &Self| {
                    // Nobody may wait for the answer any more.
                    let _ = sender.send(shared.execute(command));
                })),
            }
        }
        let broken = |_| NodeError::new(NodeErrorKind::Interrupted, "the connection broke");
        receiver.await.map(Fate::Ran).map_err(broken)
    }
}

/// Fault hooks and a look inside.
#[cfg(feature = "test-util")]
impl MemoryNode {
    /// From now on commands fail at once, as if nothing listened on the port. The keys stay.
    pub fn go_down(&self) {
        let mut backlog = self.shared.backlog();
        self.shared.mode.send_replace(Mode::Down);
        // A frozen server that dies takes the commands in its sockets with it.
        backlog.clear();
    }

    /// Takes commands again, after [`go_down`](Self::go_down).
    pub fn come_up(&self) {
        self.shared.mode.send_replace(Mode::Up);
    }

    /// From now on commands wait, as if the server process were stopped. They run in their order when it is
    /// thawed, also those whose futures were dropped meanwhile: they stand in the server's socket.
    pub fn freeze(&self) {
        self.shared.mode.send_replace(Mode::Frozen);
    }

    /// Runs again, after [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        let mut backlog = self.shared.backlog();
        self.shared.mode.send_replace(Mode::Up);
        for queued in backlog.drain(..) {
            queued(&self.shared);
        }
    }

    /// Loses every key, as a restart without persistence does.
    pub fn forget(&self) {
        self.shared.store().entries.clear();
    }

    /// The secret that holds `key` (as the node knows it, with its namespace) right now.
    #[must_use]
    pub fn holder(&self, key: &str) -> Option<Vec<u8>> {
        let now = self.shared.now();
        self.shared
            .store()
            .entries
            .iter()
            .find(|(place, entry)| place.as_str() == key && entry.expires > now)
            .map(|(_, entry)| entry.token.expose().to_vec())
    }

    /// The keys that are held right now, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let now = self.shared.now();
        let mut keys: Vec<String> = self
            .shared
            .store()
            .entries
            .iter()
            .filter(|(_, entry)| entry.expires > now)
            .map(|(key, _)| key.as_str().to_owned())
            .collect();
        keys.sort_unstable();
        keys
    }

    /// How many commands have run so far.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.shared.commands.load(Ordering::Relaxed)
    }

    /// The channels of the releases from now on, as a subscriber to all of them would see them.
    #[must_use]
    pub fn releases(&self) -> Releases {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        self.shared.store().listeners.push(sender);
        Releases { receiver }
    }
}

/// A stream of release notices. Made by [`MemoryNode::releases`].
#[cfg(feature = "test-util")]
#[derive(Debug)]
pub struct Releases {
    receiver: tokio::sync::mpsc::UnboundedReceiver<String>,
}

#[cfg(feature = "test-util")]
impl Releases {
    /// The channel of the next release.
    ///
    /// # Cancel safety
    ///
    /// No notice is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<String> {
        self.receiver.recv().await
    }
}
