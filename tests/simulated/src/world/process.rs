//! Processes: every future of a process knows to which it belongs, and is put off, left standing or dropped with it.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use super::World;
use super::clock::SimClock;
use crate::dice::Dice;

/// One life of a process in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Its place in the plan.
    pub place: u32,
    /// How many processes were there before it.
    pub life: u32,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.life {
            0 => write!(f, "p{}", self.place),
            life => write!(f, "p{}'{life}", self.place),
        }
    }
}

/// What a process does from its start on.
pub type Program =
    dyn Fn(World, ProcessId) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Running {
    Yes,
    /// It stands still.
    Paused,
    Dead,
}

/// A process, alive or dead.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) id: ProcessId,
    pub(super) running: Running,
    pub(super) clock: Arc<SimClock>,
    pub(super) random: Dice,
    /// By whom each of its tasks is woken.
    tasks: BTreeMap<u64, Waker>,
    /// Those that had something to do while it stood still, in order.
    missed: Vec<u64>,
    /// Whether nothing runs but what is aside.
    pub(super) is_blocked: bool,
    jitter: Dice,
    /// With which chance in thousand a step of a task is put off, and by how many milliseconds at most.
    pub(super) put_off: (u32, u64),
}

impl Process {
    pub(super) fn new(id: ProcessId, seed: u64, clock: Arc<SimClock>) -> Self {
        Self {
            id,
            running: Running::Yes,
            clock,
            random: Dice::of(seed, &format!("random {id}")),
            tasks: BTreeMap::new(),
            missed: Vec::new(),
            is_blocked: false,
            jitter: Dice::of(seed, &format!("jitter {id}")),
            put_off: (0, 0),
        }
    }

    /// Goes on after it stood still. Who was [missed](Self::missed) has to be woken.
    pub(super) fn resume(&mut self) {
        if self.running == Running::Paused {
            self.running = Running::Yes;
        }
    }

    /// Who has to be woken when it goes on.
    pub(super) fn missed(&mut self) -> Vec<Waker> {
        let missed = std::mem::take(&mut self.missed);
        let wakers = missed.iter().filter_map(|task| self.tasks.get(task));
        wakers.cloned().collect()
    }

    /// Dies; returns who has to be woken to be dropped.
    pub(super) fn kill(&mut self) -> Vec<Waker> {
        self.running = Running::Dead;
        self.missed.clear();
        std::mem::take(&mut self.tasks).into_values().collect()
    }

    /// What is to be done with a task that has something to do.
    fn judge(&mut self, task: u64, is_aside: bool, waker: &Waker, was_put_off: bool) -> Verdict {
        if self.running == Running::Dead {
            return Verdict::Drop;
        }
        match self.tasks.get(&task) {
            Some(known) if known.will_wake(waker) => {}
            _ => drop(self.tasks.insert(task, waker.clone())),
        }
        if self.running == Running::Paused || self.is_blocked && !is_aside {
            if !self.missed.contains(&task) {
                self.missed.push(task);
            }
            return Verdict::Wait;
        }
        let (permille, max_ms) = self.put_off;
        if !was_put_off && permille > 0 && self.jitter.chance(permille as usize, 1_000) {
            return Verdict::PutOff(Duration::from_millis(self.jitter.between(1, max_ms)));
        }
        Verdict::Go
    }
}

enum Verdict {
    Go,
    /// When the process goes on.
    Wait,
    PutOff(Duration),
    Drop,
}

/// Whose code runs.
#[derive(Clone, Copy, Default)]
struct Here {
    process: Option<ProcessId>,
    /// Whether it is a task's that goes on while others are blocked.
    is_aside: bool,
}

thread_local! {
    static HERE: Cell<Here> = Cell::default();
}

impl Here {
    fn run<T>(self, work: impl FnOnce() -> T) -> T {
        struct Back(Here);
        impl Drop for Back {
            fn drop(&mut self) {
                HERE.set(self.0);
            }
        }
        let _back = Back(HERE.replace(self));
        work()
    }
}

/// The process whose code runs, if it is one's.
pub(super) fn current() -> Option<ProcessId> {
    HERE.get().process
}

/// Whether the code that runs is a task's that goes on while others are blocked.
pub(super) fn is_aside() -> bool {
    HERE.get().is_aside
}

/// Runs `work` as the process.
pub(super) fn inside<T>(process: ProcessId, work: impl FnOnce() -> T) -> T {
    let (process, is_aside) = (Some(process), is_aside());
    Here { process, is_aside }.run(work)
}

/// A future that belongs to a process. `None` if the process died, or the future panicked.
pub(super) struct InProcess<T> {
    world: World,
    process: ProcessId,
    task: u64,
    is_aside: bool,
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    later: Option<Pin<Box<Sleep>>>,
}

impl<T> InProcess<T> {
    pub(super) fn new(
        world: World,
        process: ProcessId,
        task: u64,
        work: Pin<Box<dyn Future<Output = T> + Send>>,
        is_aside: bool,
    ) -> Self {
        Self {
            world,
            process,
            task,
            is_aside,
            work: Some(work),
            later: None,
        }
    }

    fn here(&self) -> Here {
        Here {
            process: Some(self.process),
            is_aside: self.is_aside,
        }
    }

    fn judge(&self, cx: &Context<'_>, was_put_off: bool) -> Verdict {
        let judge = |process: &mut Process| {
            process.judge(self.task, self.is_aside, cx.waker(), was_put_off)
        };
        self.world.with(|state| match state.count_step() {
            true => state.process_mut(self.process).map_or(Verdict::Drop, judge),
            false => Verdict::Drop,
        })
    }

    /// Ends it, with everything in it.
    fn end(&mut self) {
        if let Some(work) = self.work.take() {
            let (process, task) = (self.process, self.task);
            self.world.with(|state| {
                if let Some(process) = state.process_mut(process) {
                    process.tasks.remove(&task);
                }
            });
            let here = self.here();
            let dropped = catch_unwind(AssertUnwindSafe(|| here.run(|| drop(work))));
            if let Err(panic) = dropped {
                self.world.note_panic(process, &text_of(&*panic));
            }
        }
    }
}

impl<T> Future for InProcess<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        let mut was_put_off = false;
        if let Some(later) = &mut this.later {
            // It may have died meanwhile, or stand still.
            if later.as_mut().poll(cx).is_pending()
                && !matches!(this.judge(cx, true), Verdict::Drop)
            {
                return Poll::Pending;
            }
            this.later = None;
            was_put_off = true;
        }
        match this.judge(cx, was_put_off) {
            Verdict::Drop => {
                this.end();
                return Poll::Ready(None);
            }
            Verdict::Wait => return Poll::Pending,
            Verdict::PutOff(span) => {
                let mut later = Box::pin(sleep(span));
                // It is not over, for a span is a millisecond at least.
                let _ = later.as_mut().poll(cx);
                this.later = Some(later);
                return Poll::Pending;
            }
            Verdict::Go => {}
        }
        let here = this.here();
        let Some(work) = &mut this.work else {
            return Poll::Ready(None);
        };
        let step = || here.run(|| work.as_mut().poll(cx));
        match catch_unwind(AssertUnwindSafe(step)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => {
                this.end();
                Poll::Ready(Some(value))
            }
            Err(panic) => {
                this.world.note_panic(this.process, &text_of(&*panic));
                this.end();
                Poll::Ready(None)
            }
        }
    }
}

impl<T> Drop for InProcess<T> {
    fn drop(&mut self) {
        self.end();
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| Some(panic.downcast_ref::<String>()?.as_str()));
    text.unwrap_or("a panic without a text").to_owned()
}
