//! How long to wait between attempts to connect.

use std::time::Duration;

/// The first and the longest bound of a pause.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// Pauses whose bound doubles, each drawn evenly from zero to its bound.
///
/// The draw comes from the operating system: processes that lost a server together must not come back together.
#[derive(Debug)]
pub(super) struct Backoff {
    bound: Duration,
}

impl Backoff {
    pub(super) const fn new() -> Self {
        Self { bound: FIRST }
    }

    /// The next pause.
    pub(super) fn next_pause(&mut self) -> Duration {
        let bound = self.bound;
        self.bound = (bound * 2).min(LONGEST);
        draw(bound)
    }
}

/// The pause before a server that cannot serve is looked at again; it takes somebody to mend it.
pub(super) fn slow_pause() -> Duration {
    Duration::from_millis(500) + draw(Duration::from_secs(1))
}

/// An even draw from zero to `bound`.
fn draw(bound: Duration) -> Duration {
    // Without a random source (which would stop the manager elsewhere) the pause is the whole bound.
    getrandom::u32().map_or(bound, |number| {
        bound.mul_f64(f64::from(number) / f64::from(u32::MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        let mut backoff = Backoff::new();
        let first: Vec<_> = (0..64).map(|_| Backoff::new().next_pause()).collect();
        assert!(first.iter().all(|pause| *pause <= FIRST));
        assert!(first.iter().any(|pause| *pause != first[0]));
        let later: Vec<_> = (0..64).map(|_| backoff.next_pause()).collect();
        assert!(later.iter().all(|pause| *pause <= LONGEST));
        assert!(later.iter().any(|pause| *pause > LONGEST / 4));
    }
}
