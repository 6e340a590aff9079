//! [`Settlement`]: one lock being released on every node that may hold it.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::instruments;
use crate::manager::error::release::ReleaseUnconfirmed;
use crate::manager::lease::held::{HeldLease, Turn};
use crate::manager::ledger::{Obligation, Owing};
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::retry::{Missed, is_retryable, retry};
use crate::manager::release::command::Command;
use crate::manager::shared::{ROOM_FOR_RECORDS, Shared};
use crate::manager::tasks::TaskTracker;
use crate::moment::Moment;
use crate::mutant::{self, Mutant};
use crate::node::{Node, NodeError, NodeFuture, ReleaseReply};
use crate::protocol::backoff::give_way;

/// One lock being released on every node that may hold it.
#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) shared: Arc<Shared>,
    pub(crate) command: Command,
    sent: Moment,
    // By then the ttl has ended the lock on its own.
    until: Moment,
    // The lock, if commands that may set its token anew were under way when it was released.
    lease: Option<Arc<HeldLease>>,
    replies: Fanout<Result<ReleaseReply, NodeError>>,
    // How many nodes are free of the lock, and have the record if there is one.
    pub(crate) confirmed: usize,
    // Nodes to try again.
    failed: Vec<usize>,
    // Nodes that do not have the record yet, if there is one.
    pub(crate) lacking: Vec<usize>,
    // The room that the record takes while it is kept for them.
    room: Option<OwnedSemaphorePermit>,
    // How many other processes were told of it, by the node that told most.
    listeners: u32,
    // The right to contend for the keys: it passes on once a quorum has confirmed.
    pub(crate) turn: Option<Turn>,
    // Whether its end counts as a loss. There until its end is counted, and only if it was held.
    pub(crate) was_lost: Option<bool>,
    // Its ttl has ended it by now, whatever the nodes answer, and that was told.
    pub(crate) has_expired: bool,
    owing: Owing,
    // Nothing is owed for it, and yet a shutdown waits for the last try to bring the record to all nodes.
    pub(crate) waited_for: Option<Obligation>,
}

