//! Asks each Sentinel again and again where the master is.

use std::collections::HashMap;
use std::sync::Arc;

use redis::{Client, ErrorKind, RedisError, Value};
use tokio::time::{sleep, timeout};

use crate::node::NodeContext;
use crate::node::redis::discovery::confirmation::{
    Address, Confirmation, Place, Statement, Trouble,
};
use crate::node::redis::discovery::sentinel::{Sentinels, connection};
use crate::node::redis::error::{is_not_ready, server_text};
use crate::node::redis::shared::Shared;
use crate::node::redis::transport::Multiplexed;
use crate::task;

const LONGEST_HOST: usize = 253;

pub(crate) fn begin(shared: &Arc<Shared>, context: &NodeContext) {
    if let Some(sentinels) = shared.target.way.sentinels() {
        sentinels.begin(context);
        for index in 0..sentinels.sentinels.len() {
            task::spawn(follow(Arc::clone(shared), index));
        }
    }
}

/// Asks one of them.
async fn follow(shared: Arc<Shared>, index: usize) {
    let Some(sentinels) = shared.target.way.sentinels() else {
        return;
    };
    shared.until_closing(sentinels.ask_on(index, &shared)).await;
}

impl Sentinels {
    /// Asks one Sentinel for ever.
    async fn ask_on(&self, index: usize, shared: &Shared) {
        let Some((_, sentinel)) = self.sentinels.get(index) else {
            return;
        };
        let limit = self.within.min(shared.connect_timeout / 2);
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
                    reason: shared.clean(&match error.kind() {
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
