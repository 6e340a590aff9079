//! [`KeyMap`]: a map by keys that bring their hash along. [`Now`]: the clocks at one command.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::clock::Clock;
use crate::moment::Moment;
use crate::namespace::NodeKey;

/// A map by key. A key's hash has a random secret of this process already, so clients cannot choose keys that collide.
pub(crate) type KeyMap<V> = HashMap<NodeKey, V, BuildHasherDefault<Known>>;

#[derive(Clone, Copy, Default)]
pub(crate) struct Known(u64);

impl Hasher for Known {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        // No key is hashed by its bytes. If it were, it would still have one hash.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The clocks at one command.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub(crate) moment: Moment,
    pub(crate) unix_micros: u64,
}

impl Now {
    pub(crate) fn read(clock: &dyn Clock) -> Self {
        Self {
            moment: clock.now(),
            unix_micros: clock.unix_micros(),
        }
    }

    #[cfg(feature = "idempotency")]
    pub(crate) const fn unix_millis(self) -> u64 {
        self.unix_micros / 1_000
    }
}
