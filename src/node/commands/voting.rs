//! Check-in, which asks whether a node may vote, and promotion, which ends its quarantine.

use std::sync::Arc;
use std::time::Duration;

use crate::namespace::Namespace;
use crate::node::commands::ClusterConfig;
use crate::node::memory::store::{Marker, Markers, Mode, Store};
use crate::node::{NodeError, unmarked};
use crate::token::FencingToken;

/// A request to check in at a node.
#[derive(Clone, Debug)]
pub struct CheckInRequest {
    /// The namespace of the locks.
    pub namespace: Namespace,
    /// The config that the node must have.
    pub config: Arc<ClusterConfig>,
    /// How long this node's quarantines last under the config.
    pub quarantine: Duration,
    /// A random name for the quarantine that may begin.
    pub fresh: String,
    /// What to do if the node has another config or none.
    pub mode: CheckInMode,
}

/// What a check-in does to a node that has another config or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckInMode {
    /// Changes nothing. A node without a config replies as if it had got ours.
    Look,
    /// A node without a config gets ours, and is put into quarantine if ours is [guarded](ClusterConfig::guarded). A
    /// node with another config is left alone.
    Normal,
    /// Replaces another config by ours, because an operator changes the list of nodes. The node is put into quarantine
    /// if ours is guarded.
    Adopt {
        /// The least length of quarantines under the replaced config.
        former: Duration,
    },
}

/// A node's reply to a check-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckInReply {
    /// The node may vote, because it has lost no data since it was promoted, or our config is not guarded.
    Voting {
        /// The highest value that any counter of the node ever had.
        high_water: Option<FencingToken>,
    },
    /// The node may have lost data.
    Quarantined {
        /// The name of the quarantine.
        id: String,
        /// How long quarantines lasted under the config that ours replaced. Zero once the node has voted under ours.
        former: Duration,
        /// Whether the node has voted under our config. If so, every node had accepted it.
        accepted: bool,
        /// Whether the node cannot have lost a lock, because it never granted one.
        unused: bool,
    },
    /// The node has another config.
    Foreign {
        /// Its text.
        config: String,
        /// Its digest.
        digest: String,
    },
}

/// A request to end a node's quarantine.
#[derive(Clone, Debug)]
pub struct PromoteRequest {
    /// The namespace of the locks.
    pub namespace: Namespace,
    /// The config that the node must have.
    pub config: Arc<ClusterConfig>,
    /// The name of the quarantine. A node that is in another one changes nothing.
    pub quarantine: String,
    /// The least value for the high-water mark and for each counter from now on, because restored data can hold old
    /// counters.
    pub floor: Option<FencingToken>,
}

#[cfg(feature = "redis")]
pub(crate) mod on_redis {
    use redis::{Cmd, Value};

    use super::*;
    use crate::node::commands::script::{
        Digits, Parts, Script, identity_for, items, millis, run, text, token_of,
    };
    use crate::node::redis::connection::Connection;
    use crate::node::redis::error::garbled;
    use crate::node::redis::link::Link;

    pub(crate) static CHECK_IN: Script = Script::of(include_str!("check_in.lua"));
    pub(crate) static PROMOTE: Script = Script::of(include_str!("promote.lua"));
    pub(crate) static EVICTIONS: Script = Script::of(include_str!("evictions.lua"));

    pub(crate) async fn check_in(
        link: &Link,
        request: &CheckInRequest,
    ) -> Result<CheckInReply, NodeError> {
        let mut connection = link.background()?;
        let cmd = check_in_cmd(request, connection.identity());
        read_check_in(&run(&mut connection, &CHECK_IN, &cmd).await?)
    }

