//! [`Attempt`]: one round over the nodes, from the first byte to the last debt.

use std::sync::Arc;

use tokio::time::sleep;

use super::background::Inside;
use super::baton::{Note, Turns};
use super::core::{Core, token};
use super::error::{AcquireError, NoQuorum, TooSlow};
use super::fanout::Fanout;
use super::hold::Hold;
use super::releaser::{Debt, Release};
use crate::clock::Clock as _;
use crate::lease::Lease;
use crate::lock_keys::LockKeys;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::node::{
    AcquireReply, AcquireRequest, NodeError, NodeErrorKind, RaiseReply, RaiseRequest,
};
use crate::protocol::fence::{Numbering, numbering};
use crate::protocol::renewal::Holding;
use crate::protocol::round::{Round, Verdict, Vote};
use crate::token::{FencingToken, Owner, OwnerToken};

/// One round over the nodes with one owner token.
///
/// It ends in exactly one of three ways: [`win`](Self::win) makes a lock of it, [`give_back`](Self::give_back)
/// releases what it got and waits for that, and `drop`, at any point, releases what it got in the background.
#[derive(Debug)]
pub(super) struct Attempt {
    core: Arc<Core>,
    keys: NodeKeys,
    token: OwnerToken,
    fence: Option<FencingToken>,
    sent: Moment,
    round: Round,
    errors: Vec<(usize, NodeError)>,
    fanout: Fanout<Result<AcquireReply, NodeError>>,
    won: bool,
    // The round was lost: to take back what it got tells nobody anything new.
    lost: bool,
    // Last, so that it is dropped after what is owed has been passed on.
    _inside: Inside,
}

impl Attempt {
    /// Prepares a round for `keys`. Nothing is sent before [`decide`](Self::decide) is polled.
    pub(super) fn new(core: &Arc<Core>, keys: &NodeKeys) -> Result<Self, AcquireError> {
        let token = token()?;
        let request = AcquireRequest::new(keys.clone(), token, core.terms.ttl)
            .under(core.charter.clone())
            .numbered(core.proposal());
        // Before anything can leave: validity counts from here, for every node.
        let sent = core.clock.now();
        let futures = core.nodes.iter().enumerate();
        let futures = futures.map(|(index, node)| (index, node.acquire(request.clone())));
        Ok(Self {
            fanout: Fanout::new(futures),
            core: Arc::clone(core),
            keys: keys.clone(),
            token,
            fence: None,
            sent,
            round: Round::new(core.terms.quorum),
            errors: Vec::new(),
            won: false,
            lost: false,
            _inside: core.attempts.enter(),
        })
    }

    /// When the request was sent.
    pub(super) const fn sent(&self) -> Moment {
        self.sent
    }

    /// Asks the nodes and returns the verdict as soon as it is certain, after the node time-out at the latest.
    pub(super) async fn decide(&mut self) -> Verdict {
        let timer = sleep(self.core.node_timeout);
        tokio::pin!(timer);
        loop {
            while let Some((node, answer)) = self.fanout.take_ready() {
                self.record(node, answer);
            }
            if let Some(verdict) = self.round.verdict() {
                self.lost = matches!(verdict, Verdict::Contended { .. } | Verdict::Split { .. });
                return verdict;
            }
            tokio::select! {
                biased;
                Some((node, answer)) = self.fanout.next() => self.record(node, answer),
                () = &mut timer => {
                    let late: Vec<usize> = self.fanout.abandon();
                    let late = late.into_iter().map(|node| (node, self.core.timed_out()));
                    self.errors.extend(late);
                    self.round.time_out();
                }
            }
        }
    }

    fn record(&mut self, node: usize, answer: Result<AcquireReply, NodeError>) {
        let vote = match answer {
            Ok(AcquireReply::Granted { fence: None }) if self.core.fencing.is_some() => {
                self.errors.push((node, unnumbered()));
                Vote::Failed { owed: true }
            }
            Ok(AcquireReply::Granted { fence } | AcquireReply::Adopting { fence, .. }) => {
                Vote::Granted(fence)
            }
            Ok(AcquireReply::Recorded(_)) => Vote::Failed { owed: false },
            Ok(AcquireReply::Held(holder)) => Vote::Refused(holder),
            Err(error) => {
                self.core.heard(node, &error);
                let owed = error.outcome_unknown();
                self.errors.push((node, error));
                Vote::Failed { owed }
            }
        };
        self.round.record(node, vote);
    }

