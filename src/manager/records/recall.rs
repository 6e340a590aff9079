//! [`Recall`]: the round that asks the nodes for the record of a key, or else for the lock to make one.

use std::cmp::Reverse;
use std::mem::take;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use crate::clock::Clock;
use crate::manager::error::AcquireError;
use crate::manager::records::complete::{forget, spread};
use crate::manager::release::FreeCommand;
use crate::manager::round::{Attempt, Decision, Purpose, Reply};
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::node::{AcquireReply, AcquireRequest, Node, NodeFuture, RecallRequest, Record};
use crate::protocol::quorum::{Quorum, highest};
use crate::protocol::recall::{Life, Recalled, life, recalled, time_by};
use crate::protocol::renewal::Terms;
use crate::protocol::round::{Round, Vote};

/// A round for the record of a key, or else for the lock to make one.
#[derive(Clone, Debug)]
pub(crate) struct Recall {
    quorum: Quorum,
    // Whether nodes that have a record grant, too.
    adopt: bool,
    // For how long nodes remember a grant without a result.
    linger: Duration,
    // How long a run may last.
    longest: Duration,
    // The records of the nodes that had one and granted nothing.
    stored: Vec<(usize, Record)>,
    // Those of the nodes that granted all the same.
    adopted: Vec<Record>,
    // The clocks of the nodes that granted.
    clocks: Vec<u64>,
}

impl Recall {
    pub(crate) fn new(shared: &Shared, terms: &Terms, keep: Duration) -> Self {
        let before = before_run(&shared.longest_run, terms);
        Self {
            quorum: shared.terms.quorum,
            adopt: false,
            linger: linger(before, terms.ttl, keep),
            longest: before.min(DAY),
            stored: Vec::new(),
            adopted: Vec::new(),
            clocks: Vec::new(),
        }
    }

    fn recalled(&self, round: &Round) -> Option<Recalled> {
        let ballots = self.stored.iter().map(|(_, record)| record.ballot);
        recalled(round, self.quorum, &ballots)
    }

