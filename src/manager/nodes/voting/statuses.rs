//! [`VotingStatuses`]: which nodes vote, and under which list of nodes, as last observed.

use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::manager::error::NodeFailure;
use crate::manager::nodes::voting::list::{
    Foreign, Known, List, Quarantine, Replies, Told, VoteState, VotingStatus,
};
use crate::manager::tasks::notified_until;
use crate::moment::Moment;
use crate::node::{CheckInMode, NodeError, NodeErrorKind};

/// The nodes of one group, by their places in it, and what is known of the whole list.
#[derive(Clone, Debug)]
pub(crate) struct VotingStatuses {
    all: Arc<All>,
    // The places of the group's nodes in the list.
    group: Range<usize>,
}

#[derive(Debug)]
pub(crate) struct All {
    list: Mutex<List>,
    // Of each node, whether what it replies counts now.
    replies: Vec<Mutex<Replies>>,
    // Of each node: ask it now.
    wake: Vec<Notify>,
    // Something became known.
    changed: Notify,
    // Every node was asked once, or the first callers have waited long enough for that.
    all_asked: AtomicBool,
    // Nothing may be granted or extended. As in `list`, for callers that have no time for a mutex.
    blocked: AtomicBool,
}

/// While one lives, nodes are trusted to have nothing to forget, or are taken over from others.
#[must_use = "the override ends when this is dropped"]
pub(crate) struct Override<'a> {
    voting: &'a VotingStatuses,
    adopts: bool,
}

impl Drop for Override<'_> {
    fn drop(&mut self) {
        let mut list = self.voting.list();
        let calls = list.calls(self.adopts);
        *calls -= 1;
        if *calls > 0 {
            // Another call waits for the nodes that have not been asked yet.
            return;
        }
        if self.adopts {
            list.former = Duration::ZERO;
        }
        list.override_all(self.adopts, false);
    }
}

impl VotingStatuses {
    pub(crate) fn trust_new(&self, trusted: bool) {
        self.list().trusts_new = trusted;
    }

    /// Trusts all nodes to have nothing to forget, until this is dropped.
    pub(crate) fn trust_all(&self) -> Override<'_> {
        self.override_all(false, Duration::ZERO)
    }

    pub(crate) fn is_trusting(&self) -> bool {
        self.list().trusting > 0
    }

    /// Takes all nodes that answer over from processes with another config, until this is dropped. `former`: the length
    /// of quarantines under that, if the nodes do not tell it.
    pub(crate) fn adopt_all(&self, former: Duration) -> Override<'_> {
        self.override_all(true, former)
    }

    fn override_all(&self, adopts: bool, former: Duration) -> Override<'_> {
        let mut list = self.list();
        list.former = list.former.max(former);
        *list.calls(adopts) += 1;
        list.override_all(adopts, true);
        drop(list);
        self.recheck_all();
        let voting = self;
        Override { voting, adopts }
    }

    pub(super) fn mode(&self, node: usize) -> CheckInMode {
        let list = self.list();
        match list.nodes.get(self.place(node)) {
            Some(Known { adopt: true, .. }) => CheckInMode::Adopt {
                former: list.former,
            },
            _ => CheckInMode::Normal,
        }
    }

    pub(super) fn adopted(&self, node: usize) {
        if let Some(known) = self.list().nodes.get_mut(self.place(node)) {
            known.adopt = false;
        }
    }

    pub(crate) fn is_pending(&self) -> bool {
        let list = self.list();
        list.nodes.iter().any(|known| known.adopt || known.trusted)
    }
}

impl VotingStatuses {
    /// Whether a node is in quarantine that served processes with another list.
    pub(crate) fn is_taking_over(&self) -> bool {
        let list = self.list();
        let mut quarantines = list.nodes.iter().filter_map(Known::quarantine);
        quarantines.any(|quarantine| quarantine.reclaimed)
    }
}

