//! Asks witnesses, and connects to the servers that they name.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, Pipeline,
    RedisConnectionInfo, RedisError, Value,
};
use tokio::time::timeout;

use crate::clock::Clock;
use crate::moment::Moment;
use crate::node::redis::access::{Certificates, Rotation, client};
use crate::node::redis::connection::{self, Multiplexed};
use crate::node::redis::discovery::confirmation::{Address, Trouble};
use crate::node::redis::error::{ConnectFailure, is_not_ready, server_text};
use crate::node::redis::info::Info;
use crate::protocol::backoff::jitter;
use crate::seam::for_pause;

const PAUSE: Duration = Duration::from_millis(500);
const QUESTIONS: u32 = 6;
const LONGEST_HOST: usize = 253;

/// How to connect to servers that witnesses name, and for how long statements count.
pub(crate) struct Reach {
    pub(crate) settings: RedisConnectionInfo,
    pub(crate) rotation: Arc<Rotation>,
    pub(crate) tls: bool,
    pub(crate) certificates: Certificates,
    pub(crate) within: Duration,
    // Known once the node has started.
    pub(crate) clock: OnceLock<Arc<dyn Clock>>,
}

impl Reach {
    pub(crate) fn now(&self) -> Moment {
        self.clock.get().map_or(Moment::ORIGIN, |clock| clock.now())
    }

    pub(crate) fn horizon(&self) -> Moment {
        self.now().saturating_sub(self.within)
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
            ConnectFailure::down("the reported address of its server cannot be used")
        })
    }

    pub(crate) fn limit(&self, connect_timeout: Duration) -> Duration {
        self.within.min(connect_timeout / 2)
    }

    pub(crate) fn pause(&self) -> Duration {
        let pause = PAUSE.min(self.within / QUESTIONS);
        pause / 2 + jitter(for_pause(), pause)
    }
}

async fn connection(client: &Client) -> Result<Multiplexed, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    connection::connect(client, &config).await
}

pub(crate) async fn info_of(client: &Client) -> Result<Info, RedisError> {
    let mut connection = connection(client).await?;
    let text = connection.send_packed_command(&redis::cmd("INFO")).await;
    let text: String = redis::from_redis_value(text.and_then(Value::extract_error)?)?;
    Ok(Info::parse(&text))
}

pub(crate) enum AskError {
    /// The witness does not know the master.
    Unknown(&'static str),
    Failed(RedisError),
}

impl From<RedisError> for AskError {
    fn from(error: RedisError) -> Self {
        Self::Failed(error)
    }
}

pub(crate) fn garbled(reason: &'static str) -> AskError {
    RedisError::from((ErrorKind::UnexpectedReturnType, reason)).into()
}

async fn ask<T>(
    witness: &Client,
    kept: &mut Option<Multiplexed>,
    questions: &Pipeline,
    read: impl Fn(Vec<Value>) -> Result<T, AskError>,
) -> Result<T, AskError> {
    let count = questions.len();
    if let Some(connection) = kept {
        match connection.send_packed_commands(questions, 0, count).await {
            Ok(replies) => return read(replies),
            // Try again, because the witness may accept a new connection.
            Err(error) if error.kind() == ErrorKind::Io => {}
            Err(error) => return Err(error.into()),
        }
    }
    let connection = kept.insert(connection(witness).await?);
    read(connection.send_packed_commands(questions, 0, count).await?)
}

/// Asks a witness over the kept connection, or over a new one if that is broken.
pub(crate) async fn ask_within<T>(
    limit: Duration,
    witness: &Client,
    kept: &mut Option<Multiplexed>,
    questions: &Pipeline,
    read: impl Fn(Vec<Value>) -> Result<T, AskError>,
    clean: impl Fn(&str) -> String,
) -> Result<T, Trouble> {
    let (reason, lasting) = match timeout(limit, ask(witness, kept, questions, read)).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(AskError::Unknown(reason))) => (reason.to_owned(), true),
        Ok(Err(AskError::Failed(error))) => {
            let text = match error.kind() {
                ErrorKind::Server(_) | ErrorKind::Extension => server_text(&error),
                _ => error.to_string(),
            };
            (clean(&text), is_refusal(&error))
        }
        Err(_) => (format!("did not answer within {limit:?}"), false),
    };
    *kept = None;
    Err(Trouble { reason, lasting })
}

fn is_refusal(error: &RedisError) -> bool {
    error.kind() != ErrorKind::Io && !is_not_ready(error)
}

/// A host as servers report it, in lower case.
pub(crate) fn host_in(text: &str) -> Result<String, AskError> {
    if text.len() > LONGEST_HOST || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(garbled("it reported an invalid address"));
    }
    Ok(text.to_ascii_lowercase())
}
