//! [`Sentinels`]: where the master is now, as most of the Sentinels say again and again.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo,
    RedisError,
};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::clock::Clock;
use crate::moment::Moment;
use crate::node::redis::confirmation::{Address, Board, Place};
use crate::node::redis::connect_failure::{ConnectFailure, random};
use crate::node::redis::url::{Certificates, client};
use crate::node::{NodeContext, NodeError, NodeErrorKind};
use crate::protocol::backoff::jitter;

/// For how long what a Sentinel said counts, unless set.
pub(super) const CONFIRM_WITHIN: Duration = Duration::from_secs(3);
/// How long to wait before a Sentinel is asked again, more or less by half.
const PAUSE: Duration = Duration::from_millis(500);
/// How often each is asked, at least, while what it said counts.
const QUESTIONS: u32 = 6;

/// The Sentinels that watch one master, and how to get to that.
pub(super) struct Sentinels {
    pub(super) master: String,
    /// Each with its address.
    pub(super) sentinels: Vec<(String, Client)>,
    pub(super) settings: RedisConnectionInfo,
    pub(super) tls: bool,
    pub(super) certificates: Certificates,
    /// How long a statement counts, from when the Sentinel was asked.
    pub(super) within: Duration,
    pub(super) board: watch::Sender<Board>,
    // Known once the node has started.
    pub(super) clock: OnceLock<Arc<dyn Clock>>,
}

/// How to get to the server that is the master now.
pub(super) struct Lead {
    pub(super) client: Client,
    /// What the Sentinels said of it, if there are any.
    pub(super) place: Option<Place>,
}

impl Sentinels {
    /// Takes the clock by which confirmations are measured.
    pub(super) fn begin(&self, context: &NodeContext) {
        self.clock.get_or_init(|| Arc::clone(&context.clock));
    }

    /// What all processes must agree on.
    pub(super) fn agreed(&self) -> String {
        let (master, within) = (&self.master, self.within);
        let mut addresses: Vec<&str> = self.addresses().collect();
        addresses.sort_unstable();
        let addresses = addresses.join(", ");
        format!("master `{master}` as most of {addresses} said within {within:?}")
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.sentinels.iter().map(|(address, _)| &**address)
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.get().map_or(Moment::ORIGIN, |clock| clock.now())
    }

    /// Statements that were asked for earlier are too old to count.
    pub(super) fn horizon(&self) -> Moment {
        self.now().saturating_sub(self.within)
    }

    /// Returns how to get to the server that most Sentinels name, within two thirds of `limit`.
    pub(super) async fn master(&self, limit: Duration) -> Result<Lead, ConnectFailure> {
        let mut board = self.board.subscribe();
        let known =
            |board: &Board| board.favourite(self.horizon()).is_some() || board.is_complete();
        let _ = timeout(limit / 3 * 2, board.wait_for(known)).await;
        let board = self.board.borrow().clone();
        if let Some(place) = board.favourite(self.horizon()) {
            let client = self.client(&place.address)?;
            let place = Some(place);
            return Ok(Lead { client, place });
        }
        let reasons = board.describe(self.horizon(), self.addresses());
        let master = &self.master;
        Err(if board.is_hopeless() {
            ConnectFailure::Refused(NodeError::new(
                NodeErrorKind::Misconfigured,
                format!(
                    "too few of its Sentinels tell where the master `{master}` is; check its name, and that the URLs are those of Sentinels, each listed once and with its credentials: {reasons}"
                ),
            ))
        } else {
            ConnectFailure::Down(NodeError::new(
                NodeErrorKind::Unavailable,
                format!(
                    "most of its Sentinels do not agree where the master `{master}` is: {reasons}"
                ),
            ))
        })
    }

    pub(super) fn client(&self, (host, port): &Address) -> Result<Client, ConnectFailure> {
        let (host, port) = (host.clone(), *port);
        let addr = if self.tls {
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let made = addr.into_connection_info().ok().and_then(|info| {
            let info = info
                .set_redis_settings(self.settings.clone())
                .set_tcp_settings(TcpSettings::default().set_nodelay(true));
            client(info, self.tls, &self.certificates).ok()
        });
        made.ok_or_else(|| {
            ConnectFailure::Down(NodeError::new(
                NodeErrorKind::Unavailable,
                "a Sentinel told an address of the master that cannot be used",
            ))
        })
    }

    /// How long to wait between two questions, more or less by half.
    pub(super) fn pause(&self) -> Duration {
        let pause = PAUSE.min(self.within / QUESTIONS);
        pause / 2 + jitter(random(), pause)
    }
}

/// A connection for single questions.
pub(super) async fn connection(client: &Client) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}
