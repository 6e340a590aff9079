//! [`OnNodes`]: what each node has of one owner token, by what was sent to the node and what it answered. This is the one
//! model of a token on the nodes, from the first acquire to the last release.
//!
//! ```text
//!   send ──► in flight ──► landed: the node answered, or the command was abandoned and may still run
//! ```
//!
//! A command that may set the token is *in flight* from the decision to send it. It has *landed* once the node has
//! answered it, or nobody waits for the answer any more. An abandoned command may run after all, whatever the node
//! answers to later commands, until a release has made it harmless.
//!
//! The verdict of a round, the deadline of a lease and the nodes to release are questions to this value. They hold at any
//! time, in whatever order answers arrive.

use std::mem;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::quorum::{Quorum, deadline};
use crate::moment::Moment;
use crate::token::FencingToken;
use crate::token::Holder;

/// What a node has of the token, by its last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Has {
    /// Nothing, or the node never said that it has something.
    Nothing,
    /// Our token.
    Ours {
        /// When the last confirmed command that set or extended it was sent.
        since: Moment,
        /// The fencing token that came with the grant.
        fence: Option<FencingToken>,
        /// The index of the key that the node granted, where one of several keys is enough.
        key: usize,
    },
    /// Another owner's token.
    Anothers(Holder),
    /// Another owner's token on one of several keys; other keys may hold ours.
    Partly,
    /// Something else in the place of the lock, so that it grants nothing, though the lock may be free.
    Withheld,
}

/// How a command that may set the token has landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landed {
    /// The node has our token for a full ttl from the command on.
    Ours {
        fence: Option<FencingToken>,
        key: usize,
    },
    /// The same, by an answer that came at this moment from a node in quarantine.
    InQuarantine(Moment),
    /// As [`Has::Anothers`].
    Anothers(Holder),
    /// As [`Has::Partly`].
    Partly,
    /// As [`Has::Withheld`].
    Withheld,
    /// The node has no token.
    Absent,
    /// The command had no effect: the node has what it had before.
    NoEffect,
    /// The command was given up and may still run. Earlier confirmations still count.
    Abandoned,
}

/// Which of its keys a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    All,
    /// The first that is free.
    Any,
}

#[derive(Clone, Copy, Debug)]
struct AtNode {
    has: Has,
    in_flight: u16,
    may_still_run: bool,
    // It refused a release, so only the ttl ends what it has.
    keeps: bool,
}

impl AtNode {
    const FREE: Self = Self {
        has: Has::Nothing,
        in_flight: 0,
        may_still_run: false,
        keeps: false,
    };

    const fn may_have_it(&self) -> bool {
        let has = matches!(self.has, Has::Ours { .. } | Has::Partly);
        has || self.in_flight > 0 || self.may_still_run
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted,
    /// A quorum replied and cannot grant: another owner holds the lock.
    Contended {
        /// After how long enough nodes will be free if nobody extends or releases; `None` if never.
        remaining: Option<Duration>,
    },
    /// A quorum replied, and several contenders share the nodes: perhaps nobody holds the lock.
    Split {
        /// How many contenders are known of, this one included.
        contenders: usize,
        /// As for [`Verdict::Contended`].
        remaining: Option<Duration>,
    },
    NoQuorum,
}

impl Verdict {
    pub(crate) const fn remaining(self) -> Option<Duration> {
        match self {
            Self::Contended { remaining } | Self::Split { remaining, .. } => remaining,
            Self::Granted | Self::NoQuorum => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct OnNodes {
    quorum: Quorum,
    keys: Keys,
    // The ttl, less the drift.
    validity: Duration,
    nodes: SmallVec<[AtNode; 1]>,
}

/// What is sent, and how it lands.
impl OnNodes {
    pub(crate) fn new(quorum: Quorum, keys: Keys, validity: Duration) -> Self {
        Self {
            quorum,
            keys,
            validity,
            nodes: smallvec![AtNode::FREE; quorum.nodes()],
        }
    }

    /// A command that may set the token is about to be sent to `node`.
    pub(crate) fn send(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.in_flight = node.in_flight.saturating_add(1);
        }
    }

    /// A command to `node`, sent at `sent`, has landed.
    pub(crate) fn land(&mut self, node: usize, sent: Moment, landed: Landed) {
        let Some(at) = self.nodes.get_mut(node) else {
            return;
        };
        at.in_flight = at.in_flight.saturating_sub(1);
        match landed {
            Landed::Ours { fence, key } => at.has = at.has.confirmed(sent, fence, key),
            Landed::InQuarantine(now) => at.keep(sent, now, self.validity),
            Landed::Anothers(holder) => at.says(sent, Has::Anothers(holder)),
            Landed::Partly => at.says(sent, Has::Partly),
            Landed::Withheld => at.says(sent, Has::Withheld),
            Landed::Absent => at.says(sent, Has::Nothing),
            Landed::NoEffect => {}
            Landed::Abandoned => at.abandon(),
        }
    }

    /// Nobody waits any longer for the commands that are in flight.
    pub(crate) fn abandon_all(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.in_flight > 0) {
            node.in_flight = 0;
            node.abandon();
        }
    }

    /// Takes what is known of the nodes, for the next phase of the token. Nothing is known here from then on.
    pub(crate) fn take(&mut self) -> Self {
        let nodes = mem::take(&mut self.nodes);
        Self { nodes, ..*self }
    }

    /// `node` has given the token back, or never had it, and nothing that may set it can still run.
    pub(crate) fn free(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            *node = AtNode::FREE;
        }
    }

