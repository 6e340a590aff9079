//! What a manager knows of its nodes' right to vote.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::manager::snapshot::optional_seconds;
use crate::moment::Moment;
use crate::node::{NodeError, NodeErrorKind};
use crate::token::FencingToken;

/// Whether a node's word counts, as far as a manager knows.
///
/// Serialised, it is `{"is": "voting"}`, and so on with the fields of the variant; times are seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeStanding {
    /// Not known yet: the node has not been asked, or has not answered.
    Unknown,
    /// It votes. Also where the restart guard is off, and nobody asks.
    Voting,
    /// It may have forgotten locks and does not vote before they have ended.
    Quarantined {
        /// For how long yet, as far as is known; `None`: not before more of the other nodes answer, or every node has
        /// accepted the list.
        #[serde(serialize_with = "optional_seconds")]
        remaining: Option<Duration>,
        /// Whether enough other nodes remember the fencing tokens. If not, the clock decides how they go on.
        remembered: bool,
    },
    /// It serves processes with other nodes or settings. As long as it does, nothing is granted or extended, unless our
    /// list is known to have replaced theirs.
    Foreign {
        /// What is said of it.
        reason: String,
    },
}

/// The standings of all nodes of a manager.
#[derive(Debug)]
pub(in crate::manager) struct Standings {
    slots: Vec<Slot>,
    // How many make a quorum.
    needed: usize,
    // Something became known.
    changed: Notify,
    // Until then it is taken on trust that nodes which are seen for the first time have nothing to forget.
    vouched: AtomicBool,
    // Nothing is waited for any more before the first lock is asked for.
    introduced: AtomicBool,
    list: Mutex<List>,
    // Some node serves processes with another list, of which we do not know that ours has replaced it. Changed under the
    // mutex of `list` only.
    blocked: AtomicBool,
}

/// What is known of the list of nodes as a whole.
#[derive(Debug, Default)]
struct List {
    // Since when all nodes are known to have accepted it.
    complete: Option<Moment>,
    // Since when it is being put in place of another, and by how many calls.
    adopting: Option<(Moment, usize)>,
}

#[derive(Debug)]
struct Slot {
    known: Mutex<Known>,
    // Look at it now.
    bell: Notify,
    // It was looked at, whether or not it answered.
    looked: AtomicBool,
    // It has said whether it votes.
    heard: AtomicBool,
    // The next look takes it over from processes with another charter.
    adopt: AtomicBool,
    // The next look ends its quarantine: no lock can be held.
    trusted: AtomicBool,
    // What it refuses to do for a vote and why, until somebody mends that.
    trouble: Mutex<Option<(&'static str, NodeError)>>,
}

#[derive(Debug)]
struct Known {
    state: State,
    // Whether it was under our charter when it last said anything.
    accepted: bool,
    // The charters that ours has replaced there.
    replaced: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Unknown,
    Voting,
    Quarantined(Quarantine),
    Foreign(Foreign),
}

/// A quarantine as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Quarantine {
    pub(super) id: String,
    /// When this process first saw it, by its own clock.
    pub(super) since: Moment,
    pub(super) end: End,
    pub(super) remembered: bool,
    /// Seen before anything else of the node.
    pub(super) first: bool,
    /// The node has nothing to forget.
    pub(super) unused: bool,
    /// What it is let in with, once its time is over.
    pub(super) plan: Option<Plan>,
}

/// What a node is let in with after its quarantine, by what the others said when that was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// When they were asked.
    pub(super) asked: Moment,
    /// The longest lease that they know of.
    pub(super) known: Duration,
    pub(super) high_water: Option<FencingToken>,
    /// Whether none of them votes.
    pub(super) alone: bool,
}

/// When a quarantine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    At(Moment),
    /// Not before every node has accepted the list.
    Incomplete,
    /// Not before more of the others answer.
    Alone,
}

impl End {
    pub(super) const fn moment(self) -> Option<Moment> {
        match self {
            Self::At(moment) => Some(moment),
            Self::Incomplete | Self::Alone => None,
        }
    }
}

