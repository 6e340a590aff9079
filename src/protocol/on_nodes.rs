//! [`OnNodes`] knows what each node has of one owner token, from the commands that were sent and the answers. From this
//! it computes the [verdict](OnNodes::verdict) of a round, the [deadline](OnNodes::deadline) of a lease, and the nodes
//! that are [to be released](OnNodes::is_to_be_released).
//!
//! ```text
//!   send ──► in flight ──► landed: the node answered, or the command was abandoned and may still run
//! ```
//!
//! A command that may set the token is *in flight* from the decision to send it. It has *landed* once the node has
//! answered it, or nobody waits for the answer any more. An abandoned command may still run, until a release with a
//! *tombstone* (a key that makes the node refuse this token) has made it harmless. A node in *quarantine* may have
//! forgotten the locks of others, and does not vote.

use std::mem;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use super::quorum::{Quorum, deadline};
use crate::moment::Moment;
use crate::token::FencingToken;
use crate::token::Holder;

/// What a node has of the token, by its last answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Has {
    /// No token, as far as is known.
    Nothing,
    Ours {
        /// When the last confirmed command that set or extended it was sent.
        since: Moment,
        /// The fencing token of that command. Only a grant has one.
        fence: Option<FencingToken>,
        /// The index of the granted key, if one of several keys is enough; otherwise 0.
        key: usize,
    },
    Anothers(Holder),
    /// Another owner's token on one of several keys, found by an extension. The other keys may have ours.
    Partly,
    /// The stored result of a run, so the node did not grant the lock.
    Withheld,
}

/// How a command that may set the token has landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Landed {
    /// The node has our token, for a full ttl.
    Ours {
        fence: Option<FencingToken>,
        key: usize,
    },
    /// A node in quarantine answered at this moment that it has our token.
    InQuarantine(Moment),
    Anothers(Holder),
    Partly,
    Withheld,
    Absent,
    NoEffect,
    /// The command may have run, or may still run.
    Abandoned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    All,
    /// One of the keys: the first that is free on the node.
    Any,
}

#[derive(Clone, Copy, Debug)]
struct AtNode {
    has: Has,
    in_flight: u16,
    may_still_run: bool,
    // The node has refused a release for good, so only the ttl ends the token there.
    refuses_release: bool,
    // The node may have forgotten commands that were sent before this moment.
    forgot: Moment,
}

impl AtNode {
    const FREE: Self = Self {
        has: Has::Nothing,
        in_flight: 0,
        may_still_run: false,
        refuses_release: false,
        forgot: Moment::ORIGIN,
    };

    const fn may_have_it(&self) -> bool {
        let has = matches!(self.has, Has::Ours { .. } | Has::Partly);
        has || self.in_flight > 0 || self.may_still_run
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted,
    /// Another owner holds the lock on a quorum of nodes.
    Contended {
        /// How long until a quorum of nodes is free of other owners if nobody extends or releases. `None` if never.
        remaining: Option<Duration>,
    },
    /// No contender has a quorum.
    Split {
        /// How many contenders were seen, including this one.
        contenders: usize,
        remaining: Option<Duration>,
    },
    /// Too many nodes failed.
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

    pub(crate) fn send(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.in_flight = node.in_flight.saturating_add(1);
        }
    }

    /// Notes that `node` may have forgotten commands that were sent before `forgot`. Returns whether its vote at `now`
    /// is from such a command. That vote still counts.
    pub(crate) fn doubt(&mut self, node: usize, forgot: Moment, now: Moment) -> bool {
        let Some(at) = self.nodes.get_mut(node) else {
            return false;
        };
        at.forgot = forgot;
        matches!(at.has, Has::Ours { since, .. } if since < forgot && now < since + self.validity)
    }

    pub(crate) fn land(&mut self, node: usize, sent: Moment, landed: Landed) {
        let Some(at) = self.nodes.get_mut(node) else {
            return;
        };
        at.in_flight = at.in_flight.saturating_sub(1);
        match landed {
            Landed::Ours { fence, key } => at.has = at.has.confirmed(sent, fence, key),
            Landed::InQuarantine(now) => at.confirm_in_quarantine(sent, now, self.validity),
            Landed::Anothers(holder) => at.says(sent, Has::Anothers(holder)),
            Landed::Partly => at.says(sent, Has::Partly),
            Landed::Withheld => at.says(sent, Has::Withheld),
            Landed::Absent => at.says(sent, Has::Nothing),
            Landed::NoEffect => {}
            Landed::Abandoned => at.abandon(),
        }
    }

    pub(crate) fn abandon_all(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| node.in_flight > 0) {
            node.in_flight = 0;
            node.abandon();
        }
    }

    /// Takes the state of all nodes, for the next phase of the token.
    pub(crate) fn take(&mut self) -> Self {
        let nodes = mem::take(&mut self.nodes);
        Self { nodes, ..*self }
    }

    /// Notes that `node` does not have the token, and that no command can set it there any more.
    pub(crate) fn free(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            *node = AtNode::FREE;
        }
    }

    pub(crate) fn refuses_release(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.refuses_release = true;
        }
    }
}

impl AtNode {
    /// A node in quarantine confirms our token. This counts only if our last vote from this node is within its
    /// validity, because then no other owner can have a valid vote from it.
    fn confirm_in_quarantine(&mut self, sent: Moment, now: Moment, validity: Duration) {
        match self.has {
            Has::Ours { since, fence, key } if now < since + validity => {
                self.has = self.has.confirmed(sent, fence, key);
            }
            _ => self.abandon(),
        }
    }

    /// A command was abandoned. An earlier confirmation of our token still counts, but what the node said of another
    /// owner does not, because the command may have changed it.
    fn abandon(&mut self) {
        self.may_still_run = true;
        if matches!(self.has, Has::Anothers(_) | Has::Partly) {
            self.has = Has::Nothing;
        }
    }

