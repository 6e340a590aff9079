//! Who held what when, as processes tell while they go on.

use std::sync::Mutex;

use super::contender::TASKS;
use crate::checker::Interval;
use crate::order::Acquisition;

/// What processes have told so far.
#[derive(Debug, Default)]
pub(crate) struct Records(Mutex<Vec<Interval>>);

impl Records {
    /// Notes what a process tells of one time that a task of it held a lock.
    pub(crate) fn add(&self, process: usize, task: usize, lock: Acquisition) {
        let (client, reads) = (process * TASKS + task, false);
        let interval = Interval {
            client,
            reads,
            lock,
        };
        self.0.lock().unwrap().push(interval);
    }

    pub(crate) fn all(&self) -> Vec<Interval> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Whether the process has got a lock after that.
    pub(crate) fn is_later(&self, process: usize, than: u64) -> bool {
        let intervals = self.0.lock().unwrap();
        let mut own = intervals.iter().filter(|one| one.client / TASKS == process);
        own.any(|one| one.lock.start > than)
    }
}
