//! One held lock over its life: which node holds what, until when, and when to extend.

use std::time::Duration;

use super::quorum::Quorum;
use super::validity::{Drift, deadline};
use crate::moment::Moment;

/// The terms under which a lock is held and renewed.
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

/// What is known of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeLease {
    /// It certainly does not have our token.
    Clear,
    /// It may have our token: a command that may have set it was never answered.
    Unknown,
    /// It has our token, confirmed by a command sent at this moment. Of a lock that is followed: it has its owner's,
    /// until this moment at least, by our clock.
    Held(Moment),
    /// It had another owner's token at its last reply.
    Foreign,
}

/// One node of a lock.
#[derive(Clone, Copy, Debug)]
struct NodeEntry {
    lease: NodeLease,
    // Commands under way that may set our token.
    pending: u16,
    // Such a command may run yet, though nobody waits for it any more: no later reply says that it will not.
    doubtful: bool,
}

/// One lock that was granted, as a fold over the nodes' replies about it.
#[derive(Clone, Debug)]
pub(crate) struct LeaseNodes {
    terms: Terms,
    nodes: Vec<NodeEntry>,
    // When the last full round (the grant, then renewals) was sent.
    round: Moment,
    top_up: Option<Moment>,
    // The latest deadline that `max_hold` allows.
    cap: Moment,
    mode: RenewMode,
    // Of a lock that is followed: the most that a node had left of it, as far as it was relied on.
    longest: Duration,
}

/// What is done to renew a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RenewMode {
    /// It is extended.
    Extend,
    /// It is another owner's. The nodes are asked whether that owner has extended it.
    Follow,
    /// Nothing: it expires by itself.
    Stopped,
}

/// What the watchdog has to do with a lock now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing yet.
    Wait,
    /// Extend it on every node; re-fill where it is absent.
    Renew,
    /// Set it on the nodes that lack it.
    TopUp,
    /// The deadline is a few milliseconds away: tell the holder.
    Ending,
    /// The deadline has passed.
    Lost,
}

impl NodeEntry {
    const CLEAR: Self = Self {
        lease: NodeLease::Clear,
        pending: 0,
        doubtful: false,
    };
}

impl LeaseNodes {
    /// A lock whose acquire round was sent at `sent`. The replies are added afterwards.
    pub(crate) fn new(terms: Terms, sent: Moment) -> Self {
        let nodes = terms.quorum.nodes();
        Self {
            terms,
            nodes: vec![NodeEntry::CLEAR; nodes],
            round: sent,
            top_up: None,
            cap: sent + terms.max_hold,
            mode: RenewMode::Extend,
            longest: Duration::ZERO,
        }
    }

    /// A lock of another owner, first verified by a round sent at `sent`. The nodes that have it are added afterwards,
    /// by [`confirm_until`](Self::confirm_until).
    pub(crate) fn following(terms: Terms, sent: Moment) -> Self {
        Self {
            mode: RenewMode::Follow,
            ..Self::new(terms, sent)
        }
    }

    /// From now on nothing is sent that could prolong it.
    pub(crate) fn stop_renewing(&mut self) {
        if self.mode == RenewMode::Extend {
            self.mode = RenewMode::Stopped;
            self.top_up = None;
        }
    }

    /// A new holder has the lock from `now` on: `max_hold` counts from then.
    pub(crate) fn begin_anew(&mut self, now: Moment) {
        self.cap = self.cap.max(now + self.terms.max_hold);
    }

    /// The holder since `since` may have the lock for `max_hold` from then on.
    pub(crate) fn hold_for(&mut self, since: Moment, max_hold: Duration) {
        self.terms.max_hold = max_hold;
        self.cap = since + max_hold;
    }

    /// How long a holder may have the lock.
    pub(crate) const fn max_hold(&self) -> Duration {
        self.terms.max_hold
    }

    /// A command that may set our token is on its way to `node`.
    pub(crate) fn begin(&mut self, node: usize) {
        if let Some(entry) = self.nodes.get_mut(node) {
            entry.pending = entry.pending.saturating_add(1);
        }
    }

    /// That command was answered, or given up.
    pub(crate) fn end(&mut self, node: usize) {
        if let Some(entry) = self.nodes.get_mut(node) {
            entry.pending = entry.pending.saturating_sub(1);
        }
    }

