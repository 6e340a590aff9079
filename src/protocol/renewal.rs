//! One held lock over its life: which node holds what, until when, and when to extend.

use std::time::Duration;

use super::quorum::Quorum;
use super::validity::{Drift, deadline};
use crate::moment::Moment;

/// The terms under which a lock is held and renewed. The same for all locks of a manager.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// How many nodes must hold it.
    pub(crate) quorum: Quorum,
    /// The time to live sent to the nodes, in whole milliseconds.
    pub(crate) ttl: Duration,
    /// What is taken off for clocks that do not run alike.
    pub(crate) drift: Drift,
    /// How long after a renewal that missed its quorum the next is tried.
    pub(crate) retry: Duration,
    /// The longest a lock may be held.
    pub(crate) max_hold: Duration,
}

impl Terms {
    /// How long before the deadline a loss is announced: enough for a timer to be late.
    fn early(&self) -> Duration {
        (self.ttl / 50).min(Duration::from_millis(5))
    }
}

/// What one node is believed to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not our token, for certain.
    Clear,
    /// Perhaps our token: a command that may have set it was never answered.
    Unknown,
    /// Our token; confirmed by a command sent at this moment. Of a lock that is followed: its owner's, until then.
    Held(Moment),
    /// Another's token, when we last heard.
    Foreign,
}

/// One lock that was granted, as a fold over what the nodes answer about it.
#[derive(Clone, Debug)]
pub(crate) struct LeaseNodes {
    terms: Terms,
    places: Vec<Place>,
    // Commands under way that may set our token, per node.
    pending: Vec<u16>,
    // When the last full round (the grant, then renewals) was sent.
    round: Moment,
    top_up: Option<Moment>,
    // The latest deadline that `max_hold` allows.
    cap: Moment,
    care: Care,
}

/// What is done to keep a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Care {
    /// It is extended.
    Extend,
    /// It is another's, and looked at to see whether they have extended it.
    Follow,
    /// Nothing: it ends by itself.
    Nothing,
}

/// What the watchdog should do with a lock now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing yet.
    Wait,
    /// Extend it on every node; re-fill where it is absent.
    Renew,
    /// Set it on the nodes that miss it.
    TopUp,
    /// The deadline is a few milliseconds away: tell the holder.
    Ending,
    /// The deadline has passed.
    Lost,
}

impl LeaseNodes {
    /// A lock whose acquiring round was sent at `sent`; what the nodes answered is told afterwards.
    pub(crate) fn new(terms: Terms, sent: Moment) -> Self {
        let nodes = terms.quorum.nodes();
        Self {
            terms,
            places: vec![Place::Clear; nodes],
            pending: vec![0; nodes],
            round: sent,
            top_up: None,
            cap: sent + terms.max_hold,
            care: Care::Extend,
        }
    }

    /// A lock of another's, first looked at by a round sent at `sent`. What is told afterwards are the nodes that
    /// [vouch](Self::vouch) for it.
    pub(crate) fn following(terms: Terms, sent: Moment) -> Self {
        Self {
            care: Care::Follow,
            ..Self::new(terms, sent)
        }
    }

    /// From now on nothing is sent that could make it last longer.
    pub(crate) fn cease(&mut self) {
        if self.care == Care::Extend {
            self.care = Care::Nothing;
            self.top_up = None;
        }
    }

    /// A new holder has the lock from `now` on: what `max_hold` allows is counted anew.
    pub(crate) fn begin_anew(&mut self, now: Moment) {
        self.cap = self.cap.max(now + self.terms.max_hold);
    }

    /// A command that may set our token is on its way to `node`.
    pub(crate) fn begin(&mut self, node: usize) {
        if let Some(count) = self.pending.get_mut(node) {
            *count = count.saturating_add(1);
        }
    }

    /// That command was answered, or given up.
    pub(crate) fn end(&mut self, node: usize) {
        if let Some(count) = self.pending.get_mut(node) {
            *count = count.saturating_sub(1);
        }
    }

    /// `node` holds our token for a full ttl, by a command sent at `sent`.
    pub(crate) fn confirm(&mut self, node: usize, sent: Moment) {
        if let Some(place) = self.places.get_mut(node) {
            *place = match *place {
                Place::Held(before) => Place::Held(before.max(sent)),
                _ => Place::Held(sent),
            };
        }
    }

