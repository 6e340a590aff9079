//! [`Scene`]: what all parts of a workload share, and what they note.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use tower_redlock::clock::Clock as _;
use tower_redlock::error::LossReason;
use tower_redlock::node::NodeState;
use tower_redlock::{FencingToken, LockHandle, LockManager};

use super::history::{History, Holder, What};
use super::http::Services;
use super::process::CONNECT_LIMIT;
use crate::plan::{Cut, Plan, Settings};
use crate::seam;
use tower_redlock_simulated::world::{HostId, ProcessId, World};

/// What all parts of a workload share.
pub(super) struct Scene {
    pub(super) world: World,
    pub(super) plan: Plan,
    state: Mutex<State>,
}

/// Why the callers of a process stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Still {
    Paused,
    Blocked,
}

impl Still {
    pub(super) const ALL: [Self; 2] = [Self::Paused, Self::Blocked];
}

#[derive(Default)]
pub(super) struct State {
    pub(super) history: History,
    /// The keys that some process has acquired in the end.
    pub(super) progressed: BTreeSet<u32>,
    /// The locks of holders that may be within their validity.
    pub(super) live: Vec<Live>,
    pub(super) shops: BTreeMap<ProcessId, Shop>,
    /// How far the dates of the processes of each place have been set.
    pub(super) dates: BTreeMap<u32, i64>,
    /// Servers that lost something and do not vote yet.
    pub(super) lost: BTreeMap<u32, Lost>,
    /// The present master of each group.
    pub(super) mains: BTreeMap<u32, HostId>,
    /// The episodes that have begun, of those that lose something.
    pub(super) begun: BTreeSet<usize>,
    /// The episodes that were put off, because more must not be lost, and those of them that have not begun.
    pub(super) put_off: BTreeSet<usize>,
    pub(super) waiting: VecDeque<usize>,
    /// All faults have ended.
    pub(super) is_healed: bool,
    /// Since when clients of calls wait for an answer, and for how long they may, in milliseconds.
    pub(super) asked: BTreeMap<usize, (u64, u64)>,
    /// How many tasks of each call have not ended.
    pub(super) open: BTreeMap<usize, u32>,
    /// The holders of nested calls that have begun to release their locks, and share them with no other.
    pub(super) let_go: BTreeSet<usize>,
    pub(super) still: BTreeSet<(u32, Still)>,
    /// When each lock was last seen on a server.
    pub(super) seen: BTreeMap<String, u64>,
    /// Until when servers may have locks of processes that said, when they were shut down, that they leave some.
    pub(super) left_until: u64,
    runs: u64,
    is_over: bool,
}

impl State {
    /// Forgets the locks that their holders have no more, and notes those that ended by themselves.
    pub(super) fn forget_lost(&mut self, at: u64) {
        let history = &mut self.history;
        self.live.retain(|live| {
            let is_lost = live.handle.is_lost();
            if is_lost && live.handle.lost().now_or_never() == Some(LossReason::Expired) {
                let holder = live.holder;
                history.push(at, What::Expired { holder });
            }
            !is_lost
        });
    }
}

/// What a process that has connected works with.
#[derive(Clone)]
pub(super) struct Shop {
    pub(super) locks: LockManager,
    pub(super) services: Services,
    /// When it was connected, in milliseconds.
    pub(super) since: u64,
}

/// The lock of a holder.
pub(super) struct Live {
    pub(super) holder: usize,
    pub(super) handle: LockHandle,
}

/// A server that lost something.
#[derive(Clone, Debug, Default)]
pub(super) struct Lost {
    /// Its marker when it had lost it: not known before it is up.
    #[expect(
        clippy::option_option,
        reason = "not known, and known to have none, are two"
    )]
    pub(super) marker: Option<Option<String>>,
    /// The marker had no identity since.
    pub(super) was_bare: bool,
    /// It evicts what it loses: so many keys.
    pub(super) evicts: bool,
    pub(super) evicted: usize,
    /// It has happened. Before, it is only foreseen.
    pub(super) is_lost: bool,
    /// Another server has taken its place.
    pub(super) is_replaced: bool,
}