    fn check_in_cmd(request: &CheckInRequest, identity: &str) -> Cmd {
        let mut cmd = CHECK_IN.run(1, 8);
        cmd.arg(Parts(&request.namespace.marker()))
            .arg(identity_for(&request.config, identity))
            .arg(&request.config.digest)
            .arg(&request.config.text)
            .arg(millis(request.quarantine))
            .arg(&request.fresh);
        match request.mode {
            CheckInMode::Look => cmd.arg("look"),
            CheckInMode::Normal => cmd.arg(""),
            // A whole millisecond would make each node one that served another list, also a new one.
            CheckInMode::Adopt { former } if former.is_zero() => cmd.arg("0"),
            CheckInMode::Adopt { former } => cmd.arg(millis(former)),
        };
        cmd.arg(ClusterConfig::FORMAT);
        cmd
    }

    pub(crate) fn read_check_in(reply: &Value) -> Result<CheckInReply, NodeError> {
        match items(reply) {
            Some([Value::Int(1), token]) => Ok(CheckInReply::Voting {
                high_water: mark_of(token)?,
            }),
            Some(
                [
                    Value::Int(2),
                    Value::BulkString(id),
                    Value::Int(former),
                    Value::Int(accepted),
                ],
            ) => Ok(CheckInReply::Quarantined {
                id: text(id),
                former: Duration::from_millis(u64::try_from(*former).unwrap_or(0)),
                accepted: *accepted == 1,
                // A server does not know whether it has ever had locks.
                unused: false,
            }),
            Some(
                [
                    Value::Int(-2),
                    Value::BulkString(config),
                    Value::BulkString(digest),
                ],
            ) => Ok(CheckInReply::Foreign {
                config: text(config),
                digest: text(digest),
            }),
            _ => Err(garbled("a check-in")),
        }
    }

    fn mark_of(value: &Value) -> Result<Option<FencingToken>, NodeError> {
        match (token_of(value, "a check-in"), value) {
            (Ok(Some(mark)), _) if mark.get() > FencingToken::LAST_COUNTED => Err(unmarked()),
            // The reply is a text but not a fencing token.
            (Err(_), Value::BulkString(_)) => Err(unmarked()),
            (mark, _) => mark,
        }
    }

    pub(crate) async fn promote(link: &Link, request: &PromoteRequest) -> Result<bool, NodeError> {
        let mut connection = link.background()?;
        let cmd = promote_cmd(request, connection.identity());
        read_promotion(&run(&mut connection, &PROMOTE, &cmd).await?)
    }

    fn promote_cmd(request: &PromoteRequest, identity: &str) -> Cmd {
        let mut cmd = PROMOTE.run(1, 5);
        cmd.arg(Parts(&request.namespace.marker()))
            .arg(identity)
            .arg(&request.config.digest)
            .arg(&request.quarantine);
        cmd.arg(Digits(request.floor.map(FencingToken::get)));
        cmd
    }

    pub(crate) fn read_promotion(reply: &Value) -> Result<bool, NodeError> {
        match reply {
            Value::Int(1) => Ok(true),
            Value::Int(0) => Ok(false),
            _ => Err(garbled("a promotion")),
        }
    }

    /// Puts the node into quarantine if the server has evicted keys since the last check.
    pub(crate) async fn check_evictions(
        connection: &mut Connection,
        namespace: &Namespace,
    ) -> Result<(), NodeError> {
        let mut cmd = EVICTIONS.run(1, 1);
        cmd.arg(Parts(&namespace.marker()));
        run(connection, &EVICTIONS, &cmd).await.map(drop)
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::node::NodeErrorKind;
        use crate::node::commands::script::nonsense;

        #[test]
        fn nonsense_is_no_reply() {
            for value in nonsense() {
                let error = read_check_in(&value).unwrap_err();
                assert_eq!(error.kind(), NodeErrorKind::Garbled, "{value:?}");
                assert!(read_promotion(&value).is_err() || value == Value::Int(1));
            }
        }

        #[test]
        fn a_mark_that_nothing_can_be_counted_on_from_is_refused() {
            let of = |digits: &str| {
                let mark = Value::BulkString(digits.as_bytes().to_vec());
                read_check_in(&Value::Array(vec![Value::Int(1), mark]))
            };
            let last = FencingToken::LAST_COUNTED;
            for nonsense in [
                "abc",
                "-5",
                "7",
                &(last + 1).to_string(),
                "9223372036854775808",
            ] {
                let error = of(nonsense).unwrap_err();
                assert!(error.to_string().contains("delete that key"), "{error}");
            }
            for (digits, mark) in [
                ("", 0),
                ("0000000000000000007", 7),
                (&last.to_string(), last),
            ] {
                let voting = CheckInReply::Voting {
                    high_water: FencingToken::new(mark),
                };
                assert_eq!(of(digits), Ok(voting));
            }
        }
    }
}

