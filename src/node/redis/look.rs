//! [`Looks`]: checks of the server, at each connect and then every second while the connection lives.

use std::time::Duration;

use redis::{Cmd, RedisError, Value};
use tokio::time::timeout;

use crate::moment::Moment;
use crate::node::commands::evictions;
use crate::node::redis::connection::{Connection, Seen};
use crate::node::redis::discovery::Way;
use crate::node::redis::error::ConnectFailure;
use crate::node::redis::error::is_not_ready;
use crate::node::redis::info::Reading;
use crate::node::redis::info::{self, Info};
use crate::node::redis::replicas::Replicas;
use crate::node::redis::shared::Shared;
use crate::node::{NodeContext, NodeErrorKind};

pub(super) const LOOK: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_millis(200);
const GRACE: Duration = Duration::from_millis(5);

/// How a node's servers are looked at.
pub(super) struct Looks<'a> {
    shared: &'a Shared,
    context: &'a NodeContext,
    /// How long a reply may take.
    limit: Duration,
}

impl<'a> Looks<'a> {
    pub(super) fn new(shared: &'a Shared, context: &'a NodeContext) -> Self {
        // A `WAIT` may hold up the reply.
        let wait = shared.replicas.as_ref();
        let wait = wait.map_or(Duration::ZERO, Replicas::limit);
        Self {
            shared,
            context,
            limit: LIMIT.max(context.node_timeout) + wait,
        }
    }

    /// The findings of a look that began at `asked`, valid until after the next look.
    pub(super) fn seen(&self, info: Info, asked: Moment) -> Seen {
        if info.may_be_replaced() {
            self.shared.ask_identity();
        }
        let identity = (!self.shared.asks_identity()).then(|| info.identity());
        Seen {
            info,
            identity,
            until: asked + LOOK + 2 * self.limit,
        }
    }

    pub(super) async fn again(
        &self,
        connection: &Connection,
    ) -> Result<Option<Connection>, ConnectFailure> {
        let asked = self.context.clock.now();
        let info = match self.ask(connection, "INFO").await? {
            Ok(info) => info,
            // It does not run our scripts now either.
            Err(error) if is_not_ready(&error) => return Ok(None),
            Err(error) => return Err(self.shared.failure(&error, "run `INFO`")),
        };
        let info: String = redis::from_redis_value(info).unwrap_or_default();
        self.compare_clocks(&info, asked, connection.info().run_id());
        let (info, before) = (Info::parse(&info), connection.info());
        self.shared.judge(&info)?;
        if !info.is_still(&before.identity()) {
            return Err(ConnectFailure::Promoted);
        }
        let news = info.evicted() != before.evicted();
        let connection = connection.seen_again(self.seen(info, asked));
        if news {
            self.evictions(&connection).await?;
        }
        Ok(Some(connection))
    }

    fn compare_clocks(&self, info: &str, asked: Moment, run_id: &str) {
        // Servers that hide their time are as good as others.
        let Some(server) = info::server_time(info) else {
            return;
        };
        let clock = &self.context.clock;
        let reading = Reading {
            run_id,
            server,
            ours: clock.unix_micros(),
            asked,
            answered: clock.now(),
        };
        let Some(found) = self.shared.skew.found(&reading) else {
            return;
        };
        let name = &self.shared.name;
        crate::instruments::clock_skew(name, found.ahead);
        if let Some(step) = found.step {
            crate::trace::clock_set(name, step, found.ahead);
        }
    }

    pub(super) async fn is_there(&self, connection: &Connection) -> Result<(), ConnectFailure> {
        self.ask(connection, "PING").await.map(drop)
    }

    pub(super) async fn evictions(&self, connection: &Connection) -> Result<(), ConnectFailure> {
        if self.shared.may_evict {
            return Ok(());
        }
        let mut own = connection.clone();
        let look = evictions::look(&mut own, &self.context.namespace);
        match timeout(self.limit, look).await {
            Ok(Ok(())) => Ok(()),
            // The server is not used before that is known.
            Ok(Err(error))
                if matches!(
                    error.kind(),
                    NodeErrorKind::Rejected | NodeErrorKind::WrongType
                ) =>
            {
                Err(ConnectFailure::Refused(error))
            }
            Ok(Err(error)) => Err(ConnectFailure::Down(error)),
            Err(_) => Err(self.silent(connection)),
        }
    }

    async fn ask(
        &self,
        connection: &Connection,
        question: &str,
    ) -> Result<Result<Value, RedisError>, ConnectFailure> {
        let cmd: Cmd = redis::cmd(question);
        let mut own = connection.clone();
        let mut call = std::pin::pin!(own.call(&cmd));
        let reply = match timeout(self.limit, call.as_mut()).await {
            Ok(reply) => Some(reply),
            // If this process slept, the reply is already in the socket.
            Err(_) => timeout(GRACE, call).await.ok(),
        };
        let broken = |error: &RedisError| error.kind() == redis::ErrorKind::Io;
        reply
            .filter(|reply| !reply.as_ref().is_err_and(broken))
            .ok_or_else(|| self.silent(connection))
    }

    fn silent(&self, connection: &Connection) -> ConnectFailure {
        connection.signals().condemn();
        let limit = self.limit;
        ConnectFailure::down(format!(
            "it did not answer a PING or an INFO within {limit:?}"
        ))
    }
}

impl Shared {
    /// Whether the server can serve as this node.
    pub(super) fn judge(&self, info: &Info) -> Result<(), ConnectFailure> {
        if matches!(self.target.way, Way::Sentinels(_)) && info.is_replica() {
            return Err(ConnectFailure::down(
                "the server that Sentinel calls the master is a replica; a failover may be under way",
            ));
        }
        info.check(self.may_evict).map_err(ConnectFailure::Refused)
    }
}