impl VotingStatuses {
    /// Of the nodes with these names, in groups of `size`; of each group a quorum is `needed`, and each node replies
    /// within `node_timeout`. Unless they are `guarded`, all vote. It begins with the first group.
    pub(crate) fn new(
        names: Vec<String>,
        size: usize,
        needed: usize,
        node_timeout: Duration,
        guarded: bool,
    ) -> Self {
        // Processes that reach a node have its answer by then: they ask once a second.
        let notice = 2 * IDLE + node_timeout;
        Self {
            all: Arc::new(All {
                replies: names.iter().map(|_| Mutex::default()).collect(),
                wake: names.iter().map(|_| Notify::new()).collect(),
                list: Mutex::new(List::new(names, (size, needed), notice, guarded)),
                changed: Notify::new(),
                all_asked: AtomicBool::new(!guarded),
                blocked: AtomicBool::new(false),
            }),
            group: 0..size,
        }
    }

    /// The same for the next group.
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

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store<T>(
        &self,
        node: usize,
        now: Moment,
        change: impl FnOnce(&mut Known) -> T,
    ) -> Option<T> {
        let mut list = self.list();
        let stored = list.nodes.get_mut(self.place(node)).map(change);
        let is_whole = list.nodes.iter().all(Known::accepts);
        let completed = is_whole && list.complete.is_none();
        list.complete = is_whole.then(|| list.complete.unwrap_or(now));
        let blocked = !list.blocking(now).is_empty();
        self.blocked.store(blocked, Ordering::Release);
        drop(list);
        self.changed.notify_waiters();
        if completed {
            // The wait of those in quarantine has begun.
            self.recheck_all();
        }
        stored
    }

