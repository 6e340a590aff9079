//! What a round found that asked for a record.

use super::super::completion::{Spread, spread};
use super::super::ledger::{Owing, Stage};
use super::{Attempt, Purpose};
use crate::clock::Clock as _;
use crate::node::ReleaseRequest;
use crate::protocol::round::Vote;
use crate::record::Record;
use crate::token::FencingToken;

impl Attempt {
    /// What the nodes that granted have: of several, what may have been chosen.
    pub(in crate::manager) fn highest_record(&self) -> Option<Record> {
        let records = self.records.iter().map(|(_, record)| record);
        records.max_by_key(|record| record.ballot).cloned()
    }

    /// The record that a quorum has under `ballot`. Nodes without it are given it in the background.
    pub(in crate::manager) fn replay(mut self, ballot: FencingToken) -> Option<Record> {
        let mut records = self.records.iter().map(|(_, record)| record);
        let record = records.find(|record| record.ballot == ballot)?.clone();
        let lacks = |vote: Option<Vote>| match vote {
            Some(Vote::Recorded(other)) => other != ballot,
            vote => matches!(vote, Some(Vote::Granted(_))),
        };
        let nodes: Vec<usize> = (0..self.core.nodes.len())
            .filter(|node| lacks(self.round.vote(*node)))
            .collect();
        if let (false, Purpose::Recall { keep, .. }, Some(obligation)) =
            (nodes.is_empty(), self.purpose, &self.obligation)
        {
            let is_granted =
                |node: &usize| matches!(self.round.vote(*node), Some(Vote::Granted(_)));
            let owing: Vec<usize> = nodes.iter().copied().filter(is_granted).collect();
            for node in &nodes {
                // What it granted is released with that.
                self.round.settle(*node);
            }
            obligation.enter(Stage::Releasing);
            let release =
                ReleaseRequest::new(self.keys.clone(), self.token, false).since(self.sent);
            let job = Spread {
                release,
                record: record.clone(),
                keep,
                until: self.core.clock.now() + self.core.terms.ttl,
                owing: Owing::new(Some(obligation.share()), owing),
            };
            spread(&self.core, job, nodes);
        }
        Some(record)
    }
}
