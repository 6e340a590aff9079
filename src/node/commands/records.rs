//! The commands for records of idempotency keys.

use std::sync::Arc;
use std::time::Duration;

use crate::namespace::NodeKey;
use crate::node::NodeError;
use crate::node::commands::acquire::{AcquireReply, AcquireRequest};
use crate::node::commands::release::{ReleaseReply, ReleaseRequest};
use crate::node::commands::{ClusterConfig, Record};
use crate::node::memory::keyed::Now;
use crate::node::memory::store::Store;
use crate::token::OwnerToken;

/// A request to acquire the lock of an idempotency key, or to return its record.
#[derive(Clone, Debug)]
pub struct RecallRequest {
    /// The request for the lock. It must have one key and a fence.
    pub lock: AcquireRequest,
    /// Whether to acquire the lock even if there is a record, in order to copy it to all nodes.
    pub adopt: bool,
    /// The least time for which the node remembers this grant if no record follows. It must be longer than an owner can
    /// believe that it has the lock.
    pub linger: Duration,
}

/// A request to store a record and to release the lock of its key, in one step.
///
/// The node refuses a record that has [ended](Record::until), or has a lower ballot than the node's record or our
/// grant. It also refuses a record if it has granted the lock to another owner since our grant, because that owner may
/// have found no record. If it remembers no grant, we must have the lock, and the counter must not be above the ballot.
/// The lock is always released.
#[derive(Clone, Debug)]
pub struct CompleteRequest {
    /// The release of the lock. It must have one key.
    pub release: ReleaseRequest,
    /// The record. With `None`, the request can run again, and the node forgets the grant.
    pub record: Option<Record>,
    /// Whether a quorum is known to have the record. If so, later grants do not prevent storing it.
    pub chosen: bool,
    /// The config that the node must have.
    pub config: Option<Arc<ClusterConfig>>,
}

/// A node's reply to a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompleteReply {
    /// The node has the record, or has forgotten the grant if there is none. We do not have the lock any more.
    Stored {
        /// How many connections listened for the release.
        listeners: u32,
    },
    /// The node refused the record or may not vote. Nothing was stored, and we do not have the lock any more.
    Refused,
}

#[cfg(feature = "redis")]
pub(crate) mod on_redis {
    use bytes::Bytes;
    use redis::{Cmd, Value};

    use super::*;
    use crate::moment::Moment;
    use crate::node::NodeErrorKind;
    use crate::node::commands::acquire::{AcquireReply, on_redis as acquire};
    use crate::node::commands::release::on_redis::{needs_tombstone, tombstone_life};
    use crate::node::commands::script::{
        Parts, Script, count, digits, flag, items, life, refusal, run, run_and_wait, standing,
        token_in, token_of,
    };
    use crate::node::redis::error::garbled;
    use crate::node::redis::link::Link;

    pub(crate) static RECALL: Script = Script::of(include_str!("recall.lua"));
    pub(crate) static COMPLETE: Script = Script::of(include_str!("complete.lua"));

    pub(crate) async fn recall(
        link: &Link,
        request: &RecallRequest,
    ) -> Result<AcquireReply, NodeError> {
        let lock = &request.lock;
        let mut connection = link.connection(&lock.token)?;
        link.tell_of_file(&connection);
        let record = lock.keys.first().record();
        let mut cmd = acquire::take(&RECALL, lock, Some(Parts(&record)), connection.identity());
        cmd.arg(flag(request.adopt))
            .arg(life(request.linger))
            .arg(flag(link.replicas.is_some()))
            .arg(flag(link.memory.is_full()));
        let (value, acknowledged) = run_and_wait(link, &mut connection, &RECALL, cmd).await?;
        let reply = read_recall(value, lock.config.as_deref());
        let reply = reply.map_err(|error| link.memory.explain(error))?;
        acquire::judge(&mut connection, lock, reply, acknowledged).await
    }

    pub(crate) fn read_recall(
        reply: Value,
        ours: Option<&ClusterConfig>,
    ) -> Result<AcquireReply, NodeError> {
        let mut items = match reply {
            Value::BulkString(kept) => return record_in(kept).map(AcquireReply::Recorded),
            Value::Array(items) => items,
            _ => return Err(garbled("a recall")),
        };
        match items.as_mut_slice() {
            [Value::Int(-5)] => Err(NodeError::new(NodeErrorKind::FullForRecords, FULL)),
            [Value::Int(3), token, now] => promised(token, None, now),
            [Value::Int(3), token, now, Value::BulkString(kept)] => {
                let record = record_in(std::mem::take(kept))?;
                promised(token, Some(record), now)
            }
            _ => acquire::read(&Value::Array(items), None, ours),
        }
    }

