//! [`Connections`]: a node's connections for commands, and their combined state.

use tokio::sync::watch;

use crate::node::redis::connection::Connection;
use crate::node::redis::error::unavailable;
use crate::node::{NodeError, NodeErrorKind, NodeState};
use crate::token::OwnerToken;

/// The connections of a node that carry commands: [one for the background](BACKGROUND), and one or more for calls. All
/// calls of an owner use the same connection, so that a release follows its acquire.
pub(crate) struct Connections {
    status: watch::Sender<Status>,
}

/// The connection of the manager's thread. Callers cannot block it, so it decides which server the other connections
/// must reach: see [`Link::is_leading`].
///
/// [`Link::is_leading`]: super::link::Link::is_leading
pub(crate) const BACKGROUND: usize = 0;

struct Status {
    slots: Box<[Slot]>,
    doubt: Option<NodeState>,
}

#[derive(Clone)]
struct Slot {
    state: NodeState,
    connection: Option<Connection>,
}

impl Connections {
    pub(super) fn new(calls: usize) -> Self {
        let slot = Slot {
            state: NodeState::Connecting,
            connection: None,
        };
        Self {
            status: watch::Sender::new(Status {
                slots: vec![slot; 1 + calls].into(),
                doubt: None,
            }),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.status.borrow().slots.len()
    }

    pub(super) fn of(&self, token: &OwnerToken) -> usize {
        let calls = self.count() - 1;
        if calls < 2 {
            return 1;
        }
        // FNV-1a maps the same token to the same connection, which is all we need.
        let mix =
            |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = token.digits().bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        // Use the upper bits, which are mixed better.
        1 + usize::try_from(hash >> 40).unwrap_or_default() % calls
    }

    pub(crate) fn for_release(
        &self,
        token: &OwnerToken,
        background: bool,
    ) -> Result<Connection, NodeError> {
        self.connection(if background {
            BACKGROUND
        } else {
            self.of(token)
        })
    }

    pub(super) fn connection(&self, index: usize) -> Result<Connection, NodeError> {
        let status = self.status.borrow();
        let slot = status.slots.get(index).ok_or_else(closed)?;
        if let (NodeState::Connecting, NodeState::Refused(reason)) =
            (&slot.state, together(&status))
        {
            return Err(reason.clone());
        }
        Err(match (&slot.state, &slot.connection) {
            (NodeState::Up, Some(connection)) => return Ok(connection.clone()),
            (NodeState::Down(reason), _) => unavailable(format!("it is down: {reason}")),
            (NodeState::Refused(reason), _) => reason.clone(),
            (NodeState::Closed, _) => closed(),
            (NodeState::Connecting | NodeState::Up, _) => unavailable("it is not connected yet"),
        })
    }

    pub(super) fn last_connection(&self, index: usize) -> Option<Connection> {
        self.status.borrow().slots.get(index)?.connection.clone()
    }

    /// The state of the worst connection, because owners whose calls use it cannot acquire locks.
    pub(super) fn state(&self) -> NodeState {
        together(&self.status.borrow()).clone()
    }

    pub(super) async fn wait_for(&self, claim: impl Fn(&NodeState) -> bool) -> NodeState {
        let mut status = self.status.subscribe();
        let reached = status.wait_for(|status| claim(together(status))).await;
        // This cannot fail, because `self` owns the sender.
        reached.map_or(NodeState::Closed, |status| together(&status).clone())
    }

    pub(super) async fn ended(&self) {
        let mut status = self.status.subscribe();
        let over = |slot: &Slot| slot.state == NodeState::Closed && slot.connection.is_none();
        // This cannot fail, because `self` owns the sender.
        let _ = status
            .wait_for(|status| status.slots.iter().all(over))
            .await;
    }

    pub(super) fn publish(
        &self,
        index: usize,
        state: NodeState,
        connection: Option<Connection>,
    ) -> Option<NodeState> {
        self.modify(|status| {
            if let Some(slot) = status.slots.get_mut(index) {
                *slot = Slot { state, connection };
            }
        })
    }

    pub(super) fn doubt(&self, reason: Option<NodeError>) -> Option<NodeState> {
        self.modify(|status| status.doubt = reason.map(NodeState::Down))
    }

    fn modify(&self, change: impl FnOnce(&mut Status)) -> Option<NodeState> {
        let mut news = None;
        self.status.send_modify(|status| {
            let before = together(status).clone();
            change(status);
            let after = together(status);
            news = (*after != before).then(|| after.clone());
        });
        news
    }

    pub(super) fn is_at(&self, index: usize, other: &Connection) -> bool {
        let slots = &self.status.borrow().slots;
        let connection = slots.get(index).and_then(|slot| slot.connection.as_ref());
        connection.is_none_or(|connection| connection.is_to_same_server(other))
    }

    pub(super) fn warn_strangers(&self, connection: &Connection) {
        let slots = &self.status.borrow().slots;
        let others = slots.iter().filter_map(|slot| slot.connection.as_ref());
        for stranger in others.filter(|other| !other.is_to_same_server(connection)) {
            stranger.signals().warned.notify_one();
        }
    }

    pub(super) fn warn_others(&self, index: usize) {
        for (other, slot) in self.status.borrow().slots.iter().enumerate() {
            if let (true, Some(connection)) = (other != index, &slot.connection) {
                connection.signals().warned.notify_one();
            }
        }
    }
}

fn together(status: &Status) -> &NodeState {
    let rank = |state: &&NodeState| match state {
        NodeState::Closed => 0,
        NodeState::Refused(_) => 1,
        NodeState::Down(_) => 2,
        NodeState::Connecting => 3,
        NodeState::Up => 4,
    };
    let states = status.slots.iter().map(|slot| &slot.state);
    let worst = states.min_by_key(rank).unwrap_or(&NodeState::Closed);
    match &status.doubt {
        Some(doubt) if *worst == NodeState::Up => doubt,
        _ => worst,
    }
}

pub(super) fn closed() -> NodeError {
    NodeError::new(NodeErrorKind::Closed, "the node was closed")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo};
    use tokio::time::timeout;

