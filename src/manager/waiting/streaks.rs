//! [`Streaks`]: for how long this process has had a key, release after release, with hardly a pause in between.
//!
//! A client of another library that polls leaves no trace on the nodes when it is refused. Nobody can tell that it
//! waits; only that it can hardly have had a chance.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::manager::queue::Name;
use crate::moment::Moment;

/// The keys that this process released of late. A hint: an entry that is forgotten costs fairness only.
#[derive(Debug, Default)]
pub(crate) struct Streaks {
    of: Mutex<HashMap<Name, Streak>>,
}

#[derive(Clone, Copy, Debug)]
struct Streak {
    began: Moment,
    released: Moment,
}

impl Streaks {
    fn of(&self) -> MutexGuard<'_, HashMap<Name, Streak>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that `name`, granted at `granted`, was released at `now`; whether it is to be left to others for `pause`,
    /// because this process has had it for `length`. Being away for the pause ends a streak, too.
    pub(crate) fn released(
        &self,
        name: &Name,
        (granted, now): (Moment, Moment),
        length: Duration,
        pause: Duration,
    ) -> bool {
        let mut of = self.of();
        let before = of.remove(name);
        let before = before.filter(|streak| granted.since(streak.released) < pause);
        let began = before.map_or(granted, |streak| streak.began);
        if now.since(began) >= length {
            return true;
        }
        if of.len() >= LIMIT {
            of.retain(|_, streak| now.since(streak.released) < pause);
        }
        if of.len() < LIMIT {
            let streak = Streak {
                began,
                released: now,
            };
            of.insert(Name::clone(name), streak);
        }
        false
    }

    /// Another has had `name`.
    pub(crate) fn end(&self, name: &Name) {
        self.of().remove(name);
    }
}

/// The most keys at a time. Each stays until it was left alone for as long as a pause.
const LIMIT: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Released by `streaks` after `from..to`, in milliseconds: whether it is to be left to others, for 20 ms after 50.
    fn released(streaks: &Streaks, name: &str, from: u32, to: u32) -> bool {
        let start = Moment::from_nanos(1);
        let times = (start + from * MS, start + to * MS);
        streaks.released(&Name::from(name), times, 50 * MS, 20 * MS)
    }

    #[test]
    fn a_key_is_left_to_others_after_its_time_whether_in_one_piece_or_in_several() {
        let streaks = Streaks::default();
        assert!(released(&streaks, "k", 0, 50));
        assert!(!released(&streaks, "k", 70, 100));
        assert!(!released(&streaks, "other", 70, 100));
        assert!(!released(&streaks, "k", 110, 119));
        assert!(released(&streaks, "k", 119, 120));
        assert!(!released(&streaks, "k", 120, 169), "a new one began");
    }

    #[test]
    fn being_away_ends_a_streak_and_so_does_another_holder() {
        let streaks = Streaks::default();
        assert!(!released(&streaks, "k", 0, 30));
        assert!(!released(&streaks, "k", 50, 60), "away for 20 ms");
        streaks.end(&Name::from("k"));
        assert!(!released(&streaks, "k", 70, 119), "it was another's");
        assert!(released(&streaks, "k", 119, 120));
        assert!(streaks.of().is_empty());
    }

    #[test]
    fn it_is_bounded_and_the_past_makes_room() {
        let streaks = Streaks::default();
        for number in 0..2 * LIMIT {
            assert!(!released(&streaks, &number.to_string(), 0, 1));
        }
        assert_eq!(streaks.of().len(), LIMIT);
        assert!(!released(&streaks, "new", 30, 31));
        assert_eq!(streaks.of().len(), 1);
    }
}
