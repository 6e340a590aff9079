//! What the supervisor, the commands and the listener of one node share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::node::redis::connect::connect;
use crate::node::redis::connection::Connection;
use crate::node::redis::connections::{Connections, closed};
use crate::node::redis::error::scrub;
use crate::node::redis::info::Allowed;
use crate::node::redis::look::{LOOK, Looks};
use crate::node::redis::replicas::Replicas;
use crate::node::redis::subscriptions::Subscriptions;
use crate::node::redis::target::{Target, Way};
use crate::node::{NodeContext, NodeError, NodeErrorKind, NodeState};
use crate::protocol::backoff::{Backoff, jitter};
use crate::token::OwnerToken;

/// What the supervisor and the commands share.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) target: Target,
    pub(super) connect_timeout: Duration,
    /// Who listens to releases.
    pub(super) subscriptions: Arc<Subscriptions>,
    /// What a lock needs besides the server's word.
    pub(super) replicas: Option<Replicas>,
    /// What the server may be like.
    pub(super) allowed: Allowed,
    /// The connections that carry commands.
    pub(super) connections: Connections,
    closing: watch::Sender<bool>,
    started: AtomicBool,
}

impl Shared {
    pub(super) fn new(
        name: String,
        target: Target,
        connect_timeout: Duration,
        replicas: Option<Replicas>,
        (connections, allowed): (usize, Allowed),
    ) -> Self {
        Self {
            name,
            target,
            connect_timeout,
            replicas,
            allowed,
            subscriptions: Arc::default(),
            connections: Connections::new(connections),
            closing: watch::Sender::new(false),
            started: AtomicBool::new(false),
        }
    }

    pub(super) fn state(&self) -> NodeState {
        self.connections.state()
    }

    /// The connection that commands of `token` go out on whose answer counts, or why there is none.
    pub(super) fn connection(&self, token: &OwnerToken) -> Result<Connection, NodeError> {
        self.connection_of(self.connections.of(token))
    }

    /// The same of one connection.
    pub(super) fn connection_of(&self, index: usize) -> Result<Connection, NodeError> {
        let connection = self.connections.connection(index)?;
        self.vouch(&connection)?;
        Ok(connection)
    }

    /// Waits for all connections, or for news that there will be none.
    pub(super) async fn ready(&self) -> Result<(), NodeError> {
        let is_settled =
            |state: &NodeState| !matches!(state, NodeState::Connecting | NodeState::Down(_));
        match self.connections.wait_for(is_settled).await {
            NodeState::Up => Ok(()),
            NodeState::Refused(reason) => Err(reason),
            _ => Err(closed()),
        }
    }

    /// Waits until the node takes commands.
    pub(super) async fn up(&self) {
        self.connections
            .wait_for(|state| *state == NodeState::Up)
            .await;
    }

    /// Waits until the node is to be closed.
    pub(super) async fn closing(&self) {
        let mut closing = self.closing.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = closing.wait_for(|closing| *closing).await;
    }

    /// Whether this is the first call; the supervisors are started once.
    pub(super) fn begin(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    /// Asks the supervisors to end.
    pub(super) fn stop(&self) {
        self.closing.send_replace(true);
        if self.begin() {
            // There are no supervisors, and there will be none.
            for index in 0..self.connections.count() {
                self.publish(index, NodeState::Closed, None);
            }
        }
    }

    /// Waits until the supervisors have ended.
    pub(super) async fn stopped(&self) {
        self.connections.ended().await;
    }

    /// Whether other connections must come to the server of this one. One that stayed at another would have that grant what
    /// this one's has granted already.
    ///
    /// Where Sentinels tell, it is the first connection's, which looks again and again what most of them say.
    pub(super) const fn is_leading(&self, index: usize) -> bool {
        index == 0 || matches!(self.target.way, Way::Direct(_))
    }

    /// Whether the connection of a connection leads to the server where it must.
    pub(super) fn agrees(&self, index: usize, connection: &Connection) -> bool {
        self.is_leading(index) || self.connections.is_at(0, connection)
    }

    pub(super) fn publish(&self, index: usize, state: NodeState, connection: Option<Connection>) {
        if let Some(state) = self.connections.publish(index, state, connection) {
            self.changed(&state);
        }
    }

    /// Says why the node counts for nothing though it is connected, or that it counts.
    pub(super) fn doubt(&self, reason: Option<NodeError>) {
        if let Some(state) = self.connections.doubt(reason) {
            self.changed(&state);
        }
    }

    /// Every change of the state passes here, once.
    fn changed(&self, state: &NodeState) {
        let name = &self.name;
        match state {
            NodeState::Up => crate::trace::node_changed(name, "up", &""),
            NodeState::Down(reason) => crate::trace::node_changed(name, "down", reason),
            NodeState::Refused(reason) => crate::trace::node_changed(name, "refused", reason),
            NodeState::Connecting | NodeState::Closed => {}
        }
    }

    /// A text fit for logs: without tokens, and without the password whoever quotes it.
    pub(super) fn clean(&self, text: &str) -> String {
        let secrets = self.target.secrets.iter();
        let text = secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "…"));
        scrub(&text)
    }
}

impl Shared {
    /// Whether another server's data can take the place of this one's without its connections being lost, at any time,
    /// so that the scripts have to look themselves whose it is.
    pub(super) const fn reads_identity_itself(&self) -> bool {
        self.allowed.replicas
    }

    /// How long the server may hold up a connection by our own wish.
    pub(super) fn hold_up(&self) -> Duration {
        self.replicas
            .as_ref()
            .map_or(Duration::ZERO, Replicas::limit)
    }
}
