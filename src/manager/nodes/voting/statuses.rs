//! [`VotingStatuses`]: which nodes vote, and under which list of nodes, as last observed; and an operator's overrides.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::manager::nodes::voting::list::List;
use crate::manager::nodes::voting::replies::Replies;
use crate::manager::nodes::voting::state::{Foreign, Quarantine, State};
use crate::manager::nodes::voting::status::VotingStatus;
use crate::manager::notified::notified_until;
use crate::moment::Moment;
use crate::mutant::{self, Mutant};
use crate::node::{NodeError, NodeErrorKind};

/// What is known of the votes of all nodes.
#[derive(Debug)]
pub(crate) struct VotingStatuses {
    slots: Vec<Slot>,
    // How many make a quorum.
    needed: usize,
    // Something became known.
    changed: Notify,
    // Nodes that are seen for the first time are trusted to have nothing to forget.
    trusts_new: AtomicBool,
    // Every node was asked once, or the first callers have waited long enough for that.
    all_asked: AtomicBool,
    // Locked before any slot, if both are.
    list: Mutex<List>,
    // A node serves processes with another list, which ours is not known to have replaced. Changed under the mutex of
    // `list` only.
    blocked: AtomicBool,
}

/// One node.
#[derive(Debug, Default)]
struct Slot {
    known: Mutex<Known>,
    // Ask it now.
    wake: Notify,
}

/// What is known of one node, and what to do at its next check-in.
#[derive(Debug, Default)]
struct Known {
    state: State,
    // Whether it was under our config when it last answered.
    accepted: bool,
    // Whether it may have forgotten something then.
    forgot: bool,
    // The configs that ours has replaced there.
    replaced: Vec<String>,
    // It served processes with another list, has forgotten them, and does not vote yet. Until when they are given time
    // to notice, at most.
    reclaimed: Option<Moment>,
    // It was asked whether it votes, whether or not it answered.
    asked: bool,
    // It has answered that.
    answered: bool,
    // The next check-in takes it over from processes with another config.
    adopt: bool,
    // The next check-in ends its quarantine: no lock can be held.
    trusted: bool,
    // The command that it refuses and needs for its vote, and why.
    refusal: Option<(&'static str, NodeError)>,
    // Whether what it replies counts now.
    replies: Replies,
}

impl Known {
    const fn override_flag(&mut self, adopts: bool) -> &mut bool {
        if adopts {
            &mut self.adopt
        } else {
            &mut self.trusted
        }
    }
}

/// While it lives, or another that began meanwhile, nodes are trusted to have nothing to forget, or are taken over from
/// others. In the latter case the list counts as accepted once a quorum has accepted it.
#[must_use = "the override ends when this is dropped"]
pub(crate) struct Override<'a> {
    voting: &'a VotingStatuses,
    adopts: bool,
}

impl Drop for Override<'_> {
    fn drop(&mut self) {
        let mut list = self.voting.list();
        if !list.leave(self.adopts) {
            // Another call waits for the nodes that have not been asked yet.
            return;
        }
        for mut known in self.voting.all_known() {
            *known.override_flag(self.adopts) = false;
        }
    }
}

/// The overrides.
impl VotingStatuses {
    /// Sets whether nodes that are seen for the first time are trusted to have nothing to forget.
    pub(crate) fn trust_new(&self, trusted: bool) {
        self.trusts_new.store(trusted, Ordering::Release);
    }

