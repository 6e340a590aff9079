//! The command that acquires a lock.

use std::sync::Arc;
use std::time::Duration;

use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
use crate::node::NodeError;
use crate::node::commands::{ClusterConfig, Fence, Record};
use crate::node::memory::keyed::Now;
use crate::node::memory::store::Store;
use crate::token::Holder;
use crate::token::{FencingToken, OwnerToken};

/// A request to acquire a lock on one node.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// The keys to lock.
    pub keys: NodeKeys,
    /// The owner token.
    pub token: OwnerToken,
    /// How long the node stores the keys.
    pub ttl: Duration,
    /// The config that the node must have. With `None`, the node grants under any config.
    pub config: Option<Arc<ClusterConfig>>,
    /// The proposed fencing token. With `None`, the grant has no fencing token.
    pub fence: Option<Fence>,
    /// Whether to lock only one of the keys, the first that is free.
    pub any: bool,
}

/// A node's reply to an acquire or a recall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireReply {
    /// The keys were free or held our token. They now hold it for a full ttl.
    Granted {
        /// The fencing token of the grant.
        fence: Option<FencingToken>,
    },
    /// One of the keys was free and now holds our token for a full ttl.
    Slot {
        /// The index of that key in the request.
        index: usize,
        /// The fencing token of the grant.
        fence: Option<FencingToken>,
    },
    /// A key holds another token. For a request of any key, the reply is about the one that ends first. Nothing was
    /// changed.
    Held(Holder),
    #[cfg_attr(not(feature = "idempotency"), allow(dead_code))]
    /// A recall found a record that has not ended. Nothing was changed.
    Recorded(Record),
    #[cfg_attr(not(feature = "idempotency"), allow(dead_code))]
    /// A recall acquired the lock. From now on the node stores no record of an earlier owner.
    Promised {
        /// The fencing token of the grant.
        fence: Option<FencingToken>,
        /// The existing record, if the recall [adopts](crate::node::RecallRequest::adopt).
        record: Option<Record>,
        /// The node's time in milliseconds since 1970. A record that ends later had not ended on this node.
        now: u64,
    },
}

impl AcquireReply {
    pub(crate) const fn is_grant(&self) -> bool {
        matches!(
            self,
            Self::Granted { .. } | Self::Promised { .. } | Self::Slot { .. }
        )
    }
}

#[cfg(feature = "redis")]
pub(crate) mod on_redis {
    use redis::{Cmd, Value};

    use super::*;
    use crate::node::commands::release::{self, ReleaseRequest};
    use crate::node::commands::script::{
        Digits, Parts, Script, digits, holder, life, millis, refusal, run, run_and_wait, standing,
        token_of,
    };
    use crate::node::redis::connection::Connection;
    use crate::node::redis::error::garbled;
    use crate::node::redis::link::Link;
    use crate::node::{NodeError, NodeErrorKind};

    pub(crate) static SCRIPT: Script = Script::of(include_str!("acquire.lua"));
    pub(crate) static ANY: Script = Script::of(include_str!("acquire_any.lua"));
    pub(crate) static SHARED: Script = Script::of(include_str!("acquire_shared.lua"));

    pub(crate) async fn acquire(
        link: &Link,
        request: &AcquireRequest,
    ) -> Result<AcquireReply, NodeError> {
        let mut connection = link.connection(&request.token)?;
        let is_bare = is_bare(request);
        if is_bare
            && connection.is_compared()
            && let Some(reply) = set(link, &mut connection, request).await?
        {
            return Ok(reply);
        }
        let (script, cmd) = command(request, connection.identity());
        let (value, acknowledged) = run_and_wait(link, &mut connection, script, cmd).await?;
        let slot = request.any.then(|| slot(&value)).flatten();
        let proposed = request.fence.map(|fence| fence.token);
        let reply = match slot {
            Some(reply) => reply,
            None => read(&value, proposed, request.config.as_deref())?,
        };
        if is_bare {
            connection.set_compared();
        }
        judge(&mut connection, request, reply, acknowledged).await
    }

    fn command(request: &AcquireRequest, identity: &str) -> (&'static Script, Cmd) {
        if request.keys.first().is_shared() {
            return (&SHARED, shared(request, identity));
        }
        let script = if request.any { &ANY } else { &SCRIPT };
        (script, take(script, request, None, identity))
    }

    fn shared(request: &AcquireRequest, identity: &str) -> Cmd {
        let key = request.keys.first();
        let writer = key.writer();
        let mut cmd = take(&SHARED, request, Some(Parts(&[writer.as_str()])), identity);
        cmd.arg(key.owners().expose());
        cmd
    }

