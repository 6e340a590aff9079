//! A small generator, so that a history can be had again from its seed.

#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) const fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    /// One of so many, by its index.
    pub(super) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.roll(count as u64)).unwrap()
    }
}
