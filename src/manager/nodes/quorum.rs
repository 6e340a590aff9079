//! Waiting until a quorum of nodes votes.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::clock::Clock as _;
use crate::manager::error::acquire::NoQuorum;
use crate::manager::nodes::node_set::{LOOK, NodeSet};
use crate::manager::nodes::patience::{Next, Patience, Sight};
use crate::manager::nodes::voting::status::VotingStatus;
use crate::node::{NodeError, NodeErrorKind, NodeState};

impl NodeSet {
    /// Waits until a quorum of nodes votes, and all that were to be trusted or taken over are: for as long as
    /// quarantines last, and otherwise until `end`, or for the connect time-out after a quarantine that is over or in
    /// the midst of which too many nodes went down; and a moment longer for nodes that need not wait any more.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`] if the time is over; where it `fails_fast`, also as soon as all nodes that are up have answered
    /// and one is known to serve processes with another list.
    pub(crate) async fn quorum_votes(
        &self,
        end: Instant,
        fails_fast: bool,
    ) -> Result<(), NoQuorum> {
        let grace = ENDING + self.node_timeout;
        let mut patience = Patience::until(end, fails_fast, self.connect_timeout, grace);
        let mut is_told = false;
        loop {
            let news = self.voting.news();
            if fails_fast
                && self.voting.answered() >= self.up()
                && self.voting.serves_others()
                && let Some(error) = self.disagreement()
            {
                return Err(error);
            }
            let sight = self.sight();
            if fails_fast && sight.recovers {
                self.tell_wait(&mut is_told);
            }
            let end = match patience.look(Instant::now(), sight) {
                Next::Done => return Ok(()),
                Next::GiveUp => return Err(self.not_voting()),
                Next::Wait(end) => end,
            };
            // No news tells of a node that goes down.
            let look = Instant::now() + LOOK;
            let _news = timeout_at(end.unwrap_or(look).min(look), news).await;
        }
    }

    fn tell_wait(&self, is_told: &mut bool) {
        if !std::mem::replace(is_told, true) {
            let ready_in = self.quorum_in().unwrap_or_default();
            crate::trace::waits_for_votes(ready_in, &self.count());
        }
    }

    /// What is known of the nodes now.
    fn sight(&self) -> Sight {
        let needed = self.terms.quorum.needed();
        Sight {
            votes: self.has_quorum(),
            pending: self.voting.is_pending(),
            trusting: self.voting.is_trusting(),
            recovers: !self.voting.serves_others() && self.quorum_in().is_some(),
            is_up: self.until_votes().len() >= needed,
        }
    }

    fn not_voting(&self) -> NoQuorum {
        let now = self.clock.now();
        let untold = || NodeError::new(NodeErrorKind::TimedOut, "it did not say whether it votes");
        let nodes = self.nodes.iter().enumerate();
        let failures = nodes.filter_map(|(index, node)| {
            let error = match (self.standing(index, now), node.state()) {
                (VotingStatus::Voting, _) => return None,
                (_, NodeState::Down(error) | NodeState::Refused(error)) => error,
                _ => self.voting.explain(index, now).unwrap_or_else(untold),
            };
            Some((index, error))
        });
        self.no_quorum(failures.collect())
    }
}

const ENDING: Duration = Duration::from_secs(2);