impl Settlement {
    /// Prepares `command` for `nodes`, to free those of `owing` from a lock of this `ttl`. Nothing is sent before a
    /// reply is awaited.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        command: Command,
        nodes: &[usize],
        owing: Owing,
        ttl: Duration,
    ) -> Self {
        let sent = shared.clock.now();
        let lacking = command.record().map_or(0, |_| shared.nodes.len());
        Self {
            replies: shared.send(nodes.iter().copied(), |node| command.send(node)),
            shared: Arc::clone(shared),
            command,
            sent,
            until: sent + ttl,
            lease: None,
            confirmed: 0,
            failed: Vec::new(),
            lacking: (0..lacking).collect(),
            room: None,
            listeners: 0,
            turn: None,
            was_lost: None,
            has_expired: false,
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

    fn needed(&self) -> usize {
        if self.command.is_completion() && mutant::is(Mutant::ResultOnOneNodeIsKept) {
            return 1;
        }
        self.shared.terms.quorum.needed()
    }

    /// Waits until a quorum of nodes has confirmed, at most for the node time-out, and lets the next caller contend for
    /// the keys.
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
            instruments::released(if was_lost { "lost" } else { outcome });
        }
    }

    /// Takes in replies until `enough` nodes have confirmed, there are no more, or the node time-out is over.
    async fn hear(&mut self, enough: usize) {
        let shared = Arc::clone(&self.shared);
        let deadline = || shared.tasks.timer(shared.node_timeout);
        self.replies.no_deadline();
        while self.confirmed < enough
            && let Some((node, reply)) = self.replies.next_within(deadline).await
        {
            self.note(node, reply);
        }
        while let Some((node, reply)) = self.replies.take_ready() {
            self.note(node, reply);
        }
    }

    fn note(&mut self, node: usize, reply: Result<ReleaseReply, NodeError>) {
        match reply {
            Ok(reply) => {
                self.shared.tell_run(node, self.command.name());
                self.settled(node, &reply);
            }
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

    /// Lets the next caller contend for the keys: other processes first, if any were told, and then the next caller of
    /// this one.
    fn pass_on(&mut self) {
        // It passes on at the end, for the next caller looks at the cooldown first.
        let Some(_turn) = self.turn.take() else {
            return;
        };
        if self.listeners == 0 {
            return;
        }
        let now = self.shared.clock.now();
        let pause = give_way(self.listeners, now.since(self.sent));
        for key in self.command.keys().as_slice() {
            self.shared.cooldown.start(key.shared(), now, pause);
        }
    }

    /// Sends it to `nodes` again and again until each has answered or it is `until`; whether one of them did not answer
    /// in time.
    async fn send_again(&mut self, nodes: Vec<usize>, until: Moment) -> bool {
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

/// What goes on in the background once the caller has been told, or has left.
impl Settlement {
    /// Whether nothing is left to be done.
    pub(crate) fn is_over(&self) -> bool {
        self.replies.is_empty() && self.failed.is_empty() && self.lacking.is_empty()
    }

    /// Tries nodes that failed again until the ttl has ended the lock, and once a quorum has the record brings it to
    /// all others.
    pub(crate) async fn rest(mut self) {
        if self.was_lost.is_some() {
            // The caller has left. What is not confirmed by then is tried again below.
            let _ = self.quorum().await;
        }
        self.hear(usize::MAX).await;
        let late = self.replies.abandon();
        self.failed.extend(late);
        if !self.is_over() {
            // Boxed, as it is seldom needed.
            Box::pin(self.make_up()).await;
        }
    }

    async fn make_up(mut self) {
        self.reserve();
        if self.lacking.is_empty() || self.confirmed < self.needed() {
            let failed = take(&mut self.failed);
            let is_late = self.send_again(failed, self.until).await;
            let reason = match &self.command {
                Command::Release(request) if request.lent => {
                    Some("a borrower did not end, or a node did not answer, in time")
                }
                Command::Release(_) | Command::Forget(_) => Some("a node did not answer in time"),
                Command::EndClaim(_) | Command::Complete(_) => None,
            };
            if let Some(reason) = reason.filter(|_| is_late && !self.has_expired) {
                let key = self.command.keys().first().show(self.shared.redact);
                self.shared.left_to_expire(&key, reason);
            }
        }
        if !self.lacking.is_empty() && self.confirmed >= self.needed() {
            self.spread();
        }
    }

    /// Takes the room to keep the record in for nodes that lack it. If there is none, it is left out: they are given it
    /// when it is next asked for.
    fn reserve(&mut self) {
        if let (None, Some(record)) = (&self.room, self.command.record()) {
            let bytes = u32::try_from(record.body.len().max(LEAST)).unwrap_or(u32::MAX);
            let rooms = Arc::clone(&self.shared.room_for_records);
            self.room = rooms.try_acquire_many_owned(bytes).ok();
            if self.room.is_none() {
                self.forget_record();
            }
        }
    }

    /// Leaves the record out from here on: what remains is the release.
    fn forget_record(&mut self) {
        if let Command::Complete(request) = &self.command {
            self.command = Command::Release(request.release.clone());
        }
        self.lacking.clear();
        self.room = None;
    }

    /// Brings a record that a quorum has to the nodes that lack it, in the background: until they have it, the manager
    /// shuts down, or a minute is over. What they granted is released in any case.
    pub(crate) fn spread(mut self) {
        self.reserve();
        let (shared, keys) = (Arc::clone(&self.shared), self.command.keys().clone());
        if let Command::Complete(request) = &mut self.command {
            request.chosen = true;
            // A node may be down for all of that minute. What must be released then cannot wait behind its records.
            shared.tasks.spawn_beside(self.bring());
        } else {
            shared.spawn_release(&keys, self.free());
        }
    }

    async fn bring(mut self) {
        let shared = Arc::clone(&self.shared);
        let until = shared.clock.now() + SPREAD;
        let is_closing = tokio::select! {
            biased;
            () = shared.registry.closing() => true,
            _ = self.send_again(self.lacking.clone(), until) => false,
        };
        if is_closing {
            // Once more, for nodes that are there.
            let until = shared.clock.now() + shared.node_timeout;
            let last = self.send_again(self.lacking.clone(), until);
            let _ = timeout(shared.node_timeout, last).await;
        }
        self.waited_for = None;
        self.free().await;
    }

    /// Releases what is still to be released, without the record.
    async fn free(mut self) {
        self.forget_record();
        self.send_again(self.owing.nodes(), self.until).await;
    }
}

impl Drop for Settlement {
    fn drop(&mut self) {
        self.count("unconfirmed");
    }
}

/// For how long a record is brought to nodes that lack it. One that comes back later is given it when the record is
/// next asked for.
const SPREAD: Duration = Duration::from_secs(60);
/// What a record counts for at least, in bytes: no more are kept than there are tasks to be had for them.
const LEAST: usize = ROOM_FOR_RECORDS / TaskTracker::LIMIT;