    /// Settles the number of a granted round. If the nodes do not agree on one, the highest is written back, which
    /// takes a second round.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`] if too few nodes confirmed it within the node time-out.
    pub(super) async fn number(&mut self) -> Result<(), NoQuorum> {
        if self.core.fencing.is_none() {
            return Ok(());
        }
        let numbers: Vec<(usize, FencingToken)> = self.round.numbers().collect();
        let tokens: Vec<FencingToken> = numbers.iter().map(|(_, token)| *token).collect();
        match numbering(&tokens, self.core.terms.quorum.needed()) {
            Numbering::Agreed(token) => {
                self.fence = Some(token);
                self.core.numbers.count(true);
                Ok(())
            }
            Numbering::Open(token) => {
                self.core.numbers.count(false);
                self.write_back(token, &numbers).await
            }
            // No round is granted without numbers.
            Numbering::None => Err(self.no_quorum()),
        }
    }

    async fn write_back(
        &mut self,
        token: FencingToken,
        numbers: &[(usize, FencingToken)],
    ) -> Result<(), NoQuorum> {
        let core = Arc::clone(&self.core);
        let needed = core.terms.quorum.needed();
        let request = RaiseRequest::new(self.keys.clone(), self.token, core.fence(token));
        let lower = numbers.iter().filter(|(_, number)| *number < token);
        let mut raising = Fanout::new(lower.filter_map(|(index, _)| {
            let node = core.nodes.get(*index)?;
            Some((*index, node.raise(request.clone())))
        }));
        // Those that reported it have it already.
        let mut have = numbers
            .iter()
            .filter(|(_, number)| *number == token)
            .count();
        let timer = sleep(core.node_timeout);
        tokio::pin!(timer);
        while have < needed {
            let answer = tokio::select! {
                biased;
                answer = raising.next() => answer,
                () = &mut timer => {
                    let late = raising.abandon().into_iter();
                    self.errors.extend(late.map(|node| (node, core.timed_out())));
                    None
                }
            };
            match answer {
                Some((_, Ok(RaiseReply::Raised))) => have += 1,
                Some((node, Ok(RaiseReply::NotOwner))) => self.errors.push((node, expired())),
                Some((node, Err(error))) => self.errors.push((node, error)),
                None => return Err(self.no_quorum()),
            }
        }
        self.fence = Some(token);
        Ok(())
    }

    /// Makes a lock of a granted round. If no validity is left by now, everything is released.
    pub(super) fn win(mut self, names: LockKeys, turns: Turns) -> Result<Arc<Hold>, AcquireError> {
        let core = Arc::clone(&self.core);
        let mut holding = Holding::new(core.terms, self.sent);
        for node in 0..core.nodes.len() {
            match self.round.vote(node) {
                Some(Vote::Granted(_)) => holding.confirm(node, self.sent),
                Some(Vote::Refused(_)) => holding.foreign(node, self.sent),
                Some(Vote::Failed { owed: true }) => holding.unknown(node),
                Some(Vote::Failed { owed: false }) | None => {}
            }
        }
        for node in self.fanout.pending() {
            holding.begin(node);
        }
        let missing = holding.missing() > 0;
        let deadline = holding.deadline();
        let now = core.clock.now();
        if now >= deadline {
            return Err(AcquireError::TooSlow(TooSlow {
                elapsed: now.since(self.sent),
                ttl: core.terms.ttl,
            }));
        }
        let lease = Lease {
            keys: names,
            owner: Owner::Us(self.token),
            fence: self.fence,
            ttl: core.terms.ttl,
            started: self.sent,
            deadline,
        };
        let clock = Arc::clone(&core.clock);
        let keys = self.keys.clone();
        let hold = Arc::new_cyclic(|hold| {
            turns.note(&Note::Held(hold.clone()));
            Hold::new(
                (core.serial, core.next_id()),
                lease,
                keys,
                clock,
                holding,
                Some(turns),
            )
        });
        self.won = true;
        if self.fanout.is_empty() {
            if missing {
                hold.plan_top_up(core.clock.now() + core.node_timeout);
            }
            return Ok(hold);
        }
        let pending: Vec<usize> = self.fanout.pending().collect();
        let late = late(Arc::clone(&core), Arc::clone(&hold), self.fanout.take());
        if !core.background.spawn(late) {
            // No room to wait for the late answers: given up, so that a release does not wait for them either.
            for node in pending {
                hold.answered(node, |holding| holding.unknown(node));
            }
            hold.plan_top_up(core.clock.now() + core.node_timeout);
        }
        Ok(hold)
    }

