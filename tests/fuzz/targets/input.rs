//! The bytes of an input as choices.

/// What is left of an input. At its end all choices are zeros, and all texts are empty.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or_default()
    }

    /// A number below `count`, which is at least 1.
    pub fn below(&mut self, count: u8) -> u8 {
        self.byte() % count
    }

    /// One of these, which are at least one.
    pub fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Any number, often one at the edge of something.
    pub fn number(&mut self) -> u64 {
        let kind = self.byte();
        let mut bytes = [0; 8];
        let given = self.take(usize::from(kind % 9));
        bytes[..given.len()].copy_from_slice(given);
        let number = u64::from_le_bytes(bytes);
        match kind / 9 {
            0..=9 => number,
            10..=13 => u64::MAX - number,
            14..=17 => (1 << 63) ^ number,
            18..=21 => (1_u64 << (number % 64)).wrapping_sub(1),
            _ => number % 10_000,
        }
    }

    /// Fewer than `most` bytes.
    pub fn bytes(&mut self, most: u8) -> &'a [u8] {
        let len = self.below(most);
        self.take(usize::from(len))
    }

    /// A text of fewer than `most` bytes, before what is not UTF-8 is replaced.
    pub fn text(&mut self, most: u8) -> String {
        String::from_utf8_lossy(self.bytes(most)).into_owned()
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}