    /// `node` holds our token for a full ttl, by a command sent at `sent`.
    pub(crate) fn confirm(&mut self, node: usize, sent: Moment) {
        if let Some(NodeEntry { lease, .. }) = self.nodes.get_mut(node) {
            *lease = match *lease {
                NodeLease::Held(before) => NodeLease::Held(before.max(sent)),
                _ => NodeLease::Held(sent),
            };
        }
    }

    /// `node` says, in reply to a verify sent at `sent`, that the owner of a lock that is [followed](Self::following)
    /// has `remaining` left there.
    ///
    /// At most our own ttl of that is relied on before the next verify, should the owner's ttl be longer. The drift of
    /// the time relied on is taken off at least: from now on the node's clock and ours run apart. The owner takes off
    /// that of its own ttl. Ours stands for it, so that we do not outlive the owner, as far as that takes no more than
    /// another tenth of the most that a node had left.
    pub(crate) fn confirm_until(&mut self, node: usize, sent: Moment, remaining: Duration) {
        let relied_on = remaining.min(self.terms.ttl);
        // The end, and not the moment so long before it at which a ttl began: that may be before the clock did.
        let (end, drift) = (sent + relied_on, self.terms.drift);
        self.longest = self.longest.max(relied_on);
        let most = drift.of(self.longest).saturating_add(self.longest / 10);
        self.confirm(node, end.saturating_sub(drift.of(self.terms.ttl).min(most)));
    }

    /// `node` has another owner's token, says the reply to a command sent at `sent`.
    pub(crate) fn foreign(&mut self, node: usize, sent: Moment) {
        self.set(node, sent, NodeLease::Foreign);
    }

    /// `node` does not have the key at all, says the reply to a command sent at `sent`.
    pub(crate) fn absent(&mut self, node: usize, sent: Moment) {
        self.set(node, sent, NodeLease::Clear);
    }

    /// A command to `node` that may have set our token, or may yet set it, was not answered.
    pub(crate) fn unknown(&mut self, node: usize) {
        if let Some(entry) = self.nodes.get_mut(node) {
            entry.doubtful = true;
            if matches!(entry.lease, NodeLease::Clear | NodeLease::Foreign) {
                entry.lease = NodeLease::Unknown;
            }
        }
    }

    fn set(&mut self, node: usize, sent: Moment, to: NodeLease) {
        if let Some(NodeEntry { lease, .. }) = self.nodes.get_mut(node) {
            // A reply that comes after that to a later command says nothing new.
            let overtaken = self.mode != RenewMode::Follow
                && matches!(lease, NodeLease::Held(later) if *later > sent);
            if !overtaken {
                *lease = to;
            }
        }
    }

    /// Whether `node` holds our token, as far as is known.
    pub(crate) fn holds(&self, node: usize) -> bool {
        matches!(self.lease(node), Some(NodeLease::Held(_)))
    }

    /// Until when the lock may be relied on; the origin of time if it never could be.
    pub(crate) fn deadline(&self) -> Moment {
        let confirmed = self.nodes.iter().filter_map(|node| match node.lease {
            NodeLease::Held(sent) => Some(sent),
            _ => None,
        });
        let Terms {
            quorum, ttl, drift, ..
        } = self.terms;
        let end = if self.mode == RenewMode::Follow {
            // These are ends, with their drift taken off.
            deadline(confirmed, quorum.needed(), Duration::ZERO, drift)
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

    /// Whether so many nodes have another owner's token that no quorum can be ours.
    pub(crate) fn taken(&self) -> bool {
        self.count(|lease| *lease == NodeLease::Foreign) > self.terms.quorum.spare()
    }

    /// Whether `node` holds our token, or may, or may be given it yet.
    pub(crate) fn owes(&self, node: usize) -> bool {
        self.is_doubtful(node)
            || matches!(
                self.lease(node),
                Some(NodeLease::Held(_) | NodeLease::Unknown)
            )
    }

    fn is_doubtful(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.doubtful)
    }

    fn lease(&self, node: usize) -> Option<NodeLease> {
        self.nodes.get(node).map(|node| node.lease)
    }

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Whether `node` certainly lacks our token and, as far as is known, has no other owner's.
    pub(crate) fn is_clear(&self, node: usize) -> bool {
        let is_clear = self.lease(node) == Some(NodeLease::Clear);
        is_clear && !self.busy(node) && !self.is_doubtful(node)
    }

    /// Whether a command that may set our token is under way to `node`.
    pub(crate) fn busy(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.pending > 0)
    }

