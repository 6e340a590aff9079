use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::clock::Clock as _;
use crate::manager::error::NoQuorum;
use crate::manager::nodes::{LOOK, NodeSet};
use crate::moment::Moment;
use crate::node::{Node, NodeError, NodeErrorKind, NodeFuture, NodeState};
use crate::protocol::backoff::Backoff;
use crate::seam::for_pause;

impl NodeSet {
    /// Waits until a quorum of nodes votes and all nodes are trusted or taken over as an operator asks. It waits for as
    /// long as quarantines last, and otherwise until `end`. If it `fails_fast`, it also ends once all nodes that are up
    /// have answered and one of them serves processes with another list.
    pub(crate) async fn quorum_votes(
        &self,
        end: Instant,
        fails_fast: bool,
    ) -> Result<(), NoQuorum> {
        let mut patience = Patience {
            end,
            fails_fast,
            connect_timeout: self.connecting.timeout,
            grace: ENDING + self.node_timeout,
            recovers: false,
            extended: false,
            graced: false,
        };
        let mut is_logged = false;
        loop {
            let news = self.voting.news();
            if fails_fast
                && self.voting.answered() >= self.up()
                && let Some(error) = self.serves_others()
            {
                return Err(error);
            }
            let sight = self.sight();
            if fails_fast && sight.recovers && !std::mem::replace(&mut is_logged, true) {
                let ready_in = self.quorum_in().unwrap_or_default();
                crate::trace::waits_for_votes(ready_in, &self.count());
            }
            let end = match patience.look(Instant::now(), sight) {
                Next::Done => return Ok(()),
                Next::GiveUp => return Err(self.not_voting()),
                Next::Wait(end) => end,
            };
            // `news` does not resolve when a node goes down, so look again after a while.
            let look = Instant::now() + LOOK;
            let _news = timeout_at(end.unwrap_or(look).min(look), news).await;
        }
    }

    fn sight(&self) -> Sight {
        Sight {
            votes: self.count().is_quorum(),
            pending: self.voting.is_pending(),
            trusting: self.voting.is_trusting(),
            recovers: !self.voting.serves_others() && self.quorum_in().is_some(),
            is_up: self.until_quorum().is_some(),
        }
    }

    fn not_voting(&self) -> NoQuorum {
        let why = |index| Some((index, self.why_no_vote(index)?));
        let failures = (0..self.nodes.len()).filter_map(why).collect();
        let disagreement = self.serves_others();
        disagreement.unwrap_or_else(|| self.without_quorum(failures))
    }

    fn serves_others(&self) -> Option<NoQuorum> {
        self.disagreement().filter(|_| self.voting.serves_others())
    }

    pub(crate) fn why_no_vote(&self, index: usize) -> Option<NodeError> {
        let node = self.nodes.get(index).filter(|_| !self.counts(index))?;
        if let NodeState::Down(error) | NodeState::Refused(error) = node.state() {
            return Some(error);
        }
        let untold = || NodeError::new(NodeErrorKind::TimedOut, "it did not say whether it votes");
        let explained = self.voting.explain(index, self.clock.now());
        Some(explained.unwrap_or_else(untold))
    }
}

