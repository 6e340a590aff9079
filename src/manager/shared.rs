use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[cfg(feature = "idempotency")]
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::manager::lease::Registry;
use crate::manager::lease::held::Queue;
use crate::manager::lease::open::OpenLeases;
use crate::manager::ledger::Ledger;
use crate::manager::nodes::counting::Count;
use crate::manager::nodes::repeats::Repeats;
use crate::manager::nodes::voting::shared_roll::SharedRoll;
use crate::manager::nodes::{CommonTerms, Connecting, NodeSet};
use crate::manager::queue::fifo::Bounds;
use crate::manager::queue::{Cooldown, Waiters};
use crate::manager::tasks::{Signal, TaskTracker};
#[cfg(feature = "idempotency")]
use crate::namespace::Namespace;
use crate::namespace::{NodeKey, NodeKeys};
use crate::node::{ClusterConfig, Node};
use crate::protocol::backoff::give_way;
use crate::settings::checked::Checked;
use crate::settings::constants::HandOff;
#[cfg(feature = "idempotency")]
use crate::settings::constants::usual;

/// The parts that the handles, guards and tasks of one manager share. Each group of nodes has one `Shared`.
pub(crate) struct Shared {
    pub(crate) set: Arc<NodeSet>,
    // The nodes of all groups. They are monitored for as long as one group has a lock, because a node of any group may
    // turn out to serve processes with another list, and then no group may grant or extend locks.
    pub(crate) sets: Arc<[Arc<NodeSet>]>,
    pub(crate) common: Arc<Common>,
    #[cfg(feature = "idempotency")]
    pub(crate) runs: Runs,
    pub(crate) cooldown: Cooldown,
    pub(crate) open_leases: OpenLeases,
    pub(crate) registry: Arc<Registry>,
    pub(crate) next_id: AtomicU64,
}

pub(crate) struct Common {
    pub(crate) hand_off: HandOff,
    // How long nodes keep fencing counters, unless the ttl of a lock is longer. `None` if fencing is off.
    pub(crate) fencing: Option<Duration>,
    pub(crate) queue: Arc<Queue>,
    // The waiting callers, for snapshots and for the limit of callers that wait for other processes.
    pub(crate) waiters: Waiters,
    pub(crate) tasks: Arc<TaskTracker>,
    // Counts the owner tokens that may be on nodes. A shutdown waits until all of them are released.
    pub(crate) ledger: Arc<Ledger>,
    // Given once the holders of locks are asked to finish.
    pub(crate) drain: Arc<Signal>,
    #[cfg(feature = "idempotency")]
    pub(crate) room_for_records: RoomForRecords,
}

#[cfg(feature = "idempotency")]
pub(crate) struct Runs {
    // The namespace of requests with idempotency keys.
    pub(crate) namespace: Namespace,
    // How long nodes keep the fencing counters of runs, at least. Runs have fencing tokens even if fencing is off.
    pub(crate) counter_ttl: Duration,
    // The longest `max_hold` plus ttl of all runs that have begun so far, in milliseconds.
    pub(crate) longest: AtomicU64,
}

fn set_of(
    nodes: &[Arc<dyn Node>],
    voting: SharedRoll,
    clock: &Arc<dyn Clock>,
    options: &Checked,
    config: Arc<ClusterConfig>,
) -> NodeSet {
    NodeSet {
        nodes: nodes.to_vec(),
        clock: Arc::clone(clock),
        namespace: options.namespace.clone(),
        instance: options.instance.clone(),
        observes: options.observes,
        config,
        terms: CommonTerms {
            quorum: options.terms.quorum,
            drift: options.terms.drift,
            max_ttl: options.max_ttl,
            max_clock_skew: options.max_clock_skew.unwrap_or_default(),
        },
        node_timeout: options.node_timeout,
        connecting: Connecting {
            began: Instant::now(),
            timeout: options.connect_timeout,
        },
        voting: Arc::new(voting),
        #[cfg(tower_redlock_tests)]
        fences: crate::manager::nodes::Fences::default(),
        repeats: Repeats::default(),
    }
}