    /// Trusts all nodes to have nothing to forget, until this is dropped.
    pub(crate) fn trust_all(&self, now: Moment) -> Override<'_> {
        self.override_all(false, now)
    }

    /// Whether any call trusts nodes to have nothing to forget.
    pub(crate) fn is_trusting(&self) -> bool {
        self.list().trusting > 0
    }

    /// Takes all nodes that answer over from processes with another config, until this is dropped.
    pub(crate) fn adopt_all(&self, now: Moment) -> Override<'_> {
        self.override_all(true, now)
    }

    fn override_all(&self, adopts: bool, now: Moment) -> Override<'_> {
        let mut list = self.list();
        list.enter(adopts, now);
        for mut known in self.all_known() {
            *known.override_flag(adopts) = true;
        }
        drop(list);
        self.recheck_all();
        let voting = self;
        Override { voting, adopts }
    }

    pub(crate) fn is_trusted(&self, node: usize, quarantine: &Quarantine) -> bool {
        self.known(node).is_some_and(|known| known.trusted)
            || quarantine.first && self.trusts_new.load(Ordering::Acquire)
    }

    pub(crate) fn is_adopted(&self, node: usize) -> bool {
        self.known(node).is_some_and(|known| known.adopt)
    }

    /// Ends one override for `node`.
    pub(crate) fn done(&self, node: usize, adopted: bool) {
        if let Some(mut known) = self.known(node) {
            *known.override_flag(adopted) = false;
        }
    }

    /// Whether an override has yet to be applied to a node.
    pub(crate) fn is_pending(&self) -> bool {
        self.all_known().any(|known| known.adopt || known.trusted)
    }

    /// Whether the quarantine of `node` is about to end, because it need not wait.
    fn is_exempt(&self, node: usize) -> bool {
        match self.get(node) {
            State::Quarantined(quarantine) => {
                (quarantine.unused && self.is_intact() || self.is_trusted(node, &quarantine))
                    && self.complete_since().is_some()
            }
            _ => false,
        }
    }
}

/// What each node has said.
impl VotingStatuses {
    /// Of `nodes` nodes, of which a quorum is `needed`. Unless they are `guarded`, all vote.
    pub(crate) fn new(nodes: usize, needed: usize, guarded: bool) -> Self {
        let voting = Self {
            slots: (0..nodes).map(|_| Slot::default()).collect(),
            needed,
            changed: Notify::new(),
            trusts_new: AtomicBool::new(false),
            all_asked: AtomicBool::new(!guarded),
            list: Mutex::default(),
            blocked: AtomicBool::new(false),
        };
        if !guarded {
            for mut known in voting.all_known() {
                known.state = State::Voting;
            }
        }
        voting
    }

    fn nodes(&self) -> std::ops::Range<usize> {
        0..self.slots.len()
    }

    fn known(&self, node: usize) -> Option<MutexGuard<'_, Known>> {
        let slot = self.slots.get(node)?;
        Some(slot.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is known of each node, one locked at a time.
    fn all_known(&self) -> impl Iterator<Item = MutexGuard<'_, Known>> {
        self.nodes().filter_map(|node| self.known(node))
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or stores whether the replies of `node` count now.
    pub(crate) fn replies<T>(
        &self,
        node: usize,
        with: impl FnOnce(&mut Replies) -> T,
    ) -> Option<T> {
        self.known(node).map(|mut known| with(&mut known.replies))
    }

    /// What is known of `node`.
    pub(crate) fn get(&self, node: usize) -> State {
        self.known(node)
            .map_or(State::Unknown, |known| known.state.clone())
    }

    /// Stores what is known of `node`; returns what was known before.
    pub(crate) fn set(&self, node: usize, state: State) -> State {
        let before = self.known(node).map_or(State::Unknown, |mut known| {
            match (&known.state, &state) {
                (_, State::Foreign(_)) => {
                    known.accepted = false;
                    known.replaced.clear();
                    known.reclaimed = None;
                }
                (_, State::Voting) => known.reclaimed = None,
                _ => {}
            }
            std::mem::replace(&mut known.state, state)
        });
        self.reassess(None);
        before
    }

    /// Stores that `node` votes under our config, which `replaced` others there.
    pub(crate) fn accepts(&self, node: usize, replaced: Vec<String>, now: Moment) {
        if let Some(mut known) = self.known(node) {
            known.accepted = true;
            known.forgot = false;
            known.replaced = replaced;
        }
        self.reassess_and_ask(now);
    }

    /// Stores that `node` is under our config, which `replaced` others there, and in a quarantine: in this one, unless
    /// that is known. Returns it, and whether it is new. If the node has forgotten other processes, those are given
    /// time until `noticed` at most.
    pub(crate) fn waits(
        &self,
        node: usize,
        replaced: Vec<String>,
        mut found: Quarantine,
        noticed: Moment,
    ) -> (Quarantine, bool) {
        let (now, mut is_new) = (found.since, true);
        // At once: in between nothing would keep our processes from going on.
        if let Some(mut known) = self.known(node) {
            known.accepted = true;
            known.forgot = !found.unused;
            match &known.state {
                State::Quarantined(before) if before.id == found.id => {
                    found = before.clone();
                    is_new = false;
                }
                State::Foreign(others) => {
                    let told = others.digest.as_ref();
                    let is_ours = told.is_some_and(|told| replaced.contains(told));
                    let is_taken = !is_ours && !mutant::is(Mutant::ReclaimedAtOnce);
                    known.reclaimed = is_taken.then_some(noticed);
                }
                State::Unknown => found.first = true,
                _ => {}
            }
            known.replaced = replaced;
            known.state = State::Quarantined(found.clone());
        }
        self.reassess_and_ask(now);
        (found, is_new)
    }

    /// The others have had time enough to notice which of our nodes they have lost.
    pub(crate) fn give_up_waiting(&self, now: Moment) {
        let is_over = |mut known: MutexGuard<'_, Known>| {
            let end = match &known.state {
                State::Quarantined(quarantine) => quarantine.end.moment(),
                _ => None,
            };
            let end = known
                .reclaimed
                .max(end.filter(|_| known.reclaimed.is_some()));
            known.reclaimed.take_if(|_| end <= Some(now)).is_some()
        };
        if self
            .all_known()
            .filter_map(|known| is_over(known).then_some(()))
            .count()
            > 0
        {
            self.reassess(None);
        }
    }

