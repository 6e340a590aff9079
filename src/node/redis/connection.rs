//! A live connection and its signals. Only [`connect`] opens connections, so that a simulation can replace them.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};

#[cfg(not(tower_redlock_tests))]
pub(super) use redis::aio::MultiplexedConnection as Multiplexed;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value};
use tokio::sync::{Mutex, MutexGuard, Notify, watch};

#[cfg(tower_redlock_tests)]
pub(super) use self::simulated::Multiplexed;
use crate::clock::Clock;
use crate::moment::Moment;
use crate::node::NodeError;
use crate::node::redis::error;
use crate::node::redis::info::Info;
use crate::seam;

/// A checked connection. It sends commands in the order in which they were queued, so a release takes effect after a
/// dropped acquire.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    multiplexed: Multiplexed,
    signals: Arc<Signals>,
    seen: Arc<Seen>,
}

#[derive(Debug)]
pub(super) struct Seen {
    pub(super) info: Info,
    pub(super) identity: Option<String>,
    pub(super) until: Moment,
}

/// In place of an identity, makes scripts read the server's identity themselves.
const ASK: &str = "ask";
/// The identity of all servers of a durable node.
const DURABLE: &str = "durable";

#[derive(Debug)]
pub(crate) struct Signals {
    pub(super) suspect: Notify,
    pub(super) recheck: Notify,
    /// Another connection requests a new check.
    pub(super) warned: Notify,
    clock: Arc<dyn Clock>,
    since: Moment,
    pub(super) address: String,
    // The number of the failover that made the server the master, or empty if Sentinels do not report it.
    epoch: String,
    // Given to scripts in place of an identity if they must read the server's own, or if the node is durable.
    asking: String,
    // Whether a script has compared the config on this connection since the last gap in the checks.
    compared: AtomicBool,
    // Held by a command that makes the server block this connection.
    turn: Mutex<()>,
    // The supervisor has given up the connection, so that commands stop waiting for replies. A flag and a bell are
    // several times cheaper for each command than a watch channel.
    condemned: AtomicBool,
    bell: Notify,
}

impl Connection {
    pub(super) fn new(multiplexed: Multiplexed, seen: Seen, signals: Signals) -> Self {
        Self {
            multiplexed,
            seen: Arc::new(seen),
            signals: Arc::new(signals),
        }
    }

    /// Ends all waiting for replies when the connection ends, because the client can lose a command that it queues at
    /// that moment.
    pub(super) fn end_with(&self, lost: watch::Receiver<()>) {
        seam::spawn(condemn_after(lost, Arc::clone(&self.signals)));
    }

    pub(super) fn epoch(&self) -> &str {
        &self.signals.epoch
    }

    pub(super) fn seen_again(&self, seen: Seen) -> Self {
        Self {
            seen: Arc::new(seen),
            ..self.clone()
        }
    }

    pub(super) fn info(&self) -> &Info {
        &self.seen.info
    }

    pub(super) const fn multiplexed(&self) -> &Multiplexed {
        &self.multiplexed
    }

    pub(crate) fn signals(&self) -> &Arc<Signals> {
        &self.signals
    }

    pub(crate) fn identity(&self) -> &str {
        match &self.seen.identity {
            Some(identity) if self.is_seen_at(self.signals.clock.now()) => identity,
            _ => &self.signals.asking,
        }
    }

    /// Whether the last check is still valid.
    pub(super) fn is_seen_at(&self, now: Moment) -> bool {
        now <= self.seen.until
    }

    /// Whether a command can rely on an earlier comparison of the config.
    pub(crate) fn is_compared(&self) -> bool {
        self.signals.compared.load(Ordering::Acquire) && self.is_seen_at(self.signals.clock.now())
    }

    pub(crate) fn set_compared(&self) {
        if self.is_seen_at(self.signals.clock.now()) {
            self.signals.compared.store(true, Ordering::Release);
        }
    }

    pub(super) fn compare_again(&self) {
        self.signals.compared.store(false, Ordering::Release);
    }

    pub(super) fn is_to_same_server(&self, other: &Self) -> bool {
        self.info().run_id() == other.info().run_id() && self.epoch() == other.epoch()
    }

    pub(crate) fn since(&self) -> Moment {
        self.signals.since
    }

    pub(crate) async fn call(&mut self, cmd: &Cmd) -> Result<Value, RedisError> {
        let mut reply = pin!(self.multiplexed.send_packed_command(cmd));
        // The client reports a server's error as a successful reply here.
        let reply = poll_fn(|cx| {
            let reply = ready!(reply.as_mut().poll(cx));
            Poll::Ready(reply.and_then(Value::extract_error))
        });
        self.signals.attended(reply).await
    }

    pub(crate) async fn call_all(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, RedisError> {
        let count = pipeline.len();
        let replies = self.multiplexed.send_packed_commands(pipeline, 0, count);
        self.signals.attended(replies).await
    }
}

async fn condemn_after(mut lost: watch::Receiver<()>, signals: Arc<Signals>) {
    // An error means that the client's task has ended, which also ends the connection.
    let _ = lost.changed().await;
    signals.condemn();
}

impl Signals {
    /// `epoch` becomes part of the identity, because a server can become the master again without noticing its
    /// demotion. It then lacks the locks that were granted meanwhile.
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        since: Moment,
        address: String,
        epoch: &str,
        is_durable: bool,
    ) -> Self {
        let asking = match epoch {
            _ if is_durable => DURABLE.to_owned(),
            "" => ASK.to_owned(),
            epoch => format!("{epoch}|{ASK}"),
        };
        Self {
            suspect: Notify::new(),
            recheck: Notify::new(),
            warned: Notify::new(),
            clock,
            since,
            address,
            epoch: epoch.to_owned(),
            asking,
            compared: AtomicBool::new(false),
            turn: Mutex::new(()),
            condemned: AtomicBool::new(false),
            bell: Notify::new(),
        }
    }

