//! Whether a node may vote. Check-in: asks the node; if it may have lost data, begins its quarantine. Promote: ends the
//! quarantine that is named, if the node is in it.

use std::sync::Arc;
use std::time::Duration;

use crate::namespace::Namespace;
use crate::node::commands::ClusterConfig;
use crate::node::memory::store::{Marker, Markers, Mode, Store};
use crate::node::{NodeError, unmarked};
use crate::token::FencingToken;

/// A request to tell whether a node may vote.
#[derive(Clone, Debug)]
pub struct CheckInRequest {
    /// The namespace of the locks.
    pub namespace: Namespace,
    /// The config that the node must have.
    pub config: Arc<ClusterConfig>,
    /// The length of this node's quarantines under the config.
    pub quarantine: Duration,
    /// A random name for the quarantine that begins with this, if one does.
    pub fresh: String,
    /// What to do about a node that has another config or none.
    pub mode: CheckInMode,
}

/// What a check-in does about a node that has another config or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckInMode {
    /// Nothing is changed: one without a config answers as if it were in quarantine.
    Look,
    /// One without a config is put into quarantine (if the config is [guarded](ClusterConfig::guarded)); one with
    /// another is left alone.
    Normal,
    /// Both are put into quarantine: the list is being changed.
    Adopt {
        /// At least so long, as an operator says.
        former: Duration,
    },
}

/// Whether a node may vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckInReply {
    /// It has lost no data since it was promoted.
    Voting {
        /// The highest value that any of its counters ever had; `None` if there was none.
        high_water: Option<FencingToken>,
    },
    /// It may have lost data.
    Quarantined {
        /// The name of its present quarantine.
        id: String,
        /// How long quarantines lasted under the config that ours has replaced there; zero if it has replaced none
        /// since the node voted last.
        former: Duration,
        /// Whether it has voted under our config: then all nodes had accepted the config.
        accepted: bool,
        /// Whether it has nothing to lose, because it never granted anything.
        unused: bool,
    },
    /// It has another config.
    Foreign {
        /// That config, as shown to people.
        config: String,
        /// The digest of that.
        digest: String,
    },
}

/// The end of a node's quarantine.
#[derive(Clone, Debug)]
pub struct PromoteRequest {
    /// The namespace of the locks.
    pub namespace: Namespace,
    /// The config that the node must have.
    pub config: Arc<ClusterConfig>,
    /// The name of the quarantine that ends. If the node is in another one by now, nothing is done.
    pub quarantine: String,
    /// Its high-water mark is raised to this, and no counter counts for less from then on: restored data may hold old
    /// ones.
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
                // A server cannot tell whether it has had locks before.
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
            // Not a fencing token at all.
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

    /// Evictions, on Redis only: looks whether the server has evicted keys since the last time. Then the marker loses the
    /// server's identity, so that the node does not vote before a quarantine.
    pub(crate) async fn look_at_evictions(
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
            // The other nodes would be given this mark.
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