const ENDING: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Patience {
    end: Instant,
    fails_fast: bool,
    connect_timeout: Duration,
    /// How long nodes can take from the end of their quarantine to their vote.
    grace: Duration,
    recovers: bool,
    extended: bool,
    graced: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sight {
    votes: bool,
    pending: bool,
    trusting: bool,
    /// A quorum will vote at a known time, but does not vote yet.
    recovers: bool,
    /// A quorum is up, and votes now or at a known time.
    is_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Done,
    GiveUp,
    /// Look again when there is news, or at this time.
    Wait(Option<Instant>),
}

impl Patience {
    fn look(&mut self, now: Instant, seen: Sight) -> Next {
        let is_over = now >= self.end;
        if seen.votes && (is_over || !seen.pending) {
            return Next::Done;
        }
        let recovered = std::mem::replace(&mut self.recovers, seen.recovers);
        if recovered && !seen.recovers && self.may_extend(is_over, seen) {
            self.end = now + self.connect_timeout;
            self.extended = true;
        }
        if now >= self.end && !seen.recovers && seen.is_up && !self.graced {
            // A node that came up just before the end needs a moment to vote, so wait once more.
            self.graced = true;
            self.end = now + self.grace;
        }
        match now < self.end {
            true => Next::Wait(Some(self.end)),
            false if seen.recovers => Next::Wait(None),
            false => Next::GiveUp,
        }
    }

    /// Whether nodes get more time after a quarantine. Unless the call fails fast, they get it only after `end`. While
    /// nodes are trusted, they get it only once, because a node that comes and goes must not prolong the call forever.
    fn may_extend(&self, is_over: bool, seen: Sight) -> bool {
        self.fails_fast || is_over && !(self.extended && seen.trusting)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    Refused,
    Late,
}

pub(crate) async fn retry<T>(
    set: &NodeSet,
    index: usize,
    until: Moment,
    name: &'static str,
    command: impl Fn(&dyn Node) -> NodeFuture<Result<T, NodeError>> + Send,
) -> Result<T, Missed> {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
    // A slow node gets more time at each try, because otherwise none of the commands might be answered before `until`.
    let mut patience = set.node_timeout;
    let node = set.nodes.get(index).ok_or(Missed::Refused)?;
    loop {
        let left = until.since(set.clock.now());
        match timeout(left, node.ready()).await {
            Ok(Ok(())) => {}
            // The node refused the connection. This can end soon, for example if its password is being changed.
            Ok(Err(error)) if is_retryable(&error) && !left.is_zero() => {
                sleep(backoff.next(for_pause()).min(left)).await;
                continue;
            }
            Ok(Err(_)) | Err(_) => return Err(Missed::Late),
        }
        patience = patience.saturating_mul(2);
        match timeout(patience, command(&**node)).await {
            Ok(Ok(reply)) => {
                set.tell_run(index, name);
                return Ok(reply);
            }
            Ok(Err(error)) if !is_retryable(&error) => {
                set.refused(index, name, &error);
                return Err(Missed::Refused);
            }
            Ok(Err(error)) => set.log_refusal(index, name, &error),
            Err(_) => {}
        }
        if set.clock.now() >= until {
            return Err(Missed::Late);
        }
        sleep(backoff.next(for_pause())).await;
    }
}

/// Whether the same command may succeed later.
pub(crate) fn is_retryable(error: &NodeError) -> bool {
    !matches!(
        error.kind(),
        NodeErrorKind::WrongType | NodeErrorKind::Foreign | NodeErrorKind::Closed
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECT: Duration = Duration::from_secs(5);
    const GRACE: Duration = Duration::from_secs(2);
    const END: Duration = Duration::from_secs(10);
    const SEC: Duration = Duration::from_secs(1);

    const NOTHING: Sight = Sight {
        votes: false,
        pending: false,
        trusting: false,
        recovers: false,
        is_up: false,
    };
    const VOTES: Sight = Sight {
        votes: true,
        is_up: true,
        ..NOTHING
    };
    const RECOVERS: Sight = Sight {
        recovers: true,
        is_up: true,
        ..NOTHING
    };

    /// Checks the next step at each of these times, in seconds since the start.
    fn run(fails_fast: bool, sights: &[(f64, Sight, Next)], start: Instant) {
        let mut patience = Patience {
            end: start + END,
            fails_fast,
            connect_timeout: CONNECT,
            grace: GRACE,
            recovers: false,
            extended: false,
            graced: false,
        };
        for (at, seen, next) in sights {
            let now = start + Duration::from_secs_f64(*at);
            assert_eq!(patience.look(now, *seen), *next, "at {at} s: {seen:?}");
        }
    }

    #[test]
    fn a_quorum_is_awaited_until_the_end() {
        let start = Instant::now();
        let wait = Next::Wait(Some(start + END));
        for fails_fast in [false, true] {
            run(fails_fast, &[(0.0, VOTES, Next::Done)], start);
            let late = [(0.0, NOTHING, wait), (9.0, VOTES, Next::Done)];
            run(fails_fast, &late, start);
            let never = [(9.9, NOTHING, wait), (10.0, NOTHING, Next::GiveUp)];
            run(fails_fast, &never, start);
        }
    }

    #[test]
    fn what_is_pending_is_awaited_until_the_end_and_no_longer() {
        let start = Instant::now();
        let pending = Sight {
            pending: true,
            ..VOTES
        };
        let steps = [
            (0.0, pending, Next::Wait(Some(start + END))),
            (10.0, pending, Next::Done),
        ];
        run(false, &steps, start);
    }

    #[test]
    fn a_quarantine_is_awaited_however_long_it_lasts() {
        let start = Instant::now();
        let steps = [
            (1.0, RECOVERS, Next::Wait(Some(start + END))),
            (10.0, RECOVERS, Next::Wait(None)),
            (3_600.0, RECOVERS, Next::Wait(None)),
            (3_601.0, VOTES, Next::Done),
        ];
        run(false, &steps, start);
    }

    #[test]
    fn nodes_that_fail_in_the_midst_of_a_quarantine_are_given_time_to_come_back() {
        let start = Instant::now();
        for (fails_fast, at, until) in [(true, 3.0, 8.0), (false, 12.0, 17.0)] {
            let until = start + Duration::from_secs_f64(until);
            let before = match fails_fast {
                true => Next::Wait(Some(start + END)),
                false => Next::Wait(None),
            };
            let steps = [
                (at - 0.5, RECOVERS, before),
                (at, NOTHING, Next::Wait(Some(until))),
                (at + 4.9, NOTHING, Next::Wait(Some(until))),
                (at + 5.0, NOTHING, Next::GiveUp),
            ];
            run(fails_fast, &steps, start);
        }
        // Before `end`, a call that does not fail fast gets no more time.
        let wait = Next::Wait(Some(start + END));
        let steps = [
            (2.0, RECOVERS, wait),
            (3.0, NOTHING, wait),
            (10.0, NOTHING, Next::GiveUp),
        ];
        run(false, &steps, start);
    }

    #[test]
    fn a_node_that_comes_and_goes_does_not_keep_who_trusts_nodes() {
        let start = Instant::now();
        let at = |secs| Next::Wait(Some(start + Duration::from_secs(secs)));
        let trusting = |sight| Sight {
            trusting: true,
            ..sight
        };
        let until_the_second_loss = [
            (9.0, RECOVERS, at(10)),
            (11.0, NOTHING, at(16)),
            (12.0, RECOVERS, at(16)),
        ];
        let (up_again, gone) = ((17.0, RECOVERS), (18.0, NOTHING));
        let mut steps = until_the_second_loss.to_vec();
        steps.push((up_again.0, up_again.1, Next::Wait(None)));
        steps.push((gone.0, gone.1, at(23)));
        run(false, &steps, start);
        let mut steps: Vec<_> = until_the_second_loss
            .map(|(at, seen, next)| (at, trusting(seen), next))
            .to_vec();
        steps.push((up_again.0, trusting(up_again.1), Next::Wait(None)));
        steps.push((gone.0, trusting(gone.1), Next::GiveUp));
        run(false, &steps, start);
    }

    #[test]
    fn a_quorum_that_is_up_at_the_end_is_given_a_moment_once() {
        let start = Instant::now();
        let is_up = Sight {
            is_up: true,
            ..NOTHING
        };
        let graced = Next::Wait(Some(start + END + SEC + GRACE));
        let steps = [
            (0.0, is_up, Next::Wait(Some(start + END))),
            (11.0, is_up, graced),
            (12.9, is_up, graced),
            (13.0, is_up, Next::GiveUp),
        ];
        run(true, &steps, start);
    }
}
