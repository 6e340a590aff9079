//! Locks of all processes, for operators.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::clock::Clock as _;
use crate::key_error::KeyError;
use crate::lock_key::{LockKey, LockKeys};
use crate::manager::LockManager;
use crate::manager::asking::fresh_token;
use crate::manager::error::AcquireError;
use crate::manager::nodes::fanout::Fanout;
use crate::manager::nodes::no_answer;
use crate::manager::nodes::voting::status::optional_seconds;
use crate::manager::shared::Shared;
use crate::namespace::{Namespace, NodeKey, NodeKeys};
use crate::node::{
    Holding, KeyReply, Node, NodeError, NodeErrorKind, ReleaseReply, ReleaseRequest, ScanReply,
    ScanRequest, TakeOverRequest,
};
use crate::token::{FencingToken, OwnerHash};

/// Who holds one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyStatus {
    /// The key.
    pub key: String,
    /// What the replies of all nodes amount to.
    pub verdict: KeyVerdict,
    /// The key on each node.
    pub nodes: Vec<KeyOnNode>,
    #[serde(skip)]
    name: NodeKey,
}

/// What the replies of all nodes about one key amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KeyVerdict {
    /// One holder has a quorum.
    Held,
    /// A quorum votes and has no holder.
    Free,
    /// No holder has a quorum, and none can.
    Split,
    /// Too few nodes that vote have answered.
    Unknown,
}

/// One key on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyOnNode {
    /// The node's name.
    pub node: String,
    /// Its holder there.
    pub holder: Option<KeyHolder>,
    /// How much longer the node stores the result of an idempotency key.
    #[serde(serialize_with = "optional_seconds")]
    pub stored_for: Option<Duration>,
    /// Why the reply of the node is missing, or does not count because the node does not vote.
    pub error: Option<NodeError>,
}

/// The holder of a key on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyHolder {
    /// The hash of its owner token.
    pub owner: OwnerHash,
    /// Its [instance](crate::Settings::instance), which can be empty. For readers: `shared: ` and all their instances.
    pub instance: String,
    /// The fencing token on this node, which may differ from the token of the lock.
    pub fence: Option<FencingToken>,
    /// How long ago it was acquired, by the time in its fencing token.
    #[serde(serialize_with = "optional_seconds")]
    pub held_for: Option<Duration>,
    /// The rest of its ttl; `None` without an end.
    #[serde(serialize_with = "optional_seconds")]
    pub remaining: Option<Duration>,
}

/// Locks of all processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LockList {
    /// The locks, by their keys.
    pub locks: Vec<KeyStatus>,
    /// Whether there may be more locks.
    pub more: bool,
    /// Whether a quorum of each group of nodes votes and has listed its keys.
    pub has_quorum: bool,
    /// The nodes that do not vote or could not answer, each with its first error.
    pub failures: Vec<String>,
}

impl KeyStatus {
    /// The holder that most nodes name.
    #[must_use]
    pub fn holder(&self) -> Option<&KeyHolder> {
        self.holders().max_by_key(|holder| self.count(holder))
    }

    /// On how many nodes this holder has the key.
    #[must_use]
    pub fn count(&self, holder: &KeyHolder) -> usize {
        let same = |other: &&KeyHolder| other.owner == holder.owner;
        self.holders().filter(same).count()
    }

    fn holders(&self) -> impl Iterator<Item = &KeyHolder> {
        self.nodes.iter().filter_map(|node| node.holder.as_ref())
    }

    fn others(&self) -> usize {
        let errors = self.nodes.iter().filter_map(|node| node.error.as_ref());
        let is_other = |error: &&NodeError| error.kind() == NodeErrorKind::WrongType;
        errors.filter(is_other).count()
    }

    fn judge(&self, needed: usize) -> KeyVerdict {
        let most = self.holder().map_or(0, |holder| self.count(holder));
        let failed = self.nodes.iter().filter(|node| node.error.is_some());
        let failed = failed.count();
        let free = self.nodes.len() - failed - self.holders().count();
        if most >= needed {
            KeyVerdict::Held
        } else if free >= needed {
            KeyVerdict::Free
        } else if most + failed >= needed || failed + needed > self.nodes.len() {
            KeyVerdict::Unknown
        } else {
            KeyVerdict::Split
        }
    }
}

