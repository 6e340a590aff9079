//! Inputs that nobody has chosen: those of the corpus, changed here and there. Without a fuzzer's eye for what is new,
//! but on every machine.

/// Numbers that look random and follow from a seed.
pub struct Dice(pub u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to one less than `count`; 0 if that is 0.
    fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count.max(1)).unwrap();
        usize::try_from(self.roll() % count).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.roll().to_le_bytes()[0]
    }

    /// One of the inputs with some bytes changed, left out, repeated, or those of another input.
    pub fn mutate(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut input = inputs[self.below(inputs.len())].clone();
        for _ in 0..=self.below(4) {
            let (at, byte) = (self.below(input.len() + 1), self.byte());
            let to = (at + self.below(16)).min(input.len());
            match self.below(6) {
                0 if at < input.len() => input[at] = byte,
                1 if at < input.len() => input[at] ^= 1 << (byte % 8),
                2 => drop(input.drain(at..to)),
                3 => {
                    let again = input[at..to].to_vec();
                    input.splice(at..at, again);
                }
                4 => {
                    let other = &inputs[self.below(inputs.len())];
                    let from = self.below(other.len());
                    input.splice(at..to, other[from..].iter().copied());
                }
                _ => input.insert(at, byte),
            }
        }
        input.truncate(1_024);
        input
    }
}
