//! [`Rolls`]: the random choices of a plan, a function of its seed.

use tower_redlock_simulated::server::dice::Dice;

/// A stream of random choices.
#[derive(Clone, Debug)]
pub(crate) struct Rolls(Dice);

impl Rolls {
    /// The stream of `seed` for one purpose: what one purpose takes leaves the others as they are.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        let mut state = seed ^ 0x6A09_E667_F3BC_C909;
        for byte in purpose.bytes() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        let mut dice = Dice::new(state);
        dice.roll();
        Self(dice)
    }

    /// From 0 to one less than `end`; 0 if that is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let product = u128::from(self.0.roll()) * u128::from(end);
        (product >> 64) as u64
    }

    /// From `least` to `most`.
    pub(crate) fn range(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// Small values are as likely as large ones: even in the logarithm.
    pub(crate) fn wide(&mut self, least: u64, most: u64) -> u64 {
        let (low, high) = ((least.max(1) as f64).ln(), (most.max(1) as f64).ln());
        let share = self.below(1 << 30) as f64 / (1_u64 << 30) as f64;
        ((high - low).mul_add(share, low).exp() as u64).clamp(least, most)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of `all`.
    pub(crate) fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }

    /// One of `all`, each as likely as its weight says.
    pub(crate) fn weighted<T: Clone>(&mut self, all: &[(u64, T)]) -> T {
        let mut left = self.below(all.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in all {
            if left < *weight {
                return value.clone();
            }
            left -= weight;
        }
        all[0].1.clone()
    }

    /// Each of `all` with this chance in percent, at least one if there is any.
    pub(crate) fn some<T: Clone>(&mut self, all: &[T], chance: u64) -> Vec<T> {
        let chosen = all.iter().filter(|_| self.percent(chance));
        let mut chosen: Vec<T> = chosen.cloned().collect();
        if chosen.is_empty() && !all.is_empty() {
            chosen.push(self.pick(all));
        }
        chosen
    }
}
