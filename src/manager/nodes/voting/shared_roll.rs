//! [`SharedRoll`] shares the roll of all groups between tasks, and wakes them when something becomes known.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::manager::error::NodeFailure;
use crate::manager::nodes::voting::roll::{Call, Roll};
use crate::manager::nodes::voting::status::{Replies, VotingStatus};
use crate::manager::tasks::notified_until;
use crate::moment::Moment;
use crate::node::{NodeError, NodeErrorKind};

/// The roll as one group sees it. Its methods take a node's place in the group.
#[derive(Clone, Debug)]
pub(crate) struct SharedRoll {
    all: Arc<All>,
    // The places of the group's nodes in the list.
    group: Range<usize>,
}

#[derive(Debug)]
struct All {
    roll: Mutex<Roll>,
    // For each node, whether its replies count now.
    replies: Vec<Mutex<Replies>>,
    // For each node, notified when its monitor should ask it now.
    wake: Vec<Notify>,
    // Notified when something became known.
    changed: Notify,
    // Whether every node was asked once, or the first callers have waited long enough for that.
    all_asked: AtomicBool,
    // The latest moment from which the validity of a lock may count, in nanoseconds. A copy of what `roll` says, to be
    // read without the mutex.
    relied_until: AtomicU64,
    guarded: bool,
    // Whether nothing may be granted or extended. A copy of what `roll` says, to be read without the mutex.
    blocked: AtomicBool,
}

/// While it lives, the call of an operator overrides what nodes say.
#[must_use = "the override ends when this is dropped"]
pub(crate) struct Overriding<'a> {
    voting: &'a SharedRoll,
    call: Call,
}

impl Drop for Overriding<'_> {
    fn drop(&mut self) {
        (self.call)(&mut self.voting.roll()).end();
    }
}

impl SharedRoll {
    /// Makes the roll as the first group sees it. Each group has `size` nodes.
    pub(crate) fn new(
        names: Vec<String>,
        size: usize,
        needed: usize,
        node_timeout: Duration,
        guarded: bool,
    ) -> Self {
        Self {
            all: Arc::new(All {
                replies: names.iter().map(|_| Mutex::default()).collect(),
                wake: names.iter().map(|_| Notify::new()).collect(),
                roll: Mutex::new(Roll::new(names, (size, needed), node_timeout, guarded)),
                changed: Notify::new(),
                all_asked: AtomicBool::new(!guarded),
                relied_until: AtomicU64::new(0),
                guarded,
                blocked: AtomicBool::new(false),
            }),
            group: 0..size,
        }
    }

    pub(crate) fn next_group(&self) -> Self {
        let (end, size) = (self.group.end, self.group.len());
        Self {
            all: Arc::clone(&self.all),
            group: end..end + size,
        }
    }

    const fn place(&self, node: usize) -> usize {
        self.group.start + node
    }

    fn roll(&self) -> MutexGuard<'_, Roll> {
        let roll = self.all.roll.lock();
        roll.unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedRoll {
    pub(super) fn at<T>(&self, node: usize, ask: impl FnOnce(&mut Roll, usize) -> T) -> T {
        ask(&mut self.roll(), self.place(node))
    }

    pub(super) fn event<T>(
        &self,
        node: usize,
        now: Moment,
        event: impl FnOnce(&mut Roll, usize) -> T,
    ) -> T {
        let mut roll = self.roll();
        let result = event(&mut roll, self.place(node));
        let completed = roll.completes(now);
        let blocked = !roll.blocking(now).is_empty();
        self.all.blocked.store(blocked, Ordering::Release);
        drop(roll);
        self.all.changed.notify_waiters();
        if completed {
            // The wait of quarantined nodes begins now, so their monitors must plan its end.
            self.recheck_all();
        }
        result
    }

    pub(super) fn asked(&self, node: usize, sent: Moment) {
        self.rely(|roll| roll.asked(self.place(node), sent));
    }

    pub(super) fn unanswered(&self, node: usize, sent: Moment) {
        if self.rely(|roll| roll.unanswered(self.place(node), sent)) {
            self.all.changed.notify_waiters();
        }
    }

    fn rely<T>(&self, event: impl FnOnce(&mut Roll) -> T) -> T {
        let mut roll = self.roll();
        let result = event(&mut roll);
        let until = roll.relied_until().as_nanos();
        self.all.relied_until.store(until, Ordering::Release);
        result
    }

    pub(super) async fn recheck_due(&self, node: usize) {
        match self.all.wake.get(self.place(node)) {
            Some(wake) => wake.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl SharedRoll {
    pub(crate) fn trust_new(&self, trusted: bool) {
        self.roll().trust_new(trusted);
    }

    pub(crate) fn trust_all(&self) -> Overriding<'_> {
        self.begin(|roll| &mut roll.trust, Duration::ZERO)
    }

    /// `former` is the length of quarantines under the list that is replaced, for nodes that do not know it.
    pub(crate) fn adopt_all(&self, former: Duration) -> Overriding<'_> {
        self.begin(|roll| &mut roll.adoption, former)
    }

    fn begin(&self, call: Call, former: Duration) -> Overriding<'_> {
        self.roll().begin(call, former);
        self.recheck_all();
        Overriding { voting: self, call }
    }

    pub(crate) fn is_trusting(&self) -> bool {
        self.roll().trust.calls > 0
    }

    pub(crate) fn is_pending(&self) -> bool {
        let roll = self.roll();
        !(roll.trust.pending.is_empty() && roll.adoption.pending.is_empty())
    }

    pub(crate) fn is_any_quarantined(&self) -> bool {
        self.roll().is_any_quarantined()
    }
}

impl SharedRoll {
    pub(crate) fn replies<T>(&self, node: usize, ask: impl FnOnce(&mut Replies) -> T) -> Option<T> {
        let replies = self.all.replies.get(self.place(node))?.lock();
        Some(ask(&mut replies.unwrap_or_else(PoisonError::into_inner)))
    }

