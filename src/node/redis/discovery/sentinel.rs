//! The questions to Sentinels, and their replies. We do not use the client's `SentinelClient`, because it believes a
//! single Sentinel and does not report the age of its answer.

use std::collections::HashMap;

use redis::{Client, Pipeline, RedisError, Value};

use crate::node::redis::discovery::asking::{AskError, garbled, host_in};
use crate::node::redis::discovery::confirmation::{Address, Place, Statement};

pub(crate) struct Sentinels {
    pub(crate) master: String,
    pub(crate) listed: Vec<(String, Client)>,
}

impl Sentinels {
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.listed.iter().map(|(address, _)| &**address)
    }

    pub(crate) fn questions(&self) -> Pipeline {
        let mut questions = redis::pipe();
        questions
            .cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.master);
        // During a failover, the address in this reply may be old, but the epoch is current.
        questions.cmd("SENTINEL").arg("MASTER").arg(&self.master);
        questions.cmd("SENTINEL").arg("MYID");
        questions
    }
}

pub(crate) fn read_replies(replies: Vec<Value>) -> Result<Statement, AskError> {
    let mut replies = replies.into_iter().map(Value::extract_error);
    let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
    let address: Option<Address> = redis::from_redis_value(next()?).map_err(RedisError::from)?;
    let (host, port) = address.ok_or(AskError::Unknown("does not know it"))?;
    let address = (host_in(&host)?, port);
    let fields: HashMap<String, String> =
        redis::from_redis_value(next()?).map_err(RedisError::from)?;
    let epoch = fields.get("config-epoch").cloned().unwrap_or_default();
    if !epoch.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(garbled("its `config-epoch` is no number"));
    }
    // Older Sentinels have no id, and the user may lack the right to ask.
    let id = next().ok().and_then(|id| redis::from_redis_value(id).ok());
    let place = Place { address, epoch };
    Ok(Statement { place, id })
}
