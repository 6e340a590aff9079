//! Commands on hashes.

use std::collections::BTreeMap;

use super::Server;
use super::commands::{Call, WRONG_TYPE, wrong_arity};
use super::data::{KeyChange, Value};
use super::resp::Reply;

type Hash = BTreeMap<Vec<u8>, Vec<u8>>;

/// The hash at a key; an error if the key holds something else.
fn hash<'a>(server: &'a mut Server, call: &Call<'_>) -> Result<Option<&'a Hash>, Reply> {
    match server.value(call.words[1]) {
        Some(Value::Hash(hash)) => Ok(Some(hash)),
        Some(Value::Text(_)) => Err(WRONG_TYPE),
        None => Ok(None),
    }
}

/// What `read` makes of the hash.
fn with(server: &mut Server, call: &Call<'_>, read: impl FnOnce(Option<&Hash>) -> Reply) -> Reply {
    hash(server, call).map_or_else(|error| error, read)
}

fn field(hash: Option<&Hash>, field: &[u8]) -> Reply {
    let value = hash.and_then(|hash| hash.get(field));
    Reply::optional(value.map(Vec::as_slice))
}

pub(super) fn hmget(server: &mut Server, call: &Call<'_>) -> Reply {
    with(server, call, |hash| {
        let names = call.words[2..].iter();
        Reply::Array(names.map(|name| field(hash, name)).collect())
    })
}

pub(super) fn hgetall(server: &mut Server, call: &Call<'_>) -> Reply {
    with(server, call, |hash| {
        let pairs = hash.into_iter().flatten();
        let pair = |(name, value)| (Reply::bulk(name), Reply::bulk(value));
        Reply::Map(pairs.map(pair).collect())
    })
}

pub(super) fn hset(server: &mut Server, call: &Call<'_>) -> Reply {
    if !call.words.len().is_multiple_of(2) {
        return wrong_arity("hset");
    }
    let before = match hash(server, call) {
        Ok(before) => before,
        Err(error) => return error,
    };
    let mut fields: Hash = BTreeMap::new();
    for pair in call.words[2..].chunks_exact(2) {
        fields.insert(pair[0].to_vec(), pair[1].to_vec());
    }
    let is_new = |name: &&Vec<u8>| !before.is_some_and(|hash| hash.contains_key(*name));
    let created = fields.keys().filter(is_new).count();
    let change = KeyChange::SetFields(fields.into_iter().collect());
    server.change_key(call.words[1], change);
    Reply::count(created)
}

pub(super) fn hdel(server: &mut Server, call: &Call<'_>) -> Reply {
    let mut fields: Vec<Vec<u8>> = call.words[2..].iter().map(|name| name.to_vec()).collect();
    match hash(server, call) {
        Ok(hash) => fields.retain(|name| hash.is_some_and(|hash| hash.contains_key(name))),
        Err(error) => return error,
    }
    fields.sort_unstable();
    fields.dedup();
    let removed = fields.len();
    if removed > 0 {
        let change = KeyChange::RemoveFields(fields);
        server.change_key(call.words[1], change);
    }
    Reply::count(removed)
}