    const FULL: &str = "it is too full for more stored responses: it uses more than three quarters of its `maxmemory`; raise `maxmemory`, or store responses for a shorter time";

    fn promised(
        token: &Value,
        record: Option<Record>,
        now: &Value,
    ) -> Result<AcquireReply, NodeError> {
        let fence = token_of(token, "a recall")?;
        match *now {
            Value::Int(now) => Ok(AcquireReply::Promised {
                fence,
                record,
                now: u64::try_from(now).unwrap_or(0),
            }),
            _ => Err(garbled("a recall")),
        }
    }

    fn record_in(kept: Vec<u8>) -> Result<Record, NodeError> {
        let head = || {
            let mut parts = kept.splitn(3, |byte| *byte == b' ');
            let (ballot, until, body) = (parts.next()?, parts.next()?, parts.next()?);
            let ballot = token_in(ballot)?;
            Some((ballot, whole(until)?, kept.len() - body.len()))
        };
        let (ballot, until, start) = head().ok_or_else(|| garbled("a recall"))?;
        let body = Bytes::from(kept).slice(start..);
        Ok(Record {
            ballot,
            body,
            until,
        })
    }

    fn whole(digits: &[u8]) -> Option<u64> {
        let text = std::str::from_utf8(digits).ok()?;
        let is_plain = text == "0" || !text.starts_with(['+', '0']);
        text.parse().ok().filter(|_| is_plain)
    }

    /// If too few replicas have a record, it stays on the server but does not count.
    pub(crate) async fn complete(
        link: &Link,
        request: &CompleteRequest,
    ) -> Result<CompleteReply, NodeError> {
        let token = &request.release.token;
        let mut connection = match &request.record {
            Some(_) => link.connection(token)?,
            None => link
                .connections
                .for_release(token, request.release.background)?,
        };
        let (identity, since) = (connection.identity(), connection.since());
        let cmd = complete_cmd(request, identity, since, link.replicas.is_some());
        if let Some(record) = &request.record {
            link.memory
                .stored(record.body.len().try_into().unwrap_or(u64::MAX));
        }
        let (value, acknowledged) = match &request.record {
            Some(_) => run_and_wait(link, &mut connection, &COMPLETE, cmd).await?,
            None => (run(&mut connection, &COMPLETE, &cmd).await?, Ok(())),
        };
        let reply = read_completion(&value, request.config.as_deref())?;
        if matches!(reply, CompleteReply::Stored { .. }) {
            acknowledged?;
        }
        Ok(reply)
    }

    fn complete_cmd(
        request: &CompleteRequest,
        identity: &str,
        connected: Moment,
        replicated: bool,
    ) -> Cmd {
        let release = &request.release;
        let (key, namespace) = (release.keys.first(), release.keys.namespace());
        let body = request
            .record
            .as_ref()
            .map_or(0, |record| record.body.len());
        let leaves = needs_tombstone(release, connected);
        let keys = 4 + usize::from(leaves);
        let mut cmd = COMPLETE.run_with(keys, keys + 9, body);
        cmd.arg(Parts(&namespace.marker()))
            .arg(key.as_str())
            .arg(Parts(&key.counter()))
            .arg(Parts(&key.record()));
        if leaves {
            cmd.arg(Parts(&namespace.tombstone(&release.token)));
        }
        cmd.arg(release.token.expose());
        tombstone_life(&mut cmd, leaves);
        match release.announce {
            true => cmd.arg(Parts(&key.channel())),
            false => cmd.arg(""),
        };
        standing(&mut cmd, request.config.as_deref(), identity);
        match &request.record {
            Some(record) => cmd
                .arg(digits(record.ballot))
                .arg(&record.body[..])
                .arg(record.until),
            None => cmd.arg("").arg("").arg(""),
        };
        cmd.arg(flag(request.chosen)).arg(flag(replicated));
        cmd
    }

    pub(crate) fn read_completion(
        reply: &Value,
        ours: Option<&ClusterConfig>,
    ) -> Result<CompleteReply, NodeError> {
        match reply {
            Value::Int(-1) => Ok(CompleteReply::Refused),
            Value::Int(listeners @ 0..) => Ok(CompleteReply::Stored {
                listeners: count(*listeners),
            }),
            other => Err(refusal(items(other), ours, "a completion")),
        }
    }

    #[cfg(test)]
    #[test]
    fn nonsense_is_no_reply() {
        for value in crate::node::commands::script::nonsense() {
            let completion = read_completion(&value, None);
            assert!(completion.is_err() || value == Value::Int(1), "{value:?}");
            read_recall(value, None).unwrap_err();
        }
    }