/// The charter of a node that is under another than ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    pub(super) reason: String,
    /// `None`: not told.
    pub(super) digest: Option<String>,
    /// Whether it has replaced ours.
    pub(super) replaces_ours: bool,
}

/// While it lives, nodes are trusted to have nothing to forget, or are taken over from others.
#[must_use = "what is asked for ends when this is dropped"]
pub(super) struct Wish<'a> {
    standings: &'a Standings,
    flag: fn(&Slot) -> &AtomicBool,
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        for slot in &self.standings.slots {
            (self.flag)(slot).store(false, Ordering::Release);
        }
    }
}

/// While it lives, nodes are taken over from others, and a quorum of them will do for the list to be used.
#[must_use = "what is asked for ends when this is dropped"]
pub(super) struct Adoption<'a> {
    _wish: Wish<'a>,
    standings: &'a Standings,
}

impl Drop for Adoption<'_> {
    fn drop(&mut self) {
        let mut list = self.standings.list();
        list.adopting = match list.adopting {
            Some((since, calls)) if calls > 1 => Some((since, calls - 1)),
            _ => None,
        };
    }
}

impl Standings {
    /// The standings of so many nodes, of which so many are needed; all vote where it does not matter what they forget.
    pub(in crate::manager) fn new(nodes: usize, needed: usize, guarded: bool) -> Self {
        let state = if guarded {
            State::Unknown
        } else {
            State::Voting
        };
        let slot = || Slot {
            known: Mutex::new(Known {
                state: state.clone(),
                accepted: false,
                replaced: Vec::new(),
            }),
            bell: Notify::new(),
            looked: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            adopt: AtomicBool::new(false),
            trusted: AtomicBool::new(false),
            trouble: Mutex::new(None),
        };
        Self {
            slots: (0..nodes).map(|_| slot()).collect(),
            needed,
            changed: Notify::new(),
            vouched: AtomicBool::new(false),
            introduced: AtomicBool::new(!guarded),
            list: Mutex::default(),
            blocked: AtomicBool::new(false),
        }
    }