impl fmt::Display for KeyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.verdict, self.holder()) {
            (KeyVerdict::Held, Some(holder)) => {
                let (count, nodes) = (self.count(holder), self.nodes.len());
                write!(f, "held by {holder}, on {count} of {nodes} nodes")
            }
            (KeyVerdict::Split, _) => f.write_str("split: no holder has a quorum, and none can"),
            (KeyVerdict::Unknown, _) if 2 * self.others() >= self.nodes.len() => {
                let (others, nodes) = (self.others(), self.nodes.len());
                write!(
                    f,
                    "no lock: {others} of {nodes} nodes have something else there, and grant none before it is removed"
                )
            }
            (KeyVerdict::Unknown, _) => {
                f.write_str("unknown: too few nodes that vote have answered")
            }
            (_, Some(_)) => f.write_str("free, but on a few nodes"),
            (_, None) => f.write_str("free"),
        }
    }
}

impl fmt::Display for KeyHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instance = match self.instance.as_str() {
            "" => "an unnamed instance",
            instance => instance,
        };
        let owner = self.owner.as_str().get(..8).unwrap_or_default();
        write!(f, "{instance} (owner {owner})")
    }
}

impl LockManager {
    /// Asks all nodes who holds `key`, in any process. With a handle for [permits](Self::permits), `key` ends with the
    /// number of the slot: `tenant:7:0`.
    ///
    /// # Errors
    ///
    /// [`KeyError`] for an invalid key.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn holders(&self, key: impl AsRef<str>) -> Result<KeyStatus, KeyError> {
        who(self, &self.space(), LockKey::new(key)?).await
    }

    /// Asks all nodes who computes the result of an idempotency key, and [for how long](KeyOnNode::stored_for) it is
    /// stored. `key` is the key that was passed to [`begin_idempotent`](Self::begin_idempotent), or the key of a
    /// request's [handle](crate::idempotency::Idempotent::handle).
    ///
    /// # Errors
    ///
    /// [`KeyError`] for an invalid key.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    #[cfg(feature = "idempotency")]
    pub async fn idempotent_holders(&self, key: impl AsRef<str>) -> Result<KeyStatus, KeyError> {
        who(self, &self.shared.runs.namespace, LockKey::new(key)?).await
    }

    /// Lists at most `limit` locks of all processes on keys that begin with `prefix`. A handle for
    /// [permits](Self::permits) lists permits. Each node looks at all its keys (`SCAN`) for up to ten seconds, so this
    /// is for operators, not for requests.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn list(&self, prefix: &str, limit: usize) -> LockList {
        list(self, &self.space(), prefix, limit).await
    }

    fn space(&self) -> Cow<'_, Namespace> {
        match self.limit() {
            Some(_) => Cow::Owned(self.shared.set.namespace.permits()),
            None => Cow::Borrowed(&self.shared.set.namespace),
        }
    }

    /// Lists the locks of idempotency keys, as [`list`](Self::list) does for other locks.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    #[cfg(feature = "idempotency")]
    pub async fn list_idempotent(&self, prefix: &str, limit: usize) -> LockList {
        list(self, &self.shared.runs.namespace, prefix, limit).await
    }

    /// Takes a key from the holder that was `seen`, on each node where that holder still has it, and frees the key
    /// after the rest of its ttl. Returns on how many nodes the key was freed. A living holder [loses its
    /// lock](crate::error::LossReason::Taken). With `at_once` the key is freed without the wait, so that the old and a
    /// new holder may work at the same time.
    ///
    /// # Errors
    ///
    /// [`AcquireError::NoEntropy`]: nothing was changed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the key is free a second after the rest of the ttl.
    pub async fn force_release(
        &self,
        seen: &KeyStatus,
        at_once: bool,
    ) -> Result<usize, AcquireError> {
        let shared = self.group(NodeKeys::from(seen.name.clone()).names().first());
        let token = fresh_token().map_err(AcquireError::NoEntropy)?;
        let token = token.labelled(&shared.set.instance);
        let nodes = seen.nodes.iter().zip(&shared.set.nodes).enumerate();
        let takeovers = nodes.filter_map(|(index, (seen_there, node))| {
            let request = TakeOverRequest {
                keys: seen.name.clone().into(),
                from: seen_there.holder.as_ref()?.owner,
                to: token,
                void: shared.set.terms.max_ttl.max(LONGEST_DELAY),
            };
            Some((index, node.take_over(request)))
        });
        let taken = all(shared, Fanout::new(takeovers)).await.into_iter();
        let taken = taken.filter_map(|(node, reply)| Some((node, reply.ok()??)));
        let (taken, rests): (Vec<usize>, Vec<Duration>) = taken.unzip();
        if !at_once {
            sleep(rests.into_iter().max().unwrap_or_default()).await;
        }
        let release = ReleaseRequest {
            keys: seen.name.clone().into(),
            token,
            announce: true,
            waited: Duration::ZERO,
            since: None,
            background: true,
        };
        let releases = shared.set.send(taken, |node| node.release(release.clone()));
        let replies = all(shared, releases).await.into_iter();
        let freed = replies.filter(|(_, reply)| matches!(reply, Ok(ReleaseReply::Released { .. })));
        Ok(freed.count())
    }
}

