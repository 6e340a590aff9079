//! [`Sentinels`]: asked one by one again and again, and where the master is now, as most of them say.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, Value,
};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::moment::Moment;
use crate::node::redis::access::{Certificates, Rotation, client};
use crate::node::redis::connection::{self, Connection, Multiplexed};
use crate::node::redis::discovery::confirmation::{
    Address, Confirmation, Place, Statement, Trouble,
};
use crate::node::redis::error::{ConnectFailure, is_not_ready, server_text, unavailable};
use crate::node::redis::info::Info;
use crate::node::{NodeContext, NodeError};
use crate::protocol::backoff::jitter;
use crate::seam::for_pause;

pub(crate) const CONFIRM_WITHIN: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(500);
const QUESTIONS: u32 = 6;
const LONGEST_HOST: usize = 253;

/// The Sentinels that watch one master, and how to get to that.
pub(crate) struct Sentinels {
    pub(crate) master: String,
    /// Each with its address.
    pub(crate) sentinels: Vec<(String, Client)>,
    pub(crate) settings: RedisConnectionInfo,
    pub(crate) rotation: Arc<Rotation>,
    pub(crate) tls: bool,
    pub(crate) certificates: Certificates,
    pub(crate) within: Duration,
    pub(crate) confirmation: watch::Sender<Confirmation>,
    // Known once the node has started.
    pub(crate) clock: OnceLock<Arc<dyn Clock>>,
}

pub(crate) struct Route {
    pub(crate) client: Client,
    pub(crate) place: Option<Place>,
}

impl Sentinels {
    /// Takes the clock by which confirmations are measured.
    pub(crate) fn begin(&self, context: &NodeContext) {
        self.clock.get_or_init(|| Arc::clone(&context.clock));
    }

    pub(crate) fn agreed(&self) -> String {
        let (master, within) = (&self.master, self.within);
        let mut addresses: Vec<&str> = self.addresses().collect();
        addresses.sort_unstable();
        let addresses = addresses.join(", ");
        format!("master `{master}` as most of {addresses} said within {within:?}")
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.sentinels.iter().map(|(address, _)| &**address)
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.get().map_or(Moment::ORIGIN, |clock| clock.now())
    }

    pub(crate) fn horizon(&self) -> Moment {
        self.now().saturating_sub(self.within)
    }

    /// The way to the server that most Sentinels name, within two thirds of `limit`.
    pub(crate) async fn master(&self, limit: Duration) -> Result<Route, ConnectFailure> {
        let mut news = self.confirmation.subscribe();
        let is_enough = |known: &Confirmation| {
            known.likely_master(self.horizon()).is_some() || known.is_complete()
        };
        let _ = timeout(limit / 3 * 2, news.wait_for(is_enough)).await;
        let known = self.confirmation.borrow().clone();
        if let Some(place) = known.likely_master(self.horizon()) {
            let client = self.client(&place.address)?;
            let place = Some(place);
            return Ok(Route { client, place });
        }
        let reasons = known.describe(self.horizon(), self.addresses());
        let master = &self.master;
        Err(if known.is_hopeless() {
            ConnectFailure::misconfigured(format!(
                "too few of its Sentinels tell where the master `{master}` is; check its name, and that the URLs are those of Sentinels, each listed once and with its credentials: {reasons}"
            ))
        } else {
            ConnectFailure::down(format!(
                "most of its Sentinels do not agree where the master `{master}` is: {reasons}"
            ))
        })
    }

