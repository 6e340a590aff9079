//! [`Times`]: how long the locks of one handle last, and how long its callers wait.

use std::time::Duration;

use crate::protocol::renewal::Terms;
use crate::settings::error::{ConfigError, check_range, ensure};

pub(super) const MIN_TTL: Duration = Duration::from_millis(10);
pub(super) const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The times of one handle of a manager.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) terms: Terms,
    pub(crate) max_wait: Duration,
}

impl Times {
    pub(crate) fn with_ttl(
        mut self,
        ttl: Duration,
        max_ttl: Duration,
        node_timeout: Duration,
    ) -> Result<Self, ConfigError> {
        let ttl = checked_ttl(ttl, max_ttl)?;
        ensure(node_timeout <= ttl, "ttl", || {
            format!(
                "ttl is {ttl:?}, and a node may take {node_timeout:?} to reply; use a longer ttl, or a shorter node_timeout"
            )
        })?;
        self.terms.ttl = ttl;
        self.terms.retry = retry_after(node_timeout, ttl);
        self.terms.max_hold = self.terms.max_hold.max(ttl);
        Ok(self)
    }

    pub(crate) fn with_max_hold(mut self, max_hold: Duration) -> Result<Self, ConfigError> {
        self.terms.max_hold = checked_max_hold(max_hold, self.terms.ttl)?;
        Ok(self)
    }
}

/// A ttl in the whole milliseconds that the nodes count; the deadline must not be later than theirs.
pub(super) fn checked_ttl(ttl: Duration, max_ttl: Duration) -> Result<Duration, ConfigError> {
    let ttl = whole_millis(ttl);
    check_range("ttl", ttl, MIN_TTL..=MAX_TTL)?;
    ensure(ttl <= max_ttl, "ttl", || {
        format!(
            "ttl is {ttl:?}, and max_ttl, the longest that any process uses with these nodes, is {max_ttl:?}; use a shorter ttl, or raise max_ttl in all processes as the members of the nodes are changed"
        )
    })?;
    Ok(ttl)
}

pub(super) fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

pub(super) fn checked_max_hold(max_hold: Duration, ttl: Duration) -> Result<Duration, ConfigError> {
    check_range("max_hold", max_hold, ttl..=Duration::MAX)?;
    Ok(max_hold)
}

/// How long after a renewal that missed its quorum the next is tried.
pub(super) fn retry_after(node_timeout: Duration, ttl: Duration) -> Duration {
    node_timeout.max(ttl / 30)
}