    pub(crate) fn replies<T>(
        &self,
        node: usize,
        with: impl FnOnce(&mut Replies) -> T,
    ) -> Option<T> {
        let replies = self.replies.get(self.place(node))?;
        Some(with(
            &mut replies.lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    pub(super) fn votes(&self, node: usize, now: Moment) -> Option<Quarantine> {
        let before = self.store(node, now, |known| {
            known.trusted = false;
            std::mem::replace(&mut known.state, VoteState::Voting)
        });
        match before {
            Some(VoteState::Quarantined(quarantine)) => Some(quarantine),
            _ => None,
        }
    }

    /// Stores that `node` is in quarantine: in the one that was `found`, unless that is known.
    pub(super) fn waits(&self, node: usize, mut found: Quarantine) {
        let (now, notice) = (found.since, self.list().notice);
        self.store(node, now, |known| {
            let before = std::mem::take(&mut known.state);
            if let VoteState::Quarantined(before) = &before {
                // It may have forgotten what it said of the list that ours replaced.
                found.former = found.former.max(before.former);
            }
            match before {
                VoteState::Quarantined(before) if before.id == found.id => {
                    let (former, accepted) = (found.former, found.accepted);
                    found = Quarantine {
                        former,
                        accepted,
                        ..before
                    };
                }
                before => {
                    found.first = before == VoteState::Unknown;
                    found.reclaimed = !found.former.is_zero() || before.is_of_others();
                    if found.reclaimed {
                        found.since = now + notice;
                    }
                }
            }
            known.state = VoteState::Quarantined(found);
        });
    }

    /// Stores that `node` serves processes with another config. Returns whether that is news.
    pub(super) fn foreign(
        &self,
        node: usize,
        reason: String,
        digest: Option<&str>,
        now: Moment,
    ) -> bool {
        let digest = digest.map(str::to_owned);
        let state = VoteState::Foreign(Foreign { reason, digest });
        let change = |known: &mut Known| {
            let is_news = known.state != state;
            known.state = state;
            is_news
        };
        self.store(node, now, change) == Some(true)
    }

    pub(crate) fn note_foreign(&self, node: usize, error: &NodeError, now: Moment) {
        let place = self.place(node);
        let is_known = match self.list().nodes.get(place).map(|known| &known.state) {
            Some(VoteState::Foreign(foreign)) => foreign.digest.as_deref() == error.config(),
            _ => false,
        };
        if !is_known {
            self.foreign(node, error.to_string(), error.config(), now);
            self.recheck(node);
        }
    }

    pub(super) fn checked_in(&self, node: usize, answered: bool) {
        let place = self.place(node);
        let is_news = self.list().nodes.get_mut(place).is_some_and(|known| {
            let is_news = !known.asked || answered && !known.answered;
            known.asked = true;
            known.answered |= answered;
            is_news
        });
        if is_news {
            self.changed.notify_waiters();
        }
    }

    pub(super) fn note_refusal(
        &self,
        node: usize,
        command: &'static str,
        error: NodeError,
    ) -> bool {
        let refusal = Some((command, error));
        self.list()
            .nodes
            .get_mut(self.place(node))
            .is_some_and(|known| std::mem::replace(&mut known.refusal, refusal.clone()) != refusal)
    }

    pub(super) fn clear_refusal(
        &self,
        node: usize,
        command: Option<&'static str>,
    ) -> Option<&'static str> {
        let mut list = self.list();
        let known = list.nodes.get_mut(self.place(node))?;
        let is_meant = |refused: &str| command.is_none_or(|command| command == refused);
        let cleared = known.refusal.take_if(|(refused, _)| is_meant(refused));
        cleared.map(|(command, _)| command)
    }

    pub(crate) fn recheck(&self, node: usize) {
        if let Some(wake) = self.wake.get(self.place(node)) {
            wake.notify_one();
        }
    }

    pub(crate) fn recheck_all(&self) {
        self.wake.iter().for_each(Notify::notify_one);
    }

    pub(super) async fn recheck_due(&self, node: usize) {
        match self.wake.get(self.place(node)) {
            Some(wake) => wake.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Deref for VotingStatuses {
    type Target = All;

    fn deref(&self) -> &All {
        &self.all
    }
}

impl VotingStatuses {
    pub(super) fn may_promote(&self, node: usize, now: Moment) -> bool {
        let list = self.list();
        list.is_over(self.place(node), now) && !list.serves_others()
    }

    pub(super) fn left(&self, node: usize, now: Moment) -> Option<Duration> {
        self.list().left(self.place(node), now)
    }

    /// The next line of the log on a quarantine that goes on. Each is said once.
    pub(super) fn news_of(&self, node: usize, now: Moment) -> Option<Told> {
        let (mut list, node) = (self.list(), self.place(node));
        let tell = match list.end(node) {
            Some(_) => Told::Wait,
            None => Told::Incomplete,
        };
        if list.is_spared(node) {
            return None;
        }
        let VoteState::Quarantined(quarantine) = &mut list.nodes.get_mut(node)?.state else {
            return None;
        };
        // The others may not have answered yet.
        if tell == Told::Incomplete && now.since(quarantine.since) < IDLE {
            return None;
        }
        let before = std::mem::replace(&mut quarantine.told, tell);
        (before != tell && before != Told::Wait).then_some(tell)
    }

    /// Whether nothing says that `node`, in quarantine, was ever used, where `intact` others vote.
    pub(super) fn is_fresh(&self, node: usize, intact: usize) -> bool {
        let mut list = self.list();
        let known = list.nodes.get_mut(self.place(node));
        match known.map(|known| &mut known.state) {
            Some(VoteState::Quarantined(quarantine)) => quarantine.is_fresh(intact),
            _ => false,
        }
    }

    /// Whether the tokens of `node`, which is about to vote, may be lost where `intact` other nodes vote; and whether
    /// that is to be logged.
    pub(super) fn lost_tokens(&self, node: usize, intact: usize) -> (bool, bool) {
        let (mut list, node) = (self.list(), self.place(node));
        let (is_intact, is_trusted) = (list.is_intact(), list.is_trusted(node));
        let needed = list.needed;
        let Some(VoteState::Quarantined(quarantine)) =
            list.nodes.get_mut(node).map(|it| &mut it.state)
        else {
            return (true, false);
        };
        let may_have_forgotten = !quarantine.unused || !is_intact;
        let are_lost = may_have_forgotten && intact < needed;
        // A node that nothing is known of may be as new as it looks.
        let is_new = quarantine.is_fresh(intact);
        (are_lost, are_lost && !is_new && !is_trusted)
    }
}

impl VotingStatuses {
    /// The nodes that keep all groups from granting locks.
    pub(crate) fn blocking(&self, now: Moment) -> Vec<NodeFailure> {
        self.list().blocking(now)
    }

    pub(crate) fn serves_others(&self) -> bool {
        self.list().serves_others()
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire)
    }

    /// Resolves at the next answer of a node, also one that changes nothing. Create it before the statuses are read.
    pub(crate) fn news(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Waits until `is_enough`, which is evaluated at each answer, at most for `limit`.
    pub(crate) async fn news_until(&self, limit: Duration, is_enough: impl Fn() -> bool) {
        let enough = notified_until(&self.changed, || is_enough().then_some(()));
        let _ = timeout(limit, enough).await;
    }

    /// Waits until every node was asked once, for `asking` at most, and then until no quarantine is about to end, for
    /// `ending` at most.
    pub(crate) async fn all_asked(&self, asking: Duration, ending: Duration) {
        if self.were_all_asked() {
            return;
        }
        let are_asked = || self.list().nodes.iter().all(|known| known.asked);
        self.news_until(asking, are_asked).await;
        let ends_none = || {
            let list = self.list();
            (0..list.nodes.len()).all(|node| !list.is_exempt(node))
        };
        self.news_until(ending, ends_none).await;
        self.all_asked.store(true, Ordering::Release);
    }

    pub(crate) fn were_all_asked(&self) -> bool {
        self.all_asked.load(Ordering::Acquire)
    }

    pub(crate) fn answered(&self) -> usize {
        let list = self.list();
        let nodes = list.nodes.get(self.group.clone()).into_iter().flatten();
        nodes.filter(|known| known.answered).count()
    }

    pub(crate) fn settled(&self) -> usize {
        let list = self.list();
        let answered = |node: usize| list.nodes.get(node).is_some_and(|known| known.answered);
        let is_settled = |node: &usize| answered(*node) && !list.is_exempt(*node);
        self.group.clone().filter(is_settled).count()
    }

    pub(crate) fn until_votes(&self, now: Moment, up: impl Fn(usize) -> bool) -> Vec<Duration> {
        let list = self.list();
        let wait = |node: usize| match &list.nodes.get(node)?.state {
            VoteState::Voting => Some(Duration::ZERO),
            VoteState::Quarantined(_) if list.is_exempt(node) => Some(Duration::ZERO),
            VoteState::Quarantined(_) => list.end(node).map(|end| end.since(now)),
            VoteState::Unknown | VoteState::Foreign(_) => None,
        };
        let reclaimed = |node: &usize| list.quarantine(*node).is_some_and(|it| it.reclaimed);
        // One of any group keeps all from granting.
        let all = 0..list.nodes.len();
        let least = all.filter(reclaimed).filter_map(wait).max();
        let least = least.unwrap_or_default();
        let nodes = self.group.clone();
        let waits = nodes
            .filter(|node| up(node - self.group.start))
            .filter_map(wait);
        let mut waits: Vec<Duration> = waits.map(|wait| wait.max(least)).collect();
        waits.sort_unstable();
        waits
    }

    pub(crate) fn show(&self, node: usize, now: Moment, down: Option<String>) -> VotingStatus {
        let (list, place) = (self.list(), self.place(node));
        let votes = match list.nodes.get(place).map(|known| &known.state) {
            Some(VoteState::Quarantined(_)) => {
                return VotingStatus::Quarantined {
                    remaining: list.left(place, now),
                    remembered: list.remembers(place),
                };
            }
            Some(VoteState::Foreign(foreign)) => {
                return VotingStatus::Foreign {
                    reason: foreign.reason.clone(),
                };
            }
            state => state == Some(&VoteState::Voting),
        };
        drop(list);
        let problem = || {
            self.replies(node, |replies| {
                replies.problem(now).map(NodeError::to_string)
            })
        };
        match down.or_else(|| problem().flatten()) {
            Some(reason) => VotingStatus::Failing { reason },
            None if votes => VotingStatus::Voting,
            None => VotingStatus::Unknown,
        }
    }

    pub(crate) fn explain(&self, node: usize, now: Moment) -> Option<NodeError> {
        let (list, node) = (self.list(), self.place(node));
        let known = list.nodes.get(node)?;
        match (&known.refusal, &known.state) {
            // Until that is repaired, no waiting helps.
            (Some((_, error)), _) => Some(error.clone()),
            (None, VoteState::Quarantined(quarantine)) => {
                let left = list.left(node, now);
                let text = quarantine.explain(left, list.remembers(node));
                Some(NodeError::new(NodeErrorKind::Quarantined, text))
            }
            (None, VoteState::Foreign(foreign)) => Some(foreign.error()),
            (None, VoteState::Unknown | VoteState::Voting) => None,
        }
    }

    pub(crate) fn knows(&self, node: usize, kind: NodeErrorKind) -> bool {
        let place = self.place(node);
        kind != NodeErrorKind::Quarantined || self.list().quarantine(place).is_some()
    }
}

/// How often a node is asked whether it votes.
pub(super) const IDLE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_lasts_until_the_last_call_that_began_it() {
        let voting = VotingStatuses::new(vec!["a".to_owned()], 1, 1, IDLE, true);
        let former = Duration::from_secs(60);
        let adopts = |former| voting.mode(0) == CheckInMode::Adopt { former };
        let first = voting.adopt_all(former);
        let second = voting.adopt_all(Duration::ZERO);
        let trust = voting.trust_all();
        drop(first);
        assert!(adopts(former) && voting.is_trusting() && voting.is_pending());
        // The end of the last call of one kind changes nothing for the other.
        drop(trust);
        assert!(adopts(former) && !voting.is_trusting());
        let trust = voting.trust_all();
        drop(second);
        assert_eq!(voting.mode(0), CheckInMode::Normal);
        assert!(voting.is_trusting() && voting.is_pending());
        drop(trust);
        assert!(!voting.is_trusting() && !voting.is_pending());
        // What comes later begins anew.
        let third = voting.adopt_all(Duration::ZERO);
        assert!(adopts(Duration::ZERO));
        drop(third);
    }

    #[test]
    fn a_node_that_others_have_lost_blocks_all_grants_also_when_it_forgets_once_more() {
        let voting = VotingStatuses::new(vec!["a".to_owned()], 1, 1, IDLE, true);
        let quarantine = |id: &str, since| Quarantine {
            id: id.to_owned(),
            since,
            length: IDLE,
            former: Duration::ZERO,
            accepted: true,
            first: false,
            unused: false,
            reclaimed: false,
            fresh: None,
            told: Told::Nothing,
        };
        let start = Moment::ORIGIN;
        voting.foreign(0, "another list".to_owned(), Some("digest"), start);
        // It is theirs until they must have noticed, and then in quarantine.
        let after = start + 4 * IDLE;
        for (id, now) in [
            ("first", start),
            ("second", start + IDLE),
            ("second", after),
        ] {
            voting.waits(0, quarantine(id, now));
            assert!(voting.is_blocked(), "{id}");
        }
        let after = after + 2 * IDLE;
        voting.waits(0, quarantine("second", after));
        assert!(!voting.is_blocked());
    }
}
