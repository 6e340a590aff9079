//! [`FenceCounts`]: how the fencing tokens of this process came about.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many grants got their fencing token in which way.
#[derive(Debug, Default)]
pub(crate) struct FenceCounts {
    agreed: AtomicU64,
    written_back: AtomicU64,
}

impl FenceCounts {
    pub(crate) fn count(&self, agreed: bool) {
        let counter = if agreed {
            &self.agreed
        } else {
            &self.written_back
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// How many tokens the nodes agreed on at once, and how many had to be written back.
    pub(crate) fn get(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.agreed), read(&self.written_back))
    }
}