    /// `node` refuses to give the token back.
    pub(crate) fn keeps(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.keeps = true;
        }
    }
}

impl AtNode {
    /// A node in quarantine confirms our token. That counts while our last vote of the node is within its validity:
    /// until then no other owner can have a live vote there, whatever the node has forgotten. Later it does not count
    /// until the node votes again, because the node may have granted the lock to another owner before it forgot.
    fn keep(&mut self, sent: Moment, now: Moment, validity: Duration) {
        match self.has {
            Has::Ours { since, fence, key } if now < since + validity => {
                self.has = self.has.confirmed(sent, fence, key);
            }
            _ => self.abandon(),
        }
    }

    fn abandon(&mut self) {
        self.may_still_run = true;
        if matches!(self.has, Has::Anothers(_) | Has::Partly) {
            self.has = Has::Nothing;
        }
    }

    /// An answer that arrives after the answer to a later command says nothing new.
    fn says(&mut self, sent: Moment, has: Has) {
        if !matches!(self.has, Has::Ours { since, .. } if since > sent) {
            self.has = has;
        }
    }
}

impl Has {
    fn confirmed(self, sent: Moment, fence: Option<FencingToken>, key: usize) -> Self {
        let since = match self {
            Self::Ours { since, .. } => since.max(sent),
            _ => sent,
        };
        Self::Ours { since, fence, key }
    }
}

/// What is known of the nodes.
impl OnNodes {
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn has(&self, node: usize) -> Has {
        self.nodes.get(node).map_or(Has::Nothing, |node| node.has)
    }

    pub(crate) fn is_ours(&self, node: usize) -> bool {
        matches!(self.has(node), Has::Ours { .. })
    }

    pub(crate) fn is_in_flight(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.in_flight > 0)
    }

    /// Whether an abandoned command may still set the token at `node`.
    pub(crate) fn may_still_run(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.may_still_run)
    }

    /// Whether `node` must get a release: it has our token, may have it or may get it.
    pub(crate) fn is_to_be_released(&self, node: usize) -> bool {
        let is_due = |node: &AtNode| node.may_have_it() && !node.keeps;
        self.nodes.get(node).is_some_and(is_due)
    }

    pub(crate) fn to_be_released(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter(|node| self.is_to_be_released(*node))
    }

    /// Whether no node has the token or can get it any more.
    pub(crate) fn is_free_everywhere(&self) -> bool {
        !self.nodes.iter().any(AtNode::may_have_it)
    }

    /// How many nodes have no token, ours or another's.
    pub(crate) fn count_free(&self) -> usize {
        let is_free = |node: &AtNode| matches!(node.has, Has::Nothing | Has::Withheld);
        self.count(|node| is_free(node) && !node.may_have_it())
    }

    pub(crate) fn count_ours(&self) -> usize {
        self.count(|node| matches!(node.has, Has::Ours { .. }))
    }

    /// To how many nodes a command is in flight.
    pub(crate) fn count_in_flight(&self) -> usize {
        self.count(|node| node.in_flight > 0)
    }

    fn count(&self, is_meant: impl Fn(&AtNode) -> bool) -> usize {
        self.nodes.iter().filter(|node| is_meant(node)).count()
    }

    /// The fencing tokens that came with the grants, each with its node.
    pub(crate) fn fences(&self) -> impl Iterator<Item = (usize, FencingToken)> + Clone {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(node, at)| match at.has {
            Has::Ours { fence, .. } => Some((node, fence?)),
            _ => None,
        })
    }

    fn holders(&self) -> impl Iterator<Item = Holder> + Clone {
        self.nodes.iter().filter_map(|node| match node.has {
            Has::Anothers(holder) => Some(holder),
            _ => None,
        })
    }
}

/// The lease.
impl OnNodes {
    /// Until when the lock may be relied on; the origin of time if a quorum does not confirm it.
    pub(crate) fn deadline(&self) -> Moment {
        let since = self.nodes.iter().filter_map(|node| match node.has {
            Has::Ours { since, .. } => Some(since),
            _ => None,
        });
        let end = deadline(since, self.quorum.needed(), self.validity);
        end.unwrap_or(Moment::ORIGIN)
    }

    /// Whether a quorum has confirmed a command that was sent at `sent` or later.
    pub(crate) fn is_confirmed_since(&self, sent: Moment) -> bool {
        let is_new = |node: &AtNode| matches!(node.has, Has::Ours { since, .. } if since >= sent);
        self.count(is_new) >= self.quorum.needed()
    }

