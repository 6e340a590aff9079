//! [`Hub`]: which ears listen to which channel of one node, and what the server knows of it. No I/O.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::namespace::NodeKey;
use crate::node::{Ear, Subscription};

/// The subscriptions of one node.
#[derive(Default)]
pub(super) struct Hub {
    channels: Mutex<Channels>,
    changed: Notify,
    // Whether the lack of a right was reported.
    reported: AtomicBool,
}

#[derive(Default)]
struct Channels {
    by_name: HashMap<Arc<str>, Channel>,
    // Those of which the server does not know what we want. Two sets, so that who begins to listen never waits behind
    // all who end.
    to_join: HashSet<Arc<str>>,
    to_leave: HashSet<Arc<str>>,
    next: u64,
}

#[derive(Default)]
struct Channel {
    ears: Vec<(u64, Ear)>,
    server: Server,
}

/// What the server knows of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Server {
    /// We are not subscribed.
    #[default]
    Off,
    /// We asked to be, and it has not confirmed yet.
    Joining,
    /// We are.
    On,
    /// We asked to be no longer, and it has not confirmed yet.
    Leaving,
}

/// How many channels are joined or left by one command: a long one holds up everybody else on the server.
pub(super) const CHUNK: usize = 500;

/// What to ask of the server next: at most one command of each kind, so that it is one round trip.
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

impl Hub {
    fn channels(&self) -> MutexGuard<'_, Channels> {
        // Nothing below can panic half-way.
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `ear` hear of the releases of `key` until the subscription is dropped.
    pub(super) fn subscribe(self: &Arc<Self>, key: &NodeKey, ear: Ear) -> Subscription {
        let name: Arc<str> = Arc::from(key.channel());
        let mut guard = self.channels();
        let channels = &mut *guard;
        let id = channels.next;
        channels.next += 1;
        let channel = channels.by_name.entry(Arc::clone(&name)).or_default();
        if channel.server == Server::On {
            ear.opened();
        }
        channel.ears.push((id, ear));
        channels.mark(&name);
        drop(guard);
        self.changed.notify_one();
        Subscription::new(End {
            hub: Arc::clone(self),
            name,
            id,
        })
    }

    fn remove(&self, name: &Arc<str>, id: u64) {
        let mut channels = self.channels();
        if let Some(channel) = channels.by_name.get_mut(name) {
            channel.ears.retain(|(other, _)| *other != id);
            channels.mark(name);
        }
        drop(channels);
        self.changed.notify_one();
    }

    /// Waits until something is to be asked of the server.
    pub(super) async fn work(&self) {
        while self.channels().is_settled() {
            self.changed.notified().await;
        }
    }

    /// Whether anybody listens to anything.
    pub(super) fn is_used(&self) -> bool {
        !self.channels().by_name.is_empty()
    }

    /// What is to be asked of the server now. More may be left for the next batch.
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

    /// The server has done what `batch` asked.
    pub(super) fn done(&self, batch: Batch) {
        let mut channels = self.channels();
        for (names, server) in [(batch.join, Server::On), (batch.leave, Server::Off)] {
            for name in names {
                if let Some(channel) = channels.by_name.get_mut(&name) {
                    channel.server = server;
                    if server == Server::On {
                        channel.ears.iter().for_each(|(_, ear)| ear.opened());
                    }
                }
                channels.mark(&name);
            }
        }
    }

    /// The connection is gone, and with it all that the server knew.
    pub(super) fn lost(&self) {
        let mut guard = self.channels();
        let channels = &mut *guard;
        channels.to_join.clear();
        channels.to_leave.clear();
        channels.by_name.retain(|name, channel| {
            if channel.server == Server::On {
                channel.ears.iter().for_each(|(_, ear)| ear.closed());
            }
            channel.server = Server::Off;
            let wanted = !channel.ears.is_empty();
            if wanted {
                channels.to_join.insert(Arc::clone(name));
            }
            wanted
        });
    }

    /// Somebody has released the key of the channel `name`.
    pub(super) fn announce(&self, name: &[u8], listeners: Option<u32>) {
        let Ok(name) = std::str::from_utf8(name) else {
            return;
        };
        if let Some(channel) = self.channels().by_name.get(name) {
            channel
                .ears
                .iter()
                .for_each(|(_, ear)| ear.released(listeners));
        }
    }

    /// Whether this is the first time that the lack of a right is reported.
    pub(super) fn report(&self) -> bool {
        !self.reported.swap(true, Ordering::Relaxed)
    }
}

impl Channels {
    /// Whether the server knows all that we want.
    fn is_settled(&self) -> bool {
        self.to_join.is_empty() && self.to_leave.is_empty()
    }

    /// Notes whether the server has to be asked about `name`, and forgets it if nobody knows it any more.
    fn mark(&mut self, name: &Arc<str>) {
        let Some(channel) = self.by_name.get(name) else {
            return;
        };
        match (channel.server, channel.ears.is_empty()) {
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
            // It is looked at again when the server has confirmed.
            (Server::Joining | Server::Leaving, _) => {}
        }
    }
}

