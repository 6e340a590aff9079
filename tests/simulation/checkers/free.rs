//! A key that nobody has is not refused to those who wait for it: not because one that waits for several keys, of which
//! others are held, keeps it busy.
//!
//! That is, where nothing is wrong with servers, processes and the network.

use super::{Found, History, Terms, each_event};
use crate::workload::history::What;

pub(super) fn check(history: &History, terms: &Terms) -> Found {
    let is_promised = terms.calm && terms.prompt && terms.agreed;
    each_event(history, |what| match what {
        What::Refused {
            call,
            process,
            key,
            free,
            bound,
        } if is_promised && free > bound => Some(format!(
            "{process} (call {call}) waited in vain for {key}, which nobody had for {free} ms; allowed are at most {bound} ms"
        )),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::hand::{history, process};
    use super::*;

    #[test]
    fn whoever_is_refused_what_nobody_has_is_found() {
        let count = |free, terms: &Terms| {
            let (process, key) = (process(0), "lk:order:1".to_owned());
            let refused = What::Refused {
                call: 3,
                process,
                key,
                free,
                bound: 100,
            };
            check(&history(&[], &[(10, refused)]), terms).len()
        };
        let strict = Terms::strict();
        assert_eq!(count(100, &strict), 0);
        assert_eq!(count(101, &strict), 1);
        let troubled = Terms::but(|terms| terms.calm = false);
        assert_eq!(count(101, &troubled), 0);
    }
}
