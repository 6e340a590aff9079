//! One attempt to connect, with the first check of the server. [`Looks`] repeats the check every second. The
//! credentials of a connection are renewed before they expire.

use std::convert::Infallible;
use std::time::Duration;

use redis::{AsyncConnectionConfig, Cmd, PushInfo, PushKind, RedisError, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::moment::Moment;
#[cfg(feature = "idempotency")]
use crate::node::commands::records;
use crate::node::commands::script::Script;
use crate::node::commands::{acquire, extend, raise, release, voting};
use crate::node::redis::access::{SOONEST, address_of};
use crate::node::redis::connection::{self, Connection, Multiplexed, Seen, Signals};
use crate::node::redis::connections::BACKGROUND;
use crate::node::redis::discovery::Way;
use crate::node::redis::discovery::witnesses::Route;
use crate::node::redis::error::{ConnectFailure, is_not_ready, server_text};
use crate::node::redis::info::{Info, Reading};
use crate::node::redis::link::{Link, Replicas};
use crate::node::redis::rights::{self, RIGHTS};
use crate::node::{NodeContext, NodeErrorKind};
use crate::protocol::backoff::Backoff;
use crate::seam::for_pause;

const QUEUE: usize = 1024;

/// Loaded on each new connection.
static SCRIPTS: &[&Script] = &[
    &acquire::on_redis::SCRIPT,
    &acquire::on_redis::ANY,
    &extend::on_redis::SCRIPT,
    &release::on_redis::SCRIPT,
    &raise::on_redis::SCRIPT,
    &voting::on_redis::CHECK_IN,
    &voting::on_redis::PROMOTE,
    &voting::on_redis::EVICTIONS,
    &acquire::on_redis::SHARED,
    &extend::on_redis::SHARED,
    &release::on_redis::SHARED,
    &RIGHTS,
    #[cfg(feature = "idempotency")]
    &records::on_redis::RECALL,
    #[cfg(feature = "idempotency")]
    &records::on_redis::COMPLETE,
];

/// The previous connection of this supervisor, as the server identifies it.
pub(super) struct Former {
    run_id: String,
    client_id: i64,
}

pub(super) async fn connect(
    link: &Link,
    index: usize,
    context: &NodeContext,
    looks: &Looks<'_>,
    former: &mut Option<Former>,
) -> Result<(Connection, watch::Receiver<()>), ConnectFailure> {
    // Read the time before connecting. A time that is too early only causes a needless tombstone.
    let since = context.clock.now();
    let route = link.route().await?;
    let (mut connection, lost) = open(link, &route, |_| false).await?;
    let asked = context.clock.now();
    let (info, client_id) = look(link, index, &mut connection, context).await?;
    let is_known = !info.run_id().is_empty();
    if is_known {
        let tag = link.target.tag.as_deref().unwrap_or_default();
        let beside = context.registry.claim(&link.name, info.run_id(), tag);
        if let (Some(other), BACKGROUND) = (beside.map_err(ConnectFailure::Refused)?, index) {
            crate::trace::nodes_on_one_server(&link.name, &other);
        }
    }
    if let Some(former) = former.as_ref()
        && former.run_id == info.run_id()
    {
        bury(&mut connection, former.client_id).await;
    }
    // Without a `run_id` the client id proves nothing, because the server may be another one.
    *former = client_id.filter(|_| is_known).map(|client_id| Former {
        run_id: info.run_id().to_owned(),
        client_id,
    });
    let clock = std::sync::Arc::clone(&context.clock);
    let epoch = route.place.as_ref().map_or("", |place| &place.epoch);
    looks.compare_clocks(&info, asked);
    let seen = looks.seen(info, asked);
    let address = address_of(route.client.get_connection_info().addr());
    let signals = Signals::new(clock, since, address, epoch, link.is_durable);
    let connection = Connection::new(connection, seen, signals);
    connection.end_with(lost.clone());
    if let Some(place) = route.place {
        // Only the background's connection watches for a failover: see `supervisor::replaced`.
        if let (Some(witnesses), BACKGROUND) = (link.target.way.witnesses(), index) {
            let (run_id, limit) = (connection.info().run_id(), link.connect_timeout / 8);
            witnesses.accept(&place, run_id, limit).await?;
        }
    }
    if !matches!(connection.info().evicted(), "" | "0") {
        // Check before the first lock is granted on this connection.
        looks.evictions(&connection).await?;
    }
    Ok((connection, lost))
}

pub(super) async fn open(
    link: &Link,
    route: &Route,
    hear: impl Fn(&PushInfo) -> bool + Send + Sync + 'static,
) -> Result<(Multiplexed, watch::Receiver<()>), ConnectFailure> {
    // If the client ends silently, it drops the sender, which also wakes the receiver.
    let (sender, lost) = watch::channel(());
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE)
        .set_push_sender(move |push: PushInfo| {
            if hear(&push) || push.kind == PushKind::Disconnection {
                sender.send_replace(());
            }
            Ok::<(), String>(())
        });
    let connection = connection::connect(&route.client, &config)
        .await
        .map_err(|error| link.failure(&error, "connect (`HELLO`, `AUTH`, `SELECT`)"))?;
    Ok((connection, lost))
}