impl Shared {
    pub(crate) fn groups(
        nodes: &[Arc<dyn Node>],
        clock: &Arc<dyn Clock>,
        options: &Checked,
        tasks: TaskTracker,
    ) -> Arc<[Arc<Self>]> {
        let common = Arc::new(Common {
            hand_off: options.hand_off,
            fencing: options.fencing,
            queue: Arc::new(Queue::new(Bounds {
                per_key: options.max_waiters_per_key,
                total: options.max_waiters,
            })),
            waiters: Waiters::default(),
            tasks: Arc::new(tasks),
            ledger: Ledger::new(Arc::clone(clock)),
            drain: Arc::default(),
            #[cfg(feature = "idempotency")]
            room_for_records: RoomForRecords {
                under_way: Arc::new(Semaphore::new(RoomForRecords::UNDER_WAY)),
                kept: Arc::new(Semaphore::new(RoomForRecords::KEPT)),
            },
        });
        let names = nodes.iter().map(|node| node.name().to_owned());
        let size = nodes.len() / options.groups;
        let mut voting = SharedRoll::new(
            names.collect(),
            size,
            options.terms.quorum.needed(),
            options.node_timeout,
            options.max_clock_skew.is_some(),
        );
        let sets = (1..).zip(nodes.chunks(size)).map(|(group, own)| {
            let next = voting.next_group();
            let voting = std::mem::replace(&mut voting, next);
            let config = options.config(nodes, group);
            Arc::new(set_of(own, voting, clock, options, config))
        });
        let sets: Arc<[Arc<NodeSet>]> = sets.collect();
        let group = |set| Arc::new(Self::new(set, &sets, options, &common));
        sets.iter().map(group).collect()
    }

    #[cfg_attr(
        not(feature = "idempotency"),
        expect(unused_variables, reason = "only runs have settings of their own")
    )]
    fn new(
        set: &Arc<NodeSet>,
        sets: &Arc<[Arc<NodeSet>]>,
        options: &Checked,
        common: &Arc<Common>,
    ) -> Self {
        Self {
            set: Arc::clone(set),
            sets: Arc::clone(sets),
            common: Arc::clone(common),
            #[cfg(feature = "idempotency")]
            runs: Runs {
                namespace: options.namespace.idempotency(),
                counter_ttl: options.fencing.unwrap_or_else(|| usual(options.terms.ttl)),
                longest: AtomicU64::new(0),
            },
            cooldown: Cooldown::default(),
            open_leases: OpenLeases::default(),
            registry: Arc::default(),
            next_id: AtomicU64::new(0),
        }
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets other processes go first, after a release of `key` that notified `others` of them.
    pub(crate) fn give_way(&self, key: &NodeKey, others: u32, round_trip: Duration) {
        let pause = match others {
            0 => Duration::ZERO,
            others => give_way(others, round_trip),
        };
        let now = self.set.clock.now();
        self.cooldown.start(key.announced().shared(), now, pause);
    }

    pub(crate) fn quorum(&self) -> Count {
        self.set
            .count()
            .of_manager(self.registry.closing.is_given())
    }

    pub(crate) fn grant_no_more(&self) {
        self.common.ledger.close();
        self.registry.closing.give();
        self.common.queue.close();
    }

    /// Runs `job`, which releases `keys`. If there is no room for it, the keys end with their ttl.
    pub(crate) fn spawn_release(
        &self,
        keys: &NodeKeys,
        background: bool,
        job: impl Future<Output = ()> + Send + 'static,
    ) {
        if !self.common.tasks.spawn(background, job) {
            let key = keys.first().show();
            self.set
                .left_to_expire(&key, "too many releases are under way");
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.registry.stop();
    }
}

/// How many bytes of records a manager handles at the same time.
#[cfg(feature = "idempotency")]
pub(crate) struct RoomForRecords {
    /// For records under way, counted once for each node.
    pub(crate) under_way: Arc<Semaphore>,
    /// For records that are kept for nodes that lack them.
    pub(crate) kept: Arc<Semaphore>,
}

#[cfg(feature = "idempotency")]
impl RoomForRecords {
    /// A network of 1 Gbit/s carries this in 70 ms. Commands for locks wait behind records, so this time must be
    /// shorter than the default node time-out.
    pub(crate) const UNDER_WAY: usize = 8 << 20;
    pub(crate) const KEPT: usize = 64 << 20;
}