type Replies<T> = Vec<(usize, Result<T, NodeError>)>;
type Holdings = Replies<Vec<KeyReply>>;

async fn who(
    locks: &LockManager,
    namespace: &Namespace,
    key: LockKey,
) -> Result<KeyStatus, KeyError> {
    let keys = namespace.shown_keys(&LockKeys::from(key))?;
    let group = locks.group(keys.names().first());
    let replies = ask(group, &keys).await;
    Ok(status(group, keys.first(), 0, &replies))
}

async fn list(locks: &LockManager, namespace: &Namespace, prefix: &str, limit: usize) -> LockList {
    let mut list = LockList {
        has_quorum: true,
        ..LockList::default()
    };
    for group in &*locks.groups {
        list_group(group, namespace, prefix, limit, &mut list).await;
    }
    list.more |= list.locks.len() > limit;
    list.locks.sort_by(|one, other| one.key.cmp(&other.key));
    list.locks.truncate(limit);
    list
}

async fn list_group(
    shared: &Arc<Shared>,
    namespace: &Namespace,
    prefix: &str,
    limit: usize,
    list: &mut LockList,
) {
    let request = ScanRequest {
        namespace: namespace.clone(),
        prefix: prefix.to_owned(),
        cursor: 0,
    };
    let scans = shared.set.nodes.iter().enumerate().map(|(index, node)| {
        let scan = scan(Arc::clone(shared), Arc::clone(node), request.clone(), limit);
        (index, Box::pin(scan) as _)
    });
    let mut scans: Fanout<Result<_, NodeError>> = Fanout::new(scans);
    let (mut names, mut failures) = (BTreeSet::new(), BTreeMap::new());
    while let Some((node, found)) = scans.next().await {
        match found {
            Ok((found, is_cut)) => {
                names.extend(found);
                list.more |= is_cut;
            }
            Err(error) => drop(failures.insert(node, error)),
        }
    }
    list.more |= names.len() > limit;
    let names: Vec<LockKey> = names.into_iter().take(limit).collect();
    for names in names.chunks(LockKeys::MAX) {
        let names = LockKeys::of(names.iter().cloned());
        let Ok(keys) = namespace.shown_keys(&names) else {
            continue;
        };
        let replies = ask(shared, &keys).await;
        for (node, reply) in &replies {
            if let Err(error) = reply {
                failures.entry(*node).or_insert_with(|| error.clone());
            }
        }
        let keys = keys.as_slice().iter().enumerate();
        let found = keys.map(|(index, key)| status(shared, key, index, &replies));
        // A key without a holder was released after the node listed it.
        list.locks
            .extend(found.filter(|key| key.holder().is_some()));
    }
    for node in 0..shared.set.nodes.len() {
        if let Some(error) = shared.set.why_no_vote(node) {
            failures.entry(node).or_insert(error);
        }
    }
    let has_quorum = shared.set.nodes.len() - failures.len() >= shared.set.terms.quorum.needed();
    list.has_quorum &= has_quorum;
    list.more |= !has_quorum;
    let failures = failures.into_iter();
    let failures = failures.map(|(node, error)| shared.set.failure(node, error).to_string());
    list.failures.extend(failures);
}