    /// Whether so many nodes have another owner's token that no quorum can have ours.
    pub(crate) fn is_taken(&self) -> bool {
        let is_anothers = |node: &AtNode| matches!(node.has, Has::Anothers(_) | Has::Partly);
        self.count(is_anothers) > self.quorum.spare()
    }
}

/// The round, in which each node is asked once.
impl OnNodes {
    /// The verdict, as soon as no missing answer can change whether the lock is ours, and a quorum has replied or can no
    /// longer do so.
    pub(crate) fn verdict(&self) -> Option<Verdict> {
        match self.keys {
            Keys::All => self.verdict_of_all(),
            Keys::Any => self.verdict_of_any(),
        }
    }

    fn verdict_of_all(&self) -> Option<Verdict> {
        let granted = self.count_ours();
        let withheld = self.count(|node| node.has == Has::Withheld);
        let refused = self.holders().count();
        let failed = self.len() - granted - withheld - refused - self.count_in_flight();
        let (needed, spare) = (self.quorum.needed(), self.quorum.spare());
        if granted >= needed {
            Some(Verdict::Granted)
        } else if failed > spare {
            Some(Verdict::NoQuorum)
        } else if granted + withheld + refused >= needed && refused + failed > spare {
            // Nodes that withhold it would grant to a caller that asks for the lock in any case.
            Some(self.lost(granted + withheld))
        } else {
            None
        }
    }

    /// The same where each node grants one of several keys.
    fn verdict_of_any(&self) -> Option<Verdict> {
        let needed = self.quorum.needed();
        let best = self.best_key().map_or(0, |key| self.votes_for(key));
        if best >= needed {
            return Some(Verdict::Granted);
        }
        Some(match self.verdict_of_all()? {
            Verdict::Granted if best + self.count_in_flight() >= needed => return None,
            // Others took some of the keys at the same time, each at other nodes.
            Verdict::Granted => Verdict::Split {
                contenders: 2,
                remaining: Some(Duration::ZERO),
            },
            // Each node names the key that ends first there, and they may name different ones.
            Verdict::Split { remaining, .. } if self.count_ours() == 0 => {
                Verdict::Contended { remaining }
            }
            verdict => verdict,
        })
    }

    /// Of several keys of which one is enough, the index of the one that most nodes granted.
    pub(crate) fn best_key(&self) -> Option<usize> {
        let keys = self.nodes.iter().filter_map(|node| match node.has {
            Has::Ours { key, .. } => Some(key),
            _ => None,
        });
        keys.max_by_key(|key| self.votes_for(*key))
    }

    fn votes_for(&self, wanted: usize) -> usize {
        self.count(|node| matches!(node.has, Has::Ours { key, .. } if key == wanted))
    }

    /// Goes on with one key alone. Returns the nodes that granted another one, with its index; they count as free.
    pub(crate) fn keep_only(&mut self, wanted: usize) -> SmallVec<[(usize, usize); 1]> {
        self.keys = Keys::All;
        let mut strays = SmallVec::new();
        for (node, at) in self.nodes.iter_mut().enumerate() {
            if let Has::Ours { key, .. } = at.has
                && key != wanted
            {
                strays.push((node, key));
                at.has = Has::Nothing;
            }
        }
        strays
    }

    /// Whether a node has refused the round in favour of the owner with this `tag`, at the key that is in the way.
    pub(crate) fn is_refused_by(&self, tag: u64) -> bool {
        let key = self.blocking_key();
        self.holders().any(|it| it.tag == tag && it.key == key)
    }

    /// Which of the requested keys another owner holds, according to most nodes.
    pub(crate) fn blocking_key(&self) -> Option<usize> {
        let keys = || self.holders().filter_map(|holder| holder.key);
        keys().max_by_key(|key| keys().filter(|other| other == key).count())
    }

    /// Contended or split: contended if one holder has a quorum, or if, by the replies so far, it is the only contender
    /// and may have one.
    fn lost(&self, granted: usize) -> Verdict {
        let mut holders: SmallVec<[(u64, usize); 4]> = SmallVec::new();
        let mut waits: SmallVec<[Option<Duration>; 8]> = smallvec![Some(Duration::ZERO); granted];
        for holder in self.holders() {
            waits.push(holder.remaining);
            match holders.iter_mut().find(|(tag, _)| *tag == holder.tag) {
                Some((_, nodes)) => *nodes += 1,
                None => holders.push((holder.tag, 1)),
            }
        }
        // A key without expiry comes last.
        waits.sort_unstable_by_key(|wait| wait.unwrap_or(Duration::MAX));
        let remaining = waits.get(self.quorum.needed() - 1).copied().flatten();

        let most = holders.iter().map(|(_, nodes)| *nodes).max().unwrap_or(0);
        let contenders = holders.len() + usize::from(granted > 0);
        if most >= self.quorum.needed() || contenders < 2 {
            Verdict::Contended { remaining }
        } else {
            Verdict::Split {
                contenders,
                remaining,
            }
        }
    }
}

#[cfg(test)]
mod tests;