    /// Takes in an answer, unless the node has confirmed our token to a command that was sent later.
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

    /// Whether `node` may lack our token and is not being asked.
    pub(crate) fn is_missed(&self, node: usize) -> bool {
        let is_missed = |node: &AtNode| match node.has {
            // It counts as missed even while it is being asked, because it may forget that command as well.
            Has::Ours { since, .. } => since < node.forgot,
            _ => node.in_flight == 0,
        };
        self.nodes.get(node).is_some_and(is_missed)
    }

    pub(crate) fn is_in_flight(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.in_flight > 0)
    }

    pub(crate) fn may_still_run(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.may_still_run)
    }

    /// Whether `node` has our token, or may have or get it, and has not refused its release.
    pub(crate) fn is_to_be_released(&self, node: usize) -> bool {
        let is_due = |node: &AtNode| node.may_have_it() && !node.refuses_release;
        self.nodes.get(node).is_some_and(is_due)
    }

    pub(crate) fn to_be_released(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).filter(|node| self.is_to_be_released(*node))
    }

    pub(crate) fn is_free_everywhere(&self) -> bool {
        !self.nodes.iter().any(AtNode::may_have_it)
    }

    /// How many nodes have no token and cannot get ours.
    pub(crate) fn count_free(&self) -> usize {
        let is_free = |node: &AtNode| matches!(node.has, Has::Nothing | Has::Withheld);
        self.count(|node| is_free(node) && !node.may_have_it())
    }

    pub(crate) fn count_ours(&self) -> usize {
        self.count(|node| matches!(node.has, Has::Ours { .. }))
    }

    pub(crate) fn count_in_flight(&self) -> usize {
        self.count(|node| node.in_flight > 0)
    }

    fn count(&self, is_meant: impl Fn(&AtNode) -> bool) -> usize {
        self.nodes.iter().filter(|node| is_meant(node)).count()
    }

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
    /// The end of validity. The origin of time if no quorum has confirmed the token.
    pub(crate) fn deadline(&self) -> Moment {
        let since = self.nodes.iter().filter_map(|node| match node.has {
            Has::Ours { since, .. } => Some(since),
            _ => None,
        });
        let end = deadline(since, self.quorum.needed(), self.validity);
        end.unwrap_or(Moment::ORIGIN)
    }

    pub(crate) fn is_confirmed_since(&self, sent: Moment) -> bool {
        let is_new = |node: &AtNode| matches!(node.has, Has::Ours { since, .. } if since >= sent);
        self.count(is_new) >= self.quorum.needed()
    }

    /// Whether other owners have so many nodes that no quorum can have our token.
    pub(crate) fn is_taken(&self) -> bool {
        let is_anothers = |node: &AtNode| matches!(node.has, Has::Anothers(_) | Has::Partly);
        self.count(is_anothers) > self.quorum.spare()
    }
}

/// The round, from the moment at which commands to all nodes are in flight until the lock is won.
impl OnNodes {
    /// The verdict, as soon as no missing answer can change it. It stays `None` if so many nodes withhold the lock that
    /// only their stored results can decide.
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
        let failed = self.count(|node| node.has == Has::Nothing && node.in_flight == 0);
        let (needed, spare) = (self.quorum.needed(), self.quorum.spare());
        if granted >= needed {
            Some(Verdict::Granted)
        } else if failed > spare {
            Some(Verdict::NoQuorum)
        } else if granted + withheld + refused >= needed && refused + failed > spare {
            // Nodes that withhold the lock count as ours, because they would grant it in spite of the stored result to
            // a caller that asks for that.
            Some(self.not_granted(granted + withheld))
        } else {
            None
        }
    }

    fn verdict_of_any(&self) -> Option<Verdict> {
        let needed = self.quorum.needed();
        let best = self.best_key().map_or(0, |key| self.votes_for(key));
        if best >= needed {
            return Some(Verdict::Granted);
        }
        Some(match self.verdict_of_all()? {
            Verdict::Granted if best + self.count_in_flight() >= needed => return None,
            // Enough nodes granted a key, but different keys, because others took some of the keys at the same time.
            Verdict::Granted => Verdict::Split {
                contenders: 2,
                remaining: Some(Duration::ZERO),
            },
            // This only looks like a split, because each node names the holder of the key that ends first there, and
            // these may be different keys.
            Verdict::Split { remaining, .. } if self.count_ours() == 0 => {
                Verdict::Contended { remaining }
            }
            verdict => verdict,
        })
    }

    /// The index of the key that most nodes granted.
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

    /// Keeps only the votes for one key. Returns the nodes that granted another key, with the index of that key. They
    /// count as free from now on, so the caller must release these keys.
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

    /// Whether a node has refused the blocking key in favour of the owner with this `tag`.
    pub(crate) fn is_refused_by(&self, tag: u64) -> bool {
        let key = self.blocking_key();
        self.holders().any(|it| it.tag == tag && it.key == key)
    }

    /// Which of the requested keys another owner holds, according to most nodes.
    pub(crate) fn blocking_key(&self) -> Option<usize> {
        let keys = || self.holders().filter_map(|holder| holder.key);
        keys().max_by_key(|key| keys().filter(|other| other == key).count())
    }

    /// The verdict for a round that is contended or split. `ours` nodes would grant us the lock.
    fn not_granted(&self, ours: usize) -> Verdict {
        let mut holders: SmallVec<[(u64, usize); 4]> = SmallVec::new();
        let mut waits: SmallVec<[Option<Duration>; 8]> = smallvec![Some(Duration::ZERO); ours];
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
        let contenders = holders.len() + usize::from(ours > 0);
        if most >= self.quorum.needed() {
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
