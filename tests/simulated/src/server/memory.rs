//! What happens to the memory of a server: restarts, eviction, expiry. And what is in it, for those who check.

use super::data::{Change, Data, Entry, KeyChange, Keys, Value};
use super::image::Image;
use super::replication::{Position, Replication};
use super::{Dialect, Output, Server, Trouble};

impl Server {
    /// The time in milliseconds since 1970.
    pub(super) fn millis(&self) -> i64 {
        i64::try_from(self.now / 1_000).unwrap()
    }

    /// The entry of a key, unless it has expired; then a master removes it.
    pub(super) fn entry(&mut self, key: &[u8]) -> Option<&Entry> {
        let now = self.millis();
        if self.data.keys().get(key)?.has_expired(now) {
            if self.is_master() {
                self.remove(key);
                return None;
            }
            // There, scripts on replicas see what the master has not removed yet.
            if !self.in_script || self.dialect != Dialect::Redis62 {
                return None;
            }
        }
        self.data.keys().get(key)
    }

    /// What a key holds, unless it has expired.
    pub(super) fn value(&mut self, key: &[u8]) -> Option<&Value> {
        self.entry(key).map(|entry| &entry.value)
    }

    pub(super) fn change(&mut self, change: Change) {
        self.data.change(change, self.now);
    }

    pub(super) fn change_key(&mut self, key: &[u8], change: KeyChange) {
        self.change(Change::Key(key.to_vec(), change));
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        self.change_key(key, KeyChange::Remove);
    }

    /// Removes the keys that have expired. A replica waits for its master to do it.
    pub(super) fn remove_expired(&mut self) {
        // Newer ones remove a key in its last millisecond, although who asks for it before that gets it.
        let early = i64::from(self.dialect.removes_early());
        let (now, is_master) = (self.millis() + early, self.is_master());
        for key in self.find(|entry| is_master && entry.has_expired(now)) {
            self.remove(&key);
        }
    }

    /// The keys with such entries.
    fn find(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<Vec<u8>> {
        let keys = self.data.keys().iter().filter(|(_, entry)| wanted(entry));
        keys.map(|(key, _)| key.clone()).collect()
    }

    /// All data, and where in the history of changes that is.
    pub fn image(&self) -> Image {
        self.image_of(self.data.keys().clone(), self.data.offset())
    }

    /// The data as they were at `moment`, by this server's clock: before the first change that was made later.
    pub fn image_before(&self, moment: u64) -> Image {
        let (keys, offset) = self.data.before(moment);
        self.image_of(keys, offset)
    }

    fn image_of(&self, keys: Keys, offset: u64) -> Image {
        let id = self.replication.id.clone();
        let position = Position { id, offset };
        Image {
            keys,
            position: self.replication.tells().then_some(position),
        }
    }

    /// Another process starts in place of this one: a master with these data or none, with a new name, no scripts, no
    /// statistics, no trouble, no replicas and no connections, which the caller has to end.
    pub fn restart(&mut self, image: Option<Image>, now: u64) {
        let image = image.unwrap_or_default();
        self.now = now;
        self.run_id = self.dice.name();
        self.replication = Replication::new(self.dice.name());
        let offset = self.replication.go_on_from(image.position);
        self.data = Data::new(image.keys, offset);
        if let Some(cluster) = &mut self.cluster {
            cluster.restart(now);
        }
        self.trouble = Trouble::default();
        self.evicted_keys = 0;
        self.next_client_id = 3;
        self.scripts.clear();
        self.clients.clear();
        self.outbox.clear();
    }

    /// Evicts up to `count` random keys, as far as the policy lets the server do so. Returns how many.
    pub fn evict(&mut self, count: usize, now: u64) -> usize {
        self.now = now;
        let (policy, master) = (self.policy, self.is_master());
        let may = |entry: &Entry| {
            policy.starts_with("allkeys-")
                || policy.starts_with("volatile-") && entry.until.is_some()
        };
        // A replica has its master do it.
        let mut keys = self.find(|entry| master && may(entry));
        let count = count.min(keys.len());
        for _ in 0..count {
            let key = keys.swap_remove(self.dice.below(keys.len()));
            self.remove(&key);
        }
        self.evicted_keys += count as u64;
        count
    }

    /// Removes all keys, as `FLUSHALL` does.
    pub fn remove_all(&mut self, now: u64) {
        self.now = now;
        self.change(Change::RemoveAll);
    }

    /// The keys that clients see at `now`, each with when it ends, in milliseconds since 1970.
    pub fn keys(&self, now: u64) -> Vec<(Vec<u8>, Option<i64>)> {
        let keys = self.data.keys().iter();
        let keys = keys.filter(|(_, entry)| !entry.has_expired(in_millis(now)));
        keys.map(|(key, entry)| (key.clone(), entry.until))
            .collect()
    }

    /// What the string at `key` holds at `now`.
    pub fn text(&self, key: &[u8], now: u64) -> Option<&[u8]> {
        match self.seen(key, now)? {
            Value::Text(text) => Some(text),
            Value::Hash(_) => None,
        }
    }

    /// What a field of the hash at `key` holds at `now`.
    pub fn field(&self, key: &[u8], field: &[u8], now: u64) -> Option<&[u8]> {
        match self.seen(key, now)? {
            Value::Text(_) => None,
            Value::Hash(hash) => hash.get(field).map(Vec::as_slice),
        }
    }

    fn seen(&self, key: &[u8], now: u64) -> Option<&Value> {
        let entry = self.data.keys().get(key)?;
        (!entry.has_expired(in_millis(now))).then_some(&entry.value)
    }

    /// Ends a connection.
    pub(super) fn close(&mut self, connection: super::ConnectionId) {
        if self.clients.remove(&connection).is_some() {
            self.outbox.push(Output::Close(connection));
        }
    }
}

fn in_millis(now: u64) -> i64 {
    i64::try_from(now / 1_000).unwrap()
}