    pub(crate) fn client(&self, (host, port): &Address) -> Result<Client, ConnectFailure> {
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
            client(info, self.tls, "", &self.certificates).ok()
        });
        let made = made.map(|client| self.rotation.apply(client));
        made.ok_or_else(|| {
            ConnectFailure::down("a Sentinel told an address of the master that cannot be used")
        })
    }

    pub(crate) fn pause(&self) -> Duration {
        let pause = PAUSE.min(self.within / QUESTIONS);
        pause / 2 + jitter(for_pause(), pause)
    }

    /// Accepts the server `run_id`, reached at `place`, as the node's, if most Sentinels name it, be it by another
    /// address.
    pub(crate) async fn accept(
        &self,
        place: &Place,
        run_id: &str,
        limit: Duration,
    ) -> Result<(), ConnectFailure> {
        let accept = |known: &mut Confirmation| known.set_server(run_id, place);
        self.confirmation.send_modify(accept);
        if !self.confirmation.borrow().is_settled() {
            self.other_names(run_id, &place.epoch, limit).await;
        }
        let until = self.until(run_id, &place.epoch);
        match until.filter(|until| self.now() < *until) {
            Some(_) => Ok(()),
            None => Err(ConnectFailure::Down(self.unconfirmed())),
        }
    }

    fn until(&self, run_id: &str, epoch: &str) -> Option<Moment> {
        let confirmed = self.confirmation.borrow().confirmed(run_id, epoch)?;
        Some(confirmed + self.within)
    }

    pub(crate) fn confirmed_until(&self, connection: &Connection) -> Result<Moment, NodeError> {
        let until = self.until(connection.info().run_id(), connection.epoch());
        until.filter(|until| self.now() < *until).ok_or_else(|| {
            let within = self.within;
            unavailable(format!(
                "most of its Sentinels have not confirmed its master within {within:?}"
            ))
        })
    }

    pub(crate) fn unconfirmed(&self) -> NodeError {
        let (known, within) = (self.confirmation.borrow(), self.within);
        let reasons = known.describe(self.horizon(), self.addresses());
        unavailable(format!(
            "most of its Sentinels have not confirmed its master within {within:?}, so that it does not count: {reasons}"
        ))
    }

    /// Looks up the servers at unknown addresses. Returns whether most Sentinels name another server, and that is a
    /// master.
    async fn other_names(&self, run_id: &str, epoch: &str, limit: Duration) -> bool {
        let named = self.confirmation.borrow().named(self.horizon());
        // Servers with their votes.
        let mut servers: Vec<(String, String, usize)> = Vec::new();
        for (place, votes) in named {
            let known = self.confirmation.borrow().knows(&place.address);
            let server = if known {
                Some(run_id.to_owned())
            } else {
                self.server_at(&place.address, limit).await
            };
            let Some(server) = server else { continue };
            if server == run_id && place.epoch == epoch {
                let learn = |known: &mut Confirmation| known.add_address(&place.address);
                self.confirmation.send_modify(learn);
                if self.confirmation.borrow().is_settled() {
                    return false;
                }
                continue;
            }
            let same = |(id, epoch, _): &&mut _| *id == server && *epoch == place.epoch;
            match servers.iter_mut().find(same) {
                Some((_, _, sum)) => *sum += votes,
                None => servers.push((server, place.epoch, votes)),
            }
        }
        let known = self.confirmation.borrow();
        servers.iter().any(|(_, _, votes)| known.is_most(*votes))
    }

    async fn server_at(&self, address: &Address, limit: Duration) -> Option<String> {
        let client = self.client(address).ok()?;
        let info = timeout(limit, info_of(&client)).await.ok()?.ok()?;
        (!info.is_replica()).then(|| info.run_id().to_owned())
    }

    /// Waits until most Sentinels name another server than that of `connection`, or a later failover to the same one.
    pub(crate) async fn left(&self, connection: &Connection, limit: Duration) {
        let mut news = self.confirmation.subscribe();
        loop {
            let settled = news.borrow_and_update().is_settled();
            let (run_id, epoch) = (connection.info().run_id(), connection.epoch());
            if !settled && self.other_names(run_id, epoch, limit).await {
                return;
            }
            sleep(self.pause()).await;
            // The sender lives in `self`, so this cannot fail.
            let _ = news.changed().await;
        }
    }
}

/// A connection for single questions.
async fn connection(client: &Client) -> Result<Multiplexed, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    connection::connect(client, &config).await
}

async fn info_of(client: &Client) -> Result<Info, RedisError> {
    let mut connection = connection(client).await?;
    let text = connection.send_packed_command(&redis::cmd("INFO")).await;
    let text: String = redis::from_redis_value(text.and_then(Value::extract_error)?)?;
    Ok(Info::parse(&text))
}