    fn known(&self, node: usize) -> Option<MutexGuard<'_, Known>> {
        let slot = self.slots.get(node)?;
        Some(slot.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of `node`.
    pub(super) fn get(&self, node: usize) -> State {
        self.known(node)
            .map_or(State::Unknown, |known| known.state.clone())
    }

    /// Notes what is known of `node` now; tells what was known before.
    pub(super) fn set(&self, node: usize, state: State) -> State {
        let before = match self.known(node) {
            Some(mut known) => {
                if matches!(state, State::Foreign(_)) {
                    known.accepted = false;
                    known.replaced.clear();
                }
                std::mem::replace(&mut known.state, state)
            }
            None => State::Unknown,
        };
        self.judge(None);
        before
    }

    /// Notes that `node` is under our charter, which `replaced` others there.
    pub(super) fn accepts(&self, node: usize, replaced: Vec<String>, now: Moment) {
        if let Some(mut known) = self.known(node) {
            known.accepted = true;
            known.replaced = replaced;
        }
        if self.judge(Some(now)) {
            let waits = |node: &usize| matches!(self.get(*node), State::Quarantined(_));
            let nodes = 0..self.slots.len();
            nodes.filter(waits).for_each(|node| self.suspect(node));
        }
    }

    /// Looks at the list as a whole. Tells whether all nodes have accepted it by `now` and had not before.
    fn judge(&self, now: Option<Moment>) -> bool {
        // Whoever comes last sees what all before have noted.
        let mut list = self.list();
        let blocked = self.foreigners().any(|(_, harmless)| !harmless);
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
        let nodes = 0..self.slots.len();
        let accepted = |node: &usize| self.known(*node).is_some_and(|known| known.accepted);
        nodes.filter(accepted).count()
    }

    /// The nodes under another charter, and whether each only costs its vote: ours has replaced theirs.
    fn foreigners(&self) -> impl Iterator<Item = (usize, bool)> {
        let replaced: Vec<String> = (0..self.slots.len())
            .filter_map(|node| self.known(node).map(|known| known.replaced.clone()))
            .flatten()
            .collect();
        (0..self.slots.len()).filter_map(move |node| {
            let known = self.known(node)?;
            match &known.state {
                State::Foreign(foreign) if !known.accepted => {
                    let digest = foreign.digest.as_ref();
                    let before = digest.is_some_and(|digest| replaced.contains(digest));
                    Some((node, before && !foreign.replaces_ours))
                }
                _ => None,
            }
        })
    }

    /// Whether nothing may be granted or extended, because a node serves processes with another list.
    pub(in crate::manager) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Acquire)
    }

    /// Since when all nodes are known to have accepted the list, or a quorum, if it is being put in place of another.
    pub(super) fn complete_since(&self) -> Option<Moment> {
        let list = self.list();
        let adopting = list.adopting.filter(|_| self.accepted() >= self.needed);
        list.complete.or(adopting.map(|(since, _)| since))
    }

    /// Whether quarantines of other nodes than `node` end by `end`, and it is not yet known what those are let in with.
    pub(super) fn is_awaited(&self, node: usize, end: Moment) -> bool {
        let mut others = (0..self.slots.len()).filter(|other| *other != node);
        others.any(|other| match self.get(other) {
            State::Quarantined(other) => {
                other.plan.is_none() && other.end.moment().is_some_and(|at| at <= end)
            }
            _ => false,
        })
    }

    /// Notes what an answer to a command says of the charter that `node` is under.
    pub(in crate::manager) fn is_foreign(&self, node: usize, error: &NodeError) {
        let digest = error.charter();
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
        // It tells more than that.
        self.suspect(node);
    }

    /// Notes that `node` was looked at, and whether it `answered`.
    pub(super) fn looked(&self, node: usize, answered: bool) {
        let Some(slot) = self.slots.get(node) else {
            return;
        };
        let heard = answered && !slot.heard.swap(true, Ordering::AcqRel);
        if !slot.looked.swap(true, Ordering::AcqRel) || heard {
            self.changed.notify_waiters();
        }
    }

    /// How many nodes have said whether they vote.
    pub(in crate::manager) fn heard(&self) -> usize {
        let heard = |slot: &&Slot| slot.heard.load(Ordering::Acquire);
        self.slots.iter().filter(heard).count()
    }

    /// Whether no node has yet to be looked at, nor is about to be let in.
    fn is_introduced(&self) -> bool {
        let mut slots = self.slots.iter().enumerate();
        slots.all(|(node, slot)| {
            slot.looked.load(Ordering::Acquire) && !self.is_welcome(node, &self.get(node))
        })
    }

    /// Whether `node` is about to be let in, for it need not wait.
    fn is_welcome(&self, node: usize, state: &State) -> bool {
        match state {
            State::Quarantined(quarantine) => {
                (quarantine.unused || self.is_trusted(node, quarantine))
                    && self.complete_since().is_some()
            }
            _ => false,
        }
    }

    /// Waits until every node was looked at once, so that it is known whom they serve; at most for `limit`. Once in the
    /// life of a manager.
    pub(in crate::manager) async fn introduced(&self, limit: Duration) {
        if self.introduced.load(Ordering::Acquire) {
            return;
        }
        let all = async {
            loop {
                let news = self.news();
                if self.is_introduced() {
                    return;
                }
                news.await;
            }
        };
        let _ = timeout(limit, all).await;
        self.introduced.store(true, Ordering::Release);
    }

    fn trouble(&self, node: usize) -> Option<MutexGuard<'_, Option<(&'static str, NodeError)>>> {
        let slot = self.slots.get(node)?;
        Some(slot.trouble.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that `node` refuses a command, and why; tells whether that is news.
    pub(super) fn refuses(&self, node: usize, command: &'static str, error: NodeError) -> bool {
        let trouble = Some((command, error));
        self.trouble(node)
            .is_some_and(|mut known| std::mem::replace(&mut *known, trouble.clone()) != trouble)
    }

    /// Notes that `node` does not refuse this command, or any.
    pub(super) fn obeys(&self, node: usize, command: Option<&'static str>) {
        if let Some(mut known) = self.trouble(node)
            && (command.is_none() || command == known.as_ref().map(|(refused, _)| *refused))
        {
            *known = None;
        }
    }

    /// Has `node` looked at again soon.
    pub(in crate::manager) fn suspect(&self, node: usize) {
        if let Some(slot) = self.slots.get(node) {
            slot.bell.notify_one();
        }
    }

    /// Has all nodes looked at.
    pub(in crate::manager) fn suspect_all(&self) {
        (0..self.slots.len()).for_each(|node| self.suspect(node));
    }

    /// Waits until `node` is suspected.
    pub(super) async fn suspected(&self, node: usize) {
        match self.slots.get(node) {
            Some(slot) => slot.bell.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Waits for news of any node. To be made before the look that it follows.
    pub(in crate::manager) fn news(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// Whether nodes that are seen for the first time are trusted to have nothing to forget.
    pub(in crate::manager) fn vouch(&self, vouched: bool) {
        self.vouched.store(vouched, Ordering::Release);
    }

    /// Trusts all nodes to have nothing to forget, until this is dropped.
    pub(super) fn trust_all(&self) -> Wish<'_> {
        self.wish(|slot| &slot.trusted)
    }

    /// Takes all nodes that answer over from processes with another charter, until this is dropped.
    pub(super) fn adopt_all(&self, now: Moment) -> Adoption<'_> {
        let mut list = self.list();
        let (since, calls) = list.adopting.unwrap_or((now, 0));
        list.adopting = Some((since, calls + 1));
        drop(list);
        Adoption {
            _wish: self.wish(|slot| &slot.adopt),
            standings: self,
        }
    }

    fn wish(&self, flag: fn(&Slot) -> &AtomicBool) -> Wish<'_> {
        for slot in &self.slots {
            flag(slot).store(true, Ordering::Release);
        }
        self.suspect_all();
        Wish {
            standings: self,
            flag,
        }
    }

    pub(super) fn is_trusted(&self, node: usize, quarantine: &Quarantine) -> bool {
        let slot = self.slots.get(node);
        let trusted = slot.is_some_and(|slot| slot.trusted.load(Ordering::Acquire));
        trusted || quarantine.first && self.vouched.load(Ordering::Acquire)
    }

    pub(super) fn is_adopted(&self, node: usize) -> bool {
        let slot = self.slots.get(node);
        slot.is_some_and(|slot| slot.adopt.load(Ordering::Acquire))
    }

    /// Notes that what `node` was to be looked at for is done.
    pub(super) fn done(&self, node: usize, adopted: bool) {
        if let Some(slot) = self.slots.get(node) {
            let flag = if adopted { &slot.adopt } else { &slot.trusted };
            flag.store(false, Ordering::Release);
        }
    }

    /// Whether a node has yet to be looked at for something.
    pub(super) fn is_pending(&self) -> bool {
        let wanted = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        let mut slots = self.slots.iter();
        slots.any(|slot| wanted(&slot.adopt) || wanted(&slot.trusted))
    }

    /// What is known of `node`, for people.
    pub(in crate::manager) fn show(&self, node: usize, now: Moment) -> NodeStanding {
        match self.get(node) {
            State::Unknown => NodeStanding::Unknown,
            State::Voting => NodeStanding::Voting,
            State::Quarantined(quarantine) => NodeStanding::Quarantined {
                remaining: quarantine.end.moment().map(|end| end.since(now)),
                remembered: quarantine.remembered,
            },
            State::Foreign(foreign) => NodeStanding::Foreign {
                reason: foreign.reason,
            },
        }
    }

    /// Why `node` does not grant.
    pub(in crate::manager) fn explain(&self, node: usize, now: Moment) -> Option<NodeError> {
        // As long as that is not mended, no waiting helps.
        let trouble = self.trouble(node)?.clone();
        if let Some((_, error)) = trouble {
            return Some(error);
        }
        match self.get(node) {
            State::Quarantined(quarantine) => {
                let text = quarantine.explain(now);
                Some(NodeError::new(NodeErrorKind::Quarantined, text))
            }
            State::Foreign(foreign) => Some(NodeError::new(NodeErrorKind::Foreign, foreign.reason)),
            State::Unknown | State::Voting => None,
        }
    }

    /// The nodes that keep us from granting anything, and what each says.
    pub(in crate::manager) fn blocking(&self) -> Vec<(usize, NodeError)> {
        let nodes = self.foreigners().filter(|(_, harmless)| !harmless);
        let nodes: Vec<usize> = nodes.map(|(node, _)| node).collect();
        let error = |node: usize| match self.get(node) {
            State::Foreign(foreign) => {
                let error = NodeError::new(NodeErrorKind::Foreign, foreign.reason);
                Some((node, error))
            }
            _ => None,
        };
        nodes.into_iter().filter_map(error).collect()
    }

    /// How many nodes vote.
    pub(in crate::manager) fn voting(&self) -> usize {
        self.count(|state| *state == State::Voting)
    }

    /// How many nodes have said whether they vote, and are not about to be let in.
    pub(in crate::manager) fn settled(&self) -> usize {
        let slots = self.slots.iter().enumerate();
        let settled = |(node, slot): &(usize, &Slot)| {
            slot.heard.load(Ordering::Acquire) && !self.is_welcome(*node, &self.get(*node))
        };
        slots.filter(settled).count()
    }

    /// How many of the nodes that are `up` vote or will.
    pub(in crate::manager) fn promising(&self, up: impl Fn(usize) -> bool) -> usize {
        let will = |node: &usize| match self.get(*node) {
            State::Voting => true,
            State::Quarantined(quarantine) => quarantine.end.moment().is_some(),
            State::Unknown | State::Foreign(_) => false,
        };
        let nodes = 0..self.slots.len();
        nodes.filter(will).filter(|node| up(*node)).count()
    }

    fn count(&self, wanted: impl Fn(&State) -> bool) -> usize {
        let nodes = 0..self.slots.len();
        nodes.filter(|node| wanted(&self.get(*node))).count()
    }

    /// After how long `needed` nodes vote, if it is quarantines that keep them from it. Only nodes that are `up` count.
    pub(in crate::manager) fn quorum_in(
        &self,
        needed: usize,
        now: Moment,
        up: impl Fn(usize) -> bool,
    ) -> Option<Duration> {
        let nodes = (0..self.slots.len()).filter(|node| up(*node));
        let mut waits: Vec<Duration> = nodes
            .filter_map(|node| match self.get(node) {
                State::Voting => Some(Duration::ZERO),
                State::Quarantined(quarantine) => quarantine.end.moment().map(|end| end.since(now)),
                State::Unknown | State::Foreign(_) => None,
            })
            .collect();
        waits.sort_unstable();
        let wait = waits.get(needed.checked_sub(1)?)?;
        (!wait.is_zero()).then_some(*wait)
    }

    /// Whether it is known already what an error of this kind says of `node`.
    pub(in crate::manager) fn knows(&self, node: usize, kind: NodeErrorKind) -> bool {
        match kind {
            NodeErrorKind::Quarantined => matches!(self.get(node), State::Quarantined(_)),
            _ => true,
        }
    }
}

impl Quarantine {
    fn explain(&self, now: Moment) -> String {
        let left = match self.end {
            End::At(end) => end.since(now),
            End::Incomplete => {
                return "it does not vote before every node of the list has accepted that once, and not all have; see to it that they can be reached".to_owned();
            }
            End::Alone => {
                return "it restarted or lost its data, and too few of the other nodes answer to tell how long it must not vote".to_owned();
            }
        };
        let few = if self.remembered {
            ""
        } else {
            "; fewer than a quorum of nodes remember theirs"
        };
        format!(
            "it restarted or lost its data, and does not vote for another {left:.1?}, until the locks that it may have forgotten have ended{few}"
        )
    }
}
