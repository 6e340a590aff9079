//! One manager behind gates, what else there is beside it, and what may be left of either.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower_redlock::clock::TokioClock;
use tower_redlock::key::LockKeys;
use tower_redlock::node::MemoryNode;
use tower_redlock::snapshot::VotingStatus;
use tower_redlock::{LockKey, LockManager, Settings};

use super::gates::Gates;
use super::wrapper::Wrapped;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Far longer than all that is to be gone before it is over.
pub(crate) const TTL: Duration = Duration::from_secs(30);
pub(crate) const NODES: usize = 3;
/// The lock that most operations are about.
pub(crate) const KEY: &str = "order:1";
/// The locks of those that are about several.
pub(crate) const ALL: [&str; 3] = ["order:1", "order:2", "order:3"];
/// The idempotency key of the runs.
pub(crate) const RUN: &str = "invoice:1";

/// One manager behind gates, and what else there is.
pub(crate) struct Scene {
    pub(crate) nodes: Vec<MemoryNode>,
    pub(crate) gates: Gates,
    /// The manager whose operations are dropped.
    pub(crate) locks: LockManager,
    // Locks that others hold, and the like, until the operation has ended.
    kept: RefCell<Vec<Box<dyn Any>>>,
    // Other processes.
    others: RefCell<Vec<LockManager>>,
    // How many tasks all these managers have for good.
    tasks: Cell<usize>,
}

impl Scene {
    pub(crate) fn new() -> Rc<Self> {
        let nodes: Vec<_> = (0..NODES)
            .map(|n| MemoryNode::new(format!("n{n}")))
            .collect();
        let gates = Gates::new();
        let locks = behind(&nodes, &gates).connect_lazy().unwrap();
        Rc::new(Self {
            nodes,
            gates,
            locks,
            kept: RefCell::default(),
            others: RefCell::default(),
            tasks: Cell::new(alive()),
        })
    }

    /// A builder of one more manager behind the gates.
    pub(crate) fn builder(&self) -> Settings {
        behind(&self.nodes, &self.gates)
    }

    /// The manager, once it knows that the nodes vote.
    pub(crate) async fn met(&self) -> LockManager {
        meet(&self.locks).await;
        self.locks.clone()
    }

    /// The same, while another process holds [`KEY`].
    pub(crate) async fn met_beside_a_holder(&self) -> LockManager {
        let (locks, other) = (self.met().await, self.other().await);
        self.keep(other.try_acquire(KEY).await.unwrap());
        locks
    }

    /// A manager behind the same gates whose locks, and list of nodes, are its own.
    pub(crate) fn apart(&self) -> LockManager {
        self.beside_it(self.builder().namespace("apart"))
    }

    /// The manager of another process, which reaches all nodes.
    pub(crate) async fn other(&self) -> LockManager {
        let nodes = self.nodes.iter().cloned();
        let locks = self.beside_it(settings(LockManager::builder().nodes(nodes)));
        meet(&locks).await;
        locks
    }

    /// One more manager.
    fn beside_it(&self, builder: Settings) -> LockManager {
        let before = alive();
        let locks = builder.connect_lazy().unwrap();
        self.tasks.set(self.tasks.get() + alive() - before);
        self.others.borrow_mut().push(locks.clone());
        locks
    }

    /// Keeps `it` until the operation has ended.
    pub(crate) fn keep(&self, it: impl Any) {
        self.kept.borrow_mut().push(Box::new(it));
    }

    /// Runs `work` beside the operation, until that has ended.
    pub(crate) fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.keep(Aborted(tokio::spawn(work)));
    }

    /// Drops all that was kept.
    pub(crate) fn let_go(&self) {
        // What is dropped may look at the scene.
        let kept = self.kept.take();
        drop(kept);
    }

    /// How many callers of the manager wait, and how many subscriptions the nodes have.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        let subscriptions = self.nodes.iter().map(MemoryNode::subscriptions);
        (self.locks.snapshot().waiting, subscriptions.sum())
    }

    /// What is left of the manager's callers and of its work.
    pub(crate) fn left(&self) -> Option<String> {
        let keys: Vec<_> = self.nodes.iter().flat_map(MemoryNode::keys).collect();
        let snapshot = self.locks.snapshot();
        let counts = [
            snapshot.held,
            snapshot.keys,
            snapshot.waiting,
            self.waiting().1,
        ];
        let (queues, tasks, usual) = (snapshot.queues, alive(), self.tasks.get());
        let is_clean = keys.is_empty() && counts == [0; 4] && queues.is_empty() && tasks <= usual;
        (!is_clean).then(|| {
            format!(
                "{keys:?}; held, in use, waiting and subscribed {counts:?}; {queues:?}; tasks {tasks} instead of {usual}"
            )
        })
    }

    /// What keeps another process, which has just begun, from having all the locks at once.
    pub(crate) async fn in_the_way(&self) -> Option<String> {
        let next = self.other().await;
        let began = Instant::now();
        let all = LockKeys::new(ALL).unwrap();
        if let Err(error) = next.try_acquire(all).await {
            return Some(format!("the next process is refused: {error}"));
        }
        let run = next.begin_idempotent(RUN, TTL, Duration::ZERO).await;
        if let Err(error) = run {
            return Some(format!("the next run is refused: {error}"));
        }
        let took = began.elapsed();
        (!took.is_zero()).then(|| format!("the next process has waited for {took:?}"))
    }

    /// Shuts the manager down; what it says that it left.
    pub(crate) async fn shut_down(&self) -> Option<String> {
        let report = self.locks.shutdown(SECOND).await;
        let is_clean = report.is_all_released() && report.lost == 0;
        (!is_clean).then(|| format!("{report:?}"))
    }
}

/// Tasks that are alive on this runtime.
pub(crate) fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn behind(nodes: &[MemoryNode], gates: &Gates) -> Settings {
    let nodes = nodes.iter().enumerate();
    let nodes = nodes.map(|(index, node)| Wrapped(gates.before(node, index)));
    settings(LockManager::builder().nodes(nodes))
}

fn settings(builder: Settings) -> Settings {
    builder
        .clock(TokioClock::new())
        .ttl(TTL)
        .max_ttl(TTL)
        .node_timeout(50 * MS)
        .max_wait(300 * MS)
        .connect_timeout(200 * MS)
}

/// Lets a manager find that its nodes vote, without any time passing.
pub(crate) async fn meet(locks: &LockManager) {
    for _ in 0..1_000 {
        let nodes = locks.snapshot().nodes;
        if nodes.iter().all(|node| node.voting == VotingStatus::Voting) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("they do not vote: {:?}", locks.snapshot().nodes);
}

/// Waits until nothing is `left`, for `limit` at most; says what is.
pub(crate) async fn within(
    limit: Duration,
    left: impl Fn() -> Option<String>,
) -> Result<(), String> {
    // First without any time passing.
    for _ in 0..8 {
        if left().is_none() {
            return Ok(());
        }
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }
    let end = Instant::now() + limit;
    let mut pause = 5 * MS;
    while let Some(left) = left() {
        if Instant::now() >= end {
            return Err(format!("after {limit:?}: {left}"));
        }
        sleep(pause).await;
        pause = (pause * 2).min(SECOND);
    }
    Ok(())
}

/// One lock key.
pub(crate) fn key(name: &str) -> LockKey {
    LockKey::new(name).unwrap()
}

/// A task that ends when this is dropped.
struct Aborted(JoinHandle<()>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}
