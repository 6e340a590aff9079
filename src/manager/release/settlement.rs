//! [`Settlement`]: one lock being given back on every node that may hold it.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::manager::error::release::ReleaseUnconfirmed;
use crate::manager::lease::held::{HeldLease, Turn};
use crate::manager::ledger::{Obligation, Owing};
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::retry::{Missed, is_retryable, retry};
use crate::manager::release::command::Command;
use crate::manager::shared::Shared;
use crate::metrics;
use crate::moment::Moment;
use crate::node::{Node, NodeError, NodeFuture, ReleaseReply};
use crate::protocol::backoff::give_way;

/// One lock being given back on every node that may hold it.
#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) shared: Arc<Shared>,
    pub(crate) command: Command,
    sent: Moment,
    // By then the ttl has ended the lock on its own.
    pub(crate) until: Moment,
    // The lock, if commands that may set its token anew were under way when it was let go.
    lease: Option<Arc<HeldLease>>,
    pub(crate) replies: Fanout<Result<ReleaseReply, NodeError>>,
    // How many nodes are free of the lock, and have the record if there is one.
    pub(crate) confirmed: usize,
    // Nodes to try again.
    pub(crate) failed: Vec<usize>,
    // Nodes that do not have the record yet, if there is one.
    pub(crate) lacking: Vec<usize>,
    // The room that the record takes while it is kept for them.
    pub(crate) room: Option<OwnedSemaphorePermit>,
    // How many other processes were told of it, by the node that told most.
    listeners: u32,
    // The right to go for the keys: it passes on once a quorum has confirmed.
    pub(crate) turn: Option<Turn>,
    // Whether the lock had been lost. There until its end is counted, and only if it was held.
    pub(crate) was_lost: Option<bool>,
    pub(crate) owing: Owing,
    // Nothing is owed for it; but a shutdown waits for the last try to bring the record to all nodes.
    pub(crate) waited_for: Option<Obligation>,
}

impl Settlement {
    /// Prepares `command` for `nodes`, to free those of `owing`. Nothing is sent before a reply is awaited.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        command: Command,
        nodes: &[usize],
        owing: Owing,
    ) -> Self {
        let sent = shared.clock.now();
        let lacking = command.record().map_or(0, |_| shared.nodes.len());
        Self {
            replies: shared.send(nodes.iter().copied(), |node| command.send(node)),
            shared: Arc::clone(shared),
            command,
            sent,
            until: sent + shared.terms.ttl,
            lease: None,
            confirmed: 0,
            failed: Vec::new(),
            lacking: (0..lacking).collect(),
            room: None,
            listeners: 0,
            turn: None,
            was_lost: None,
            owing,
            waited_for: None,
        }
    }

    /// Adds `node`, which has a command under way that may set the token of `lease` anew: it is sent its own once that
    /// is settled. It counts like the others: a node that was slow to grant must not make the release depend on all
    /// the rest.
    pub(crate) fn add_busy(&mut self, lease: &Arc<HeldLease>, node: usize) {
        let (shared, command) = (Arc::clone(&self.shared), self.command.clone());
        let held = Arc::clone(self.lease.insert(Arc::clone(lease)));
        let reply = async move {
            let owes = held.settled(node).await || command.is_completion();
            match shared.nodes.get(node) {
                Some(node) if owes => command.send(&**node).await,
                _ => Ok(ReleaseReply::NotOwner),
            }
        };
        self.replies.push(node, Box::pin(reply));
    }

    pub(crate) fn needed(&self) -> usize {
        self.shared.terms.quorum.needed()
    }

    /// Waits until a quorum of nodes has confirmed, at most for the node time-out, and lets the next go for the keys.
    pub(crate) async fn quorum(&mut self) -> Result<(), ReleaseUnconfirmed> {
        let needed = self.needed();
        self.hear(needed).await;
        let confirmed = self.confirmed;
        let outcome = if confirmed < needed {
            self.count("unconfirmed");
            Err(ReleaseUnconfirmed { confirmed, needed })
        } else {
            self.count("released");
            Ok(())
        };
        self.pass_on();
        outcome
    }

    /// Counts the end of a lock that was held, once.
    fn count(&mut self, outcome: &'static str) {
        if let Some(was_lost) = self.was_lost.take() {
            metrics::released(if was_lost { "lost" } else { outcome });
        }
    }

    /// Takes in replies until `enough` nodes have confirmed, there are no more, or the node time-out is over.
    pub(crate) async fn hear(&mut self, enough: usize) {
        let shared = &self.shared;
        self.replies.until(shared.tasks.timer(shared.node_timeout));
        while self.confirmed < enough
            && let Some((node, reply)) = self.replies.next().await
        {
            self.note(node, reply);
        }
        while let Some((node, reply)) = self.replies.take_ready() {
            self.note(node, reply);
        }
    }

    fn note(&mut self, node: usize, reply: Result<ReleaseReply, NodeError>) {
        match reply {
            Ok(reply) => self.settled(node, &reply),
            Err(error) if is_retryable(&error) => self.failed.push(node),
            Err(error) => self.shared.refused(node, self.command.name(), &error),
        }
    }

    fn settled(&mut self, node: usize, reply: &ReleaseReply) {
        self.owing.freed(node);
        if let ReleaseReply::Released { listeners } = reply {
            self.listeners = self.listeners.max(*listeners);
        } else if self.command.is_completion() {
            // It is free, and refused the record.
            return;
        }
        self.confirmed += 1;
        self.lacking.retain(|other| *other != node);
    }

    /// Lets the next go for the keys: other processes first, if any were told, and then the next of this one.
    fn pass_on(&mut self) {
        if self.turn.is_some() && self.listeners > 0 {
            let now = self.shared.clock.now();
            let pause = give_way(self.listeners, now.since(self.sent));
            for key in self.command.keys().as_slice() {
                self.shared.cooldown.start(key.shared(), now, pause);
            }
        }
        self.turn = None;
    }

    /// Sends it to `nodes` again and again until each has answered or it is `until`; whether one of them did not answer
    /// in time.
    pub(crate) async fn send_again(&mut self, nodes: Vec<usize>, until: Moment) -> bool {
        let jobs = nodes.into_iter().map(|node| {
            let (shared, command) = (Arc::clone(&self.shared), self.command.clone());
            let lease = self.lease.clone();
            let job: NodeFuture<_> = Box::pin(async move {
                if let Some(lease) = lease {
                    let left = until.since(shared.clock.now());
                    let _ = timeout(left, lease.settled(node)).await;
                }
                let send = |node: &dyn Node| command.send(node);
                retry(&shared, node, until, command.name(), send).await
            });
            (node, job)
        });
        let mut jobs = Fanout::new(jobs);
        let mut is_late = false;
        while let Some((node, reply)) = jobs.next().await {
            match reply {
                Ok(reply) => self.settled(node, &reply),
                Err(missed) => is_late |= missed == Missed::Late,
            }
        }
        is_late
    }
}

impl Drop for Settlement {
    fn drop(&mut self) {
        self.count("unconfirmed");
    }
}
