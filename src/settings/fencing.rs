//! [`Fencing`]: whether holders get fencing tokens, and how long the counters are kept.

use std::time::Duration;

use serde::Deserialize;

use crate::settings::error::{ConfigError, check_range};

/// Whether holders get fencing tokens, and how long the nodes keep the counters.
///
/// Every grant brings a [`FencingToken`](crate::FencingToken), with which the resource behind the lock tells a late
/// holder from the present one. It costs no round trip where the nodes report the same token, which they do while
/// they are healthy; else one.
///
/// A counter lives on the nodes for as long as it is kept after its last use. A renewal of a lock is one, too, but the
/// nodes are told of it only once in an eighth of that time.
/// A key whose counter has gone goes on from the highest token that any key of the node had. So to keep counters for a
/// short time is as safe as for a long one; it costs a second round trip where the nodes differ in that highest token
/// and a clock is behind it. The guide has the figures (`docs::fencing`).
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_redlock::LockManager;
///
/// let locks = LockManager::builder().memory(5).connect().await?;
/// let first = locks.try_acquire("order:42").await?;
/// let token = first.fence();
/// first.release().await?;
/// let second = locks.try_acquire("order:42").await?;
/// assert!(second.fence() > token);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(
    default,
    deny_unknown_fields,
    expecting = "\"off\" or a table with keep"
)]
pub struct Fencing {
    #[serde(with = "humantime_serde")]
    keep: Option<Duration>,
    off: bool,
}

const USUAL: Duration = Duration::from_secs(5 * 60);

impl Fencing {
    /// No fencing tokens. Resources cannot tell a late holder from the present one then. What it saves together with
    /// [`RestartGuard::OFF`](crate::settings::RestartGuard::OFF) is said there.
    pub const OFF: Self = Self {
        keep: None,
        off: true,
    };

    /// Holders get fencing tokens, and a counter is kept for `keep` after its last use: at least the ttl; default: 5
    /// min, or the ttl if that is longer.
    #[must_use]
    pub const fn keep(keep: Duration) -> Self {
        Self {
            keep: Some(keep),
            off: false,
        }
    }

    /// How long counters are kept under locks of this ttl; `None` if there are none.
    pub(super) fn checked(self, ttl: Duration) -> Result<Option<Duration>, ConfigError> {
        if self.off {
            return Ok(None);
        }
        let keep = self.keep.unwrap_or_else(|| usual(ttl));
        check_range("fencing.keep", keep, ttl..=MAX_KEEP)?;
        Ok(Some(keep))
    }
}

/// A hundred years; the servers count milliseconds in 63 bits.
const MAX_KEEP: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

pub(crate) fn usual(ttl: Duration) -> Duration {
    USUAL.max(ttl)
}
