//! Waiting until a quorum of nodes votes.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::clock::Clock as _;
use crate::manager::error::acquire::NoQuorum;
use crate::manager::nodes::node_set::NodeSet;
use crate::manager::nodes::voting::status::VotingStatus;
use crate::node::{NodeError, NodeErrorKind, NodeState};

impl NodeSet {
    /// How many nodes take commands.
    pub(crate) fn up(&self) -> usize {
        (0..self.nodes.len()).filter(|n| self.is_up(*n)).count()
    }

    /// Waits until a quorum of nodes votes, and all that were to be trusted or taken over are, as long as `timer` runs:
    /// for as long as quarantines last, and otherwise for what is left of the timer, or for the connect time-out after
    /// a quarantine in the midst of which too many nodes went down.
    ///
    /// # Errors
    ///
    /// [`NoQuorum`] if the time is over; where it `fails_fast`, also as soon as all nodes that are up have answered
    /// and one is known to serve processes with another list.
    pub(crate) async fn quorum_votes(
        &self,
        mut timer: Pin<&mut Sleep>,
        fails_fast: bool,
    ) -> Result<(), NoQuorum> {
        let needed = self.terms.quorum.needed();
        let mut patient = false;
        loop {
            let news = self.voting.news();
            // Before that it may not be known yet which configs ours has replaced.
            if fails_fast
                && self.voting.answered() >= self.up()
                && let Some(error) = self.disagreement()
            {
                return Err(error);
            }
            let pending = self.voting.is_pending() && !timer.is_elapsed();
            if !pending && self.voting.voting() >= needed {
                return Ok(());
            }
            let before = std::mem::replace(&mut patient, self.promising() >= needed);
            if before && !patient {
                timer.as_mut().reset(Instant::now() + self.connect_timeout);
            }
            if timer.is_elapsed() && !patient {
                return Err(self.not_voting());
            }
            tokio::select! {
                biased;
                () = news => {}
                () = &mut timer, if !timer.is_elapsed() => {}
                // No news tells of a node that goes down.
                () = sleep(LOOK) => {}
            }
        }
    }

    /// How many nodes take commands, and vote or will.
    fn promising(&self) -> usize {
        if self.voting.is_blocked() {
            return 0;
        }
        self.voting.promising(|node| self.is_up(node))
    }

    /// The error that names all nodes which do not vote.
    fn not_voting(&self) -> NoQuorum {
        let now = self.clock.now();
        let nodes = self.nodes.iter().enumerate();
        let failures = nodes.filter_map(|(index, node)| {
            let error = match (self.voting.show(index, now), node.state()) {
                (VotingStatus::Voting, _) => return None,
                (_, NodeState::Down(error) | NodeState::Refused(error)) => error,
                _ => self.voting.explain(index, now).unwrap_or_else(untold),
            };
            Some((index, error))
        });
        self.no_quorum(failures.collect())
    }
}

fn untold() -> NodeError {
    NodeError::new(NodeErrorKind::TimedOut, "it did not say whether it votes")
}

/// How often the connections are looked at while nodes are awaited.
pub(crate) const LOOK: Duration = Duration::from_secs(1);
