//! Random choices that a seed decides.

/// A generator of numbers that look random.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn roll(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to one less than `count`.
    pub fn below(&mut self, count: usize) -> usize {
        let roll = u128::from(self.roll()) * count as u128;
        usize::try_from(roll >> 64).unwrap()
    }

    /// The name of a process or of its data: 40 hexadecimal digits.
    pub fn name(&mut self) -> String {
        let (a, b, c) = (self.roll(), self.roll(), self.roll() >> 32);
        format!("{a:016x}{b:016x}{c:08x}")
    }
}