    /// The node has refused a command for a lock. It is asked again only if the error says something new, because
    /// otherwise each caller would have it asked.
    pub(crate) fn heard(&self, node: usize, error: &NodeError, now: Moment) {
        self.replies(node, |replies| replies.refused(error, now));
        let is_known = |roll: &mut Roll, node| match error.kind() {
            NodeErrorKind::Foreign => roll.is_foreign(node, error.config()),
            NodeErrorKind::Quarantined => roll.quarantine(node).is_some(),
            _ => true,
        };
        if self.at(node, is_known) {
            return;
        }
        if error.kind() == NodeErrorKind::Foreign {
            self.event(node, now, |roll, node| roll.refused_as_foreign(node, error));
        }
        self.recheck(node);
    }

    pub(crate) fn recheck(&self, node: usize) {
        if let Some(wake) = self.all.wake.get(self.place(node)) {
            wake.notify_one();
        }
    }

    pub(crate) fn recheck_all(&self) {
        self.all.wake.iter().for_each(Notify::notify_one);
    }

    /// Resolves at the next answer of a node. Create it before you ask the roll.
    pub(crate) fn news(&self) -> tokio::sync::futures::Notified<'_> {
        self.all.changed.notified()
    }

    pub(crate) async fn news_until(&self, limit: Duration, is_enough: impl Fn() -> bool) {
        let enough = notified_until(&self.all.changed, || is_enough().then_some(()));
        let _ = timeout(limit, enough).await;
    }

    /// Waits until every node was asked once, for at most `asking`, and then until no quarantine is about to end, for
    /// at most `ending`.
    pub(crate) async fn all_asked(&self, asking: Duration, ending: Duration) {
        self.news_until(asking, || self.roll().all_asked()).await;
        let ends_none = || {
            let roll = self.roll();
            (0..self.all.wake.len()).all(|node| !roll.is_exempt(node))
        };
        self.news_until(ending, ends_none).await;
        self.all.all_asked.store(true, Ordering::Release);
    }

    pub(crate) fn were_all_asked(&self) -> bool {
        self.all.all_asked.load(Ordering::Acquire)
    }

    /// Whether each node was asked recently enough for a lock whose validity counts from `sent`. Without the guard,
    /// that does not matter.
    pub(crate) fn were_asked_lately(&self, sent: Moment) -> bool {
        let until = self.all.relied_until.load(Ordering::Acquire);
        sent.as_nanos() <= until || !self.all.guarded
    }
}

impl SharedRoll {
    pub(crate) fn is_blocked(&self) -> bool {
        self.all.blocked.load(Ordering::Acquire)
    }

    pub(crate) fn blocking(&self, now: Moment) -> Vec<NodeFailure> {
        self.roll().blocking(now)
    }

    pub(crate) fn serves_others(&self) -> bool {
        self.roll().serves_others()
    }

    pub(crate) fn answered(&self) -> usize {
        let (roll, nodes) = (self.roll(), self.group.clone());
        nodes.filter(|node| roll.has_answered(*node)).count()
    }

    pub(crate) fn settled(&self) -> usize {
        let roll = self.roll();
        let is_settled = |node: &usize| roll.has_answered(*node) && !roll.is_exempt(*node);
        self.group.clone().filter(is_settled).count()
    }

    pub(crate) fn until_votes(&self, now: Moment, is_up: impl Fn(usize) -> bool) -> Vec<Duration> {
        let is_up = |place| is_up(place - self.group.start);
        self.roll().until_votes(self.group.clone(), now, is_up)
    }

    pub(crate) fn status(&self, node: usize, now: Moment) -> VotingStatus {
        self.at(node, |roll, node| roll.status(node, now))
    }

    pub(crate) fn explain(&self, node: usize, now: Moment) -> Option<NodeError> {
        self.at(node, |roll, node| roll.explain(node, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_sees_its_own_nodes() {
        let names = (0..4).map(|node| node.to_string()).collect();
        let first = SharedRoll::new(names, 2, 2, Duration::from_secs(1), true);
        let second = first.next_group();
        let now = Moment::ORIGIN + Duration::from_secs(1);
        for node in 0..2 {
            second.event(node, now, |roll, node| roll.voted(node));
        }
        assert_eq!((first.answered(), second.answered()), (0, 2));
        let is_up = |node| {
            assert!(node < 2, "a place in the group");
            true
        };
        assert_eq!(second.until_votes(now, is_up), [Duration::ZERO; 2]);
        assert_eq!(first.until_votes(now, is_up), []);
    }
}
