//! A world: processes, a network between them and simulated servers, and time that goes on when nothing is left to do.
//!
//! One thread runs a world. Its seed decides everything in it; two runs of one plan have the same trace, byte for byte.
//! That holds because
//!
//! * one task runs at a time, in an order that tokio's scheduler for one thread keeps, and its time is paused: it goes
//!   on, by whole milliseconds, when every task waits;
//! * the numbers that tokio itself draws (for its `watch` channels) come from the seed of the runtime;
//! * the programs take their random bytes, their connections and their clocks from the world, and make all tasks part
//!   of a process of it; nothing that can be seen depends on the order of a hash map;
//! * the world keeps everything in order of numbers that it gives out itself.

mod agenda;
mod bus;
mod clock;
mod fault;
mod faults;
mod hosts;
mod network;
mod process;
mod replicas;
mod state;
mod stream;
mod topology;
mod trace;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

pub use self::bus::Turn;
pub use self::clock::SimClock;
pub use self::fault::{Fault, Memory, Named, Refusal, Way};
pub use self::hosts::StoredKey;
pub use self::process::ProcessId;
pub use self::stream::SimStream;
pub use self::topology::{Group, HostId, HostKind, MASTER_NAME, Topology};
pub use self::trace::Sent;

use self::process::{InProcess, Program, Running};
use self::state::State;

/// A world, to be cloned at will.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    topology: Topology,
    program: Mutex<Option<Arc<Program>>>,
    /// Something was planned before the time at which the driver wakes.
    planned: Notify,
    /// Connections that could not be made may be possible now.
    changed: Notify,
}

impl World {
    /// A world without processes, at its time 0. Must be called inside a runtime whose time is paused. If it is wordy,
    /// its trace shows all commands and replies.
    pub fn new(seed: u64, topology: &Topology, is_wordy: bool) -> Self {
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(State::new(seed, topology, is_wordy)),
                topology: topology.clone(),
                program: Mutex::new(None),
                planned: Notify::new(),
                changed: Notify::new(),
            }),
        }
    }

    /// Lets it run, for as long as the runtime does.
    pub fn begin(&self) {
        tokio::spawn(self.clone().drive());
    }

    /// Lets happen what happens by itself.
    async fn drive(self) {
        loop {
            let next = self.with(|state| {
                state.do_all_due();
                state
                    .next_event_at()
                    .map(|at| state.start + Duration::from_millis(at))
            });
            let far = || Instant::now() + Duration::from_secs(86_400);
            tokio::select! {
                biased;
                () = self.inner.planned.notified() => {}
                () = sleep_until(next.unwrap_or_else(far)) => {}
            }
        }
    }

    /// Does something with the state, then wakes whom that concerns.
    pub(in crate::world) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self
            .inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.look_at_time();
        let first = state.next_event_at();
        let result = work(&mut state);
        let is_earlier = match (first, state.next_event_at()) {
            (Some(before), Some(now)) => now < before,
            (None, now) => now.is_some(),
            (Some(_), None) => false,
        };
        let wakers = std::mem::take(&mut state.wakers);
        let to_start = std::mem::take(&mut state.to_start);
        let has_changed = std::mem::take(&mut state.has_changed);
        drop(state);
        if is_earlier {
            self.inner.planned.notify_one();
        }
        if has_changed {
            self.inner.changed.notify_waiters();
        }
        wakers.into_iter().for_each(std::task::Waker::wake);
        for place in to_start {
            self.start(place);
        }
        result
    }

    /// Waits until a host or a pair has changed.
    pub(in crate::world) async fn changed(&self) {
        self.inner.changed.notified().await;
    }

    pub(in crate::world) fn note_panic(&self, process: ProcessId, text: &str) {
        self.with(|state| {
            state
                .trace
                .note(Some(process), format_args!("panics: {text}"));
            state.panics.push(format!("{process}: {text}"));
        });
    }
}

// For plans, workloads and checkers.
impl World {
    /// Milliseconds since the world began.
    pub fn millis(&self) -> u64 {
        self.with(|state| state.now)
    }

    pub fn topology(&self) -> &Topology {
        &self.inner.topology
    }

    /// What every process does from its start on. To be called once, before the first one starts.
    pub fn set_program(
        &self,
        program: impl Fn(Self, ProcessId) -> Pin<Box<dyn Future<Output = ()> + Send>>
        + Send
        + Sync
        + 'static,
    ) {
        *self.program() = Some(Arc::new(program));
    }

    fn program(&self) -> MutexGuard<'_, Option<Arc<Program>>> {
        self.inner
            .program
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the program, which may know the world: otherwise both would stay for ever.
    pub fn forget_program(&self) {
        let program = self.program().take();
        drop(program);
    }

    /// Starts a process in a place, unless one lives there. Returns the one that lives there then.
    pub fn start(&self, place: u32) -> ProcessId {
        let Some(id) = self.with(|state| state.new_process(place)) else {
            let living = self.living(place);
            return living.expect("a place without a living process takes one");
        };
        let program = self.program().clone().expect("a world has a program");
        let work = process::inside(id, || program(self.clone(), id));
        drop(self.spawn_in(id, work));
        id
    }

    /// The process that lives in a place. It may stand still.
    pub fn living(&self, place: u32) -> Option<ProcessId> {
        self.with(|state| state.living(place).map(|process| process.id))
    }

