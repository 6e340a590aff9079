//! Random choices of the tests.

use std::time::Duration;

/// A generator of numbers that look random.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// One that nobody can predict.
    pub(crate) fn new() -> Self {
        Self(getrandom::u64().unwrap())
    }

    fn roll(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to one less than `count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let roll = u128::from(self.roll()) * count as u128;
        usize::try_from(roll >> 64).unwrap()
    }

    /// True `times` out of `of` times.
    pub(crate) fn chance(&mut self, times: usize, of: usize) -> bool {
        self.below(of) < times
    }

    /// A number of whole milliseconds from `least` to `most`.
    pub(crate) fn millis(&mut self, least: usize, most: usize) -> Duration {
        Duration::from_millis((least + self.below(most - least + 1)) as u64)
    }

    /// `count` different numbers below `all`.
    pub(crate) fn choose(&mut self, count: usize, all: usize) -> Vec<usize> {
        let mut left: Vec<usize> = (0..all).collect();
        (0..count)
            .map(|_| left.swap_remove(self.below(left.len())))
            .collect()
    }
}
