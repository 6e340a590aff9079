//! Recall: acquires the lock of an idempotency key, or returns its record.

use std::time::Duration;

use crate::node::NodeError;
use crate::node::commands::acquire::{AcquireReply, AcquireRequest};
use crate::node::memory::key_map::Now;
use crate::node::memory::store::Store;

/// A request to acquire the lock of an idempotency key, or to return its record.
#[derive(Clone, Debug)]
pub struct RecallRequest {
    /// The lock: one key, with a fence.
    pub lock: AcquireRequest,
    /// Whether the lock is wanted even if there is a record, to bring a record of too few nodes to all of them.
    pub adopt: bool,
    /// How long a node remembers at least the owner of its last grant without a record: longer than that can believe to
    /// have the lock.
    pub linger: Duration,
}

#[cfg(feature = "redis")]
pub(crate) mod on_redis {
    use bytes::Bytes;
    use redis::Value;

    use crate::node::NodeError;
    use crate::node::commands::acquire::{AcquireReply, on_redis as acquire};
    use crate::node::commands::recall::RecallRequest;
    use crate::node::commands::script::{Parts, Script, flag, life, run_and_wait};
    use crate::node::commands::terms::ClusterConfig;
    use crate::node::commands::value::{token_in, token_of};
    use crate::node::redis::error::garbled;
    use crate::node::redis::shared::Shared;
    use crate::record::Record;

    pub(crate) static SCRIPT: Script = Script::of(include_str!("recall.lua"));

    pub(crate) async fn recall(
        shared: &Shared,
        request: &RecallRequest,
    ) -> Result<AcquireReply, NodeError> {
        let lock = &request.lock;
        let mut connection = shared.connection(&lock.token)?;
        let record = lock.keys.first().record();
        let mut cmd = acquire::take(&SCRIPT, lock, Some(Parts(&record)), connection.identity());
        cmd.arg(flag(request.adopt))
            .arg(life(request.linger))
            .arg(flag(shared.replicas.is_some()));
        let (value, acknowledged) = run_and_wait(shared, &mut connection, &SCRIPT, cmd).await?;
        let reply = read(value, lock.config.as_deref())?;
        acquire::judge(&mut connection, lock, reply, acknowledged).await
    }

    pub(crate) fn read(
        reply: Value,
        ours: Option<&ClusterConfig>,
    ) -> Result<AcquireReply, NodeError> {
        let mut items = match reply {
            Value::BulkString(kept) => return record(kept).map(AcquireReply::Recorded),
            Value::Array(items) => items,
            _ => return Err(garbled("a recall")),
        };
        match items.as_mut_slice() {
            [Value::Int(3), token, now] => promised(token, None, now),
            [Value::Int(3), token, now, Value::BulkString(kept)] => {
                let record = record(std::mem::take(kept))?;
                promised(token, Some(record), now)
            }
            _ => acquire::read(&Value::Array(items), None, ours),
        }
    }

    /// The grant in the reply to a recall.
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

    /// The record in the reply to a recall: its ballot, its end and its body, with a blank between them.
    fn record(kept: Vec<u8>) -> Result<Record, NodeError> {
        let head = || {
            let mut parts = kept.splitn(3, |byte| *byte == b' ');
            let (ballot, until, body) = (parts.next()?, parts.next()?, parts.next()?);
            let ballot = token_in(ballot)?;
            Some((ballot, whole(until)?, kept.len() - body.len()))
        };
        let (ballot, until, start) = head().ok_or_else(|| garbled("a recall"))?;
        // The body is not copied.
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

    #[cfg(test)]
    #[test]
    fn nonsense_is_no_reply() {
        for value in crate::node::commands::value::nonsense() {
            read(value, None).unwrap_err();
        }
    }
}

impl Store {
    pub(crate) fn recall(
        &mut self,
        request: &RecallRequest,
        now: Now,
    ) -> Result<AcquireReply, NodeError> {
        let lock = &request.lock;
        let key = lock.keys.first();
        if let Some(config) = &lock.config {
            // A record can be returned whatever the lease.
            self.data.markers.admit(lock.keys.namespace(), config)?;
        }
        let record = self.data.records.record(key, now);
        if let (Some(record), false) = (&record, request.adopt) {
            self.count_command();
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