async fn look(
    link: &Link,
    index: usize,
    connection: &mut Multiplexed,
    context: &NodeContext,
) -> Result<(Info, Option<i64>), ConnectFailure> {
    let mut pipeline = redis::pipe();
    if link.replicas.is_some() {
        // This waits for no replica, but shows whether we have the right.
        pipeline.cmd("WAIT").arg(0).arg(1);
    }
    pipeline.cmd("INFO");
    for script in SCRIPTS {
        pipeline.add_command(script.load());
    }
    let (asks_for_rights, reads_only) = (index == BACKGROUND, context.observes);
    let mut namespace = context.namespace.clone();
    link.place_namespace(&mut namespace);
    if asks_for_rights {
        pipeline.add_command(rights::question(&namespace, reads_only));
    }
    // The name is for operators, and the id allows `bury`. An ACL may forbid both.
    pipeline.cmd("CLIENT").arg("SETNAME").arg("tower-redlock");
    pipeline.cmd("CLIENT").arg("ID");
    let replies = connection
        .send_packed_commands(&pipeline, 0, pipeline.len())
        .await
        .map_err(|error| link.failure(&error, "check the server"))?;
    let mut replies = replies.into_iter().map(Value::extract_error);
    let mut next = || replies.next().unwrap_or(Ok(Value::Nil));

    let may_wait = link.replicas.as_ref().map(|_| next());
    let info = next().map_err(|error| link.failure(&error, "run `INFO`"))?;
    let info: String = redis::from_redis_value(info).unwrap_or_default();
    let info = Info::parse(&info);
    link.judge(&info, context)?;
    if let Some(Err(error)) = may_wait {
        return Err(link.failure(&error, "run `WAIT`"));
    }
    for _ in SCRIPTS {
        next().map_err(|error| link.failure(&error, "run `SCRIPT LOAD`"))?;
    }
    if asks_for_rights {
        rights::judge(&namespace, reads_only, next()).map_err(ConnectFailure::Refused)?;
    }
    // Ignore whether the name was accepted.
    let _ = next();
    let client_id = match next() {
        Ok(Value::Int(id)) => Some(id),
        _ => None,
    };
    Ok((info, client_id))
}

/// Ends our previous connection, from whose socket the server could still read an acquire after the release on the new
/// one. This needs the right to `CLIENT KILL`.
async fn bury(connection: &mut Multiplexed, client_id: i64) {
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("ID").arg(client_id);
    let _ = connection.send_packed_command(&kill).await;
}

pub(super) async fn keep_valid(
    link: &Link,
    connection: &Multiplexed,
    mut again: Option<Instant>,
) -> Infallible {
    let mut backoff = NEW_BACKOFF;
    loop {
        match again {
            Some(again) => sleep_until(again).await,
            None => std::future::pending().await,
        }
        match authenticate(link, connection.clone()).await {
            Ok(next) => {
                link.credentials_work();
                (again, backoff) = (next, NEW_BACKOFF);
            }
            Err(reason) => {
                link.credentials_fail(&reason);
                again = Some(Instant::now() + SOONEST + backoff.next(for_pause()));
            }
        }
    }
}

async fn authenticate(link: &Link, mut connection: Multiplexed) -> Result<Option<Instant>, String> {
    let Some((credentials, again)) = link.target.rotation.ask().await? else {
        return Ok(None);
    };
    let mut auth = redis::cmd("AUTH");
    match credentials.user.as_deref().or(link.target.user.as_deref()) {
        Some(user) => auth.arg(user),
        None => &mut auth,
    };
    auth.arg(&credentials.password);
    let reply = timeout(LONGEST_REPLY, connection.send_packed_command(&auth)).await;
    match reply.map(|reply| reply.and_then(Value::extract_error)) {
        Ok(Ok(_)) => Ok(again),
        Ok(Err(error)) => Err(server_text(&error)),
        Err(_) => Err(format!(
            "the server did not answer within {LONGEST_REPLY:?}"
        )),
    }
}

