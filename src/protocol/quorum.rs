use std::time::Duration;

use crate::moment::Moment;
use crate::token::FencingToken;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quorum {
    nodes: usize,
    needed: usize,
}

impl Quorum {
    /// The quorum `ceil((nodes + masked + 1) / 2)`: any two quorums share more than `masked` nodes. `None` if there are
    /// too few nodes.
    pub(crate) const fn masking(nodes: usize, masked: usize) -> Option<Self> {
        if nodes == 0 || masked >= nodes {
            return None;
        }
        Some(Self {
            nodes,
            needed: (nodes + masked + 1).div_ceil(2),
        })
    }

    pub(crate) const fn nodes(self) -> usize {
        self.nodes
    }

    pub(crate) fn needed(self) -> usize {
        self.needed
    }

    pub(crate) fn spare(self) -> usize {
        self.nodes - self.needed()
    }
}

/// The part of a ttl that is subtracted because clocks drift.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drift {
    factor: f64,
}

impl Drift {
    pub(crate) const DEFAULT_FACTOR: f64 = 0.01;

    /// `None` unless `factor` is in `0.0..=0.5`.
    pub(crate) fn new(factor: f64) -> Option<Self> {
        (0.0..=0.5).contains(&factor).then_some(Self { factor })
    }

    /// How much is subtracted from `ttl`: one millisecond for the precision of expiry and one as the minimum drift, as
    /// in the reference implementation, plus the share of the factor.
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

/// The deadline of a lease: the `needed`-th largest of the `confirmed` send times, plus the `validity` (the ttl minus
/// the drift). Each node that has confirmed a grant or an extension has one send time, of the last such command. `None`
/// if there are fewer.
pub(crate) fn deadline<I>(confirmed: I, needed: usize, validity: Duration) -> Option<Moment>
where
    I: IntoIterator<Item = Moment>,
    I::IntoIter: Clone,
{
    // There are only a few moments, so counting costs less than sorting a copy of them.
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
    Some(anchor + validity)
}

/// How long a node that may have lost locks must not vote: the longest lease of any process, on a clock that differs by
/// `drift`. If other processes may count the votes of a replaced server for a while, that time (`confirmed`) is added.
pub(crate) fn quarantine(max_ttl: Duration, confirmed: Duration, drift: Drift) -> Duration {
    let drifting = |time: Duration| time.saturating_add(drift.of(time));
    let lease = drifting(max_ttl);
    if confirmed.is_zero() {
        return lease;
    }
    lease.saturating_add(drifting(confirmed))
}

/// Which fencing token a holder gets.
///
/// A token is safe once a quorum of nodes has a counter at or above it that was written while we owned the lock there,
/// because any later holder shares a node with that quorum, and gets a higher token there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FenceVerdict {
    /// A quorum reports this token.
    Agreed(FencingToken),
    /// This is the highest token, and it must be written back.
    Open(FencingToken),
    None,
}

pub(crate) fn agree(
    fences: impl Iterator<Item = FencingToken> + Clone,
    needed: usize,
) -> FenceVerdict {
    let votes = |fence: FencingToken| fences.clone().filter(|other| *other == fence).count();
    let agreed = fences.clone().filter(|fence| votes(*fence) >= needed).max();
    match (agreed, fences.max()) {
        (Some(fence), _) => FenceVerdict::Agreed(fence),
        (None, Some(highest)) => FenceVerdict::Open(highest),
        (None, None) => FenceVerdict::None,
    }
}

