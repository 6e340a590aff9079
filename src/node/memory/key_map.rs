//! [`KeyMap`]: a map by keys that bring their hash along.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::namespace::NodeKey;

/// A map by key. A key's hash has a random secret of this process already, so clients cannot choose keys that collide.
pub(super) type KeyMap<V> = HashMap<NodeKey, V, BuildHasherDefault<Known>>;

#[derive(Clone, Copy, Default)]
pub(super) struct Known(u64);

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
