//! A lock is extended while it is held: it does not end by itself before `max_hold`.
//!
//! That is, where nothing is wrong with servers, processes and the network.

use super::{Found, History, Terms, each_event, named};
use crate::workload::history::What;

pub(super) fn check(history: &History, terms: &Terms) -> Found {
    each_event(history, |what| match what {
        // Holders that are blocked are told nothing.
        What::Expired { holder } if terms.calm && terms.agreed => Some(format!(
            "{}, and it has ended by itself, though nothing is wrong",
            named(history, *holder)
        )),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::hand::{history, holder};
    use super::*;

    #[test]
    fn a_lock_that_ends_while_nothing_is_wrong_is_found() {
        let count = |what: What, terms: &Terms| {
            check(&history(&[holder(0, "a", 1, 10)], &[(90, what)]), terms).len()
        };
        let expired = What::Expired { holder: 0 };
        let strict = Terms::strict();
        assert_eq!(count(expired.clone(), &strict), 1);
        assert_eq!(count(What::Ended { holder: 0 }, &strict), 0);
        let troubled = Terms::but(|terms| terms.calm = false);
        assert_eq!(count(expired, &troubled), 0);
    }
}
