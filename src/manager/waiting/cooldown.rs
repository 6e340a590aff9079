//! [`Cooldown`]: a pause per key after a contended release, in which other processes get the lock first.
//!
//! The process that releases a lock is the first to know that it is free, and would win it again every time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::manager::queue::Name;
use crate::moment::Moment;

/// The keys in cooldown, and until when. A hint: an entry that is forgotten costs fairness only.
#[derive(Debug, Default)]
pub(crate) struct Cooldown {
    until: Mutex<HashMap<Name, Moment>>,
}

impl Cooldown {
    fn until(&self) -> MutexGuard<'_, HashMap<Name, Moment>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the cooldown of `name` at `now`.
    pub(crate) fn start(&self, name: &Name, now: Moment, length: Duration) {
        let mut until = self.until();
        if until.len() >= LIMIT {
            until.retain(|_, end| *end > now);
        }
        if until.len() < LIMIT {
            until.insert(Name::clone(name), now + length);
        }
    }

    /// The rest of the cooldown of `name`.
    pub(crate) fn left(&self, name: &Name, now: Moment) -> Option<Duration> {
        let mut until = self.until();
        let end = *until.get(name)?;
        if end <= now {
            until.remove(name);
            return None;
        }
        Some(end.since(now))
    }
}

/// The most keys at a time. Each stays for some milliseconds after a contended release.
const LIMIT: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_key_cools_down_until_its_time_and_is_then_forgotten() {
        let cooldown = Cooldown::default();
        let (name, start) = (Name::from("k"), Moment::from_nanos(1));
        assert_eq!(cooldown.left(&name, start), None);
        cooldown.start(&name, start, 5 * MS);
        assert_eq!(cooldown.left(&name, start + 2 * MS), Some(3 * MS));
        assert_eq!(cooldown.left(&Name::from("other"), start), None);
        assert_eq!(cooldown.left(&name, start + 5 * MS), None);
        assert!(cooldown.until().is_empty());
    }

    #[test]
    fn it_is_bounded_and_the_past_makes_room() {
        let cooldown = Cooldown::default();
        let start = Moment::from_nanos(1);
        for number in 0..2 * LIMIT {
            cooldown.start(&Name::from(number.to_string()), start, MS);
        }
        assert_eq!(cooldown.until().len(), LIMIT);
        cooldown.start(&Name::from("new"), start + 2 * MS, MS);
        assert_eq!(cooldown.until().len(), 1);
    }
}