    /// Whether one `SET` can serve this request.
    fn is_bare(request: &AcquireRequest) -> bool {
        let config = request.config.as_deref();
        request.keys.as_slice().len() == 1
            && !request.any
            && !request.keys.first().is_shared()
            && request.fence.is_none()
            && config.is_none_or(|config| !config.guarded)
    }

    /// Acquires by one `SET`. Returns `None` if it failed, because only the script can report the holder.
    async fn set(
        link: &Link,
        connection: &mut Connection,
        request: &AcquireRequest,
    ) -> Result<Option<AcquireReply>, NodeError> {
        let mut cmd = Cmd::with_capacity(6, 128);
        cmd.arg("SET")
            .arg(request.keys.first().as_str())
            .arg(request.token.expose())
            .arg("NX")
            .arg("PX")
            .arg(millis(request.ttl));
        let set = run_and_wait(link, connection, &SCRIPT, cmd).await;
        let (value, acknowledged) = match set {
            // Let the script find the reason, because a server without memory refuses `SET` even if the key is held.
            Err(error) if !error.may_have_run() => return Ok(None),
            set => set?,
        };
        if !read_set(&value)? {
            return Ok(None);
        }
        let reply = AcquireReply::Granted { fence: None };
        let reply = judge(connection, request, reply, acknowledged).await?;
        Ok(Some(reply))
    }

    /// Releases the lock if too few replicas have it. It also hides a record that too few replicas have, because a
    /// failover may lose it.
    pub(crate) async fn judge(
        connection: &mut Connection,
        request: &AcquireRequest,
        reply: AcquireReply,
        acknowledged: Result<(), NodeError>,
    ) -> Result<AcquireReply, NodeError> {
        match acknowledged {
            Err(error) if !matches!(reply, AcquireReply::Held(_)) => {
                // If this fails or is dropped, the manager still sends a release, because it counts the error as no
                // grant.
                let release = ReleaseRequest {
                    keys: request.keys.clone(),
                    token: request.token,
                    announce: false,
                    waited: Duration::ZERO,
                    since: None,
                    background: false,
                };
                let (script, release) = release::on_redis::cmd(&release, connection.since());
                let _ = Box::pin(run(connection, script, &release)).await;
                Err(error)
            }
            _ => Ok(reply),
        }
    }

    /// The arguments that acquires and recalls have in common. Some scripts get the key `beside`, too.
    pub(crate) fn take(
        script: &Script,
        request: &AcquireRequest,
        beside: Option<Parts<'_>>,
        identity: &str,
    ) -> Cmd {
        let keys = request.keys.as_slice();
        let namespace = request.keys.namespace();
        let count = 2 + 2 * keys.len() + usize::from(beside.is_some());
        let mut cmd = script.run(count, count + 10);
        cmd.arg(Parts(&namespace.marker()))
            .arg(Parts(&namespace.tombstone(&request.token)));
        for key in keys {
            cmd.arg(key.as_str()).arg(Parts(&key.counter()));
        }
        if let Some(key) = beside {
            cmd.arg(key);
        }
        cmd.arg(request.token.expose()).arg(millis(request.ttl));
        standing(&mut cmd, request.config.as_deref(), identity);
        match request.fence {
            Some(fence) => {
                // `lowered` is empty, which is less than every number, if the proposal is less than every next fencing
                // token, or above the last usable one.
                let usable = Some(fence.token.get()).filter(|it| *it <= FencingToken::LAST_COUNTED);
                let lowered = usable.and_then(|it| it.checked_sub(FencingToken::STEP));
                cmd.arg(digits(fence.token))
                    .arg(Digits(lowered))
                    .arg(life(fence.keep))
            }
            None => cmd.arg("").arg("").arg(""),
        };
        cmd
    }

    pub(crate) fn read(
        reply: &Value,
        proposed: Option<FencingToken>,
        ours: Option<&ClusterConfig>,
    ) -> Result<AcquireReply, NodeError> {
        let items = match reply {
            Value::Int(1) => return Ok(AcquireReply::Granted { fence: proposed }),
            Value::Array(items) => items,
            _ => return Err(garbled("an acquire")),
        };
        match items.as_slice() {
            [Value::Int(1), token] => {
                let fence = token_of(token, "an acquire")?;
                Ok(AcquireReply::Granted { fence })
            }
            [Value::Int(0), remaining, tag, Value::Int(key)] => holder(remaining, tag)
                .zip(usize::try_from(*key).ok())
                .map(|(holder, key)| {
                    AcquireReply::Held(Holder {
                        key: Some(key),
                        ..holder
                    })
                })
                .ok_or_else(|| garbled("an acquire")),
            [Value::Int(-4)] => Err(NodeError::new(
                NodeErrorKind::Rejected,
                "the attempt was given up before it arrived",
            )),
            other => Err(refusal(Some(other), ours, "an acquire")),
        }
    }