    use super::*;
    use crate::clock::SystemClock;
    use crate::moment::Moment;
    use crate::node::redis::connection::{Seen, Signals, over};
    use crate::node::redis::info::Info;

    fn down(why: &'static str) -> NodeState {
        NodeState::Down(NodeError::new(NodeErrorKind::Unavailable, why))
    }

    #[test]
    fn the_state_of_the_node_is_that_of_its_worst_connection() {
        let connections = Connections::new(2);
        assert_eq!(connections.state(), NodeState::Connecting);
        assert_eq!(connections.publish(0, NodeState::Up, None), None);
        assert_eq!(connections.publish(1, NodeState::Up, None), None);
        assert_eq!(
            connections.publish(2, NodeState::Up, None),
            Some(NodeState::Up),
            "all are"
        );
        assert_eq!(connections.publish(1, down("x"), None), Some(down("x")));
        assert_eq!(
            connections.publish(2, down("y"), None),
            None,
            "one reason is enough"
        );
        let refused = NodeState::Refused(NodeError::new(NodeErrorKind::Misconfigured, "z"));
        assert_eq!(
            connections.publish(0, refused.clone(), None),
            Some(refused.clone())
        );
        assert_eq!(
            connections.connection(1).unwrap_err().to_string(),
            "it is down: x"
        );
        assert_eq!(connections.connection(0).unwrap_err().to_string(), "z");
    }

    #[test]
    fn a_node_in_doubt_is_down_though_it_is_connected() {
        let connections = Connections::new(1);
        let reason = || NodeError::new(NodeErrorKind::Unavailable, "x");
        assert_eq!(connections.doubt(Some(reason())), None, "not yet connected");
        assert_eq!(connections.publish(1, NodeState::Up, None), None);
        assert_eq!(connections.publish(0, NodeState::Up, None), Some(down("x")));
        assert_eq!(connections.publish(0, down("y"), None), Some(down("y")));
        assert_eq!(connections.doubt(None), None);
        assert_eq!(
            connections.publish(0, NodeState::Up, None),
            Some(NodeState::Up)
        );
        assert_eq!(connections.doubt(Some(reason())), Some(down("x")));
        assert_eq!(connections.doubt(None), Some(NodeState::Up));
    }

    #[test]
    fn tokens_are_spread_over_all_connections_and_stay_on_theirs() {
        let connections = Connections::new(4);
        let token = |number: u8| OwnerToken::from_entropy([number; OwnerToken::ENTROPY_LEN]);
        let mut counts = [0; 4];
        for number in 0..=255 {
            let index = connections.of(&token(number));
            assert_eq!(index, connections.of(&token(number)));
            counts[index - 1] += 1;
        }
        assert!(counts.iter().all(|count| *count > 32), "{counts:?}");
        assert_eq!(Connections::new(1).of(&token(7)), 1);
    }

    /// A connection to a silent server.
    async fn connection() -> Connection {
        let (ours, _theirs) = tokio::io::duplex(64);
        let info = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP2)
            .set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new();
        let multiplexed = over(ours, info, config).await;
        let seen = Seen {
            info: Info::default(),
            identity: None,
            until: Moment::ORIGIN,
        };
        let clock = Arc::new(SystemClock::new());
        let signals = Signals::new(clock, Moment::ORIGIN, String::new(), "", false);
        Connection::new(multiplexed, seen, signals)
    }

    #[tokio::test]
    async fn all_connections_except_the_one_that_saw_the_change_are_warned() {
        let connections = Connections::new(4);
        // The last one is not connected.
        for index in 0..3 {
            connections.publish(index, NodeState::Up, Some(connection().await));
        }
        connections.warn_others(1);
        let mut warned = Vec::new();
        for index in 0..3 {
            let connection = connections.connection(index).unwrap();
            let warning = connection.signals().warned.notified();
            warned.push(timeout(Duration::ZERO, warning).await.is_ok());
        }
        assert_eq!(warned, [true, false, true]);
    }
}