    /// A server deletes a key immediately if its ttl is zero.
    #[cfg(test)]
    #[test]
    fn the_replicas_are_told_of_a_record_also_in_its_last_millisecond() {
        let server = "
            local told
            redis = {
                call = function(name, key, ttl)
                    told = name == 'PEXPIRE' and ttl or told
                    return name == 'TIME' and {'100', '0'} or name == 'HMGET' and {''} or nil
                end,
                pcall = function() return 'owner 0000000000000000001 50 0000000000000000001 100001 body' end,
            }
            KEYS, ARGV = {'marker', 'tombstone', 'key', 'counter', 'record'}, {'', '', '', '', '', '', '', '', '1', ''}
            local reply = (function()\n";
        let script = server.to_owned() + &RECALL.text() + "\nend)()\nreturn {reply, told}";
        let [reply, told]: [String; 2] = mlua::Lua::new().load(script).eval().unwrap();
        assert_eq!(reply, "0000000000000000001 100001 body");
        assert_eq!(told, "1");
    }
}

impl Store {
    pub(crate) fn stored_for(&self, key: &NodeKey, now: Now) -> Option<Duration> {
        let record = self.data.records.record(key, now)?;
        Some(Duration::from_millis(record.until - now.unix_millis()))
    }

    pub(crate) fn recall(
        &mut self,
        request: &RecallRequest,
        now: Now,
    ) -> Result<AcquireReply, NodeError> {
        let lock = &request.lock;
        let key = lock.keys.first();
        // Return a record regardless of the lock.
        let config = lock.config.as_deref();
        self.data.markers.admit(lock.keys.namespace(), config)?;
        let record = self.data.records.record(key, now);
        if let (Some(record), false) = (&record, request.adopt) {
            return Ok(AcquireReply::Recorded(record.clone()));
        }
        let reply = self.acquire(lock, now)?;
        let AcquireReply::Granted { fence } = reply else {
            return Ok(reply);
        };
        self.data
            .records
            .grant(key, (lock.token, fence), request.linger, now);
        Ok(AcquireReply::Promised {
            fence,
            record,
            now: now.unix_millis(),
        })
    }
}

impl Store {
    pub(crate) fn complete(
        &mut self,
        request: &CompleteRequest,
        now: Now,
    ) -> Result<CompleteReply, NodeError> {
        let (key, token) = (request.release.keys.first(), &request.release.token);
        let namespace = request.release.keys.namespace();
        let config = request.config.as_deref();
        let voting = self.data.markers.is_voting(namespace, config)?;
        // A node that may have lost data can still store a chosen record.
        let stored = (voting || request.chosen) && self.keep_record(request, key, token, now);
        let released = self.release(&request.release, now.moment);
        Ok(match (stored, released) {
            (false, _) => CompleteReply::Refused,
            (true, ReleaseReply::Released { listeners }) => CompleteReply::Stored { listeners },
            (true, ReleaseReply::NotOwner) => CompleteReply::Stored { listeners: 0 },
        })
    }

    fn keep_record(
        &mut self,
        request: &CompleteRequest,
        key: &NodeKey,
        token: &OwnerToken,
        now: Now,
    ) -> bool {
        let Some(record) = &request.record else {
            self.data.records.forget(key, token, now);
            return true;
        };
        if record.until <= now.unix_millis() {
            // Another caller may already have seen that the record has ended.
            return false;
        }
        let slot = self.data.records.live(key, now);
        let known = slot.and_then(|slot| slot.record(now));
        let known = known.map(|known| known.ballot);
        if known > Some(record.ballot) {
            // If our record was chosen, the writer of the newer record knew it.
            return request.chosen;
        }
        let same = known == Some(record.ballot);
        let ours = match slot.and_then(|slot| slot.last.as_ref()) {
            Some(last) => last == token,
            // Holding the lock is not enough, because an extension may have set it again after the grant of a later
            // owner had ended.
            None => {
                let surpassed = self.data.counters.surpass(key, record.ballot, now.moment);
                !surpassed && self.holds(key, token, now.moment)
            }
        };
        // A grant from before the last promotion does not count, because a later grant may have been lost.
        let floor = self.data.counters.floor(request.release.keys.namespace());
        let ours = ours && record.ballot.get() > floor;
        // The grant promised to store nothing under a lower ballot than its fencing token. An earlier owner can have a
        // ballot in between, and so can this owner, if other nodes granted it a lower token.
        let promised = slot.and_then(|slot| slot.promised);
        let kept = promised.is_none_or(|promised| promised <= record.ballot);
        let right = same || ours && kept || request.chosen;
        if right {
            self.data.records.put(key, record.clone(), now);
        }
        right
    }
}