    /// `node` says, by the answer to a look sent at `sent`, that the owner of a lock that is
    /// [followed](Self::following) has so much time left there.
    ///
    /// What is left beyond our own ttl, where the owner has a longer one, is not relied on before the next look.
    pub(crate) fn vouch(&mut self, node: usize, sent: Moment, remaining: Duration) {
        // The end, and not the moment so long before it at which a ttl began: that may be before the clock did.
        self.confirm(node, sent + remaining.min(self.terms.ttl));
    }

    /// `node` holds another's token, by the answer to a command sent at `sent`.
    pub(crate) fn foreign(&mut self, node: usize, sent: Moment) {
        self.set(node, sent, Place::Foreign);
    }

    /// `node` does not hold the key at all, by the answer to a command sent at `sent`.
    pub(crate) fn absent(&mut self, node: usize, sent: Moment) {
        self.set(node, sent, Place::Clear);
    }

    /// A command to `node` that may have set our token was not answered.
    pub(crate) fn unknown(&mut self, node: usize) {
        if let Some(place @ (Place::Clear | Place::Foreign)) = self.places.get_mut(node) {
            *place = Place::Unknown;
        }
    }

    fn set(&mut self, node: usize, sent: Moment, to: Place) {
        if let Some(place) = self.places.get_mut(node) {
            // An answer that was overtaken by that to a later command is old news.
            let overtaken =
                self.care != Care::Follow && matches!(place, Place::Held(later) if *later > sent);
            if !overtaken {
                *place = to;
            }
        }
    }

    /// Whether `node` holds our token, as far as is known.
    pub(crate) fn holds(&self, node: usize) -> bool {
        matches!(self.places.get(node), Some(Place::Held(_)))
    }

    /// Until when the lock may be relied on; the origin of time if it never could be.
    pub(crate) fn deadline(&self) -> Moment {
        let confirmed = self.places.iter().filter_map(|place| match place {
            Place::Held(sent) => Some(*sent),
            _ => None,
        });
        let Terms {
            quorum, ttl, drift, ..
        } = self.terms;
        let end = if self.care == Care::Follow {
            let end = deadline(confirmed, quorum.needed(), Duration::ZERO, drift);
            end.map(|end| end.saturating_sub(drift.of(ttl)))
        } else {
            deadline(confirmed, quorum.needed(), ttl, drift)
        };
        end.map_or(Moment::ORIGIN, |end| end.min(self.cap))
    }

    /// When the last extension ends that `max_hold` allows.
    pub(crate) fn latest_end(&self) -> Moment {
        self.cap + self.terms.ttl
    }

    /// Whether the end of the lock is that of `max_hold`.
    pub(crate) fn capped(&self) -> bool {
        self.deadline() == self.cap
    }

    /// Whether so many nodes hold another's token that no quorum can be ours.
    pub(crate) fn taken(&self) -> bool {
        let foreign = self
            .places
            .iter()
            .filter(|place| **place == Place::Foreign)
            .count();
        foreign > self.terms.quorum.spare()
    }

    /// Whether `node` holds our token, or may.
    pub(crate) fn owes(&self, node: usize) -> bool {
        matches!(self.places.get(node), Some(Place::Held(_) | Place::Unknown))
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        self.places.len()
    }

    /// Whether `node` certainly holds neither our token nor, for all we know, another's.
    pub(crate) fn is_clear(&self, node: usize) -> bool {
        self.places.get(node) == Some(&Place::Clear) && !self.busy(node)
    }

    /// Whether a command that may set our token is under way to `node`.
    pub(crate) fn busy(&self, node: usize) -> bool {
        self.pending.get(node).is_some_and(|count| *count > 0)
    }

    /// Whether `node` is not known to hold our token.
    pub(crate) fn misses(&self, node: usize) -> bool {
        !matches!(self.places.get(node), Some(Place::Held(_)))
    }

    /// How many nodes are not known to hold our token.
    pub(crate) fn missing(&self) -> usize {
        (0..self.places.len()).filter(|n| self.misses(*n)).count()
    }

