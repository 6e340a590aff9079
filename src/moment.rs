//! [`Moment`]: a point in time on the clock that measures leases.

use std::fmt;
use std::ops::{Add, AddAssign};
use std::time::Duration;

/// A point in time on a [`Clock`](crate::clock::Clock), in nanoseconds since that clock's origin. Moments of different
/// clocks cannot be compared. All arithmetic saturates.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_redlock::clock::Moment;
///
/// let start = Moment::from_nanos(5);
/// assert_eq!((start + Duration::MAX).since(start), Duration::from_nanos(u64::MAX - 5));
/// assert_eq!(start.since(start + Duration::from_secs(1)), Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The clock's origin.
    pub const ORIGIN: Self = Self(0);

    /// The moment `nanos` nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `span` before this one, or the origin if that is later.
    #[must_use]
    pub fn saturating_sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Moment(+{:?})", Duration::from_nanos(self.0))
    }
}

/// Saturates at 584 years.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let late = Moment::from_nanos(u64::MAX - 1);
        assert_eq!(late + Duration::from_secs(1), Moment::from_nanos(u64::MAX));
        assert_eq!(Moment::ORIGIN.saturating_sub(Duration::MAX), Moment::ORIGIN);
        let mut moving = late;
        moving += Duration::MAX;
        assert_eq!(moving.as_nanos(), u64::MAX);
    }

    #[test]
    fn debug_shows_the_offset() {
        assert_eq!(
            format!("{:?}", Moment::from_nanos(1_500_000)),
            "Moment(+1.5ms)"
        );
    }
}