impl Scene {
    pub(super) fn new(world: World, plan: Plan) -> Self {
        let topology = world.topology();
        let mains = (0..topology.groups.len()).map(|group| (group as u32, topology.master(group)));
        let state = State {
            mains: mains.collect(),
            ..State::default()
        };
        Self {
            world,
            plan,
            state: Mutex::new(state),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn settings(&self, process: ProcessId) -> &Settings {
        self.plan.processes[process.place as usize].settings(process.life)
    }

    /// What a process works with, if it has connected.
    pub(super) fn shop(&self, process: ProcessId) -> Option<Shop> {
        self.state().shops.get(&process).cloned()
    }

    /// Notes something.
    pub(super) fn note(&self, what: What) {
        let at = self.world.millis();
        self.state().history.push(at, what);
    }

    /// Notes something, also for people.
    pub(super) fn tell(&self, process: ProcessId, text: impl fmt::Display, what: What) {
        self.world.record(Some(process), text);
        self.note(what);
    }

    /// Within how many milliseconds a client is to be answered that waits so long for a lock.
    pub(super) fn bound(&self, process: ProcessId, call: usize, wait: u64) -> u64 {
        // At first connections are waited for, too, while there is one to wait for.
        let first = self.shop(process).map_or(CONNECT_LIMIT, |shop| {
            let nodes = shop.locks.snapshot().nodes;
            let age = self.world.millis() - shop.since;
            match nodes.iter().any(|node| node.state == NodeState::Connecting) {
                true => CONNECT_LIMIT.saturating_sub(age),
                false => 0,
            }
        });
        let kept = match self.plan.calls[call].cut {
            Cut::Kept(_, span) => span,
            _ => 0,
        };
        let node_timeout = self.settings(process).node_timeout;
        wait + wait / 50 + 6 * node_timeout + 150 + first + kept
    }

    /// The holder of a lock that a client has just been told of.
    fn holder(&self, here: (ProcessId, usize), handle: &LockHandle, kind: Kind) -> Holder {
        let (process, call) = here;
        let now = self.world.millis();
        let lock = handle.lease();
        let clock = seam::clock(&self.world, process);
        let age = clock.now().since(lock.started);
        let age = age.as_millis() as u64;
        let prefix = kind.prefix(&self.settings(process).namespace);
        let slot = handle.slot().map(|slot| format!(":{slot}"));
        let slot = slot.unwrap_or_default();
        // Without those that its scope had before: of these there is another holder.
        let keys = lock.keys.as_slice().iter();
        let keys = keys.map(|key| format!("{prefix}{key}{slot}"));
        Holder {
            process,
            call,
            keys: keys.collect(),
            owner: handle.owner_hash().to_string(),
            fence: handle.fence_of(handle.key()).map(FencingToken::get),
            granted: now,
            // A moment earlier, for it was rounded.
            started: now.saturating_sub(age + age / 100 + 1),
            ttl: lock.ttl.as_millis() as u64,
            is_reader: handle.is_shared(),
        }
    }

    /// A client was told that it has a lock. `None` if it is one that it had already.
    pub(super) fn granted(
        &self,
        process: ProcessId,
        call: usize,
        handle: &LockHandle,
        kind: Kind,
    ) -> Option<usize> {
        let new = self.holder((process, call), handle, kind);
        let now = new.granted;
        let mut state = self.state();
        let state = &mut *state;
        state.forget_lost(now);
        let holders = &mut state.history.holders;
        let known = |live: &Live| &holders[live.holder];
        // Readers of a process share a lease.
        let is_same = |one: &Holder| {
            let is_his = !new.is_reader || one.call == call;
            (one.process, one.fence) == (process, new.fence) && one.owner == new.owner && is_his
        };
        if state.live.iter().any(|live| is_same(known(live))) {
            return None;
        }
        let shares = |one: &Holder| one.keys.iter().any(|key| new.keys.contains(key));
        let sharing = state.live.iter().filter(|live| shares(known(live)));
        let mut valid: Vec<usize> = sharing.map(|live| live.holder).collect();
        let (holder, left) = (holders.len(), handle.remaining());
        if !left.is_zero() {
            valid.push(holder);
        }
        state.live.push(Live {
            holder,
            handle: handle.clone(),
        });
        let fence = new.fence.map(|fence| fence.to_string());
        let fence = fence.as_deref().unwrap_or("none");
        let (keys, owner) = (new.keys.join("+"), &new.owner[..8]);
        let text = format!(
            "(call {call}) holds {keys} for {left:?}, fencing token {fence}, owner {owner}"
        );
        holders.push(new);
        state.history.push(now, What::Granted { holder, valid });
        self.world.record(Some(process), text);
        Some(holder)
    }

    /// The number of a new run of some work.
    pub(super) fn run(&self, process: ProcessId, work: &str) -> u64 {
        let run = {
            let mut state = self.state();
            state.runs += 1;
            state.runs
        };
        let text = format_args!("run {run} of {work}");
        self.tell(process, text, What::Ran { run });
        run
    }

    /// Whether everything has ended, and nothing new begins.
    pub(super) fn is_over(&self) -> bool {
        self.state().is_over
    }

    pub(super) fn end(&self) {
        self.state().is_over = true;
    }
}

/// What a lock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Lock,
    /// That of an idempotency key.
    Work,
    Permit,
}

impl Kind {
    /// What stands before the lock's key on the nodes.
    fn prefix(self, namespace: &str) -> String {
        match self {
            Self::Lock => format!("{namespace}:"),
            Self::Work => format!("{namespace}!idem:"),
            Self::Permit => format!("{namespace}!permit:"),
        }
    }
}