/// The verdict for a run, whose fencing token is the ballot of its record. Only the highest token counts, because a
/// node stores no record under a lower ballot than it has promised.
#[cfg(feature = "idempotency")]
pub(crate) fn highest(
    fences: impl Iterator<Item = FencingToken> + Clone,
    needed: usize,
) -> FenceVerdict {
    let Some(highest) = fences.clone().max() else {
        return FenceVerdict::None;
    };
    match fences.filter(|fence| *fence == highest).count() {
        votes if votes >= needed => FenceVerdict::Agreed(highest),
        _ => FenceVerdict::Open(highest),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_of_quorums() {
        let needed = |n, f| Quorum::masking(n, f).map(Quorum::needed);
        assert_eq!(needed(0, 0), None);
        assert_eq!(needed(1, 0), Some(1));
        assert_eq!(needed(2, 0), Some(2));
        assert_eq!(needed(3, 0), Some(2));
        assert_eq!(needed(4, 0), Some(3));
        assert_eq!(needed(5, 0), Some(3));
        assert_eq!(needed(3, 1), Some(3));
        assert_eq!(needed(4, 1), Some(3));
        assert_eq!(needed(5, 1), Some(4));
        assert_eq!(needed(5, 2), Some(4));
        assert_eq!(needed(6, 1), Some(4));
        assert_eq!(needed(1, 1), None);
    }

    #[test]
    fn two_quorums_share_more_nodes_than_are_masked() {
        for nodes in 1..12 {
            for masked in 0..nodes {
                let quorum = Quorum::masking(nodes, masked).unwrap();
                assert!(quorum.needed() <= nodes, "{nodes} {masked}");
                assert!(2 * quorum.needed() - nodes > masked, "{nodes} {masked}");
                assert_eq!(quorum.spare() + quorum.needed(), quorum.nodes());
            }
        }
    }

    const TTL: Duration = Duration::from_secs(10);
    const VALIDITY: Duration = Duration::from_millis(9_898);

    fn at(millis: u64) -> Moment {
        Moment::ORIGIN + Duration::from_millis(millis)
    }

    #[test]
    fn one_per_cent_and_two_milliseconds_are_taken_off() {
        assert_eq!(Drift::default().of(TTL), Duration::from_millis(102));
        assert_eq!(
            deadline([at(0), at(0), at(0)], 2, VALIDITY),
            Some(at(9_898))
        );
    }

    #[test]
    fn a_partial_renewal_counts_from_the_quorum_th_largest_send_time() {
        let confirmed = [at(0), at(0), at(4_000), at(3_000), at(0)];
        assert_eq!(deadline(confirmed, 3, VALIDITY), Some(at(9_898)));
        let confirmed = [at(0), at(1_000), at(4_000), at(3_000), at(0)];
        assert_eq!(deadline(confirmed, 3, VALIDITY), Some(at(10_898)));
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
            match deadline(moments, needed, VALIDITY) {
                None => prop_assert!(sent.len() < needed),
                Some(end) => {
                    let alive = sent.iter().filter(|&&s| at(s) + TTL > end).count();
                    prop_assert!(alive >= needed, "{alive} of {needed}");
                }
            }
        }
    }

    #[test]
    fn a_quarantine_is_the_longest_lease_and_the_time_for_which_a_server_is_confirmed() {
        let secs = Duration::from_secs;
        let length =
            |max_ttl, confirmed| quarantine(max_ttl, confirmed, Drift::default()).as_millis();
        assert_eq!(length(secs(10), secs(0)), 10_102);
        assert_eq!(length(secs(60), secs(0)), 60_602);
        assert_eq!(length(secs(10), secs(5)), 10_102 + 5_052);
    }

    proptest! {
        #[test]
        fn no_holder_relies_on_a_vote_for_longer(
            max_ttl in 10_u64..86_400_000, confirmed in 0_u64..60_000, factor in 0.0..0.5,
        ) {
            let drift = Drift::new(factor).unwrap();
            let ms = Duration::from_millis;
            let length = quarantine(ms(max_ttl), ms(confirmed), drift);
            prop_assert!(length >= ms(max_ttl) + drift.of(ms(max_ttl)) + ms(confirmed));
        }
    }

    fn tokens(values: &[u64]) -> impl Iterator<Item = FencingToken> + Clone {
        values
            .iter()
            .map(|value| FencingToken::new(*value).unwrap())
    }

    #[cfg(feature = "idempotency")]
    #[test]
    fn a_ballot_is_what_a_quorum_reports_as_the_highest() {
        let token = |value| FencingToken::new(value).unwrap();
        let of = |values: &[u64]| highest(tokens(values), 3);
        assert_eq!(of(&[5, 5, 5]), FenceVerdict::Agreed(token(5)));
        assert_eq!(of(&[9, 5, 9, 9]), FenceVerdict::Agreed(token(9)));
        assert_eq!(of(&[5, 9, 5, 5]), FenceVerdict::Open(token(9)));
        assert_eq!(of(&[]), FenceVerdict::None);
    }

    #[test]
    fn a_quorum_with_one_token_agrees_even_if_another_has_more() {
        let token = |value| FencingToken::new(value).unwrap();
        let of = |values: &[u64]| agree(tokens(values), 3);
        assert_eq!(of(&[5, 5, 5]), FenceVerdict::Agreed(token(5)));
        assert_eq!(of(&[5, 9, 5, 5]), FenceVerdict::Agreed(token(5)));
        assert_eq!(of(&[5, 9, 5]), FenceVerdict::Open(token(9)));
        assert_eq!(of(&[5, 5]), FenceVerdict::Open(token(5)));
        assert_eq!(of(&[]), FenceVerdict::None);
    }
}
