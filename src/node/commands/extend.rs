//! The command that renews the ttl of locks.

use std::sync::Arc;
use std::time::Duration;

use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::node::NodeError;
use crate::node::commands::{ClusterConfig, Fence};
use crate::node::memory::store::Store;
use crate::token::Holder;
use crate::token::OwnerToken;

/// A request to extend one lock on one node.
#[derive(Clone, Debug)]
pub struct ExtendRequest {
    /// The keys of the lock.
    pub keys: NodeKeys,
    /// The owner token.
    pub token: OwnerToken,
    /// The new ttl, from now on.
    pub ttl: Duration,
    /// Whether to set absent keys again, unless the owner has a [tombstone](crate::node::ReleaseRequest::since).
    pub refill: bool,
    /// The config that the node must have. A node in quarantine extends the lock too, and reports the quarantine.
    pub config: Option<Arc<ClusterConfig>>,
    /// The lock's fencing token, to which lower counters are raised.
    pub fence: Option<Fence>,
}

impl ExtendRequest {
    /// What neighbours in a batch must have in common so that one run of the script can extend them.
    pub(crate) fn shape(&self) -> impl Ord {
        let keep = self.fence.map(|fence| fence.keep);
        let keys = self.keys.as_slice().len();
        (
            self.keys.namespace().as_str(),
            self.ttl,
            keep,
            keys,
            self.refill,
            self.keys.first().is_shared(),
        )
    }
}

/// A node's reply for one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendReply {
    /// The keys held our token, and their ttl was renewed.
    Extended,
    /// A key was absent and was set again, as requested, for a full ttl.
    Refilled,
    /// The lock was extended or set again, but the node is in quarantine. The extension counts at most as long as the
    /// node's last vote for the lock.
    Quarantined,
    /// A key was absent. Nothing was changed.
    Absent,
    /// A key holds another token. Nothing was changed.
    Held(Holder),
}

/// One error for the whole command, or one result per lock.
pub type ExtendReplies = Result<Vec<Result<ExtendReply, NodeError>>, NodeError>;

#[cfg(feature = "redis")]
pub(crate) mod on_redis {
    use redis::{Cmd, Value};

    use super::*;
    use crate::node::commands::script::{
        Digits, Parts, Script, call_all, digits, flag, holder, items, life, millis, next_value,
        refusal, standing,
    };
    use crate::node::redis::error::{failed, garbled, rejected};
    use crate::node::redis::link::{Link, Replicas};

    pub(crate) static SCRIPT: Script = Script::of(include_str!("extend.lua"));
    pub(crate) static SHARED: Script = Script::of(include_str!("extend_shared.lua"));

    /// How many keys one run of the script covers, because a script blocks all other clients.
    const CHUNK: usize = 100;

    pub(crate) async fn extend(link: &Link, requests: &[ExtendRequest]) -> ExtendReplies {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let mut connection = link.background()?;
        let chunks: Vec<&[ExtendRequest]> = chunks(requests).collect();
        let mut pipeline = redis::pipe();
        for chunk in &chunks {
            pipeline.add_command(cmd(chunk, connection.identity()));
        }
        if let Some(replicas) = &link.replicas {
            pipeline.add_command(replicas.wait());
        }
        let scripts = [&SCRIPT, &SHARED];
        let values = call_all(&mut connection, &scripts, &pipeline).await;
        let mut values = values.map_err(|error| failed(&error))?.into_iter();
        let mut replies = Vec::with_capacity(requests.len());
        for chunk in chunks {
            let ours = chunk.first().and_then(|request| request.config.as_deref());
            let read = next_value(&connection, &mut values)
                .and_then(|value| read(&value, chunk.len(), ours));
            match read {
                Ok(items) => {
                    connection.signals().look_at_locks(&items);
                    replies.extend(items);
                }
                Err(error) => replies.extend(chunk.iter().map(|_| Err(error.clone()))),
            }
        }
        if let Some(replicas) = &link.replicas {
            discount(&mut replies, values.next(), replicas);
        }
        Ok(replies)
    }

    fn discount(replies: &mut [Extended], acknowledged: Option<Value>, replicas: &Replicas) {
        let Err(error) = replicas.judge(acknowledged) else {
            return;
        };
        for reply in replies {
            if matches!(reply, Ok(ExtendReply::Extended | ExtendReply::Refilled)) {
                *reply = Err(error.clone());
            }
        }
    }

