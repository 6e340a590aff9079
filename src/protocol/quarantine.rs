//! How long a node that may have lost locks must not vote: for the longest lease that any process may take. So however
//! many nodes forget, each votes again only when no lock rests on a vote that it has forgotten.

use std::time::Duration;

use super::validity::Drift;

/// The length of a quarantine, by the clock of the process that watches it, which may differ by `drift` from a
/// holder's. A process may count the votes of a replaced server for `confirmed` longer.
pub(crate) fn length(max_ttl: Duration, confirmed: Duration, drift: Drift) -> Duration {
    let drifting = |time: Duration| time.saturating_add(drift.of(time));
    let lease = drifting(max_ttl);
    if confirmed.is_zero() {
        return lease;
    }
    lease.saturating_add(drifting(confirmed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_is_the_longest_lease_and_the_time_for_which_a_server_is_confirmed() {
        let secs = Duration::from_secs;
        let length = |max_ttl, confirmed| length(max_ttl, confirmed, Drift::default()).as_millis();
        assert_eq!(length(secs(10), secs(0)), 10_102);
        assert_eq!(length(secs(60), secs(0)), 60_602);
        assert_eq!(length(secs(10), secs(5)), 10_102 + 5_052);
    }

    proptest! {
        /// A lock that rests on a vote which was forgotten has ended by the clocks of all when the node votes again.
        #[test]
        fn no_holder_relies_on_a_vote_for_longer(
            max_ttl in 10_u64..86_400_000, confirmed in 0_u64..60_000, factor in 0.0..0.5,
        ) {
            let drift = Drift::new(factor).unwrap();
            let ms = Duration::from_millis;
            let length = length(ms(max_ttl), ms(confirmed), drift);
            prop_assert!(length >= ms(max_ttl) + drift.of(ms(max_ttl)) + ms(confirmed));
        }
    }
}
