//! [`Link`]: what the supervisors, commands and listener of a node share; and [`Replicas`], which waits for replicas.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::{Cmd, RedisError, Value};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::instruments;
use crate::namespace::{Namespace, NodeKeys};
use crate::node::redis::connection::Connection;
use crate::node::redis::connections::{BACKGROUND, Connections, closed};
use crate::node::redis::discovery::witnesses::Route;
use crate::node::redis::discovery::{Target, Way};
use crate::node::redis::error::{self, ConnectFailure, failed};
use crate::node::redis::info::{Memory, Skew};
use crate::node::redis::subscriptions::Subscriptions;
use crate::node::{NodeContext, NodeError, NodeErrorKind, NodeState};
use crate::token::OwnerToken;

pub(crate) struct Link {
    pub(super) name: String,
    pub(super) target: Target,
    pub(super) connect_timeout: Duration,
    pub(super) subscriptions: Arc<Subscriptions>,
    pub(crate) replicas: Option<Replicas>,
    // Whether all servers of the node count as one. Only the marker then shows whether a server remembers its locks.
    pub(super) is_durable: bool,
    #[cfg_attr(not(feature = "idempotency"), allow(dead_code))]
    pub(crate) memory: Memory,
    // Whether each script reads the server's identity, because the server may be replaced while connections live on.
    asks_identity: AtomicBool,
    // Whether it was logged that the server reports no identity.
    told_of_identity: AtomicBool,
    // Whether it was logged that the server has no append-only file.
    #[cfg(feature = "idempotency")]
    told_of_file: AtomicBool,
    pub(crate) connections: Connections,
    pub(super) skew: Skew,
    closing: watch::Sender<bool>,
    started: AtomicBool,
}

impl Link {
    pub(super) fn new(
        name: String,
        connect_timeout: Duration,
        replicas: Option<Replicas>,
        calls: usize,
        expects_replicas: bool,
        is_durable: bool,
        target: Target,
    ) -> Self {
        Self {
            name,
            target,
            connect_timeout,
            replicas,
            is_durable,
            memory: Memory::default(),
            asks_identity: AtomicBool::new(expects_replicas || is_durable),
            told_of_identity: AtomicBool::new(false),
            #[cfg(feature = "idempotency")]
            told_of_file: AtomicBool::new(false),
            subscriptions: Arc::default(),
            connections: Connections::new(calls),
            skew: Skew::default(),
            closing: watch::Sender::new(false),
            started: AtomicBool::new(false),
        }
    }

    /// In a cluster, puts the tag of the node's slot before its keys.
    pub(super) fn place(&self, keys: &mut NodeKeys) {
        if let Some(tag) = &self.target.tag {
            *keys = keys.tagged(tag);
        }
    }

    pub(super) fn place_namespace(&self, namespace: &mut Namespace) {
        if let Some(tag) = &self.target.tag {
            *namespace = namespace.tagged(tag);
        }
    }

    pub(crate) fn connection(&self, token: &OwnerToken) -> Result<Connection, NodeError> {
        self.connection_of(self.connections.of(token))
    }

    pub(crate) fn background(&self) -> Result<Connection, NodeError> {
        self.connection_of(BACKGROUND)
    }

    fn connection_of(&self, index: usize) -> Result<Connection, NodeError> {
        let connection = self.connections.connection(index)?;
        if let Some(witnesses) = self.target.way.witnesses() {
            witnesses.confirmed_until(&connection)?;
        }
        Ok(connection)
    }

    pub(super) fn asks_identity(&self) -> bool {
        self.asks_identity.load(Ordering::Relaxed)
    }

    /// Makes each script read the server's identity, and logs the first time.
    pub(super) fn ask_identity(&self) {
        if !self.asks_identity.swap(true, Ordering::Relaxed) {
            crate::trace::identity_asked(&self.name);
        }
    }

    pub(super) fn tell_of_identity(&self) {
        if !self.told_of_identity.swap(true, Ordering::Relaxed) {
            crate::trace::no_identity(&self.name);
        }
    }

    #[cfg(feature = "idempotency")]
    pub(crate) fn tell_of_file(&self, connection: &Connection) {
        if connection.info().has_no_file() && !self.told_of_file.swap(true, Ordering::Relaxed) {
            crate::trace::no_append_only_file(&self.name);
        }
    }

    pub(super) async fn ready(&self) -> Result<(), NodeError> {
        let is_settled =
            |state: &NodeState| !matches!(state, NodeState::Connecting | NodeState::Down(_));
        match self.connections.wait_for(is_settled).await {
            NodeState::Up => Ok(()),
            NodeState::Refused(reason) => Err(reason),
            _ => Err(closed()),
        }
    }

    pub(super) async fn until_closing(&self, work: impl Future<Output = ()>) {
        let mut closing = self.closing.subscribe();
        tokio::select! {
            biased;
            // This cannot fail, because `self` owns the sender.
            _ = closing.wait_for(|closing| *closing) => {}
            () = work => {}
        }
    }

