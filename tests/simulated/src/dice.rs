//! Random choices that a seed decides.

/// A stream of numbers that look random.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The stream of a seed for one purpose. Other purposes have other streams, so that one more choice for one of them
    /// changes nothing for the rest.
    pub fn of(seed: u64, purpose: &str) -> Self {
        let mut hash = Hash::default();
        hash.add(&seed.to_le_bytes());
        hash.add(purpose.as_bytes());
        Self(mixed(hash.value()))
    }

    /// The next number.
    pub const fn roll(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.0)
    }

    /// A number from 0 to one less than `count`.
    pub fn below(&mut self, count: usize) -> usize {
        let product = u128::from(self.roll()) * count as u128;
        (product >> 64) as usize
    }

    /// A number from `least` to `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        let count = most.saturating_sub(least) + 1;
        least + self.below(count as usize) as u64
    }

    /// True `times` out of `of` times.
    pub fn chance(&mut self, times: usize, of: usize) -> bool {
        self.below(of) < times
    }

    /// One of `items`, which are not none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// The name of a process or of its data: 40 hexadecimal digits.
    pub fn name(&mut self) -> String {
        let (a, b, c) = (self.roll(), self.roll(), self.roll() >> 32);
        format!("{a:016x}{b:016x}{c:08x}")
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let roll = self.roll().to_le_bytes();
            chunk.copy_from_slice(&roll[..chunk.len()]);
        }
    }
}

const fn mixed(value: u64) -> u64 {
    let mixed = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// FNV-1a: the same in every run, and on every machine.
#[derive(Clone, Copy, Debug)]
pub struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Hash {
    /// Adds bytes, and where they end.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let word = word
                .iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            self.step(word);
        }
        for byte in words.remainder() {
            self.step(u64::from(*byte));
        }
        self.step(bytes.len() as u64 ^ 0xFF00);
    }

    const fn step(&mut self, word: u64) {
        self.0 = (self.0 ^ word)
            .wrapping_mul(0x0100_0000_01B3)
            .rotate_left(23);
    }

    /// The hash of all that was added.
    pub const fn value(self) -> u64 {
        mixed(self.0)
    }
}

#[test]
fn streams_of_one_seed_are_the_same_in_every_run_and_differ_by_purpose() {
    let rolls = |purpose| {
        let mut dice = Dice::of(7, purpose);
        [dice.roll(), dice.roll(), dice.between(3, 5)]
    };
    assert_eq!(rolls("a"), rolls("a"));
    assert_ne!(rolls("a"), rolls("b"));
    assert!((3..=5).contains(&rolls("a")[2]));
}

#[test]
fn the_hash_knows_where_a_part_ends() {
    let hash = |parts: &[&str]| {
        let mut hash = Hash::default();
        parts.iter().for_each(|part| hash.add(part.as_bytes()));
        hash.value()
    };
    assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
    assert_ne!(hash(&["12345678"]), hash(&["12345679"]));
}
