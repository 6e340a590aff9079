//! The node itself: the port over the [`Store`].

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::clock::{Clock, SystemClock};
use crate::namespace::NodeKey;
#[cfg(feature = "test-util")]
use crate::node::memory::faults::Faults;
use crate::node::memory::key_map::Now;
use crate::node::memory::store::Store;
use crate::node::{
    AcquireReply, AcquireRequest, CheckInReply, CheckInRequest, ExtendReplies, ExtendRequest, Node,
    NodeContext, NodeError, NodeFuture, NodeState, NoticeSender, Notifier, PromoteRequest,
    RaiseReply, RaiseRequest, ReleaseReply, ReleaseRequest, Subscription,
};
#[cfg(feature = "idempotency")]
use crate::node::{CompleteReply, CompleteRequest, RecallRequest};

/// A node that keeps its locks in the memory of this process. It behaves like a Redis node in everything that the lock
/// protocol can see. Clones share one state, so several managers in one process can share nodes. With the feature
/// `test-util` it can be given to a manager, and made to fail: `go_down`, `freeze`, `forget` and `restore`.
///
/// # Examples
///
/// ```
/// # #[cfg(not(feature = "test-util"))] fn main() {}
/// # #[cfg(feature = "test-util")]
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
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    name: String,
    clock: OnceLock<Arc<dyn Clock>>,
    store: Mutex<Store>,
    #[cfg(feature = "test-util")]
    pub(super) faults: Faults,
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
                #[cfg(feature = "test-util")]
                faults: Faults::default(),
            }),
        }
    }

    /// Runs `command` on the store when it is polled: with faults, also later or not at all.
    fn run<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Store, Now) -> T + Send + 'static,
    ) -> NodeFuture<Result<T, NodeError>> {
        self.try_run(move |store, now| Ok(command(store, now)))
    }

    fn try_run<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Store, Now) -> Result<T, NodeError> + Send + 'static,
    ) -> NodeFuture<Result<T, NodeError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            #[cfg(feature = "test-util")]
            return shared
                .faults
                .run(command, |command| shared.execute(command))
                .await?;
            #[cfg(not(feature = "test-util"))]
            return shared.execute(command);
        })
    }
}

impl Shared {
    pub(super) fn now(&self) -> Now {
        let system = || Arc::new(SystemClock::new()) as Arc<dyn Clock>;
        Now::read(&**self.clock.get_or_init(system))
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        // A panic inside the store's short methods leaves it whole, so poison means nothing here.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn execute<T>(&self, command: impl FnOnce(&mut Store, Now) -> T) -> T {
        let mut store = self.store();
        // Under the mutex, so that times go up from command to command.
        let now = self.now();
        command(&mut store, now)
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
        #[cfg(feature = "test-util")]
        return self.shared.faults.state();
        #[cfg(not(feature = "test-util"))]
        return NodeState::Up;
    }

    fn ready(&self) -> NodeFuture<Result<(), NodeError>> {
        #[cfg(feature = "test-util")]
        return self.shared.faults.well();
        #[cfg(not(feature = "test-util"))]
        return Box::pin(std::future::ready(Ok(())));
    }

    fn acquire(&self, request: AcquireRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        self.try_run(move |store, now| store.acquire(&request, now))
    }

    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies> {
        self.run(move |store, now| {
            store.count_command();
            let requests = requests.iter();
            requests
                .map(|request| store.extend(request, now.moment))
                .collect()
        })
    }

    fn release(&self, request: ReleaseRequest) -> NodeFuture<Result<ReleaseReply, NodeError>> {
        self.run(move |store, now| store.release(&request, now.moment))
    }

    fn raise(&self, request: RaiseRequest) -> NodeFuture<Result<RaiseReply, NodeError>> {
        self.try_run(move |store, now| store.raise(&request, now.moment))
    }

    #[cfg(feature = "idempotency")]
    fn recall(&self, request: RecallRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        self.try_run(move |store, now| store.recall(&request, now))
    }

    #[cfg(feature = "idempotency")]
    fn complete(&self, request: CompleteRequest) -> NodeFuture<Result<CompleteReply, NodeError>> {
        self.try_run(move |store, now| store.complete(&request, now))
    }

    fn check_in(&self, request: CheckInRequest) -> NodeFuture<Result<CheckInReply, NodeError>> {
        self.try_run(move |store, _| store.check_in(&request))
    }

    fn promote(&self, request: PromoteRequest) -> NodeFuture<Result<bool, NodeError>> {
        self.try_run(move |store, _| store.promote(&request))
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
        let id = self.shared.store().listeners.add(key, sender);
        Subscription::new(End {
            shared: Arc::clone(&self.shared),
            key: key.clone(),
            id,
        })
    }
}

/// Ends a subscription when it is dropped.
struct End {
    shared: Arc<Shared>,
    key: NodeKey,
    id: u64,
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.store().listeners.remove(&self.key, self.id);
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