    pub(super) fn begin(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    pub(super) fn stop(&self) {
        self.closing.send_replace(true);
        if self.begin() {
            // The supervisors would publish this, but they were never started.
            for index in 0..self.connections.count() {
                self.publish(index, NodeState::Closed, None);
            }
        }
    }

    /// Whether all other connections must reach the same server as this one, because a different server could grant a
    /// lock again. With witnesses, only the background's connection leads.
    pub(super) const fn is_leading(&self, index: usize) -> bool {
        index == BACKGROUND || matches!(self.target.way, Way::Direct(_))
    }

    pub(super) fn agrees(&self, index: usize, connection: &Connection) -> bool {
        self.is_leading(index) || self.connections.is_at(BACKGROUND, connection)
    }

    pub(super) fn publish(&self, index: usize, state: NodeState, connection: Option<Connection>) {
        if let Some(state) = self.connections.publish(index, state, connection) {
            self.changed(&state);
        }
    }

    pub(super) fn doubt(&self, reason: Option<NodeError>) {
        if let Some(state) = self.connections.doubt(reason) {
            self.changed(&state);
        }
    }

    fn changed(&self, state: &NodeState) {
        // Do not log changes that closing causes.
        if *self.closing.borrow() {
            return;
        }
        let name = &self.name;
        match state {
            NodeState::Up => crate::trace::node_changed(name, "up", &""),
            NodeState::Down(reason) => crate::trace::node_changed(name, "down", reason),
            NodeState::Refused(reason) => crate::trace::node_changed(name, "refused", reason),
            NodeState::Connecting | NodeState::Closed => {}
        }
    }

    pub(super) fn failure(&self, error: &RedisError, act: &str) -> ConnectFailure {
        error::failure(&self.secrets(), error, act)
    }

    pub(super) fn clean(&self, text: &str) -> String {
        error::clean(text, &self.secrets())
    }

    fn secrets(&self) -> Vec<String> {
        let mut secrets = self.target.secrets.clone();
        secrets.extend(self.target.rotation.secrets());
        secrets
    }

    pub(super) async fn credentials(&self) -> Result<Option<Instant>, ConnectFailure> {
        let fresh = self.target.rotation.ask().await.map_err(|reason| {
            let reason = self.clean(&reason);
            ConnectFailure::down(format!("no credentials: {reason}"))
        })?;
        Ok(fresh.and_then(|(_, again)| again))
    }

    pub(super) fn credentials_fail(&self, reason: &str) {
        instruments::credentials_stale(&self.name, true);
        if self.target.rotation.set_stale(true) {
            crate::trace::credentials_stale(&self.name, &self.clean(reason));
        }
    }

    pub(super) fn credentials_work(&self) {
        instruments::credentials_stale(&self.name, false);
        if self.target.rotation.set_stale(false) {
            crate::trace::credentials_renewed(&self.name);
        }
    }

    pub(super) async fn route(&self) -> Result<Route, ConnectFailure> {
        match &self.target.way {
            Way::Direct(client) => Ok(Route {
                client: self.target.rotation.apply(client.clone()),
                place: None,
            }),
            Way::Witnessed(witnesses) => witnesses.master(self.connect_timeout).await,
        }
    }
}

/// How many replicas must acknowledge a lock, and how long they may take.
#[derive(Debug)]
pub(crate) struct Replicas {
    require: u32,
    // Set only in tests, instead of a third of the node time-out.
    within: Option<Duration>,
    // Known once the node has started.
    limit: OnceLock<Duration>,
}

impl Replicas {
    pub(super) const fn new(require: u32, within: Option<Duration>) -> Self {
        Self {
            require,
            within,
            limit: OnceLock::new(),
        }
    }

    pub(super) fn begin(&self, context: &NodeContext) {
        self.limit
            .get_or_init(|| self.within.unwrap_or(context.node_timeout / 3));
    }

    pub(super) fn limit(&self) -> Duration {
        self.limit.get().copied().unwrap_or_default()
    }

    /// The command that waits for the replicas. It needs at least 1 ms, because 0 would wait for ever.
    pub(crate) fn wait(&self) -> Cmd {
        let millis = self.limit().as_millis().max(1);
        let mut cmd = redis::cmd("WAIT");
        cmd.arg(self.require)
            .arg(u64::try_from(millis).unwrap_or(u64::MAX));
        cmd
    }

    pub(crate) fn judge(&self, reply: Option<Value>) -> Result<(), NodeError> {
        let reply = reply.unwrap_or(Value::Nil).extract_error();
        match reply {
            Ok(Value::Int(count)) if count >= i64::from(self.require) => Ok(()),
            Ok(Value::Int(count)) => {
                let (require, limit) = (self.require, self.limit());
                Err(not_replicated(format!(
                    "{count} of {require} replicas acknowledged within {limit:?}"
                )))
            }
            Ok(_) => Err(not_replicated(
                "it answered WAIT with something that makes no sense".to_owned(),
            )),
            Err(error) => Err(not_replicated(format!("WAIT failed: {}", failed(&error)))),
        }
    }
}

fn not_replicated(detail: String) -> NodeError {
    NodeError::new(NodeErrorKind::NotReplicated, detail)
}