    fn reassess_and_ask(&self, now: Moment) {
        if self.reassess(Some(now)) {
            let waiting = |node: &usize| matches!(self.get(*node), State::Quarantined(_));
            let waiting = self.nodes().filter(waiting);
            waiting.for_each(|node| self.recheck(node));
        }
    }

    /// Stores that `node` is under another config, as the error of a command says.
    pub(crate) fn note_foreign(&self, node: usize, error: &NodeError) {
        let digest = error.config();
        let known = match self.get(node) {
            State::Foreign(foreign) => foreign.digest.as_deref() == digest,
            _ => false,
        };
        if known {
            return;
        }
        self.set(
            node,
            State::Foreign(Foreign {
                reason: error.to_string(),
                digest: digest.map(str::to_owned),
                replaces_ours: false,
            }),
        );
        // Its check-in tells more than the error.
        self.recheck(node);
    }

    /// Stores that `node` was asked whether it votes, and whether it `answered`.
    pub(crate) fn checked_in(&self, node: usize, answered: bool) {
        let is_news = self.known(node).is_some_and(|mut known| {
            let is_news = !known.asked || answered && !known.answered;
            known.asked = true;
            known.answered |= answered;
            is_news
        });
        if is_news {
            self.changed.notify_waiters();
        }
    }

    /// Stores that `node` refuses a command, and why; returns whether that is news.
    pub(crate) fn note_refusal(
        &self,
        node: usize,
        command: &'static str,
        error: NodeError,
    ) -> bool {
        let refusal = Some((command, error));
        self.known(node).is_some_and(|mut known| {
            std::mem::replace(&mut known.refusal, refusal.clone()) != refusal
        })
    }

    /// Stores that `node` does not refuse this command, or any. Returns the one that it refused until then.
    pub(crate) fn clear_refusal(
        &self,
        node: usize,
        command: Option<&'static str>,
    ) -> Option<&'static str> {
        let mut known = self.known(node)?;
        let is_meant = |refused: &str| command.is_none_or(|command| command == refused);
        let cleared = known.refusal.take_if(|(refused, _)| is_meant(refused));
        cleared.map(|(command, _)| command)
    }

    /// Has `node` asked again now.
    pub(crate) fn recheck(&self, node: usize) {
        if let Some(slot) = self.slots.get(node) {
            slot.wake.notify_one();
        }
    }

    /// Has all nodes asked again now.
    pub(crate) fn recheck_all(&self) {
        self.nodes().for_each(|node| self.recheck(node));
    }

    /// Waits until `node` is to be asked again.
    pub(crate) async fn recheck_due(&self, node: usize) {
        match self.slots.get(node) {
            Some(slot) => slot.wake.notified().await,
            None => std::future::pending().await,
        }
    }
}