    fn highest_record(&self) -> (Option<Record>, Life) {
        let stored = self.stored.iter().map(|(_, record)| record);
        let mut records: Vec<&Record> = stored.chain(&self.adopted).collect();
        records.sort_by_key(|record| Reverse(record.ballot));
        let lives = records.into_iter();
        let mut lives = lives.map(|record| (record, life(record.until, &self.clocks, self.quorum)));
        match lives.find(|(_, life)| *life != Life::Over) {
            Some((record, life)) => (Some(record.clone()), life),
            None => (None, Life::Over),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Granted {
    /// The record that is to be written to a quorum in place of a run.
    pub(crate) record: Option<Record>,
    pub(crate) clocks: Clocks,
}

impl Purpose for Recall {
    type Found = Record;
    type Along = Granted;
    const FREE: FreeCommand = forget;
    const HANDED_ON: Option<Granted> = None;

    /// A record needs its ballot also where fencing is off. The counter lives as long as the run: by it a node that does
    /// not remember the grant knows that nobody was granted since. It need not live as long as the record: the mark,
    /// which stands in for it, is above the ballots of all records.
    fn keep_fence(&self, shared: &Shared, ttl: Duration) -> Option<Duration> {
        Some(shared.run_counters_kept.max(ttl).max(self.longest))
    }

    fn ask(&self, node: &dyn Node, request: AcquireRequest) -> NodeFuture<Reply> {
        node.recall(RecallRequest {
            lock: request,
            adopt: self.adopt,
            linger: self.linger,
        })
    }

    fn vote(&mut self, node: usize, reply: AcquireReply) -> Vote {
        match reply {
            AcquireReply::Granted { fence } => Vote::Granted(fence),
            AcquireReply::Promised { fence, record, now } => {
                self.clocks.push(now);
                self.adopted.extend(record);
                Vote::Granted(fence)
            }
            AcquireReply::Recorded(record) => {
                self.stored.push((node, record));
                Vote::Withheld
            }
            AcquireReply::Held(holder) => Vote::Refused(holder),
            // No answer to a recall.
            AcquireReply::Slot { .. } => Vote::Failed { owed: true },
        }
    }

    fn decide(&self, round: &Round) -> Option<Decision> {
        Some(match self.recalled(round)? {
            Recalled::Lock(verdict) => Decision::Lock(verdict),
            Recalled::Replay(_) => Decision::Found,
            Recalled::Adopt => Decision::Again,
        })
    }

    /// The next round asks for the lock in any case, and for the records.
    fn ask_again(&mut self) -> bool {
        !std::mem::replace(&mut self.adopt, true)
    }

    /// The record that a quorum has. It is written to nodes without it in the background.
    fn found(mut attempt: Attempt<Self>) -> Result<Record, AcquireError> {
        let Some(Recalled::Replay(ballot)) = attempt.purpose.recalled(&attempt.round) else {
            return Err(attempt.no_quorum());
        };
        let stored = &attempt.purpose.stored;
        let has = |node: usize| {
            stored
                .iter()
                .any(|(other, record)| *other == node && record.ballot == ballot)
        };
        let lacking = (0..attempt.shared.nodes.len()).filter(|node| {
            let voted = attempt.round.vote(*node);
            matches!(voted, Some(Vote::Granted(_) | Vote::Withheld)) && !has(*node)
        });
        let lacking: Vec<usize> = lacking.collect();
        let mut records = stored.iter().map(|(_, record)| record);
        let record = records.find(|record| record.ballot == ballot).cloned();
        let record = record.ok_or_else(|| attempt.no_quorum())?;
        if !lacking.is_empty()
            && let Some(freeing) = attempt.give_back()
        {
            spread(freeing, record.clone(), lacking);
        }
        Ok(record)
    }

    fn is_replay(along: &Granted) -> bool {
        along.record.is_some()
    }

    async fn settle(attempt: &mut Attempt<Self>) -> Result<Granted, AcquireError> {
        let record = adoptable(attempt).await?;
        let needed = attempt.shared.terms.quorum.needed();
        let verdict = highest(attempt.round.fences().map(|(_, token)| token), needed);
        attempt.settle_fence(verdict).await?;
        let clocks = Clocks {
            showed: take(&mut attempt.purpose.clocks),
            asked: attempt.sent,
        };
        Ok(Granted { record, clocks })
    }
}

/// The record that is to be written to a quorum in place of a run: the one that may have been chosen, unless it has
/// ended. Waits for more replies while they leave that open, for the node time-out at most.
async fn adoptable(attempt: &mut Attempt<Recall>) -> Result<Option<Record>, AcquireError> {
    loop {
        let (record, life) = attempt.purpose.highest_record();
        match life {
            Life::Kept => return Ok(record),
            Life::Over => return Ok(None),
            Life::Open => {}
        }
        let shared = Arc::clone(&attempt.shared);
        let spent = shared.clock.now().since(attempt.sent);
        let left = shared.node_timeout.saturating_sub(spent);
        let deadline = pin!(sleep(left));
        let Some((node, reply)) = attempt.fanout.next_before(deadline).await else {
            attempt.time_out();
            return Err(attempt.no_quorum());
        };
        attempt.take_reply(node, reply);
    }
}

/// The nodes' clocks at the grant of a run, in milliseconds since 1970.
#[derive(Debug)]
pub(crate) struct Clocks {
    showed: Vec<u64>,
    // When they were asked.
    asked: Moment,
}

impl Clocks {
    /// The time `keep` from now, in milliseconds since 1970: by the middle one of the clocks of the granting nodes
    /// and of this process, so that a single wrong one does no harm. It errs by up to a round trip, to the late side.
    pub(crate) fn end_after(&self, ours: &dyn Clock, keep: Duration) -> u64 {
        let mut clocks = vec![ours.unix_micros() / 1_000];
        let since = millis(ours.now().since(self.asked));
        clocks.extend(self.showed.iter().map(|then| then.saturating_add(since)));
        time_by(clocks).saturating_add(millis(keep.min(FOREVER)))
    }
}

/// Whole milliseconds, rounded up: nothing ends earlier than it was to.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Longer than this is forever: servers do not accept much later times.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);

/// Counters of longer runs are not kept for as long: a `max_hold` without end must not keep them for ever.
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How long a holder from before this run may believe that it holds the lock: the longest of the handles that have
/// begun runs.
fn before_run(longest: &AtomicU64, terms: &Terms) -> Duration {
    let own = terms.max_hold.saturating_add(terms.ttl);
    // Rounded up.
    let millis = u64::try_from(own.as_millis()).unwrap_or(u64::MAX);
    let before = longest.fetch_max(millis.saturating_add(1), Ordering::Relaxed);
    own.max(Duration::from_millis(before))
}

/// How long nodes remember a grant without a result: longer than its commands can be under way, and than the holder
/// before can believe that it has the lock (a `max_hold` and a ttl where a node lost it early); at most `keep`.
fn linger(before: Duration, ttl: Duration, keep: Duration) -> Duration {
    let under_way = ttl.saturating_mul(4);
    before.min(keep).max(under_way).max(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::quorum::Drift;

    #[test]
    fn a_run_is_remembered_for_as_long_as_any_handle_may_have_held_the_one_before() {
        let secs = Duration::from_secs;
        let longest = AtomicU64::new(0);
        let before = |ttl, max_hold| {
            let terms = Terms {
                quorum: Quorum::masking(3, 0).unwrap(),
                ttl: secs(ttl),
                drift: Drift::default(),
                retry: secs(1),
                max_hold: secs(max_hold),
            };
            before_run(&longest, &terms)
        };
        assert_eq!(before(10, 60), secs(70));
        assert_eq!(before(20, 300), secs(320));
        let after = before(10, 60);
        assert!(after >= secs(320) && after < secs(321), "{after:?}");
    }

    #[test]
    fn a_grant_is_remembered_until_nobody_can_hold_the_lock_from_before() {
        let secs = Duration::from_secs;
        let (hour, day) = (secs(3_600), secs(86_400));
        for (ttl, max_hold, keep, expected) in [
            (secs(10), secs(60), day, secs(70)),
            (secs(1), secs(2), day, secs(60)),
            (secs(10), hour, day, hour + secs(10)),
            (hour, hour, day, 4 * hour),
            (secs(10), Duration::MAX, day, day),
            (secs(10), hour, secs(1), secs(60)),
        ] {
            let before = max_hold.saturating_add(ttl);
            assert_eq!(linger(before, ttl, keep), expected, "{ttl:?} {max_hold:?}");
        }
    }
}