impl Sentinels {
    /// Asks one Sentinel for ever.
    pub(crate) async fn ask_on(
        &self,
        index: usize,
        limit: Duration,
        clean: impl Fn(&str) -> String + Sync,
    ) {
        let Some((_, sentinel)) = self.sentinels.get(index) else {
            return;
        };
        let mut connection = None;
        loop {
            // The time at which the question was sent counts: the reply is no older than that.
            let asked = self.now();
            let statement = match timeout(limit, ask(sentinel, &mut connection, &self.master)).await
            {
                Ok(Ok(statement)) => Ok(statement),
                Ok(Err(AskError::Unknown)) => Err(Trouble {
                    reason: "does not know it".to_owned(),
                    lasting: true,
                }),
                Ok(Err(AskError::Failed(error))) => Err(Trouble {
                    reason: clean(&match error.kind() {
                        ErrorKind::Server(_) | ErrorKind::Extension => server_text(&error),
                        _ => error.to_string(),
                    }),
                    lasting: is_refusal(&error),
                }),
                Err(_) => Err(Trouble {
                    reason: format!("did not answer within {limit:?}"),
                    lasting: false,
                }),
            };
            if statement.is_err() {
                connection = None;
            }
            let note = |known: &mut Confirmation| known.note(index, asked, statement);
            self.confirmation.send_modify(note);
            sleep(self.pause()).await;
        }
    }
}

pub(crate) enum AskError {
    /// It knows no master of that name.
    Unknown,
    Failed(RedisError),
}

impl From<RedisError> for AskError {
    fn from(error: RedisError) -> Self {
        Self::Failed(error)
    }
}

async fn ask(
    sentinel: &Client,
    kept: &mut Option<Multiplexed>,
    master: &str,
) -> Result<Statement, AskError> {
    let mut questions = redis::pipe();
    questions
        .cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(master);
    // During a failover the address in this reply lags behind; the epoch does not.
    questions.cmd("SENTINEL").arg("MASTER").arg(master);
    questions.cmd("SENTINEL").arg("MYID");
    if let Some(connection) = kept {
        match connection.send_packed_commands(&questions, 0, 3).await {
            Ok(replies) => return read_replies(replies),
            // The Sentinel may be back on a new connection.
            Err(error) if error.kind() == ErrorKind::Io => {}
            Err(error) => return Err(error.into()),
        }
    }
    let connection = kept.insert(connection(sentinel).await?);
    read_replies(connection.send_packed_commands(&questions, 0, 3).await?)
}

pub(crate) fn read_replies(replies: Vec<Value>) -> Result<Statement, AskError> {
    let mut replies = replies.into_iter().map(Value::extract_error);
    let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
    let address: Option<Address> = redis::from_redis_value(next()?).map_err(RedisError::from)?;
    let (host, port) = address.ok_or(AskError::Unknown)?;
    if host.len() > LONGEST_HOST || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
        let garbled = (
            ErrorKind::UnexpectedReturnType,
            "the address that it told is none",
        );
        return Err(RedisError::from(garbled).into());
    }
    let address = (host.to_ascii_lowercase(), port);
    let fields: HashMap<String, String> =
        redis::from_redis_value(next()?).map_err(RedisError::from)?;
    let epoch = fields.get("config-epoch").cloned().unwrap_or_default();
    if !epoch.bytes().all(|byte| byte.is_ascii_digit()) {
        let garbled = (
            ErrorKind::UnexpectedReturnType,
            "its `config-epoch` is no number",
        );
        return Err(RedisError::from(garbled).into());
    }
    // Older Sentinels have none, and the user may lack the right to ask.
    let id = next().ok().and_then(|id| redis::from_redis_value(id).ok());
    let place = Place { address, epoch };
    Ok(Statement { place, id })
}

fn is_refusal(error: &RedisError) -> bool {
    error.kind() != ErrorKind::Io && !is_not_ready(error)
}
