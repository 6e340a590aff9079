//! Random choices of the tests.

use std::ops::RangeInclusive;
use std::time::Duration;

/// True `times` out of `of` times.
pub(crate) fn chance(times: u8, of: u8) -> bool {
    fastrand::u8(..of) < times
}

/// A number of whole milliseconds.
pub(crate) fn millis(range: RangeInclusive<u64>) -> Duration {
    Duration::from_millis(fastrand::u64(range))
}

/// So many different numbers below `all`, in any order.
pub(crate) fn choose(count: usize, all: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..all).collect();
    fastrand::shuffle(&mut numbers);
    numbers.truncate(count);
    numbers
}
