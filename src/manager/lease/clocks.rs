//! [`Clocks`]: what the nodes' clocks showed when they granted a run.

use std::time::Duration;

use crate::clock::Clock;
use crate::moment::Moment;
use crate::protocol::retention::time_by;

/// What the nodes' clocks showed, in milliseconds since 1970, when they granted a run.
#[derive(Debug)]
pub(crate) struct Clocks {
    showed: Vec<u64>,
    // When they were asked.
    asked: Moment,
}

impl Clocks {
    pub(crate) const fn new(showed: Vec<u64>, asked: Moment) -> Self {
        Self { showed, asked }
    }

    /// When something ends that is kept for `keep` from now on, in milliseconds since 1970: by the clocks of the nodes
    /// that granted the run and of this process, the middle one. So one that is wrong does no harm, not even if it is
    /// that of one of three nodes of which two granted.
    ///
    /// The nodes' clocks are taken to have shown what they did when they were asked, so that it errs by up to a round
    /// trip, and to the late side.
    pub(crate) fn end_after(run: Option<&Self>, ours: &dyn Clock, keep: Duration) -> u64 {
        let mut clocks = vec![ours.unix_micros() / 1_000];
        if let Some(Self { showed, asked }) = run {
            let since = millis(ours.now().since(*asked));
            clocks.extend(showed.iter().map(|then| then.saturating_add(since)));
        }
        time_by(clocks).saturating_add(millis(keep.min(FOREVER)))
    }
}

/// Whole milliseconds, rounded up: nothing ends earlier than it was to.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Longer than this is forever. Servers do not know times that are much later.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);