    /// Asks for a top-up of the missing nodes at `at`.
    pub(crate) fn plan_top_up(&mut self, at: Moment) {
        if self.care != Care::Extend {
            return;
        }
        self.top_up = Some(self.top_up.map_or(at, |before| before.min(at)));
    }

    /// What is due at `now`. A step that sends is taken to be sent at `now`.
    pub(crate) fn step(&mut self, now: Moment) -> Step {
        let end = self.deadline();
        if now >= end {
            return Step::Lost;
        }
        if now >= self.announce_at() {
            return Step::Ending;
        }
        if self.renew_at().is_some_and(|at| now >= at) {
            self.round = now;
            self.top_up = None;
            return Step::Renew;
        }
        if self.top_up.is_some_and(|at| now >= at) {
            self.top_up = None;
            return Step::TopUp;
        }
        Step::Wait
    }

    /// When to ask for the next step.
    pub(crate) fn due(&self) -> Moment {
        let renewal = self.renew_at().map(|at| match self.care {
            Care::Extend => self.on_grid(at),
            // The owner's ttl may be far shorter than ours.
            Care::Follow | Care::Nothing => at,
        });
        let due = [renewal, self.top_up].into_iter().flatten();
        due.fold(self.announce_at(), Moment::min)
    }

    fn announce_at(&self) -> Moment {
        self.deadline().saturating_sub(self.terms.early())
    }

    /// A third of the ttl after the last round if a quorum confirmed that one, else soon after it. Never once
    /// the cap is reached: nothing can be won by extending beyond it. But who follows looks on: the owner may end it.
    fn renew_at(&self) -> Option<Moment> {
        if self.care == Care::Follow {
            // As often as an owner with so much left would extend, and ever more often if they do not.
            return Some(self.round + self.deadline().since(self.round) / 3);
        }
        if self.capped() || self.care == Care::Nothing {
            return None;
        }
        let confirmed = self
            .places
            .iter()
            .filter(|place| matches!(place, Place::Held(sent) if *sent >= self.round))
            .count();
        Some(if confirmed >= self.terms.quorum.needed() {
            self.round + self.terms.ttl / 3
        } else {
            self.round + self.terms.retry
        })
    }