/// What follows for all of them.
impl VotingStatuses {
    /// Judges the list as a whole. Returns whether all nodes have accepted it by `now` and had not before.
    fn reassess(&self, now: Option<Moment>) -> bool {
        // The last of several concurrent callers sees what all have stored.
        let mut list = self.list();
        let blocked = !self.blocking().is_empty();
        self.blocked.store(blocked, Ordering::Release);
        let whole = self.accepted() == self.slots.len();
        let completed = whole && list.complete.is_none();
        if !whole {
            list.complete = None;
        } else if completed {
            list.complete = now;
        }
        drop(list);
        self.changed.notify_waiters();
        completed
    }

    fn accepted(&self) -> usize {
        self.all_known().filter(|known| known.accepted).count()
    }

    /// The nodes that block all grants, and why: they are under another config, which ours has not replaced.
    pub(crate) fn blocking(&self) -> Vec<(usize, NodeError)> {
        let replaced = self.all_known().flat_map(|known| known.replaced.clone());
        let replaced: Vec<String> = replaced.collect();
        let blocks = |(node, known): (usize, MutexGuard<'_, Known>)| match &known.state {
            State::Foreign(foreign) if !known.accepted => {
                let digest = foreign.digest.as_ref();
                let before = digest.is_some_and(|digest| replaced.contains(digest));
                (!before || foreign.replaces_ours).then(|| (node, foreign.error()))
            }
            _ if known.reclaimed.is_some() => Some((node, reclaimed())),
            _ => None,
        };
        self.all_known().enumerate().filter_map(blocks).collect()
    }

    /// Whether `node` has forgotten that it served processes with another list, and does not vote yet.
    pub(crate) fn is_reclaimed(&self, node: usize) -> bool {
        self.known(node)
            .is_some_and(|known| known.reclaimed.is_some())
    }

