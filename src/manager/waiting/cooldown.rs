//! Whom this process lets go first: after a release that others were waiting for, it stands back for a moment.
//!
//! Who releases a lock is the first to know that it is free, and would win it again every time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::manager::queue::Name;
use crate::moment::Moment;

/// The keys that this process stands back from, and until when. A hint: what is forgotten costs fairness only.
#[derive(Debug, Default)]
pub(in crate::manager) struct Cooldown {
    until: Mutex<HashMap<Name, Moment>>,
}

impl Cooldown {
    fn until(&self) -> MutexGuard<'_, HashMap<Name, Moment>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stands back from `name` for `pause` from `now` on.
    pub(in crate::manager) fn stand_back(&self, name: &Name, now: Moment, pause: Duration) {
        let mut until = self.until();
        if until.len() >= LIMIT {
            until.retain(|_, end| *end > now);
        }
        if until.len() < LIMIT {
            until.insert(Name::clone(name), now + pause);
        }
    }

    /// How long to stand back from `name` yet.
    pub(in crate::manager) fn pause(&self, name: &Name, now: Moment) -> Option<Duration> {
        let mut until = self.until();
        let end = *until.get(name)?;
        if end <= now {
            until.remove(name);
            return None;
        }
        Some(end.since(now))
    }
}

/// The most keys at a time: each is there for some milliseconds after a release that others waited for.
const LIMIT: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_key_is_stood_back_from_until_its_time_and_then_forgotten() {
        let cooldown = Cooldown::default();
        let (name, start) = (Name::from("k"), Moment::from_nanos(1));
        assert_eq!(cooldown.pause(&name, start), None);
        cooldown.stand_back(&name, start, 5 * MS);
        assert_eq!(cooldown.pause(&name, start + 2 * MS), Some(3 * MS));
        assert_eq!(cooldown.pause(&Name::from("other"), start), None);
        assert_eq!(cooldown.pause(&name, start + 5 * MS), None);
        assert!(cooldown.until().is_empty());
    }

    #[test]
    fn it_is_bounded_and_the_past_makes_room() {
        let cooldown = Cooldown::default();
        let start = Moment::from_nanos(1);
        for number in 0..2 * LIMIT {
            cooldown.stand_back(&Name::from(number.to_string()), start, MS);
        }
        assert_eq!(cooldown.until().len(), LIMIT);
        cooldown.stand_back(&Name::from("new"), start + 2 * MS, MS);
        assert_eq!(cooldown.until().len(), 1);
    }
}
