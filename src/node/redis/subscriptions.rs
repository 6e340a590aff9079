//! [`Subscriptions`]: the channels of a node that have listeners, and their state on the server. Does no I/O.
//!
//! Channels are joined in batches, because one command per channel would be twenty times slower.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::namespace::NodeKey;
use crate::node::{NoticeSender, Subscription};

#[derive(Default)]
pub(super) struct Subscriptions {
    channels: Mutex<Channels>,
    changed: Notify,
    // Whether it was logged that the server refuses subscriptions.
    reported: AtomicBool,
}

#[derive(Default)]
struct Channels {
    // Sorted, so that the order of commands and notices is deterministic.
    by_name: BTreeMap<Arc<str>, Channel>,
    // Two sets, so that a channel to join does not queue behind channels to leave.
    to_join: BTreeSet<Arc<str>>,
    to_leave: BTreeSet<Arc<str>>,
    next: u64,
}

#[derive(Default)]
struct Channel {
    senders: Vec<(u64, NoticeSender)>,
    server: Server,
}

impl Channel {
    fn tell(&self, notice: impl Fn(&NoticeSender)) {
        self.senders.iter().for_each(|(_, sender)| notice(sender));
    }
}

/// The state of a channel on the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Server {
    #[default]
    Off,
    /// Not confirmed yet.
    Joining,
    On,
    /// Not confirmed yet.
    Leaving,
}

/// How many channels one command may have. A longer command would block all other clients for too long.
pub(super) const CHUNK: usize = 500;

/// The next commands to the server, which take one round trip.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) join: Vec<Arc<str>>,
    pub(super) leave: Vec<Arc<str>>,
}

impl Batch {
    pub(super) const fn is_empty(&self) -> bool {
        self.join.is_empty() && self.leave.is_empty()
    }
}

impl Subscriptions {
    fn channels(&self) -> MutexGuard<'_, Channels> {
        // Ignore poison, because no code that holds this mutex can panic half-way.
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribe(self: &Arc<Self>, key: &NodeKey, sender: NoticeSender) -> Subscription {
        let name: Arc<str> = Arc::from(key.channel().concat());
        let mut guard = self.channels();
        let channels = &mut *guard;
        let id = channels.next;
        channels.next += 1;
        let channel = channels.by_name.entry(Arc::clone(&name)).or_default();
        if channel.server == Server::On {
            sender.opened();
        }
        channel.senders.push((id, sender));
        channels.mark(&name);
        drop(guard);
        self.changed.notify_one();
        let subscriptions = Arc::clone(self);
        Subscription::new(move || subscriptions.remove(&name, id))
    }

    fn remove(&self, name: &Arc<str>, id: u64) {
        let mut channels = self.channels();
        if let Some(channel) = channels.by_name.get_mut(name) {
            channel.senders.retain(|(other, _)| *other != id);
            channels.mark(name);
        }
        drop(channels);
        self.changed.notify_one();
    }

    pub(super) async fn work(&self) {
        while self.channels().is_settled() {
            self.changed.notified().await;
        }
    }

    pub(super) fn is_used(&self) -> bool {
        !self.channels().by_name.is_empty()
    }

    pub(super) fn next_batch(&self) -> Batch {
        let mut guard = self.channels();
        let channels = &mut *guard;
        let join: Vec<_> = take_chunk(&mut channels.to_join);
        let leave: Vec<_> = take_chunk(&mut channels.to_leave);
        for (names, server) in [(&join, Server::Joining), (&leave, Server::Leaving)] {
            for name in names {
                if let Some(channel) = channels.by_name.get_mut(name) {
                    channel.server = server;
                }
            }
        }
        Batch { join, leave }
    }

    pub(super) fn done(&self, batch: Batch) {
        let mut channels = self.channels();
        for (names, server) in [(batch.join, Server::On), (batch.leave, Server::Off)] {
            for name in names {
                if let Some(channel) = channels.by_name.get_mut(&name) {
                    channel.server = server;
                    if server == Server::On {
                        channel.tell(NoticeSender::opened);
                    }
                }
                channels.mark(&name);
            }
        }
    }

    pub(super) fn lost(&self) {
        let mut guard = self.channels();
        let channels = &mut *guard;
        channels.to_join.clear();
        channels.to_leave.clear();
        channels.by_name.retain(|name, channel| {
            if channel.server == Server::On {
                channel.tell(NoticeSender::closed);
            }
            channel.server = Server::Off;
            let wanted = !channel.senders.is_empty();
            if wanted {
                channels.to_join.insert(Arc::clone(name));
            }
            wanted
        });
    }

    pub(super) fn announce(&self, name: &[u8], waited: Duration) {
        let Ok(name) = std::str::from_utf8(name) else {
            return;
        };
        if let Some(channel) = self.channels().by_name.get(name) {
            channel.tell(|sender| sender.released(waited));
        }
    }

    pub(super) fn is_leaving(&self, name: &[u8]) -> bool {
        let channels = self.channels();
        let channel = str::from_utf8(name)
            .ok()
            .and_then(|name| channels.by_name.get(name));
        channel.is_none_or(|channel| channel.server == Server::Leaving)
    }

    pub(super) fn report(&self) -> bool {
        !self.reported.swap(true, Ordering::Relaxed)
    }
}

impl Channels {
    fn is_settled(&self) -> bool {
        self.to_join.is_empty() && self.to_leave.is_empty()
    }