    /// How long it takes at most until others must have noticed which of our nodes they have lost; `None`: none has, or
    /// a node serves others now.
    pub(crate) fn others_notice_in(&self, now: Moment) -> Option<Duration> {
        if !self.is_blocked() || self.serves_others() {
            return None;
        }
        let until = |known: MutexGuard<'_, Known>| {
            let end = match &known.state {
                State::Quarantined(quarantine) => quarantine.end.moment(),
                _ => None,
            };
            let until = end.filter(|end| *end > now).or(known.reclaimed);
            until.filter(|_| known.reclaimed.is_some())
        };
        let until = self.all_known().filter_map(until).max();
        until.map(|until| until.since(now))
    }

    /// Whether a node serves processes with another list now, so that none of ours may be promoted.
    pub(crate) fn serves_others(&self) -> bool {
        let foreign = |(node, _): &(usize, _)| matches!(self.get(*node), State::Foreign(_));
        self.is_blocked() && self.blocking().iter().any(foreign)
    }

    /// Whether nothing may be granted or extended, because a node serves processes with another list, or did until it
    /// forgot them, and they may go on until its quarantine is over.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire) && !mutant::is(Mutant::ForeignNodeCostsAVote)
    }

    /// Since when all nodes are known to have accepted the list, or a quorum, if it is being put in place of another.
    pub(crate) fn complete_since(&self) -> Option<Moment> {
        let list = self.list();
        let adopting = list.adopting.filter(|_| self.accepted() >= self.needed);
        list.complete.or(adopting.map(|(since, _)| since))
    }

    /// Whether no node may have forgotten a grant. One that has may have been in use by others until then.
    pub(crate) fn is_intact(&self) -> bool {
        self.all_known()
            .all(|known| known.accepted && !known.forgot)
    }

    /// Resolves at the next change of any status. Create it before the statuses are read.
    pub(crate) fn news(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Waits until `is_enough`, which is evaluated at each change, at most for `limit`.
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
        let are_asked = || self.all_known().all(|known| known.asked);
        self.news_until(asking, are_asked).await;
        let ends_none = || self.nodes().all(|node| !self.is_exempt(node));
        self.news_until(ending, ends_none).await;
        self.all_asked.store(true, Ordering::Release);
    }

    /// Whether that is over.
    pub(crate) fn were_all_asked(&self) -> bool {
        self.all_asked.load(Ordering::Acquire)
    }

    /// How many nodes have answered whether they vote.
    pub(crate) fn answered(&self) -> usize {
        self.all_known().filter(|known| known.answered).count()
    }

    /// How many nodes have answered whether they vote, and are not about to be promoted.
    pub(crate) fn settled(&self) -> usize {
        let answered = |node: &usize| self.known(*node).is_some_and(|known| known.answered);
        let answered = self.nodes().filter(answered);
        answered.filter(|node| !self.is_exempt(*node)).count()
    }

    /// After how long each node that is `up` votes, if that is known; the shortest time first.
    pub(crate) fn until_votes(&self, now: Moment, up: impl Fn(usize) -> bool) -> Vec<Duration> {
        let nodes = self.nodes().filter(|node| up(*node));
        let waits = nodes.filter_map(|node| match self.get(node) {
            State::Voting => Some(Duration::ZERO),
            State::Quarantined(_) if self.is_exempt(node) => Some(Duration::ZERO),
            State::Quarantined(quarantine) => quarantine.end.moment().map(|end| end.since(now)),
            State::Unknown | State::Foreign(_) => None,
        });
        let mut waits: Vec<Duration> = waits.collect();
        waits.sort_unstable();
        waits
    }

    /// What is known of `node`, for snapshots and metrics; `down`: why it takes no commands now.
    pub(crate) fn show(&self, node: usize, now: Moment, down: Option<String>) -> VotingStatus {
        let problem = || {
            self.replies(node, |replies| {
                replies.problem(now).map(NodeError::to_string)
            })
        };
        match self.get(node) {
            state @ (State::Unknown | State::Voting) => {
                match down.or_else(|| problem().flatten()) {
                    Some(reason) => VotingStatus::Failing { reason },
                    None if state == State::Voting => VotingStatus::Voting,
                    None => VotingStatus::Unknown,
                }
            }
            State::Quarantined(quarantine) => VotingStatus::Quarantined {
                remaining: quarantine.end.moment().map(|end| end.since(now)),
                remembered: quarantine.remembered,
            },
            State::Foreign(foreign) => VotingStatus::Foreign {
                reason: foreign.reason,
            },
        }
    }

    /// Why `node` does not grant.
    pub(crate) fn explain(&self, node: usize, now: Moment) -> Option<NodeError> {
        let known = self.known(node)?;
        match (&known.refusal, &known.state) {
            // Until that is repaired, no waiting helps.
            (Some((_, error)), _) => Some(error.clone()),
            (None, State::Quarantined(quarantine)) => {
                let text = quarantine.explain(now);
                Some(NodeError::new(NodeErrorKind::Quarantined, text))
            }
            (None, State::Foreign(foreign)) => Some(foreign.error()),
            (None, State::Unknown | State::Voting) => None,
        }
    }

    /// Whether an error of this kind says nothing new about the vote of `node`.
    pub(crate) fn knows(&self, node: usize, kind: NodeErrorKind) -> bool {
        kind != NodeErrorKind::Quarantined || matches!(self.get(node), State::Quarantined(_))
    }

    /// Whether quarantines of other nodes than `node` end by `end`, and it is not yet known how to promote those.
    pub(crate) fn others_end_by(&self, node: usize, end: Moment) -> bool {
        let mut others = self.nodes().filter(|other| *other != node);
        others.any(|other| match self.get(other) {
            State::Quarantined(other) => {
                other.plan.is_none() && other.end.moment().is_some_and(|at| at <= end)
            }
            _ => false,
        })
    }
}

/// Why a node that has forgotten the processes that it served keeps ours from going on.
fn reclaimed() -> NodeError {
    NodeError::new(
        NodeErrorKind::Foreign,
        "it served processes with another list and has forgotten them; nothing is granted until they must have noticed",
    )
}
