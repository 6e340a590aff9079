//! What servers have, for the checkers.

use std::collections::BTreeMap;

use super::history::Holder;
use super::scene::Scene;
use tower_redlock_simulated::world::HostId;

/// Whether a key is that of a lock, and not one of those beside it.
pub(super) fn is_lock(key: &str) -> bool {
    let Some((space, _)) = key.split_once(':') else {
        return false;
    };
    match space.split_once('!') {
        None => true,
        Some((_, beside)) => matches!(beside, "idem" | "permit"),
    }
}

/// A key without the tag of its slot, which it has in a cluster.
pub(super) fn untagged(key: &str) -> &str {
    let inner = key.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    inner.map_or(key, |(_, key)| key)
}

/// A key of a server: its name, what it holds if that is a string, and in how many milliseconds it ends. One that readers
/// have is there for each of them.
pub(super) struct Stored {
    pub(super) key: String,
    pub(super) text: Option<Vec<u8>>,
    pub(super) ends: Option<i64>,
}

impl Stored {
    /// The hash of the owner token that it holds.
    pub(super) fn owner(&self) -> String {
        let token = self.text.as_deref().unwrap_or_default();
        sha1_smol::Sha1::from(token).digest().to_string()
    }
}

/// The locks that a server has.
pub(super) fn locks(scene: &Scene, host: HostId) -> impl Iterator<Item = Stored> {
    let stored = stored(scene, host).into_iter();
    stored.filter(|stored| is_lock(&stored.key))
}

pub(super) fn stored(scene: &Scene, host: HostId) -> Vec<Stored> {
    let keys = scene.world.keys(host).into_iter();
    let stored = keys.map(|stored| Stored {
        key: untagged(&String::from_utf8_lossy(&stored.key)).to_owned(),
        text: stored.text,
        ends: stored.expires_in_ms,
    });
    stored.flat_map(each_reader).collect()
}

/// The key for each of its readers, if it has some.
fn each_reader(stored: Stored) -> Vec<Stored> {
    let text = stored.text.as_deref().unwrap_or_default();
    let text = String::from_utf8_lossy(text).into_owned();
    let mut words = text.split(' ');
    if !words.next().is_some_and(|head| head.ends_with(":shared")) {
        return vec![stored];
    }
    let words: Vec<&str> = words.collect();
    let readers = words.chunks_exact(2);
    let readers: Vec<(&str, i64)> = readers
        .map(|reader| (reader[0], reader[1].parse().unwrap()))
        .collect();
    // The key ends with the last of them.
    let last = readers.iter().map(|(_, ends)| *ends).max().unwrap_or(0);
    let each = readers.into_iter().map(|(owner, ends)| Stored {
        key: stored.key.clone(),
        text: Some(owner.as_bytes().to_vec()),
        ends: stored.ends.map(|left| left - (last - ends)),
    });
    each.filter(|reader| reader.ends.is_none_or(|left| left > 0))
        .collect()
}

/// For how many milliseconds each group keeps a holder's token on all of its keys. Groups with a server that is down are
/// left out.
pub(super) fn backing(
    scene: &Scene,
    holder: &Holder,
    seen: &mut BTreeMap<HostId, Vec<Stored>>,
) -> BTreeMap<u32, Option<i64>> {
    let mut nodes = BTreeMap::new();
    for group in &scene.settings(holder.process).nodes {
        let servers = scene.world.topology().servers(*group as usize);
        if servers.iter().all(|host| scene.world.is_up(*host)) {
            let kept = servers.into_iter().map(|host| {
                let keys = seen.entry(host).or_insert_with(|| stored(scene, host));
                kept(keys, holder)
            });
            nodes.insert(*group, kept.max().flatten());
        }
    }
    nodes
}

/// For how long a server keeps a holder's token on all of its keys.
fn kept(all: &[Stored], holder: &Holder) -> Option<i64> {
    let ends = holder.keys.iter().map(|key| {
        let mut those = all.iter().filter(|stored| stored.key == *key);
        let found = those.find(|stored| stored.text.is_some() && stored.owner() == holder.owner)?;
        Some(found.ends.unwrap_or(i64::MAX))
    });
    ends.min().unwrap_or(Some(i64::MAX))
}
