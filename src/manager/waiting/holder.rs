//! [`Holder`]: the holder of a key that is in use, as far as is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::moment::Moment;

/// The holder of a key that is in use, as far as is known.
#[derive(Clone, Debug)]
pub(crate) enum Holder {
    /// This process.
    Here(Arc<Deadline>),
    /// Another process, until then unless it extends or releases the lock.
    Elsewhere(Moment),
}

impl Holder {
    /// How long the lease goes on, as far as is known.
    pub(crate) fn remaining(&self, clock: &dyn Clock) -> Option<Duration> {
        match self {
            Self::Here(deadline) => deadline.left(clock),
            Self::Elsewhere(end) => Some(end.since(clock.now())),
        }
    }
}

/// Until when a lock of this process may be relied on, for checks without a mutex.
#[derive(Debug)]
pub(crate) struct Deadline {
    nanos: AtomicU64,
    // For how much longer the nodes keep the lock.
    reserve: Duration,
}

impl Deadline {
    pub(crate) const fn new(end: Moment, reserve: Duration) -> Self {
        Self {
            nanos: AtomicU64::new(end.as_nanos()),
            reserve,
        }
    }

    /// The origin of time for a lock that has ended: so one comparison answers for every loss.
    pub(crate) fn get(&self) -> Moment {
        Moment::from_nanos(self.nanos.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, end: Moment) {
        self.nanos.store(end.as_nanos(), Ordering::Release);
    }

    /// How long the nodes keep the lock unless it is extended or released; `None` once it has ended.
    fn left(&self, clock: &dyn Clock) -> Option<Duration> {
        let end = self.get();
        (end > Moment::ORIGIN).then(|| (end + self.reserve).since(clock.now()))
    }
}