async fn ask(shared: &Shared, keys: &NodeKeys) -> Holdings {
    let asked = shared.set.send_all(|node| node.holders(keys.clone()));
    all(shared, asked).await
}

async fn all<T>(shared: &Shared, mut fanout: Fanout<Result<T, NodeError>>) -> Replies<T> {
    let mut deadline = pin!(sleep(shared.set.node_timeout.max(PATIENCE)));
    let mut replies = Vec::new();
    while let Some(reply) = fanout.next_before(deadline.as_mut()).await {
        replies.push(reply);
    }
    let late = fanout.abandon().into_iter();
    replies.extend(late.map(|node| (node, Err(no_answer(PATIENCE)))));
    replies.sort_by_key(|(node, _)| *node);
    replies
}

async fn scan(
    shared: Arc<Shared>,
    node: Arc<dyn Node>,
    mut request: ScanRequest,
    limit: usize,
) -> Result<(BTreeSet<LockKey>, bool), NodeError> {
    let mut keys = BTreeSet::new();
    let end = shared.set.clock.now() + LONGEST_SCAN;
    loop {
        let page = timeout(PATIENCE, node.scan(request.clone())).await;
        let ScanReply { keys: found, next } = page.unwrap_or_else(|_| Err(no_answer(PATIENCE)))?;
        keys.extend(found);
        request.cursor = next;
        if next == 0 || keys.len() > limit || shared.set.clock.now() >= end {
            return Ok((keys, next != 0));
        }
    }
}

fn status(shared: &Shared, key: &NodeKey, index: usize, replies: &Holdings) -> KeyStatus {
    let now = shared.set.clock.unix_micros();
    let garbled = || NodeError::new(NodeErrorKind::Garbled, "it did not answer for all keys");
    let nodes = replies.iter().map(|(node, reply)| {
        let reply = reply.as_ref().map_err(Clone::clone);
        let found = reply.and_then(|found| found.get(index).ok_or_else(garbled));
        let is_free = matches!(found, Ok(KeyReply { holding: None, .. }));
        let no_vote = || shared.set.why_no_vote(*node).filter(|_| is_free);
        let is_other = matches!(found, Ok(KeyReply { is_other: true, .. }));
        let no_lock = || is_other.then(|| NodeError::new(NodeErrorKind::WrongType, NO_LOCK));
        KeyOnNode {
            node: shared.set.name_of(*node).to_owned(),
            error: (found.as_ref().err().cloned())
                .or_else(no_lock)
                .or_else(no_vote),
            stored_for: found.as_ref().ok().and_then(|found| found.stored_for),
            holder: (found.ok()).and_then(|found| Some(holder(found.holding.as_ref()?, now))),
        }
    });
    let mut status = KeyStatus {
        key: key.show().into_owned(),
        verdict: KeyVerdict::Unknown,
        nodes: nodes.collect(),
        name: key.clone(),
    };
    status.verdict = status.judge(shared.set.terms.quorum.needed());
    status
}

fn holder(holding: &Holding, now: u64) -> KeyHolder {
    let since = holding.fence.map(FencingToken::micros);
    // After a quarantine, new tokens are a little ahead of the clock. A token that is further ahead does not show the
    // time of its grant.
    let since = since.filter(|since| *since <= now + AHEAD);
    KeyHolder {
        owner: holding.owner,
        instance: holding.label.clone(),
        fence: holding.fence,
        held_for: since.map(|since| Duration::from_micros(now.saturating_sub(since))),
        remaining: holding.remaining,
    }
}

const NO_LOCK: &str =
    "the key holds something that is not a lock; remove it or use another namespace";
const AHEAD: u64 = 2_000_000;
const PATIENCE: Duration = Duration::from_secs(1);
const LONGEST_SCAN: Duration = Duration::from_secs(10);
/// How long a command can wait in the socket of an abandoned connection.
const LONGEST_DELAY: Duration = Duration::from_secs(60);
