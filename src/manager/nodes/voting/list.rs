//! [`List`]: what is known of the list of nodes as a whole.

use crate::moment::Moment;

/// What is known of the list of nodes as a whole.
#[derive(Debug, Default)]
pub(super) struct List {
    // Since when all nodes are known to have accepted it.
    pub(super) complete: Option<Moment>,
    // Since when it is being put in place of another, and by how many calls.
    pub(super) adopting: Option<(Moment, usize)>,
    // How many calls trust its nodes to have nothing to forget.
    pub(super) trusting: usize,
}

impl List {
    /// One of the calls begins that override what nodes say.
    pub(super) fn enter(&mut self, adopts: bool, now: Moment) {
        if adopts {
            let (since, calls) = self.adopting.unwrap_or((now, 0));
            self.adopting = Some((since, calls + 1));
        } else {
            self.trusting += 1;
        }
    }

    /// One of them ends. Returns whether it was the last.
    pub(super) fn leave(&mut self, adopts: bool) -> bool {
        if adopts {
            let others = self.adopting.filter(|(_, calls)| *calls > 1);
            self.adopting = others.map(|(since, calls)| (since, calls - 1));
            self.adopting.is_none()
        } else {
            self.trusting = self.trusting.saturating_sub(1);
            self.trusting == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_override_lasts_until_the_last_call_that_began_it() {
        let at = |secs| Moment::ORIGIN + Duration::from_secs(secs);
        for adopts in [false, true] {
            let mut list = List::default();
            list.enter(adopts, at(1));
            list.enter(adopts, at(2));
            let since = adopts.then_some(at(1));
            for calls in [2, 1] {
                assert_eq!(list.adopting.map(|(since, _)| since), since);
                assert_eq!(list.trusting, if adopts { 0 } else { calls });
                assert_eq!(list.leave(adopts), calls == 1);
            }
            assert_eq!((list.adopting, list.trusting), (None, 0));
            // What comes later begins anew, and takes nothing from the other kind.
            list.enter(!adopts, at(3));
            list.enter(adopts, at(4));
            assert!(list.leave(adopts));
            let other = (!adopts).then_some((at(3), 1));
            assert_eq!((list.adopting, list.trusting), (other, usize::from(adopts)));
        }
    }
}