const LONGEST_REPLY: Duration = Duration::from_secs(1);
const NEW_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

pub(super) const LOOK: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_millis(200);
const GRACE: Duration = Duration::from_millis(5);

/// The repeated checks of a node's servers.
pub(super) struct Looks<'a> {
    link: &'a Link,
    context: &'a NodeContext,
    limit: Duration,
}

impl<'a> Looks<'a> {
    pub(super) fn new(link: &'a Link, context: &'a NodeContext) -> Self {
        // A `WAIT` can delay the reply.
        let wait = link.replicas.as_ref();
        let wait = wait.map_or(Duration::ZERO, Replicas::limit);
        Self {
            link,
            context,
            limit: LIMIT.max(context.node_timeout) + wait,
        }
    }

    /// Records the result of a check that was sent at `asked`. It is valid until the next check has ended.
    pub(super) fn seen(&self, info: Info, asked: Moment) -> Seen {
        self.link.memory.seen(&self.link.name, &info);
        if info.may_be_replaced() {
            self.link.ask_identity();
        }
        let identity = (!self.link.asks_identity()).then(|| info.identity());
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
            Err(error) => return Err(self.link.failure(&error, "run `INFO`")),
        };
        let info: String = redis::from_redis_value(info).unwrap_or_default();
        let (info, before) = (Info::parse(&info), connection.info());
        self.compare_clocks(&info, asked);
        self.link.judge(&info, self.context)?;
        if !info.is_still(&before.identity()) {
            return Err(ConnectFailure::Promoted);
        }
        let news = info.evicted() != before.evicted();
        if !connection.is_seen_at(asked) {
            connection.compare_again();
        }
        let connection = connection.seen_again(self.seen(info, asked));
        if news {
            self.evictions(&connection).await?;
        }
        Ok(Some(connection))
    }

    fn compare_clocks(&self, info: &Info, asked: Moment) {
        let Some(server) = info.time() else {
            return;
        };
        let clock = &self.context.clock;
        let reading = Reading {
            run_id: info.run_id(),
            server,
            ours: clock.unix_micros(),
            asked,
            answered: clock.now(),
        };
        let Some(found) = self.link.skew.found(&reading) else {
            return;
        };
        let name = &self.link.name;
        crate::instruments::clock_skew(name, found.ahead);
        if let Some(step) = found.step {
            crate::trace::clock_set(name, step, found.ahead);
        }
    }

    pub(super) async fn is_there(&self, connection: &Connection) -> Result<(), ConnectFailure> {
        self.ask(connection, "PING").await.map(drop)
    }

    pub(super) async fn evictions(&self, connection: &Connection) -> Result<(), ConnectFailure> {
        // Without the restart guard, evictions do not change whether a node votes.
        if !self.context.guarded {
            return Ok(());
        }
        let mut own = connection.clone();
        let mut namespace = self.context.namespace.clone();
        self.link.place_namespace(&mut namespace);
        let look = voting::on_redis::check_evictions(&mut own, &namespace);
        match timeout(self.limit, look).await {
            Ok(Ok(())) => Ok(()),
            // Ignore errors of an observer, which may lack the right to write and grants nothing.
            Ok(Err(_)) if self.context.observes => Ok(()),
            // Do not use the server until it is known whether it evicted keys.
            Ok(Err(error))
                if matches!(
                    error.kind(),
                    NodeErrorKind::Rejected | NodeErrorKind::Full | NodeErrorKind::WrongType
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
            // If this process was suspended, the reply may already be in the socket.
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

impl Link {
    pub(super) fn judge(&self, info: &Info, context: &NodeContext) -> Result<(), ConnectFailure> {
        let is_witnessed = matches!(self.target.way, Way::Witnessed(_));
        if is_witnessed && info.is_replica() {
            return Err(ConnectFailure::down(
                "the server that is named as the master is a replica; a failover may be under way",
            ));
        }
        let in_cluster = self.target.tag.is_some();
        info.check(in_cluster).map_err(ConnectFailure::Refused)?;
        match info.check_identity() {
            // Behind Sentinels, only the identity distinguishes a server from the one before it. In a cluster, the
            // epoch does.
            Err(error) if context.guarded || is_witnessed && !in_cluster => {
                Err(ConnectFailure::Refused(error))
            }
            Err(_) => {
                self.tell_of_identity();
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}
