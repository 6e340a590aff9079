//! [`Recall`] is the part of a round that only runs have. It asks the nodes for the record of a key or, if there is
//! none, for the lock.

use std::cmp::Reverse;
use std::mem::replace;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::manager::freeing::Freed;
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::node::{
    AcquireReply, AcquireRequest, CompleteReply, CompleteRequest, Node, NodeError, NodeFuture,
    RecallRequest, Record, ReleaseReply, ReleaseRequest,
};
use crate::protocol::on_nodes::OnNodes;
use crate::protocol::quorum::Quorum;
use crate::protocol::recall::{Life, Recalled, life, recalled, time_by};
use crate::protocol::renewal::Terms;
use crate::token::FencingToken;

#[derive(Clone, Debug)]
pub(crate) struct Recall {
    quorum: Quorum,
    // Whether nodes are asked to grant the lock even if they have a record.
    adopt: bool,
    // How long nodes remember a grant without a result.
    linger: Duration,
    // How long a run may last.
    longest: Duration,
    // The records of nodes that had a record and granted nothing.
    stored: Vec<(usize, Record)>,
    // The records of nodes that had a record and granted the lock.
    adopted: Vec<Record>,
    // The clocks of the nodes that granted.
    clocks: Vec<u64>,
    // Set when the round is settled: the record that is to be written to a quorum, so that the work is not run.
    record: Option<Record>,
}

impl Recall {
    pub(crate) fn new(shared: &Shared, terms: &Terms, keep: Duration) -> Self {
        let before = before_run(&shared.runs.longest, terms);
        Self {
            quorum: shared.set.terms.quorum,
            adopt: false,
            linger: linger(before, terms.ttl, keep),
            longest: before.min(DAY),
            stored: Vec::new(),
            adopted: Vec::new(),
            clocks: Vec::new(),
            record: None,
        }
    }

    pub(crate) fn recalled(&self, nodes: &OnNodes) -> Option<Recalled> {
        let ballots = self.stored.iter().map(|(_, record)| record.ballot);
        recalled(nodes, self.quorum, &ballots)
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

impl Recall {
    /// How long fencing counters are kept: at least as long as the run. A node that does not remember the grant of a
    /// run sees by its counter whether another caller was granted the lock since.
    pub(crate) fn counter_ttl(&self, shared: &Shared, ttl: Duration) -> Duration {
        shared.runs.counter_ttl.max(ttl).max(self.longest)
    }

    pub(crate) fn ask(
        &self,
        node: &dyn Node,
        request: AcquireRequest,
    ) -> NodeFuture<Result<AcquireReply, NodeError>> {
        node.recall(RecallRequest {
            lock: request,
            adopt: self.adopt,
            linger: self.linger,
        })
    }

    pub(crate) fn hear(&mut self, node: usize, reply: AcquireReply) {
        match reply {
            AcquireReply::Promised { record, now, .. } => {
                self.clocks.push(now);
                self.adopted.extend(record);
            }
            AcquireReply::Recorded(record) => self.stored.push((node, record)),
            _ => {}
        }
    }

    pub(crate) fn with_ballot(
        &self,
        ballot: FencingToken,
    ) -> impl Iterator<Item = &(usize, Record)> + '_ {
        let has = move |(_, record): &&(usize, Record)| record.ballot == ballot;
        self.stored.iter().filter(has)
    }

    /// Decides whether a record takes the place of the run. Returns `false` if more replies are needed for that.
    pub(crate) fn settle_record(&mut self) -> bool {
        let (record, life) = self.highest_record();
        self.record = record.filter(|_| life == Life::Kept);
        life != Life::Open
    }

    pub(crate) fn granted(&self, sent: Moment) -> Granted {
        Granted {
            record: self.record.clone(),
            clocks: Clocks {
                showed: self.clocks.clone(),
                asked: sent,
            },
        }
    }

    pub(crate) const fn ask_again(&mut self) -> bool {
        !replace(&mut self.adopt, true)
    }
}

/// Deletes what a lost round for a run has set, including the node's memory of the grant.
pub(super) fn forget(node: &dyn Node, request: &ReleaseRequest) -> NodeFuture<Freed> {
    let reply = node.complete(CompleteRequest {
        release: request.clone(),
        record: None,
        chosen: false,
        config: None,
    });
    Box::pin(async move {
        reply.await.map(|reply| match reply {
            CompleteReply::Stored { listeners } => ReleaseReply::Released { listeners },
            CompleteReply::Refused => ReleaseReply::NotOwner,
        })
    })
}

/// The nodes' clocks at the grant of a run.
#[derive(Debug)]
pub(crate) struct Clocks {
    showed: Vec<u64>,
    asked: Moment,
}

impl Clocks {
    /// The time `keep` from now, in milliseconds since 1970, by the median of the clocks of the granting nodes and of
    /// this process. It is late by at most a round trip.
    pub(crate) fn end_after(&self, ours: &dyn Clock, keep: Duration) -> u64 {
        let mut clocks = vec![ours.unix_micros() / 1_000];
        let since = millis(ours.now().since(self.asked));
        clocks.extend(self.showed.iter().map(|then| then.saturating_add(since)));
        time_by(clocks).saturating_add(millis(keep.min(FOREVER)))
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Servers do not accept much later times.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);

/// The longest time for which a run keeps its counter, even with an unlimited `max_hold`.
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How long an earlier holder may believe that it holds the lock.
fn before_run(longest: &AtomicU64, terms: &Terms) -> Duration {
    let own = terms.max_hold.saturating_add(terms.ttl);
    // One millisecond is added, because `as_millis` rounds down.
    let millis = u64::try_from(own.as_millis()).unwrap_or(u64::MAX);
    let before = longest.fetch_max(millis.saturating_add(1), Ordering::Relaxed);
    own.max(Duration::from_millis(before))
}

/// How long nodes remember a grant without a result: for as long as an earlier holder may run, or `keep` if that is
/// less, but always for longer than a command of the run can be under way.
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
