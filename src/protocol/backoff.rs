use std::time::Duration;

/// A part of `span`, uniformly distributed if `random` is.
pub(crate) fn jitter(random: u64, span: Duration) -> Duration {
    let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    // The high half of the product is uniform in 0..span without a division.
    let share = (u128::from(random) * u128::from(span)) >> 64;
    Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX))
}

/// Exponential backoff with full jitter: each delay is uniform between zero and a ceiling that doubles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    base: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) const fn new(base: Duration, cap: Duration) -> Self {
        Self {
            base,
            cap,
            failures: 0,
        }
    }

    pub(crate) fn next(&mut self, random: u64) -> Duration {
        let ceiling = self
            .base
            .saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX))
            .min(self.cap);
        self.failures = self.failures.saturating_add(1).min(31);
        jitter(random, ceiling)
    }
}

/// How long to pause after a split: a random time of up to half a round trip for each contender. In a simulation this
/// resolved splits of up to 30 contenders in about three round trips.
pub(crate) fn after_split(random: u64, contenders: usize, round_trip: Duration) -> Duration {
    let contenders = u32::try_from(contenders.max(2)).unwrap_or(u32::MAX);
    jitter(random, round_trip.saturating_mul(contenders) / 2)
}

/// How long a contender that has waited for `age` pauses after a release by a holder that had waited for `before`: zero
/// if the contender has waited for nearly as long, otherwise up to one and a half round trips.
pub(crate) fn until_due(age: Duration, before: Duration, round_trip: Duration) -> Duration {
    let missing = before.saturating_sub(age).as_nanos();
    // A difference of less than a tenth means nothing, because the clocks of two processes differ.
    let share = missing.saturating_mul(10) / before.as_nanos().max(1);
    match u32::try_from(share) {
        Ok(0) => Duration::ZERO,
        share => round_trip.saturating_mul(share.unwrap_or(10).min(10)) * 3 / 20,
    }
}

/// How long the cooldown after a contended release is, so that even the slowest contender can try first.
pub(crate) fn give_way(listeners: u32, round_trip: Duration) -> Duration {
    let round_trip = round_trip.clamp(Duration::from_millis(1), Duration::from_millis(25));
    round_trip.saturating_mul(4_u32.saturating_add(listeners.min(64))) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn jitter_covers_the_span_and_stays_inside() {
        assert_eq!(jitter(0, 100 * MS), Duration::ZERO);
        assert_eq!(jitter(1 << 63, 100 * MS), 50 * MS);
        assert!(jitter(u64::MAX, 100 * MS) < 100 * MS);
        assert!(jitter(u64::MAX, 100 * MS) > 99 * MS);
        assert!(jitter(u64::MAX, Duration::MAX) <= Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn the_ceiling_doubles_up_to_the_cap() {
        let mut backoff = Backoff::new(4 * MS, 100 * MS);
        let ceilings: Vec<u128> = (0..8)
            .map(|_| backoff.next(u64::MAX).as_micros().div_ceil(1000))
            .collect();
        assert_eq!(ceilings, [4, 8, 16, 32, 64, 100, 100, 100]);
        for _ in 0..100 {
            assert!(backoff.next(u64::MAX) <= 100 * MS);
        }
    }

    #[test]
    fn who_has_waited_for_less_than_the_holder_lets_others_go_first() {
        let delay = |age, before| until_due(age * MS, before * MS, 10 * MS);
        assert_eq!(delay(0, 0), Duration::ZERO, "nothing is known");
        // A contender that has waited for nearly as long does not pause.
        for age in [91, 100, 1_000] {
            assert_eq!(delay(age, 100), Duration::ZERO, "{age}");
        }
        let delays = [90, 75, 50, 0].map(|age| delay(age, 100));
        assert_eq!(delays, [3 * MS / 2, 3 * MS, 15 * MS / 2, 15 * MS]);
        assert_eq!(until_due(Duration::ZERO, Duration::MAX, 10 * MS), 15 * MS);
        // The longest pause ends before the cooldown of the releasing process does.
        assert!(delay(0, 100) < give_way(1, 10 * MS) - 9 * MS);
    }

    #[test]
    fn giving_way_waits_for_all_listeners() {
        assert_eq!(give_way(2, 2 * MS), 6 * MS);
        for listeners in [1, 3, 30] {
            let slowest = after_split(u64::MAX, listeners as usize, 2 * MS);
            assert!(give_way(listeners, 2 * MS) >= slowest + 2 * MS);
        }
        assert!(give_way(u32::MAX, Duration::MAX) < Duration::from_secs(1));
    }

    #[test]
    fn a_split_scales_with_the_contenders() {
        assert!(after_split(u64::MAX, 2, MS) <= MS);
        assert!(after_split(u64::MAX, 30, MS) > 14 * MS);
        assert!(after_split(u64::MAX, 30, MS) <= 15 * MS);
        assert!(after_split(u64::MAX, usize::MAX, Duration::MAX) > MS);
    }
}