    /// How many nodes are not known to hold our token.
    pub(crate) fn missing(&self) -> usize {
        self.count(|lease| !matches!(lease, NodeLease::Held(_)))
    }

    fn count(&self, wanted: impl Fn(&NodeLease) -> bool) -> usize {
        let leases = self.nodes.iter().map(|node| node.lease);
        leases.filter(wanted).count()
    }

    /// Asks for a top-up of the missing nodes at `at`.
    pub(crate) fn plan_top_up(&mut self, at: Moment) {
        if self.mode != RenewMode::Extend {
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
        let renewal = self.renew_at().map(|at| match self.mode {
            RenewMode::Extend => self.on_grid(at),
            // The owner's ttl may be far shorter than ours.
            RenewMode::Follow | RenewMode::Stopped => at,
        });
        let due = [renewal, self.top_up].into_iter().flatten();
        due.fold(self.announce_at(), Moment::min)
    }

    fn announce_at(&self) -> Moment {
        self.deadline().saturating_sub(self.terms.early())
    }

    /// A third of the ttl after the last round if a quorum confirmed that one, else soon after it. Never once the cap
    /// is reached: extending beyond it gains nothing. Except for a lock that is followed: its owner may release it.
    fn renew_at(&self) -> Option<Moment> {
        if self.mode == RenewMode::Follow {
            // As often as an owner with so much left would extend, and more and more often if it does not.
            return Some(self.round + self.deadline().since(self.round) / 3);
        }
        if self.capped() || self.mode == RenewMode::Stopped {
            return None;
        }
        let confirmed =
            self.count(|lease| matches!(lease, NodeLease::Held(sent) if *sent >= self.round));
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
        let mut lease = LeaseNodes::new(terms(), at(0));
        for node in nodes {
            lease.confirm(node, at(0));
        }
        lease
    }

    const GRID: Duration = Duration::from_nanos(10_000_000_000 / 64);

    #[test]
    fn it_renews_at_a_third_and_then_waits_for_the_answers() {
        let mut lease = granted_on(0..5);
        assert_eq!(lease.step(at(0)), Step::Wait);
        let due = lease.due();
        assert!(due >= at(3_333) && due <= at(3_334) + GRID, "{due:?}");
        assert_eq!(lease.step(at(3_400)), Step::Renew);
        for node in 0..3 {
            lease.confirm(node, at(3_400));
        }
        assert_eq!(lease.deadline(), at(3_400 + 9_898));
        assert_eq!(lease.step(at(3_800)), Step::Wait);
        let due = lease.due();
        assert!(due > at(6_700) && due < at(6_734) + GRID, "{due:?}");
    }

    #[test]
    fn locks_that_are_due_together_share_a_moment() {
        let due = |sent| {
            let mut lease = LeaseNodes::new(terms(), at(sent));
            (0..3).for_each(|node| lease.confirm(node, at(sent)));
            lease.due()
        };
        let moments: std::collections::BTreeSet<_> = (0..1_000).map(due).collect();
        assert!(moments.len() <= 8, "{}", moments.len());
    }

    #[test]
    fn a_renewal_without_a_quorum_is_repeated_and_moves_nothing() {
        let mut lease = granted_on(0..5);
        assert_eq!(lease.step(at(3_400)), Step::Renew);
        assert!(lease.due() <= at(3_800) + GRID);
        lease.confirm(0, at(3_400));
        lease.confirm(1, at(3_400));
        lease.unknown(2);
        assert_eq!(lease.deadline(), at(9_898));
        assert!(lease.owes(2), "a failed renewal gives nothing up");
        assert_eq!(lease.step(at(3_500)), Step::Wait);
        assert_eq!(lease.step(at(3_800)), Step::Renew);
    }

    #[test]
    fn what_was_not_answered_is_owed_for_until_the_end() {
        // It may run after whatever else the node has answered.
        for answer in [LeaseNodes::foreign, LeaseNodes::absent] {
            let mut lease = granted_on(0..4);
            for node in [3, 4] {
                lease.unknown(node);
                answer(&mut lease, node, at(3_500));
                assert!(lease.owes(node) && !lease.holds(node) && !lease.is_clear(node));
            }
            lease.confirm(4, at(3_600));
            answer(&mut lease, 4, at(3_700));
            assert!(lease.owes(4));
            answer(&mut lease, 2, at(3_700));
            assert!(!lease.owes(2));
        }
    }

    #[test]
    fn the_loss_is_announced_early_and_then_final() {
        let mut lease = granted_on(0..3);
        assert_eq!(lease.step(at(9_800)), Step::Renew);
        assert_eq!(lease.due(), at(9_893));
        assert_eq!(lease.step(at(9_893)), Step::Ending);
        assert_eq!(lease.step(at(9_898)), Step::Lost);
    }

    #[test]
    fn max_hold_ends_renewal() {
        let mut lease = granted_on(0..5);
        for node in 0..5 {
            lease.confirm(node, at(55_000));
        }
        assert!(lease.capped());
        assert_eq!(lease.deadline(), at(60_000));
        assert_eq!(lease.step(at(59_000)), Step::Wait);
        assert_eq!(lease.due(), at(59_995));
        assert_eq!(lease.step(at(59_996)), Step::Ending);
    }

    #[test]
    fn more_foreign_nodes_than_can_be_spared_are_a_loss() {
        let mut lease = granted_on(0..5);
        lease.foreign(0, at(1));
        lease.foreign(1, at(1));
        assert!(!lease.taken());
        lease.foreign(2, at(1));
        assert!(lease.taken());
        assert_eq!(lease.deadline(), Moment::ORIGIN);
    }

    #[test]
    fn an_answer_that_was_overtaken_changes_nothing() {
        let mut lease = granted_on(0..3);
        lease.confirm(0, at(3_400));
        lease.foreign(0, at(0));
        lease.absent(0, at(0));
        assert!(lease.owes(0) && lease.holds(0));
        lease.foreign(0, at(3_500));
        assert!(!lease.owes(0));
    }

    #[test]
    fn a_missing_node_is_topped_up_once() {
        let mut lease = granted_on(0..4);
        assert_eq!(lease.missing(), 1);
        lease.plan_top_up(at(100));
        assert_eq!(lease.step(at(0)), Step::Wait);
        assert_eq!(lease.due(), at(100));
        assert_eq!(lease.step(at(100)), Step::TopUp);
        lease.confirm(4, at(100));
        assert_eq!(lease.missing(), 0);
        assert_eq!(lease.step(at(200)), Step::Wait);
    }

    #[test]
    fn another_owners_lock_lasts_as_long_as_a_quorum_confirms_it() {
        let mut lease = LeaseNodes::following(terms(), at(5_000));
        for (node, left) in [9_000, 7_000, 6_000, 100].into_iter().enumerate() {
            lease.confirm_until(node, at(5_000), Duration::from_millis(left));
        }
        assert_eq!(lease.deadline(), at(5_000 + 6_000 - 102));
        assert_eq!(lease.due(), at(5_000) + Duration::from_millis(5_898) / 3);
        assert_eq!(lease.step(at(7_000)), Step::Renew);
        // The owner has not extended it: verified sooner than before.
        assert_eq!(lease.due(), at(7_000) + Duration::from_millis(3_898) / 3);
        lease.confirm_until(3, at(7_000), Duration::from_secs(60));
        lease.confirm_until(2, at(7_000), Duration::from_secs(60));
        lease.confirm_until(1, at(7_000), Duration::from_secs(60));
        assert_eq!(
            lease.deadline(),
            at(7_000 + 9_898),
            "no longer than our own ttl"
        );
        lease.plan_top_up(at(7_100));
        assert_eq!(lease.step(at(7_200)), Step::Wait, "nothing is topped up");
        for node in 0..3 {
            lease.foreign(node, at(8_000));
        }
        assert!(lease.taken());
    }

    #[test]
    fn what_is_followed_drifts_by_what_is_left_of_it_and_not_by_our_ttl() {
        let long = Terms {
            ttl: Duration::from_secs(3_600),
            max_hold: Duration::from_secs(3_600),
            ..terms()
        };
        let mut lease = LeaseNodes::following(long, at(5_000));
        (0..3).for_each(|node| lease.confirm_until(node, at(5_000), Duration::from_secs(10)));
        assert_eq!(lease.deadline(), at(5_000 + 10_000 - 1_102));
        // The owner extends on one node, and the others get nearer to their ends: those move no more than its drift.
        lease.confirm_until(3, at(14_000), Duration::from_secs(20));
        lease.confirm_until(4, at(14_500), Duration::from_secs(2));
        lease.confirm_until(0, at(14_600), Duration::from_secs(1));
        assert_eq!(lease.deadline(), at(5_000 + 10_000 - 1_102));
    }

    #[test]
    fn after_stop_renewing_nothing_is_extended_or_topped_up() {
        let mut lease = granted_on(0..4);
        lease.plan_top_up(at(100));
        lease.stop_renewing();
        lease.plan_top_up(at(200));
        assert_eq!(lease.step(at(5_000)), Step::Wait);
        assert_eq!(lease.due(), at(9_893));
        // What was under way still counts, for it is on the nodes.
        (0..3).for_each(|node| lease.confirm(node, at(3_000)));
        assert_eq!(lease.deadline(), at(12_898));
        assert_eq!(lease.step(at(12_894)), Step::Ending);
    }

    #[test]
    fn nodes_with_commands_under_way_are_busy() {
        let mut lease = granted_on(0..3);
        lease.begin(3);
        lease.begin(3);
        lease.end(3);
        assert!(lease.busy(3) && !lease.busy(2));
        lease.end(3);
        lease.end(3);
        assert!(!lease.busy(3));
        assert!(!lease.owes(3));
        lease.unknown(3);
        assert!(lease.owes(3));
    }

    #[test]
    fn what_is_followed_is_looked_at_to_the_end_that_max_hold_sets() {
        let short = Terms {
            max_hold: Duration::from_secs(10),
            ..terms()
        };
        let mut lease = LeaseNodes::following(short, at(5_000));
        // The owner has a ttl's worth left, which is more than may be used.
        (0..3).for_each(|node| lease.confirm_until(node, at(5_900), Duration::from_secs(10)));
        assert!(lease.capped());
        assert_eq!(lease.deadline(), at(15_000));
        let due = lease.due();
        assert!(due < at(10_000), "{due:?}");
        assert_eq!(
            lease.step(due),
            Step::Renew,
            "the owner may give it up before"
        );
    }

    #[test]
    fn what_is_followed_near_the_origin_of_the_clock_does_not_last_longer() {
        let soon = Moment::ORIGIN + Duration::from_millis(1);
        let mut lease = LeaseNodes::following(terms(), soon);
        (0..5).for_each(|node| lease.confirm_until(node, soon, Duration::from_millis(500)));
        assert_eq!(lease.deadline(), soon + Duration::from_millis(443));
        let mut lease = LeaseNodes::following(terms(), soon);
        (0..5).for_each(|node| lease.confirm_until(node, soon, Duration::from_millis(1)));
        assert_eq!(lease.deadline(), Moment::ORIGIN);
    }

    proptest! {
        /// Whatever the nodes answer and in whatever order: the deadline never exceeds what a quorum confirmed,
        /// nor the cap, and every node that may hold our token is owed a release.
        #[test]
        fn the_deadline_is_always_backed_by_a_quorum(
            events in prop::collection::vec((0_usize..5, 0_u8..5, 0_u64..70_000), 0..60)
        ) {
            let mut lease = granted_on(0..3);
            let mut last = [Some(0), Some(0), Some(0), None, None];
            let mut may_hold = [true, true, true, false, false];
            let mut doubtful = [false; 5];
            for (node, kind, millis) in events {
                match kind {
                    0 | 1 => {
                        lease.confirm(node, at(millis));
                        last[node] = Some(last[node].unwrap_or(0).max(millis));
                        may_hold[node] = true;
                    }
                    2 => {
                        lease.foreign(node, at(millis));
                        if last[node].is_none_or(|sent| sent <= millis) {
                            last[node] = None;
                            may_hold[node] = false;
                        }
                    }
                    3 => {
                        lease.absent(node, at(millis));
                        if last[node].is_none_or(|sent| sent <= millis) {
                            last[node] = None;
                            may_hold[node] = false;
                        }
                    }
                    _ => {
                        lease.unknown(node);
                        doubtful[node] = true;
                    }
                }
                let end = lease.deadline();
                prop_assert!(end <= at(60_000));
                if end > Moment::ORIGIN {
                    let backing = last.iter().flatten()
                        .filter(|&&sent| at(sent) + Duration::from_secs(10) > end)
                        .count();
                    prop_assert!(backing >= 3);
                }
                for (n, may_hold) in may_hold.iter().enumerate() {
                    prop_assert_eq!(lease.owes(n), *may_hold || doubtful[n]);
                }
            }
        }
    }
}