    /// Ends all waiting for replies on this connection.
    pub(super) fn condemn(&self) {
        self.condemned.store(true, Ordering::Release);
        self.bell.notify_waiters();
    }

    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    async fn attended<T>(
        &self,
        reply: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        let mut unanswered = Unanswered(Some(&self.suspect));
        // Listen before reading the flag, so that the bell is not missed in between.
        let bell = self.bell.notified();
        let given_up = || (redis::ErrorKind::Io, "the server does not answer").into();
        if self.condemned.load(Ordering::Acquire) {
            return Err(given_up());
        }
        let result = tokio::select! {
            biased;
            result = reply => result,
            () = bell => Err(given_up()),
        };
        match &result {
            Ok(_) => unanswered.0 = None,
            Err(error) if error.kind() == redis::ErrorKind::Io => {}
            Err(error) => {
                unanswered.0 = None;
                self.look_at(error);
            }
        }
        result
    }

    pub(crate) fn look_at(&self, error: &RedisError) {
        if error::is_not_there(&error::server_text(error)) {
            self.recheck.notify_one();
        }
    }

    pub(crate) fn look_at_locks<T>(&self, replies: &[Result<T, NodeError>]) {
        let mut errors = replies.iter().filter_map(|reply| reply.as_ref().err());
        if errors.any(|error| error::is_not_there(&error.to_string())) {
            self.recheck.notify_one();
        }
    }
}

/// Requests a check of the server if it is dropped before the reply.
struct Unanswered<'a>(Option<&'a Notify>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(suspect) = self.0 {
            suspect.notify_one();
        }
    }
}

pub(super) async fn connect(
    client: &Client,
    config: &AsyncConnectionConfig,
) -> Result<Multiplexed, RedisError> {
    #[cfg(tower_redlock_tests)]
    if let Some(world) = seam::simulation::world() {
        return simulated::connect(&*world, client, config).await;
    }
    let connection = client.get_multiplexed_async_connection_with_config(config);
    #[cfg(not(tower_redlock_tests))]
    return connection.await;
    #[cfg(tower_redlock_tests)]
    connection.await.map(Multiplexed::from)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(super) async fn over(
    stream: tokio::io::DuplexStream,
    info: redis::RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> Multiplexed {
    let made = redis::aio::MultiplexedConnection::new_with_config(&info, stream, config).await;
    let (connection, driver) = made.unwrap();
    tokio::spawn(driver);
    #[cfg(tower_redlock_tests)]
    let connection = Multiplexed::from(connection);
    connection
}

#[cfg(tower_redlock_tests)]
mod simulated {
    use std::ops::{Deref, DerefMut};
    use std::sync::Arc;

    use redis::aio::MultiplexedConnection;
    use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, RedisError};
    use tokio::task::JoinHandle;

    use crate::seam;
    use crate::seam::simulation::World;

    #[derive(Clone, Debug)]
    pub(in crate::node::redis) struct Multiplexed {
        connection: MultiplexedConnection,
        _driver: Option<Arc<Driver>>,
    }

    #[derive(Debug)]
    struct Driver(JoinHandle<()>);

    impl Drop for Driver {
        fn drop(&mut self) {
            self.0.abort();
        }
    }

    impl From<MultiplexedConnection> for Multiplexed {
        fn from(connection: MultiplexedConnection) -> Self {
            Self {
                connection,
                _driver: None,
            }
        }
    }

    impl Deref for Multiplexed {
        type Target = MultiplexedConnection;

        fn deref(&self) -> &MultiplexedConnection {
            &self.connection
        }
    }

    impl DerefMut for Multiplexed {
        fn deref_mut(&mut self) -> &mut MultiplexedConnection {
            &mut self.connection
        }
    }

    pub(super) async fn connect(
        world: &dyn World,
        client: &Client,
        config: &AsyncConnectionConfig,
    ) -> Result<Multiplexed, RedisError> {
        let info = client.get_connection_info();
        let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) =
            info.addr()
        else {
            let text = "simulated servers have no sockets in the file system";
            return Err((ErrorKind::InvalidClientConfig, text).into());
        };
        let stream = world.connect(host, *port).await?;
        let settings = info.redis_settings();
        let made = MultiplexedConnection::new_with_config(settings, stream, config.clone()).await;
        let (connection, driver) = made?;
        let driver = Arc::new(Driver(seam::spawn(driver)));
        Ok(Multiplexed {
            connection,
            _driver: Some(driver),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use std::future::pending;

    #[tokio::test(start_paused = true)]
    async fn a_command_that_the_client_has_lost_ends_with_the_connection() {
        let clock = Arc::new(SystemClock::new());
        let since = Moment::from_nanos(1);
        let signals = Arc::new(Signals::new(clock, since, String::new(), "", false));
        for is_told in [true, false] {
            signals.condemned.store(false, Ordering::Release);
            let (sender, lost) = watch::channel(());
            let ending = tokio::spawn(condemn_after(lost, Arc::clone(&signals)));
            let mut command = pin!(signals.attended(pending::<Result<(), RedisError>>()));
            let early = poll_fn(|cx| Poll::Ready(command.as_mut().poll(cx).is_ready())).await;
            assert!(!early, "the connection is there");
            if is_told {
                sender.send_replace(());
            }
            drop(sender);
            ending.await.unwrap();
            let second = std::time::Duration::from_secs(1);
            let ended = tokio::time::timeout(second, command).await;
            ended.expect("it waits for ever").unwrap_err();
        }
    }
}