/// Takes out as many names as go into one command.
fn take_chunk(names: &mut HashSet<Arc<str>>) -> Vec<Arc<str>> {
    names.extract_if(|_| true).take(CHUNK).collect()
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channels = self.channels().by_name.len();
        f.debug_struct("Hub")
            .field("channels", &channels)
            .finish_non_exhaustive()
    }
}

/// Ends a subscription when it is dropped.
struct End {
    hub: Arc<Hub>,
    name: Arc<str>,
    id: u64,
}

impl Drop for End {
    fn drop(&mut self) {
        self.hub.remove(&self.name, self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock_key::LockKey;
    use crate::namespace::Namespace;
    use crate::node::Ears;

    fn key(name: &str) -> NodeKey {
        Namespace::default().node_key(&LockKey::new(name).unwrap())
    }

    /// Asks the server, which agrees; tells how many channels were joined and left.
    fn turn(hub: &Hub) -> (usize, usize) {
        let batch = hub.next_batch();
        let sizes = (batch.join.len(), batch.leave.len());
        hub.done(batch);
        sizes
    }

    #[test]
    fn a_channel_is_joined_once_and_left_with_its_last_ear() {
        let (hub, ears) = (Arc::new(Hub::default()), Ears::new(2));
        let first = hub.subscribe(&key("a"), ears.ear(0));
        assert_eq!(ears.heard().open, 0);
        assert_eq!(turn(&hub), (1, 0));
        assert_eq!(ears.heard().open, 1);
        let second = hub.subscribe(&key("a"), ears.ear(1));
        assert_eq!(ears.heard().open, 2, "it is open already");
        assert!(hub.next_batch().is_empty());
        hub.announce(b"lk!free:a", Some(2));
        hub.announce(b"lk!free:b", Some(9));
        hub.announce(b"\xff", Some(9));
        assert_eq!(
            (ears.heard().released, ears.heard().listeners),
            (2, Some(2))
        );
        drop(first);
        assert!(hub.next_batch().is_empty());
        drop(second);
        assert_eq!(turn(&hub), (0, 1));
        assert!(!hub.is_used(), "nothing is left of it");
    }

    #[test]
    fn who_changes_their_mind_under_way_is_served_by_the_next_batch() {
        let (hub, ears) = (Arc::new(Hub::default()), Ears::new(1));
        let first = hub.subscribe(&key("a"), ears.ear(0));
        let joining = hub.next_batch();
        drop(first);
        assert!(hub.next_batch().is_empty(), "one thing at a time");
        hub.done(joining);
        let leaving = hub.next_batch();
        assert_eq!(leaving.leave.len(), 1);
        let second = hub.subscribe(&key("a"), ears.ear(0));
        assert_eq!(ears.heard().open, 0, "not before the server has confirmed");
        hub.done(leaving);
        assert_eq!(turn(&hub), (1, 0));
        drop(second);
        assert_eq!(turn(&hub), (0, 1));
        // What was never asked for needs not be given back.
        drop(hub.subscribe(&key("b"), ears.ear(0)));
        assert!(hub.next_batch().is_empty() && !hub.is_used());
    }

    #[test]
    fn a_batch_is_one_round_trip_and_who_begins_is_in_the_next_one() {
        let many = 2 * CHUNK + 1;
        let (hub, ears) = (Arc::new(Hub::default()), Ears::new(many + 1));
        let all: Vec<_> = (0..many)
            .map(|n| hub.subscribe(&key(&format!("k{n}")), ears.ear(n)))
            .collect();
        assert_eq!(turn(&hub), (CHUNK, 0));
        let open = ears.heard().open;
        assert_eq!(open, CHUNK, "the first need not wait for the last");
        assert_eq!((turn(&hub), turn(&hub)), ((CHUNK, 0), (1, 0)));
        drop(all);
        assert_eq!(turn(&hub), (0, CHUNK));
        let _new = hub.subscribe(&key("new"), ears.ear(many));
        assert_eq!(turn(&hub), (1, CHUNK), "it waits for no one who ends");
        assert_eq!(ears.heard().open, many + 1);
        assert_eq!((turn(&hub), turn(&hub)), ((0, 1), (0, 0)));
    }

    #[test]
    fn a_lost_connection_closes_all_and_all_that_is_wanted_is_joined_again() {
        let (hub, ears) = (Arc::new(Hub::default()), Ears::new(2));
        let _kept = hub.subscribe(&key("a"), ears.ear(0));
        let left = hub.subscribe(&key("b"), ears.ear(1));
        assert_eq!(turn(&hub), (2, 0));
        drop(left);
        let _under_way = hub.next_batch();
        hub.lost();
        assert_eq!(ears.heard().open, 1, "only the one that listens is told");
        assert_eq!(turn(&hub), (1, 0));
        assert_eq!(ears.heard().least_open, 0);
    }
}