    /// The next of the moments at which renewals are sent: locks that are due at about the same time share a
    /// batch, at the price of coming a sixty-fourth of the ttl late.
    fn on_grid(&self, at: Moment) -> Moment {
        let grid = u64::try_from(self.terms.ttl.as_nanos() / 64)
            .unwrap_or(u64::MAX)
            .max(1);
        Moment::from_nanos(at.as_nanos().div_ceil(grid).saturating_mul(grid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn terms() -> Terms {
        Terms {
            quorum: Quorum::masking(5, 0).unwrap(),
            ttl: Duration::from_secs(10),
            drift: Drift::default(),
            retry: Duration::from_millis(400),
            max_hold: Duration::from_secs(60),
        }
    }

    fn at(millis: u64) -> Moment {
        Moment::ORIGIN + Duration::from_millis(1_000_000 + millis)
    }

    fn granted_on(nodes: impl IntoIterator<Item = usize>) -> LeaseNodes {
        let mut holding = LeaseNodes::new(terms(), at(0));
        for node in nodes {
            holding.confirm(node, at(0));
        }
        holding
    }

    const GRID: Duration = Duration::from_nanos(10_000_000_000 / 64);

    #[test]
    fn it_renews_at_a_third_and_then_waits_for_the_answers() {
        let mut holding = granted_on(0..5);
        assert_eq!(holding.step(at(0)), Step::Wait);
        let due = holding.due();
        assert!(due >= at(3_333) && due <= at(3_334) + GRID, "{due:?}");
        assert_eq!(holding.step(at(3_400)), Step::Renew);
        for node in 0..3 {
            holding.confirm(node, at(3_400));
        }
        assert_eq!(holding.deadline(), at(3_400 + 9_898));
        assert_eq!(holding.step(at(3_800)), Step::Wait);
        let due = holding.due();
        assert!(due > at(6_700) && due < at(6_734) + GRID, "{due:?}");
    }

    #[test]
    fn locks_that_are_due_together_share_a_moment() {
        let due = |sent| {
            let mut holding = LeaseNodes::new(terms(), at(sent));
            (0..3).for_each(|node| holding.confirm(node, at(sent)));
            holding.due()
        };
        let moments: std::collections::BTreeSet<_> = (0..1_000).map(due).collect();
        assert!(moments.len() <= 8, "{}", moments.len());
    }

    #[test]
    fn a_renewal_without_a_quorum_is_repeated_and_moves_nothing() {
        let mut holding = granted_on(0..5);
        assert_eq!(holding.step(at(3_400)), Step::Renew);
        assert!(holding.due() <= at(3_800) + GRID);
        holding.confirm(0, at(3_400));
        holding.confirm(1, at(3_400));
        holding.unknown(2);
        assert_eq!(holding.deadline(), at(9_898));
        assert!(holding.owes(2), "a failed renewal gives nothing up");
        assert_eq!(holding.step(at(3_500)), Step::Wait);
        assert_eq!(holding.step(at(3_800)), Step::Renew);
    }

    #[test]
    fn the_loss_is_announced_early_and_then_final() {
        let mut holding = granted_on(0..3);
        assert_eq!(holding.step(at(9_800)), Step::Renew);
        assert_eq!(holding.due(), at(9_893));
        assert_eq!(holding.step(at(9_893)), Step::Ending);
        assert_eq!(holding.step(at(9_898)), Step::Lost);
    }

    #[test]
    fn max_hold_ends_renewal() {
        let mut holding = granted_on(0..5);
        for node in 0..5 {
            holding.confirm(node, at(55_000));
        }
        assert!(holding.capped());
        assert_eq!(holding.deadline(), at(60_000));
        assert_eq!(holding.step(at(59_000)), Step::Wait);
        assert_eq!(holding.due(), at(59_995));
        assert_eq!(holding.step(at(59_996)), Step::Ending);
    }

    #[test]
    fn more_foreign_nodes_than_can_be_spared_are_a_loss() {
        let mut holding = granted_on(0..5);
        holding.foreign(0, at(1));
        holding.foreign(1, at(1));
        assert!(!holding.taken());
        holding.foreign(2, at(1));
        assert!(holding.taken());
        assert_eq!(holding.deadline(), Moment::ORIGIN);
    }

    #[test]
    fn an_answer_that_was_overtaken_changes_nothing() {
        let mut holding = granted_on(0..3);
        holding.confirm(0, at(3_400));
        holding.foreign(0, at(0));
        holding.absent(0, at(0));
        assert!(holding.owes(0) && !holding.misses(0));
        holding.foreign(0, at(3_500));
        assert!(!holding.owes(0));
    }

    #[test]
    fn a_missing_node_is_topped_up_once() {
        let mut holding = granted_on(0..4);
        assert_eq!(holding.missing(), 1);
        holding.plan_top_up(at(100));
        assert_eq!(holding.step(at(0)), Step::Wait);
        assert_eq!(holding.due(), at(100));
        assert_eq!(holding.step(at(100)), Step::TopUp);
        holding.confirm(4, at(100));
        assert_eq!(holding.missing(), 0);
        assert_eq!(holding.step(at(200)), Step::Wait);
    }

    #[test]
    fn a_lock_of_anothers_lasts_as_long_as_a_quorum_vouches_for_it() {
        let mut holding = LeaseNodes::following(terms(), at(5_000));
        for (node, left) in [9_000, 7_000, 6_000, 100].into_iter().enumerate() {
            holding.vouch(node, at(5_000), Duration::from_millis(left));
        }
        assert_eq!(holding.deadline(), at(5_000 + 6_000 - 102));
        assert_eq!(holding.due(), at(5_000) + Duration::from_millis(5_898) / 3);
        assert_eq!(holding.step(at(7_000)), Step::Renew);
        // They have not extended it: looked at sooner than before.
        assert_eq!(holding.due(), at(7_000) + Duration::from_millis(3_898) / 3);
        holding.vouch(3, at(7_000), Duration::from_secs(60));
        holding.vouch(2, at(7_000), Duration::from_secs(60));
        holding.vouch(1, at(7_000), Duration::from_secs(60));
        assert_eq!(
            holding.deadline(),
            at(7_000 + 9_898),
            "no longer than our own ttl"
        );
        holding.plan_top_up(at(7_100));
        assert_eq!(holding.step(at(7_200)), Step::Wait, "nothing is topped up");
        for node in 0..3 {
            holding.foreign(node, at(8_000));
        }
        assert!(holding.taken());
    }

    #[test]
    fn what_has_ceased_is_neither_extended_nor_topped_up() {
        let mut holding = granted_on(0..4);
        holding.plan_top_up(at(100));
        holding.cease();
        holding.plan_top_up(at(200));
        assert_eq!(holding.step(at(5_000)), Step::Wait);
        assert_eq!(holding.due(), at(9_893));
        // What was under way still counts, for it is on the nodes.
        (0..3).for_each(|node| holding.confirm(node, at(3_000)));
        assert_eq!(holding.deadline(), at(12_898));
        assert_eq!(holding.step(at(12_894)), Step::Ending);
    }

    #[test]
    fn nodes_with_commands_under_way_are_busy() {
        let mut holding = granted_on(0..3);
        holding.begin(3);
        holding.begin(3);
        holding.end(3);
        assert!(holding.busy(3) && !holding.busy(2));
        holding.end(3);
        holding.end(3);
        assert!(!holding.busy(3));
        assert!(!holding.owes(3));
        holding.unknown(3);
        assert!(holding.owes(3));
    }

    #[test]
    fn what_is_followed_is_looked_at_to_the_end_that_max_hold_sets() {
        let short = Terms {
            max_hold: Duration::from_secs(10),
            ..terms()
        };
        let mut holding = LeaseNodes::following(short, at(5_000));
        // The owner has a ttl's worth left, which is more than may be used.
        (0..3).for_each(|node| holding.vouch(node, at(5_900), Duration::from_secs(10)));
        assert!(holding.capped());
        assert_eq!(holding.deadline(), at(15_000));
        let due = holding.due();
        assert!(due < at(10_000), "{due:?}");
        assert_eq!(
            holding.step(due),
            Step::Renew,
            "the owner may give it up before"
        );
    }

    #[test]
    fn what_is_followed_near_the_origin_of_the_clock_does_not_last_longer() {
        let soon = Moment::ORIGIN + Duration::from_millis(1);
        let mut holding = LeaseNodes::following(terms(), soon);
        (0..5).for_each(|node| holding.vouch(node, soon, Duration::from_millis(500)));
        assert_eq!(holding.deadline(), soon + Duration::from_millis(398));
        let mut holding = LeaseNodes::following(terms(), soon);
        (0..5).for_each(|node| holding.vouch(node, soon, Duration::from_millis(50)));
        assert_eq!(holding.deadline(), Moment::ORIGIN);
    }

    proptest! {
        /// Whatever the nodes answer and in whatever order: the deadline never exceeds what a quorum confirmed,
        /// nor the cap, and every node that may hold our token is owed a release.
        #[test]
        fn the_deadline_is_always_backed_by_a_quorum(
            events in prop::collection::vec((0_usize..5, 0_u8..5, 0_u64..70_000), 0..60)
        ) {
            let mut holding = granted_on(0..3);
            let mut last = [Some(0), Some(0), Some(0), None, None];
            let mut may_hold = [true, true, true, false, false];
            for (node, kind, millis) in events {
                match kind {
                    0 | 1 => {
                        holding.confirm(node, at(millis));
                        last[node] = Some(last[node].unwrap_or(0).max(millis));
                        may_hold[node] = true;
                    }
                    2 => {
                        holding.foreign(node, at(millis));
                        if last[node].is_none_or(|sent| sent <= millis) {
                            last[node] = None;
                            may_hold[node] = false;
                        }
                    }
                    3 => {
                        holding.absent(node, at(millis));
                        if last[node].is_none_or(|sent| sent <= millis) {
                            last[node] = None;
                            may_hold[node] = false;
                        }
                    }
                    _ => {
                        holding.unknown(node);
                        may_hold[node] = true;
                    }
                }
                let end = holding.deadline();
                prop_assert!(end <= at(60_000));
                if end > Moment::ORIGIN {
                    let backing = last.iter().flatten()
                        .filter(|&&sent| at(sent) + Duration::from_secs(10) > end)
                        .count();
                    prop_assert!(backing >= 3);
                }
                for (n, may_hold) in may_hold.iter().enumerate() {
                    prop_assert_eq!(holding.owes(n), *may_hold);
                }
            }
        }
    }
}
