//! [`State`]: all that a world consists of, behind one lock. One thread runs a world, so the lock is never waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::agenda::Event;
use super::bus::Bus;
use super::clock::SimClock;
use super::hosts::Host;
use super::network::{Connection, Pair};
use super::process::{Process, ProcessId, Running};
use super::topology::{HostId, Topology};
use super::trace::Trace;

#[derive(Debug)]
pub(super) struct State {
    pub(super) seed: u64,
    pub(super) topology: Topology,
    pub(super) start: Instant,
    /// Milliseconds since the start, as of the last look.
    pub(super) now: u64,
    pub(super) trace: Trace,
    pub(super) processes: BTreeMap<ProcessId, Process>,
    pub(super) pairs: BTreeMap<(u32, HostId), Pair>,
    pub(super) connections: BTreeMap<u64, Connection>,
    pub(super) next_connection: u64,
    pub(super) hosts: Vec<Host>,
    pub(super) agenda: BTreeMap<(u64, u64), Event>,
    pub(super) next_event: u64,
    /// The number of the last failover of each group.
    pub(super) failovers: BTreeMap<usize, u64>,
    pub(super) bus: Bus,
    /// Who is to be woken once the lock is free.
    pub(super) wakers: Vec<Waker>,
    /// Places at which a process is to be started once the lock is free.
    pub(super) to_start: Vec<u32>,
    /// Those that wait for a host or a pair should look again.
    pub(super) has_changed: bool,
    pub(super) panics: Vec<String>,
    /// For how many milliseconds all machines have been suspended.
    pub(super) suspended: u64,
    /// How many steps tasks have done since the time last went on.
    steps: (u64, u32),
    pub(super) next_task: u64,
}

/// More steps of tasks than this in one millisecond are a loop that never waits.
const MOST_STEPS: u32 = 2_000_000;

impl State {
    pub(super) fn new(seed: u64, topology: &Topology, is_wordy: bool) -> Self {
        let start = Instant::now();
        let hosts = topology.hosts().into_iter();
        let hosts =
            hosts.map(|(id, group, kind)| Host::new(seed, topology, id, group, kind, start));
        let mut state = Self {
            seed,
            start,
            now: 0,
            trace: Trace::new(is_wordy),
            processes: BTreeMap::new(),
            pairs: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_connection: 1,
            hosts: hosts.collect(),
            topology: topology.clone(),
            agenda: BTreeMap::new(),
            next_event: 0,
            failovers: BTreeMap::new(),
            bus: Bus::new(seed),
            wakers: Vec::new(),
            to_start: Vec::new(),
            has_changed: false,
            panics: Vec::new(),
            suspended: 0,
            steps: (0, 0),
            next_task: 0,
        };
        state.begin_hosts();
        state.begin_bus();
        state
    }

    /// Takes note of the time.
    pub(super) fn look_at_time(&mut self) {
        self.now = self.start.elapsed().as_millis() as u64;
        self.trace.now = self.now;
    }

    /// Counts a step of a task; false if tasks run for ever without time going on.
    pub(super) fn count_step(&mut self) -> bool {
        if self.steps.0 != self.now {
            self.steps = (self.now, 0);
        }
        self.steps.1 += 1;
        if self.steps.1 == MOST_STEPS {
            self.panics
                .push(format!("tasks run in a circle at {} ms", self.now));
        }
        self.steps.1 < MOST_STEPS
    }

    pub(super) fn process_mut(&mut self, id: ProcessId) -> Option<&mut Process> {
        self.processes.get_mut(&id)
    }

    /// The process that lives in a place.
    pub(super) fn living(&self, place: u32) -> Option<&Process> {
        let from = ProcessId { place, life: 0 };
        let until = ProcessId {
            place,
            life: u32::MAX,
        };
        let last = self.processes.range(from..=until).next_back()?.1;
        (last.running != Running::Dead).then_some(last)
    }

    pub(super) fn living_mut(&mut self, place: u32) -> Option<&mut Process> {
        let id = self.living(place)?.id;
        self.processes.get_mut(&id)
    }

    /// Puts a new process into a place; `None` if one lives there.
    pub(super) fn new_process(&mut self, place: u32) -> Option<ProcessId> {
        if self.living(place).is_some() {
            return None;
        }
        let before = self.processes.keys().filter(|id| id.place == place);
        let life = before.count() as u32;
        let id = ProcessId { place, life };
        let uptime = Duration::from_secs(1_000 * (u64::from(place) + 1));
        let clock = Arc::new(SimClock::new(self.start, uptime));
        clock.jump(self.suspended);
        self.processes
            .insert(id, Process::new(id, self.seed, clock));
        self.trace.note(Some(id), "starts");
        Some(id)
    }

    pub(super) fn host(&self, id: HostId) -> &Host {
        &self.hosts[id.0 as usize]
    }

    pub(super) fn host_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.hosts[id.0 as usize]
    }
}