    fn cmd(requests: &[ExtendRequest], identity: &str) -> Cmd {
        let first = requests.first();
        if let Some(first) = first.filter(|first| first.keys.first().is_shared()) {
            return shared(first, identity);
        }
        let refills = first.is_some_and(|first| first.refill);
        let locks: usize = requests.iter().map(|r| r.keys.as_slice().len()).sum();
        let keys = 1 + 2 * locks + if refills { requests.len() } else { 0 };
        let mut cmd = SCRIPT.run(keys, 6 + keys + 2 * requests.len());
        let Some(first) = first else {
            return cmd;
        };
        let namespace = first.keys.namespace();
        cmd.arg(Parts(&namespace.marker()));
        for key in requests.iter().flat_map(|request| request.keys.as_slice()) {
            cmd.arg(key.as_str()).arg(Parts(&key.counter()));
        }
        for request in requests.iter().filter(|_| refills) {
            cmd.arg(Parts(&namespace.tombstone(&request.token)));
        }
        standing(&mut cmd, first.config.as_deref(), identity);
        cmd.arg(first.keys.as_slice().len())
            .arg(millis(first.ttl))
            .arg(flag(first.refill));
        match first.fence {
            Some(fence) => cmd.arg(life(fence.keep)),
            None => cmd.arg(""),
        };
        for request in requests {
            cmd.arg(request.token.expose());
            if let Some(fence) = request.fence {
                cmd.arg(digits(fence.token));
            }
        }
        cmd
    }

    fn shared(request: &ExtendRequest, identity: &str) -> Cmd {
        let key = request.keys.first();
        let namespace = key.namespace();
        let mut cmd = SHARED.run(5, 12);
        cmd.arg(Parts(&namespace.marker()))
            .arg(key.as_str())
            .arg(Parts(&key.counter()))
            .arg(Parts(&namespace.tombstone(&request.token)))
            .arg(Parts(&key.taken()));
        standing(&mut cmd, request.config.as_deref(), identity);
        cmd.arg(request.token.expose())
            .arg(millis(request.ttl))
            .arg(flag(request.refill))
            .arg(Digits(request.fence.map(|fence| fence.token.get())));
        match request.fence {
            Some(fence) => cmd.arg(life(fence.keep)),
            None => cmd.arg(""),
        };
        cmd.arg(key.owners().expose());
        cmd
    }

    fn alike(a: &ExtendRequest, b: &ExtendRequest) -> bool {
        a.shape() == b.shape() && a.config == b.config
    }

    fn chunks(requests: &[ExtendRequest]) -> impl Iterator<Item = &[ExtendRequest]> {
        requests.chunk_by(alike).flat_map(|same| {
            let first = same.first().map(|first| &first.keys);
            let is_shared = first.is_some_and(|keys| keys.first().is_shared());
            let keys = first.map_or(1, |keys| keys.as_slice().len());
            same.chunks(match is_shared {
                // The script for readers extends only one.
                true => 1,
                false => (CHUNK / keys.max(1)).max(1),
            })
        })
    }

    pub(crate) fn read(
        reply: &Value,
        expected: usize,
        ours: Option<&ClusterConfig>,
    ) -> Result<Vec<Result<ExtendReply, NodeError>>, NodeError> {
        let replies = items(reply).ok_or_else(|| garbled("an extend"))?;
        let (voting, replies) = match replies {
            [Value::Int(1), replies @ ..] => (true, replies),
            [Value::Int(0), replies @ ..] => (false, replies),
            other => return Err(refusal(Some(other), ours, "an extend")),
        };
        if matches!(replies, [Value::BulkString(text)] if text == b"all") {
            let extended = read_one(&Value::Int(1), voting);
            return Ok(vec![extended; expected]);
        }
        if replies.len() != expected {
            return Err(garbled("an extend"));
        }
        Ok(replies
            .iter()
            .map(|reply| read_one(reply, voting))
            .collect())
    }

    fn read_one(reply: &Value, voting: bool) -> Result<ExtendReply, NodeError> {
        match reply {
            Value::Int(0) => Ok(ExtendReply::Absent),
            Value::Int(1 | 2) if !voting => Ok(ExtendReply::Quarantined),
            Value::Int(1) => Ok(ExtendReply::Extended),
            Value::Int(2) => Ok(ExtendReply::Refilled),
            Value::BulkString(text) => Err(rejected(&String::from_utf8_lossy(text))),
            other => match items(other) {
                Some([remaining, tag]) => holder(remaining, tag)
                    .map(ExtendReply::Held)
                    .ok_or_else(|| garbled("an extend")),
                _ => Err(garbled("an extend")),
            },
        }
    }