    fn slot(reply: &Value) -> Option<AcquireReply> {
        let Value::Array(items) = reply else {
            return None;
        };
        let [Value::Int(1), token, Value::Int(index)] = items.as_slice() else {
            return None;
        };
        let index = usize::try_from(*index).ok()?;
        let fence = token_of(token, "an acquire").ok()?;
        Some(AcquireReply::Slot { index, fence })
    }

    fn read_set(reply: &Value) -> Result<bool, NodeError> {
        match reply {
            Value::Okay => Ok(true),
            Value::Nil => Ok(false),
            _ => Err(garbled("an acquire")),
        }
    }

    #[cfg(test)]
    mod tests {
        use std::time::Duration;

        use super::*;
        use crate::node::commands::script::nonsense;

        #[test]
        fn nonsense_is_no_reply() {
            for value in nonsense() {
                assert!(
                    read(&value, None, None).is_err() || value == Value::Int(1),
                    "{value:?}"
                );
                assert!(read_set(&value).is_err() || matches!(value, Value::Okay | Value::Nil));
            }
        }

        #[test]
        fn a_holder_is_read_with_its_tag_and_time() {
            let tag = || Value::BulkString(b"00000000000000ff999999999999999999999999".to_vec());
            let of = |remaining| {
                let reply = vec![Value::Int(0), Value::Int(remaining), tag(), Value::Int(2)];
                read(&Value::Array(reply), None, None).unwrap()
            };
            let held = |remaining| {
                AcquireReply::Held(Holder {
                    tag: 255,
                    remaining,
                    key: Some(2),
                })
            };
            assert_eq!(of(1_500), held(Some(Duration::from_millis(1_500))));
            assert_eq!(of(-1), held(None));
            assert_eq!(of(-2), held(Some(Duration::ZERO)));
        }
    }
}

impl Store {
    pub(crate) fn acquire(
        &mut self,
        request: &AcquireRequest,
        now: Now,
    ) -> Result<AcquireReply, NodeError> {
        let markers = &self.data.markers;
        markers.admit(request.keys.namespace(), request.config.as_deref())?;
        if request.any {
            let (index, key) = self.first_free(request, now.moment);
            let request = AcquireRequest {
                keys: key.into(),
                any: false,
                ..request.clone()
            };
            return Ok(match self.acquire(&request, now)? {
                AcquireReply::Granted { fence } => AcquireReply::Slot { index, fence },
                reply => reply,
            });
        }
        let keys = &request.keys;
        if keys.first().is_shared() {
            return self.acquire_shared(request, now);
        }
        if let Some((index, holder)) = self.rival(keys, &request.token, now.moment) {
            return Ok(AcquireReply::Held(Holder {
                key: Some(index),
                ..holder
            }));
        }
        let counters = &mut self.data.counters;
        let advance = |fence| counters.advance(keys, fence, now);
        let fence = request.fence.map(advance).transpose()?;
        self.set(keys, request.token, request.ttl, now.moment);
        Ok(AcquireReply::Granted { fence })
    }

    fn acquire_shared(
        &mut self,
        request: &AcquireRequest,
        now: Now,
    ) -> Result<AcquireReply, NodeError> {
        let key = request.keys.first();
        let (others, is_ours) = match self.readers(key, &request.token, now.moment) {
            Ok(readers) => readers,
            Err(holder) => return Ok(in_the_way(holder)),
        };
        let writer = self.live(&key.writer(), now.moment);
        if let Some(writer) = writer.filter(|_| !is_ours) {
            return Ok(in_the_way(writer.holder(now.moment)));
        }
        let counters = &mut self.data.counters;
        let advance = |fence| counters.advance(&request.keys, fence, now);
        let fence = request.fence.map(advance).transpose()?;
        let ends = now.moment + request.ttl;
        self.set_readers(key, others, Some((request.token, ends)), now.moment);
        Ok(AcquireReply::Granted { fence })
    }

    /// The first free key, or the key that ends first, with its index.
    fn first_free(&self, request: &AcquireRequest, now: Moment) -> (usize, NodeKey) {
        let left = |(_, key): &(usize, &NodeKey)| {
            let rival = self.rival(&NodeKeys::from((*key).clone()), &request.token, now);
            rival.map(|(_, holder)| holder.remaining.unwrap_or(Duration::MAX))
        };
        let keys = request.keys.as_slice().iter().enumerate();
        let (index, key) = keys.min_by_key(left).unwrap_or((0, request.keys.first()));
        (index, key.clone())
    }
}

fn in_the_way(holder: Holder) -> AcquireReply {
    AcquireReply::Held(Holder {
        key: Some(0),
        ..holder
    })
}
