//! The command that releases a lock.

use std::time::Duration;

use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::node::memory::store::Store;
use crate::token::OwnerToken;

/// A request to release a lock on one node.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    /// The keys of the lock.
    pub keys: NodeKeys,
    /// The owner token.
    pub token: OwnerToken,
    /// Whether to announce the release. False after a lost round, because contenders would wake each other for nothing.
    pub announce: bool,
    /// How long the owner had waited. The notice contains it, so that contenders know whose turn it is.
    pub waited: Duration,
    /// When the first command of this owner was sent. If a node's connection is younger, its release leaves a
    /// *tombstone*, which voids commands in the socket of the old connection.
    pub since: Option<Moment>,
    /// Whether the release uses the connection for renewals, because no caller waits for it. False while a command
    /// of this owner may still run on the connection for calls, because the release could overtake that command.
    pub background: bool,
}

impl ReleaseRequest {
    /// A copy for a node on which an abandoned command of this owner `may_still_run`. Such a release follows the
    /// owner's commands on the connection for calls and leaves a tombstone that voids a renewal.
    pub(crate) fn for_node(&self, may_still_run: bool) -> Self {
        let mut request = self.clone();
        if may_still_run {
            request.since = Some(Moment::ORIGIN);
            request.background = false;
        }
        request
    }
}

/// A node's reply to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReply {
    /// At least one key held our token, and was deleted.
    Released {
        /// How many connections listened for the release.
        listeners: u32,
    },
    /// No key held our token. Nothing was deleted.
    NotOwner,
}

#[cfg(feature = "redis")]
pub(crate) mod on_redis {
    use redis::{Cmd, Value};

    use super::*;
    use crate::node::NodeError;
    use crate::node::commands::script::{Parts, Script, count, millis, run};
    use crate::node::redis::error::garbled;
    use crate::node::redis::link::Link;

    pub(crate) static SCRIPT: Script = Script::of(include_str!("release.lua"));
    pub(crate) static SHARED: Script = Script::of(include_str!("release_shared.lua"));

    /// How long a tombstone lives, which is longer than a command can wait in the socket of an abandoned connection.
    const TOMBSTONE: Duration = Duration::from_secs(60);

    /// Releases a lock even if the server is not confirmed, because the key would block others once the server is.
    pub(crate) async fn release(
        link: &Link,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply, NodeError> {
        let mut connection = link
            .connections
            .for_release(&request.token, request.background)?;
        let (script, cmd) = cmd(request, connection.since());
        read(&run(&mut connection, script, &cmd).await?)
    }

    pub(crate) fn cmd(request: &ReleaseRequest, connected: Moment) -> (&'static Script, Cmd) {
        if request.keys.first().is_shared() {
            return (&SHARED, shared(request, connected));
        }
        let keys = request.keys.as_slice();
        let leaves = needs_tombstone(request, connected);
        let count = keys.len() + usize::from(leaves);
        let mut cmd = SCRIPT.run(count, count + 3 + keys.len());
        for key in keys {
            cmd.arg(key.as_str());
        }
        if leaves {
            cmd.arg(Parts(&request.keys.namespace().tombstone(&request.token)));
        }
        cmd.arg(request.token.expose());
        for key in keys {
            match request.announce {
                true => cmd.arg(Parts(&key.channel())),
                false => cmd.arg(""),
            };
        }
        // Omit waits of less than a millisecond.
        let waited = u64::try_from(request.waited.as_millis()).unwrap_or(u64::MAX);
        if leaves || waited > 0 {
            cmd.arg(waited);
            tombstone_life(&mut cmd, leaves);
        }
        (&SCRIPT, cmd)
    }

    fn shared(request: &ReleaseRequest, connected: Moment) -> Cmd {
        let key = request.keys.first();
        let leaves = needs_tombstone(request, connected);
        let mut cmd = SHARED.run(1 + usize::from(leaves), 6);
        cmd.arg(key.as_str());
        if leaves {
            cmd.arg(Parts(&key.namespace().tombstone(&request.token)));
        }
        cmd.arg(request.token.expose());
        tombstone_life(&mut cmd, leaves);
        match request.announce {
            true => cmd.arg(Parts(&key.channel())),
            false => cmd.arg(""),
        };
        cmd.arg(key.owners().expose());
        cmd
    }

    pub(crate) fn tombstone_life(cmd: &mut Cmd, leaves: bool) {
        match leaves {
            true => cmd.arg(millis(TOMBSTONE)),
            false => cmd.arg(""),
        };
    }

    pub(crate) fn needs_tombstone(request: &ReleaseRequest, connected: Moment) -> bool {
        request.since.is_some_and(|since| since <= connected)
    }

    pub(crate) fn read(reply: &Value) -> Result<ReleaseReply, NodeError> {
        match reply {
            Value::Int(-1) => Ok(ReleaseReply::NotOwner),
            Value::Int(listeners @ 0..) => Ok(ReleaseReply::Released {
                listeners: count(*listeners),
            }),
            _ => Err(garbled("a release")),
        }
    }

    /// An abandoned command can run at any time and on either connection.
    #[cfg(test)]
    #[test]
    fn a_release_after_doubt_leaves_a_tombstone_and_goes_the_way_of_calls() {
        let request = ReleaseRequest {
            keys: crate::namespace::Namespace::default()
                .node_keys(&crate::lock_key::LockKeys::try_from("k").unwrap())
                .unwrap(),
            token: OwnerToken::from_entropy([1; OwnerToken::ENTROPY_LEN]),
            announce: true,
            waited: Duration::ZERO,
            since: Some(Moment::from_nanos(2)),
            background: true,
        };
        let connected = Moment::from_nanos(1);
        assert!(!needs_tombstone(&request, connected));
        let after = request.for_node(true);
        assert!(needs_tombstone(&after, connected) && !after.background);
    }

    #[cfg(test)]
    #[test]
    fn nonsense_is_no_reply() {
        for value in crate::node::commands::script::nonsense() {
            assert!(read(&value).is_err() || value == Value::Int(1), "{value:?}");
        }
    }
}

impl Store {
    pub(crate) fn release(&mut self, request: &ReleaseRequest, now: Moment) -> ReleaseReply {
        if request.keys.first().is_shared() {
            return self.release_shared(request, now);
        }
        let (mut ours, mut told) = (false, 0);
        for key in request.keys.as_slice() {
            if self.holds(key, &request.token, now) {
                ours = true;
                self.data.entries.remove(key);
                if request.announce {
                    let waited = request.waited;
                    told = told.max(self.listeners.announce(&key.announced(), waited));
                }
            }
        }
        if ours {
            ReleaseReply::Released { listeners: told }
        } else {
            ReleaseReply::NotOwner
        }
    }

    fn release_shared(&mut self, request: &ReleaseRequest, now: Moment) -> ReleaseReply {
        let key = request.keys.first();
        let Ok((others, true)) = self.readers(key, &request.token, now) else {
            return ReleaseReply::NotOwner;
        };
        let is_last = others.is_empty();
        self.set_readers(key, others, None, now);
        let listeners = match is_last && request.announce {
            true => self.listeners.announce(&key.announced(), Duration::ZERO),
            false => 0,
        };
        ReleaseReply::Released { listeners }
    }
}
