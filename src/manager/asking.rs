//! [`Asking`]: one call for a lock, as it is counted.

use std::time::Duration;

use super::core::Core;
use super::error::AcquireError;
use super::waiter::Prize;
use crate::clock::Clock as _;
use crate::metrics;
use crate::moment::Moment;

/// One call for a lock, from the question to its outcome. Dropped before, the caller went away, and that counts too.
pub(super) struct Asking<'a> {
    core: &'a Core,
    began: Moment,
    outcome: &'static str,
}

impl<'a> Asking<'a> {
    pub(super) fn new(core: &'a Core) -> Self {
        Self {
            core,
            began: core.clock.now(),
            outcome: "cancelled",
        }
    }

    pub(super) const fn began(&self) -> Moment {
        self.began
    }

    fn waited(&self) -> Duration {
        self.core.clock.now().since(self.began)
    }

    /// Notes what it came to.
    pub(super) fn end(mut self, outcome: &Result<Prize, AcquireError>) {
        self.outcome = match outcome {
            Ok(Prize::Lock(_)) => "acquired",
            Ok(Prize::Adopted(..) | Prize::Record(_)) => "recalled",
            Err(error) => error.word(),
        };
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        metrics::acquired(self.outcome, self.waited());
    }
}