    /// Whether the process lives.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        let is_alive = |process: &mut process::Process| process.running != Running::Dead;
        self.with(|state| state.process_mut(process).is_some_and(is_alive))
    }

    /// Runs `work` as a task of the process. `None` if it dies before, or the task panics, which is noted.
    pub fn spawn_in<T: Send + 'static>(
        &self,
        process: ProcessId,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<T>> {
        tokio::spawn(self.belonging(process, Box::pin(work), false))
    }

    fn belonging<T>(
        &self,
        process: ProcessId,
        work: Pin<Box<dyn Future<Output = T> + Send>>,
        is_aside: bool,
    ) -> InProcess<T> {
        let task = self.with(|state| {
            state.next_task += 1;
            state.next_task
        });
        InProcess::new(self.clone(), process, task, work, is_aside)
    }

    /// Runs `work` as the process: whatever belongs to a process is made and dropped there.
    pub fn inside<T>(&self, process: ProcessId, work: impl FnOnce() -> T) -> T {
        assert!(self.is_known(process), "{process} was never started");
        process::inside(process, work)
    }

    fn is_known(&self, process: ProcessId) -> bool {
        self.with(|state| state.process_mut(process).is_some())
    }

    /// The process whose code runs.
    ///
    /// # Panics
    ///
    /// Outside of all processes.
    pub fn current() -> ProcessId {
        process::current().expect("this belongs to a process: use `World::inside` or `spawn_in`")
    }

    /// The clock of a process.
    pub fn clock(&self, process: ProcessId) -> Arc<SimClock> {
        self.with(|state| {
            let process = state.process_mut(process);
            Arc::clone(&process.expect("the process was started").clock)
        })
    }

    /// Does something to the world, now.
    pub fn apply(&self, fault: &Fault) {
        self.with(|state| state.apply(fault));
    }

    /// Adds a line to the trace.
    pub fn record(&self, process: Option<ProcessId>, text: impl fmt::Display) {
        self.with(|state| state.trace.note(process, text));
    }

    /// The panics in processes so far.
    pub fn panics(&self) -> Vec<String> {
        self.with(|state| state.panics.clone())
    }

    /// Tells this run from one that went another way.
    pub fn trace_hash(&self) -> u64 {
        self.with(|state| state.trace.hash())
    }

    /// The readable lines of the trace.
    pub fn trace(&self) -> Vec<String> {
        self.with(|state| state.trace.lines().to_vec())
    }

    /// All commands in the order in which processes sent them, between the lines of the history; empty unless the trace
    /// is wordy.
    pub fn sent(&self) -> Vec<Sent> {
        self.with(|state| state.trace.sent().to_vec())
    }

    /// What a server has now, by its own clock.
    pub fn keys(&self, host: HostId) -> Vec<StoredKey> {
        self.with(|state| state.host(host).keys())
    }

    /// What a field of a hash holds on a server now, by its own clock.
    pub fn field(&self, host: HostId, key: &str, field: &str) -> Option<String> {
        self.with(|state| state.host_mut(host).field(key, field))
    }

    /// Whether the host takes commands.
    pub fn is_up(&self, host: HostId) -> bool {
        self.with(|state| state.host(host).is_up && !state.host(host).is_frozen)
    }

    /// Whether something of a process arrived at the host in the last `span` that had been held up for longer.
    pub fn was_late(&self, process: ProcessId, host: HostId, span: u64) -> bool {
        self.with(|state| {
            let from = state.now.saturating_sub(span);
            let pair = state.pairs.get(&(process.place, host));
            pair.is_some_and(|pair| pair.was_late(from, span))
        })
    }

    /// Whether a server is the one that a marker names: its process, and its last promotion.
    pub fn is_called(&self, host: HostId, name: &str) -> bool {
        self.with(|state| {
            let server = state.host_mut(host).server();
            let promotion = server.promotion().unwrap_or_default();
            server.is_master() && name == format!("{}{promotion}", server.run_id())
        })
    }

    /// The servers of a cluster that became a master, or a replica of another, since the last time.
    pub fn take_turns(&self) -> Vec<(HostId, Turn)> {
        self.with(|state| std::mem::take(&mut state.bus.turns))
    }

    /// The groups whose address leads to a replica, which no Sentinel says.
    pub fn misled(&self) -> Vec<u32> {
        self.with(|state| state.misled())
    }

    /// How many connections hosts have.
    pub fn connections(&self) -> usize {
        self.with(|state| state.connections_of(|known| known.at_host).len())
    }
}

// For the programs of processes, which call these as the process whose code runs.
impl World {
    /// Connects to a host.
    pub fn connect(
        &self,
        host: &str,
        port: u16,
    ) -> impl Future<Output = io::Result<SimStream>> + Send + use<> {
        let host = self.with(|state| state.host_called(host, port));
        stream::connect(self.clone(), Self::current(), host)
    }

    /// Fills `bytes` from the seed.
    pub fn fill_random(&self, bytes: &mut [u8]) {
        let process = Self::current();
        self.with(|state| {
            let process = state.process_mut(process);
            process.expect("the process was started").random.fill(bytes);
        });
    }

    /// Makes a task part of the process that spawns it. One that `is_aside`, or is spawned by such a task, has a thread
    /// of its own: it goes on while the others are blocked.
    pub fn wrap(
        &self,
        task: Pin<Box<dyn Future<Output = ()> + Send>>,
        is_aside: bool,
    ) -> impl Future<Output = ()> + Send + use<> {
        let is_aside = is_aside || process::is_aside();
        let task = self.belonging(Self::current(), task, is_aside);
        async move {
            task.await;
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}