    fn mark(&mut self, name: &Arc<str>) {
        let Some(channel) = self.by_name.get(name) else {
            return;
        };
        match (channel.server, channel.senders.is_empty()) {
            (Server::Off, false) => {
                self.to_join.insert(Arc::clone(name));
            }
            (Server::Off, true) => {
                self.by_name.remove(name);
                self.to_join.remove(name);
            }
            (Server::On, true) => {
                self.to_leave.insert(Arc::clone(name));
            }
            (Server::On, false) => {
                self.to_leave.remove(name);
            }
            // `done` calls this function again when the server has confirmed.
            (Server::Joining | Server::Leaving, _) => {}
        }
    }
}

fn take_chunk(names: &mut BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
    std::iter::from_fn(|| names.pop_first())
        .take(CHUNK)
        .collect()
}

impl fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channels = self.channels().by_name.len();
        f.debug_struct("Subscriptions")
            .field("channels", &channels)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_key::LockKey;
    use crate::namespace::Namespace;
    use crate::node::NoticeReceiver;

    fn key(name: &str) -> NodeKey {
        Namespace::default().node_key(&LockKey::new(name).unwrap())
    }

    fn turn(subscriptions: &Subscriptions) -> (usize, usize) {
        let batch = subscriptions.next_batch();
        let sizes = (batch.join.len(), batch.leave.len());
        subscriptions.done(batch);
        sizes
    }

    #[test]
    fn a_channel_is_joined_once_and_left_with_its_last_ear() {
        let (subscriptions, receiver) =
            (Arc::new(Subscriptions::default()), NoticeReceiver::new(2));
        let first = subscriptions.subscribe(&key("a"), receiver.sender(0));
        assert_eq!(receiver.notices().open, 0);
        assert_eq!(turn(&subscriptions), (1, 0));
        assert_eq!(receiver.notices().open, 1);
        let second = subscriptions.subscribe(&key("a"), receiver.sender(1));
        assert_eq!(receiver.notices().open, 2, "it is open already");
        assert!(subscriptions.next_batch().is_empty());
        subscriptions.announce(b"lk!free:a", Duration::ZERO);
        subscriptions.announce(b"lk!free:b", Duration::ZERO);
        subscriptions.announce(b"\xff", Duration::ZERO);
        assert_eq!(receiver.notices().released, 2);
        drop(first);
        assert!(subscriptions.next_batch().is_empty());
        drop(second);
        assert_eq!(turn(&subscriptions), (0, 1));
        assert!(!subscriptions.is_used(), "nothing is left of it");
    }

    #[test]
    fn who_changes_their_mind_under_way_is_served_by_the_next_batch() {
        let (subscriptions, receiver) =
            (Arc::new(Subscriptions::default()), NoticeReceiver::new(1));
        let first = subscriptions.subscribe(&key("a"), receiver.sender(0));
        let joining = subscriptions.next_batch();
        drop(first);
        assert!(subscriptions.next_batch().is_empty(), "one thing at a time");
        subscriptions.done(joining);
        let leaving = subscriptions.next_batch();
        assert_eq!(leaving.leave.len(), 1);
        let second = subscriptions.subscribe(&key("a"), receiver.sender(0));
        assert_eq!(
            receiver.notices().open,
            0,
            "not before the server has confirmed"
        );
        subscriptions.done(leaving);
        assert_eq!(turn(&subscriptions), (1, 0));
        drop(second);
        assert_eq!(turn(&subscriptions), (0, 1));
        // A channel that was never joined need not be left.
        drop(subscriptions.subscribe(&key("b"), receiver.sender(0)));
        assert!(subscriptions.next_batch().is_empty() && !subscriptions.is_used());
    }

    #[test]
    fn a_batch_is_one_round_trip_and_who_begins_is_in_the_next_one() {
        let many = 2 * CHUNK + 1;
        let (subscriptions, receiver) = (
            Arc::new(Subscriptions::default()),
            NoticeReceiver::new(many + 1),
        );
        let all: Vec<_> = (0..many)
            .map(|n| subscriptions.subscribe(&key(&format!("k{n}")), receiver.sender(n)))
            .collect();
        assert_eq!(turn(&subscriptions), (CHUNK, 0));
        let open = receiver.notices().open;
        assert_eq!(open, CHUNK, "the first need not wait for the last");
        assert_eq!(
            (turn(&subscriptions), turn(&subscriptions)),
            ((CHUNK, 0), (1, 0))
        );
        drop(all);
        assert_eq!(turn(&subscriptions), (0, CHUNK));
        let _new = subscriptions.subscribe(&key("new"), receiver.sender(many));
        assert_eq!(
            turn(&subscriptions),
            (1, CHUNK),
            "it waits for no one who ends"
        );
        assert_eq!(receiver.notices().open, many + 1);
        assert_eq!(
            (turn(&subscriptions), turn(&subscriptions)),
            ((0, 1), (0, 0))
        );
    }

    #[test]
    fn a_lost_connection_closes_all_and_all_that_is_wanted_is_joined_again() {
        let (subscriptions, receiver) =
            (Arc::new(Subscriptions::default()), NoticeReceiver::new(2));
        let _kept = subscriptions.subscribe(&key("a"), receiver.sender(0));
        let left = subscriptions.subscribe(&key("b"), receiver.sender(1));
        assert_eq!(turn(&subscriptions), (2, 0));
        drop(left);
        let _under_way = subscriptions.next_batch();
        subscriptions.lost();
        assert_eq!(
            receiver.notices().open,
            1,
            "only the one that listens is told"
        );
        assert_eq!(turn(&subscriptions), (1, 0));
        assert_eq!(receiver.notices().least_open, 0);
    }
}
