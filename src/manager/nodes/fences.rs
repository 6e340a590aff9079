//! How far the fencing tokens of this process go.

use std::sync::atomic::{AtomicU64, Ordering};

/// How the numbers came about.
#[derive(Debug, Default)]
pub(in crate::manager) struct Numbers {
    pub(in crate::manager) agreed: AtomicU64,
    pub(in crate::manager) written_back: AtomicU64,
}

impl Numbers {
    pub(in crate::manager) fn count(&self, agreed: bool) {
        let counter = if agreed {
            &self.agreed
        } else {
            &self.written_back
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// How many numbers the nodes agreed on at once, and how many had to be written back.
    pub(in crate::manager) fn get(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.agreed), read(&self.written_back))
    }
}