impl Store {
    pub(crate) fn check_in(&mut self, request: &CheckInRequest) -> Result<CheckInReply, NodeError> {
        let mark = self.data.counters.mark(&request.namespace);
        let high_water = mark.as_ref().ok().copied().flatten();
        match (self.data.markers.check_in(request, high_water), mark) {
            // Fail, because promotions would pass this unusable mark on to other nodes.
            (CheckInReply::Voting { .. }, Err(error)) => Err(error),
            (reply, _) => Ok(reply),
        }
    }
}

impl Markers {
    fn check_in(
        &mut self,
        request: &CheckInRequest,
        high_water: Option<FencingToken>,
    ) -> CheckInReply {
        let config = &request.config;
        let unused = !self.forgot;
        let mode = |unused| match config.guarded {
            true => Mode::Quarantined {
                id: request.fresh.clone(),
                unused,
            },
            false => Mode::Voting,
        };
        let root = request.namespace.root();
        let marker = match self.markers.get_mut(root) {
            Some(marker) if marker.digest == config.digest => marker,
            Some(marker) if matches!(request.mode, CheckInMode::Adopt { .. }) => {
                let former = marker.former.max(marker.quarantine);
                *marker = Marker {
                    former,
                    ..Marker::new(request, mode(false))
                };
                marker
            }
            Some(marker) => {
                return CheckInReply::Foreign {
                    config: marker.config.clone(),
                    digest: marker.digest.clone(),
                };
            }
            None if request.mode == CheckInMode::Look => {
                return Marker::new(request, mode(unused)).reply(high_water);
            }
            None => self
                .markers
                .entry(root.into())
                .or_insert(Marker::new(request, mode(unused))),
        };
        if let (CheckInMode::Adopt { former }, Mode::Quarantined { .. }) =
            (request.mode, &marker.mode)
        {
            marker.former = marker.former.max(former);
        }
        marker.reply(high_water)
    }
}

impl Marker {
    fn new(request: &CheckInRequest, mode: Mode) -> Self {
        Self {
            digest: request.config.digest.clone(),
            config: request.config.text.clone(),
            quarantine: request.quarantine,
            former: Duration::ZERO,
            accepted: false,
            mode,
        }
    }

    fn reply(&self, high_water: Option<FencingToken>) -> CheckInReply {
        match &self.mode {
            Mode::Voting => CheckInReply::Voting { high_water },
            Mode::Quarantined { id, unused } => CheckInReply::Quarantined {
                id: id.clone(),
                former: self.former,
                accepted: self.accepted,
                unused: *unused,
            },
        }
    }
}

impl Store {
    pub(crate) fn promote(&mut self, request: &PromoteRequest) -> Result<bool, NodeError> {
        let usable = |floor: FencingToken| floor.get() <= FencingToken::LAST_COUNTED;
        if !request.floor.is_none_or(usable) {
            return Err(unmarked());
        }
        let markers = &mut self.data.markers.markers;
        let Some(marker) = markers.get_mut(request.namespace.root()) else {
            return Ok(false);
        };
        let meant =
            matches!(&marker.mode, Mode::Quarantined { id, .. } if *id == request.quarantine);
        if !meant || marker.digest != request.config.digest {
            return Ok(false);
        }
        marker.mode = Mode::Voting;
        marker.accepted = true;
        marker.former = Duration::ZERO;
        let counters = &mut self.data.counters;
        counters.raise_floor(&request.namespace, request.floor);
        Ok(true)
    }
}
