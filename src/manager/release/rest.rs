//! What goes on in the background once the caller has been told, or has left.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::Clock as _;
use crate::manager::release::command::Command;
use crate::manager::release::settlement::Settlement;
use crate::manager::shared::ROOM_FOR_RECORDS;
use crate::manager::tasks::TaskTracker;

/// For how long a record is brought to nodes that lack it. One that comes back later is given it when the record is
/// next asked for.
const SPREAD: Duration = Duration::from_secs(60);
/// What a record counts for at least, in bytes: no more are kept than there are tasks to be had for them.
const LEAST: usize = ROOM_FOR_RECORDS / TaskTracker::LIMIT;

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
            if let (true, Command::Release(request)) = (is_late, &self.command) {
                let reason = match request.lent {
                    false => "a node did not answer in time",
                    true => "a borrower did not end, or a node did not answer, in time",
                };
                crate::trace::left_to_expire(
                    &request.keys.first().show(self.shared.redact),
                    reason,
                );
            }
        }
        if !self.lacking.is_empty() && self.confirmed >= self.needed() {
            self.spread();
        }
    }

    /// Takes the room to keep the record in for nodes that lack it. If there is none, it is given up: they are given it
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
            shared.settle(&keys, self.free());
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
