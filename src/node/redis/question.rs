//! Asking one Sentinel, again and again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, Value};
use tokio::time::{sleep, timeout};

use super::confirmation::{Address, Place, Told, Trouble};
use super::connection::{Core, random};
use super::error::{is_not_ready, server_text};
use super::sentinel::Sentinels;
use crate::node::NodeContext;
use crate::protocol::backoff::jitter;

/// How long to wait before a Sentinel is asked again, more or less by half.
const LOOK: Duration = Duration::from_millis(500);
/// How often each is asked, at least, while its word counts.
const LOOKS: u32 = 6;

/// Asks all Sentinels of a node, if it has any, until it is closed.
pub(super) fn begin(core: &Arc<Core>, context: &NodeContext) {
    if let Some(sentinels) = core.target.way.sentinels() {
        sentinels.begin(context);
        for index in 0..sentinels.sentinels.len() {
            tokio::spawn(follow(Arc::clone(core), index));
        }
    }
}

/// Asks one of them.
async fn follow(core: Arc<Core>, index: usize) {
    let Some(sentinels) = core.target.way.sentinels() else {
        return;
    };
    tokio::select! {
        biased;
        () = core.closing() => {}
        () = sentinels.ask_on(index, &core) => {}
    }
}

impl Sentinels {
    /// How long to wait between two questions, more or less by half.
    pub(super) fn pause(&self) -> Duration {
        let pause = LOOK.min(self.within / LOOKS);
        pause / 2 + jitter(random(), pause)
    }

    /// Asks one Sentinel for ever.
    async fn ask_on(&self, index: usize, core: &Core) {
        let Some((_, sentinel)) = self.sentinels.get(index) else {
            return;
        };
        let limit = self.within.min(core.connect_timeout / 2);
        let mut connection = None;
        loop {
            // What counts is when the question went out: the answer is no older than that.
            let asked = self.now();
            let answer = match timeout(limit, ask(sentinel, &mut connection, &self.master)).await {
                Ok(Ok(told)) => Ok(told),
                Ok(Err(Mute::Unknown)) => Err(Trouble {
                    reason: "does not know it".to_owned(),
                    lasting: true,
                }),
                Ok(Err(Mute::Failed(error))) => Err(Trouble {
                    reason: core.clean(&match error.kind() {
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
            if answer.is_err() {
                connection = None;
            }
            self.board
                .send_modify(|board| board.note(index, asked, answer));
            sleep(self.pause()).await;
        }
    }
}

/// A connection for questions of ours.
pub(super) async fn connection(client: &Client) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Why a Sentinel does not tell.
enum Mute {
    /// It knows no master of that name.
    Unknown,
    Failed(RedisError),
}

impl From<RedisError> for Mute {
    fn from(error: RedisError) -> Self {
        Self::Failed(error)
    }
}

/// Asks one Sentinel where the master is, on a connection that is made where there is none or the last one broke.
async fn ask(
    sentinel: &Client,
    kept: &mut Option<MultiplexedConnection>,
    master: &str,
) -> Result<Told, Mute> {
    let mut questions = redis::pipe();
    questions
        .cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(master);
    // The address in this one lags behind while a failover is under way; the epoch does not.
    questions.cmd("SENTINEL").arg("MASTER").arg(master);
    questions.cmd("SENTINEL").arg("MYID");
    if let Some(connection) = kept {
        match connection.send_packed_commands(&questions, 0, 3).await {
            Ok(answers) => return read_answers(answers),
            // It may be there again.
            Err(error) if error.kind() == ErrorKind::Io => {}
            Err(error) => return Err(error.into()),
        }
    }
    let connection = kept.insert(connection(sentinel).await?);
    read_answers(connection.send_packed_commands(&questions, 0, 3).await?)
}

fn read_answers(answers: Vec<Value>) -> Result<Told, Mute> {
    let mut answers = answers.into_iter().map(Value::extract_error);
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
    let address: Option<Address> = redis::from_redis_value(next()?).map_err(RedisError::from)?;
    let (host, port) = address.ok_or(Mute::Unknown)?;
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
    // Older ones have none, and a user may not be allowed to ask.
    let id = next().ok().and_then(|id| redis::from_redis_value(id).ok());
    let place = Place { address, epoch };
    Ok(Told { place, id })
}

/// Whether a Sentinel, or what was taken for one, answers but will not tell until somebody mends something.
fn is_refusal(error: &RedisError) -> bool {
    error.kind() != ErrorKind::Io && !is_not_ready(error)
}
