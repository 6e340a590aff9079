//! The records that a round found.

use std::cmp::Reverse;
use std::sync::Arc;

use tokio::time::sleep;

use crate::clock::Clock as _;
use crate::manager::acquire::round::attempt::Attempt;
use crate::manager::error::acquire::AcquireError;
use crate::manager::ledger::{Owing, Stage};
use crate::manager::release::command::Command;
use crate::manager::release::settlement::Settlement;
use crate::node::{CompleteRequest, ReleaseRequest};
use crate::protocol::retention::{Life, life};
use crate::protocol::round::Vote;
use crate::record::Record;
use crate::token::FencingToken;

impl Attempt {
    /// The record that is to be written to a quorum in place of a run, of those that the nodes which granted have: of
    /// several, the one that may have been chosen, unless it has ended.
    ///
    /// While it ends on one node after the other, a quorum of replies may leave open whether it has; then this waits
    /// for more of them.
    ///
    /// # Errors
    ///
    /// [`AcquireError::NoQuorum`] if it is still open after the node time-out.
    pub(crate) async fn adoptable(&mut self) -> Result<Option<Record>, AcquireError> {
        loop {
            let (record, life) = self.highest_record();
            match life {
                Life::Kept => return Ok(record),
                Life::Over => return Ok(None),
                Life::Open => {}
            }
            let spent = self.shared.clock.now().since(self.sent);
            let left = self.shared.node_timeout.saturating_sub(spent);
            self.fanout.until(sleep(left));
            let Some((node, reply)) = self.fanout.next().await else {
                self.time_out();
                return Err(self.no_quorum());
            };
            self.take_reply(node, reply);
        }
    }

    /// The record with the highest ballot that is not over.
    fn highest_record(&self) -> (Option<Record>, Life) {
        let mut records: Vec<&Record> = self.records.iter().map(|(_, record)| record).collect();
        records.sort_by_key(|record| Reverse(record.ballot));
        let quorum = self.shared.terms.quorum;
        let lives = records.into_iter();
        let mut lives = lives.map(|record| (record, life(record.until, &self.clocks, quorum)));
        match lives.find(|(_, life)| *life != Life::Over) {
            Some((record, life)) => (Some(record.clone()), life),
            None => (None, Life::Over),
        }
    }

    /// The record that a quorum has under `ballot`. It is written to nodes without it in the background.
    pub(crate) fn replay(mut self, ballot: FencingToken) -> Option<Record> {
        let mut records = self.records.iter().map(|(_, record)| record);
        let record = records.find(|record| record.ballot == ballot)?.clone();
        let lacks = |vote: Option<Vote>| match vote {
            Some(Vote::Recorded(other)) => other != ballot,
            vote => matches!(vote, Some(Vote::Granted(_))),
        };
        let nodes: Vec<usize> = (0..self.shared.nodes.len())
            .filter(|node| lacks(self.round.vote(*node)))
            .collect();
        if let (false, Some(obligation)) = (nodes.is_empty(), &self.obligation) {
            let owing = self.granted();
            for node in &nodes {
                // A key that it granted is released with that.
                self.round.mark_released(*node);
            }
            obligation.enter(Stage::Releasing);
            let release =
                ReleaseRequest::new(self.keys.clone(), self.token, false).since(self.sent);
            let request = CompleteRequest::new(release, Some(record.clone()))
                .under(Some(Arc::clone(&self.shared.config)));
            let owing = Owing::new(Some(obligation.share()), owing);
            let command = Command::Complete(request);
            let mut settlement = Settlement::new(&self.shared, command, &[], owing, self.terms.ttl);
            settlement.lacking = nodes;
            settlement.waited_for = Some(obligation.share().owing_nothing());
            settlement.spread();
        }
        Some(record)
    }
}