    /// Releases what the round got and waits until those nodes are free, so that the next attempt does not meet
    /// its own leavings. Nodes that have not answered are settled in the background.
    pub(super) async fn give_back(mut self) {
        let granted: Vec<usize> = (0..self.core.nodes.len())
            .filter(|node| matches!(self.round.vote(*node), Some(Vote::Granted(_))))
            .collect();
        if granted.is_empty() {
            return;
        }
        // Never an error that matters: what is not confirmed goes on in the background.
        let free = self
            .core
            .terms
            .quorum
            .needed()
            .saturating_sub(granted.len());
        let debt = Debt::new(&self.core, &self.keys, self.token, self.sent, !self.lost);
        let release = Release::new(&self.core, debt, &granted, free);
        for node in granted {
            self.round.settle(node);
        }
        let _ = release.quorum().await;
    }

    /// The error for a round without a quorum.
    pub(super) fn no_quorum(&self) -> NoQuorum {
        let mut failures: Vec<&(usize, NodeError)> = self.errors.iter().collect();
        failures.sort_by_key(|(node, _)| *node);
        let failures = failures.into_iter();
        NoQuorum {
            needed: self.core.terms.quorum.needed(),
            nodes: self.core.nodes.len(),
            failures: failures
                .map(|(node, error)| self.core.failure(*node, error.clone()))
                .collect(),
            retry_after: self.core.quorum_in(),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.won {
            return;
        }
        let core = Arc::clone(&self.core);
        let fanout = self.fanout.take();
        let pending: Vec<usize> = fanout.pending().collect();
        let owed: Vec<usize> = (0..core.nodes.len())
            .filter(|node| self.round.owes(*node) && !pending.contains(node))
            .collect();
        if fanout.is_empty() && owed.is_empty() {
            return;
        }
        let debt = Debt::new(&core, &self.keys, self.token, self.sent, !self.lost);
        self.core.settle(&self.keys, lost(core, debt, fanout, owed));
    }
}

fn unnumbered() -> NodeError {
    NodeError::new(
        NodeErrorKind::Garbled,
        "it granted without a number; switch fencing off for nodes that cannot count",
    )
}

fn expired() -> NodeError {
    NodeError::new(
        NodeErrorKind::Rejected,
        "the lock had ended there before it was numbered",
    )
}

/// Settles a lost round: releases what is owed now, and what is granted late.
async fn lost(
    core: Arc<Core>,
    debt: Debt,
    mut fanout: Fanout<Result<AcquireReply, NodeError>>,
    owed: Vec<usize>,
) {
    // A dropped release goes on in the background, where we are already: this only starts it.
    let release = |nodes: &[usize]| drop(Release::new(&core, debt.clone(), nodes, 0));
    if !owed.is_empty() {
        release(&owed);
    }
    let timer = sleep(core.node_timeout);
    tokio::pin!(timer);
    loop {
        tokio::select! {
            biased;
            answer = fanout.next() => match answer {
                Some((node, Ok(AcquireReply::Granted { .. } | AcquireReply::Adopting { .. }))) => release(&[node]),
                Some((node, Err(error))) if error.outcome_unknown() => release(&[node]),
                Some(_) => {}
                None => return,
            },
            () = &mut timer => {
                let late = fanout.abandon();
                release(&late);
                return;
            }
        }
    }
}

/// Takes in the late answers of a round that was won; plans a top-up for the nodes that are missing then.
async fn late(
    core: Arc<Core>,
    hold: Arc<Hold>,
    mut fanout: Fanout<Result<AcquireReply, NodeError>>,
) {
    let sent = hold.lease.started;
    let timer = sleep(core.node_timeout);
    tokio::pin!(timer);
    loop {
        let (node, answer) = tokio::select! {
            biased;
            answer = fanout.next() => match answer {
                Some((node, answer)) => (node, Some(answer)),
                None => break,
            },
            () = &mut timer => {
                for node in fanout.abandon() {
                    hold.answered(node, |holding| holding.unknown(node));
                }
                break;
            }
        };
        hold.answered(node, |holding| match answer {
            Some(Ok(AcquireReply::Granted { .. } | AcquireReply::Adopting { .. })) => {
                holding.confirm(node, sent);
            }
            Some(Ok(AcquireReply::Held(_))) => holding.foreign(node, sent),
            Some(Err(error)) => {
                core.heard(node, &error);
                if error.outcome_unknown() {
                    holding.unknown(node);
                }
            }
            Some(Ok(AcquireReply::Recorded(_))) | None => {}
        });
    }
    core.registry
        .top_up(&hold, core.clock.now() + core.node_timeout);
}
