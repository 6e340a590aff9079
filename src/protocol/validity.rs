//! The deadline of a lease: until when it may be relied on.

use std::time::Duration;

use crate::moment::Moment;

/// The part of a ttl that is taken off because clocks drift.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drift {
    factor: f64,
}

impl Drift {
    pub(crate) const DEFAULT_FACTOR: f64 = 0.01;

    /// A drift of `factor` of the ttl and two milliseconds. `None` unless the factor is in `0.0..=0.5`.
    pub(crate) fn new(factor: f64) -> Option<Self> {
        (0.0..=0.5).contains(&factor).then_some(Self { factor })
    }

    /// How much is taken off `ttl`: one millisecond for the precision of expiry and one as the least drift,
    /// as in the reference implementation, and the factor's share.
    pub(crate) fn of(self, ttl: Duration) -> Duration {
        ttl.mul_f64(self.factor)
            .saturating_add(Duration::from_millis(2))
    }
}

impl Default for Drift {
    fn default() -> Self {
        Self {
            factor: Self::DEFAULT_FACTOR,
        }
    }
}

/// The deadline of a lease: the `needed`-th largest of the send times of the nodes' last confirmed grants or
/// extensions, plus the ttl, less the drift. `None` if fewer than `needed` nodes ever confirmed.
///
/// One formula serves the grant and full, partial and repeated renewals: at that moment exactly `needed` nodes
/// are certain to hold the key still.
pub(crate) fn deadline<I>(
    confirmed: I,
    needed: usize,
    ttl: Duration,
    drift: Drift,
) -> Option<Moment>
where
    I: IntoIterator<Item = Moment>,
    I::IntoIter: Clone,
{
    // There are a handful, and every lock asks for this several times: counting costs less than a sorted copy.
    let sent = confirmed.into_iter();
    let is_anchor = |candidate: &Moment| {
        let (mut later, mut same) = (0, 0);
        for other in sent.clone() {
            later += usize::from(other > *candidate);
            same += usize::from(other == *candidate);
        }
        later < needed && needed <= later + same
    };
    let anchor = sent.clone().find(is_anchor)?;
    Some(anchor + ttl.saturating_sub(drift.of(ttl)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(millis: u64) -> Moment {
        Moment::ORIGIN + Duration::from_millis(millis)
    }

    #[test]
    fn one_per_cent_and_two_milliseconds_are_taken_off() {
        assert_eq!(Drift::default().of(TTL), Duration::from_millis(102));
        assert_eq!(
            deadline([at(0), at(0), at(0)], 2, TTL, Drift::default()),
            Some(at(9_898))
        );
    }

    #[test]
    fn a_ttl_shorter_than_the_drift_gives_no_time_and_does_not_wrap() {
        let ttl = Duration::from_millis(1);
        assert_eq!(
            deadline([at(7)], 1, ttl, Drift::default()),
            Some(at(7)),
            "not before the send time, and never far in the future"
        );
    }

    #[test]
    fn a_partial_renewal_counts_from_the_quorum_th_largest_send_time() {
        let confirmed = [at(0), at(0), at(4_000), at(3_000), at(0)];
        assert_eq!(
            deadline(confirmed, 3, TTL, Drift::default()),
            Some(at(9_898))
        );
        let confirmed = [at(0), at(1_000), at(4_000), at(3_000), at(0)];
        assert_eq!(
            deadline(confirmed, 3, TTL, Drift::default()),
            Some(at(10_898))
        );
    }

    #[test]
    fn factors_that_make_no_sense_are_refused() {
        for bad in [-0.01, 0.51, f64::NAN, f64::INFINITY] {
            assert_eq!(Drift::new(bad), None);
        }
        assert!(Drift::new(0.0).is_some());
    }

    proptest! {
        #[test]
        fn at_least_a_quorum_outlives_the_deadline(
            sent in prop::collection::vec(0_u64..100_000, 1..8), needed in 1_usize..8,
        ) {
            let moments = sent.iter().copied().map(at);
            match deadline(moments, needed, TTL, Drift::default()) {
                None => prop_assert!(sent.len() < needed),
                Some(end) => {
                    let alive = sent.iter().filter(|&&s| at(s) + TTL > end).count();
                    prop_assert!(alive >= needed, "{alive} of {needed}");
                }
            }
        }
    }
}