    type Extended = Result<ExtendReply, NodeError>;

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::node::NodeErrorKind;
        use crate::node::commands::script::nonsense;

        #[test]
        fn nonsense_is_no_reply() {
            for value in nonsense() {
                let extend = read(&value, 3, None).unwrap_err();
                assert_eq!(extend.kind(), NodeErrorKind::Garbled, "{value:?}");
            }
            let odd = Value::Array(vec![Value::Int(1), Value::Int(1), Value::Nil]);
            let replies = read(&odd, 2, None).unwrap();
            assert_eq!(replies[0], Ok(ExtendReply::Extended));
            assert_eq!(
                replies[1].as_ref().unwrap_err().kind(),
                NodeErrorKind::Garbled
            );
        }

        /// Only this crate says how many keys a lock has. But a script that does not end stops the whole server.
        #[test]
        fn an_extend_ends_however_many_keys_a_lock_is_said_to_have() {
            let server = "redis = {call = function() return {} end, pcall = function() return {} end,
                sha1hex = function() return '' end, error_reply = function(text) return {err = text} end}
                KEYS, ARGV = {'marker', 'key', 'counter', 'tombstone'}, ";
            for count in ["1", "-1", "-2", "-0.5", "0", "nan", ""] {
                let lua = mlua::Lua::new();
                let steps = mlua::HookTriggers::new().every_nth_instruction(100_000);
                lua.set_hook(steps, |_, _| Err(mlua::Error::runtime("no end")))
                    .unwrap();
                let args = format!("{{'', '{count}', '1000', '', '', 'token'}}\n");
                let reply = lua.load(server.to_owned() + &args + &SCRIPT.text());
                let error = reply.eval::<mlua::Table>().err();
                let error = error.map(|error| error.to_string()).unwrap_or_default();
                assert!(!error.contains("no end"), "{count}: {error}");
            }
        }
    }
}

impl Store {
    pub(crate) fn extend(
        &mut self,
        request: &ExtendRequest,
        now: Moment,
    ) -> Result<ExtendReply, NodeError> {
        let (keys, markers) = (&request.keys, &self.data.markers);
        let voting = markers.is_voting(keys.namespace(), request.config.as_deref())?;
        if keys.first().is_shared() {
            return self.extend_shared(request, voting, now);
        }
        if let Some((_, holder)) = self.rival(keys, &request.token, now) {
            // Leave the other keys, because the holder counts on them until it learns of the loss.
            return Ok(ExtendReply::Held(holder));
        }
        let held = self.holds_all(keys, &request.token, now);
        if !held && (!request.refill || self.is_void(keys.first(), &request.token, now)) {
            return Ok(ExtendReply::Absent);
        }
        let counters = &mut self.data.counters;
        let raise = |fence| counters.raise(keys, fence, now);
        let counted = request.fence.map(raise).transpose();
        // If the counters are unusable, extend the lock anyway. But a key that is set again needs its counter.
        if !held {
            counted?;
        }
        self.set(keys, request.token, request.ttl, now);
        Ok(match (voting, held) {
            (false, _) => ExtendReply::Quarantined,
            (true, true) => ExtendReply::Extended,
            (true, false) => ExtendReply::Refilled,
        })
    }

    fn extend_shared(
        &mut self,
        request: &ExtendRequest,
        voting: bool,
        now: Moment,
    ) -> Result<ExtendReply, NodeError> {
        let key = request.keys.first();
        let (others, is_ours) = match self.readers(key, &request.token, now) {
            Ok(readers) => readers,
            Err(holder) => return Ok(ExtendReply::Held(holder)),
        };
        // The key may have been taken from all readers.
        let is_void = |token: &OwnerToken| self.is_void(key, token, now);
        let stays_out = || is_void(&request.token) || is_void(&key.owners());
        if !is_ours && (!request.refill || stays_out()) {
            return Ok(ExtendReply::Absent);
        }
        let counters = &mut self.data.counters;
        let raise = |fence| counters.raise(&request.keys, fence, now);
        let counted = request.fence.map(raise).transpose();
        if !is_ours {
            counted?;
        }
        self.set_readers(key, others, Some((request.token, now + request.ttl)), now);
        Ok(match (voting, is_ours) {
            (false, _) => ExtendReply::Quarantined,
            (true, true) => ExtendReply::Extended,
            (true, false) => ExtendReply::Refilled,
        })
    }
}
