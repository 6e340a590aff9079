//! One attempt to connect: the handshake, and a look at the server.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, PushInfo, PushKind, RedisError, Value};
use tokio::sync::watch;

use super::connection::{Core, Setback};
use super::error::{is_missing_right, is_not_ready, server_text};
use super::info::Info;
use super::link::Link;
use super::look::Looks;
use super::scripts;
use super::sentinel::Lead;
use crate::node::{NodeContext, NodeError, NodeErrorKind};

/// How many commands wait in the client's channel before callers wait outside it.
const QUEUE: usize = 1024;

const NO_RESP3: &str = "it does not speak RESP3 (`HELLO 3`); locks need Redis 6.2 or later, or Valkey, with `HELLO` not renamed and no proxy in front";

/// A connection of the past, by which the server knows it.
pub(super) struct Former {
    run_id: String,
    client_id: i64,
}

/// Connects, and looks whether the server can serve as a node. The receiver hears when the connection ends.
pub(super) async fn connect(
    core: &Core,
    lane: usize,
    context: &NodeContext,
    looks: &Looks<'_>,
    former: &mut Option<Former>,
) -> Result<(Link, watch::Receiver<()>), Setback> {
    if let Some(replicas) = &core.replicas {
        replicas.check(context).map_err(Setback::Refused)?;
    }
    // Before anything can be sent on it: to leave a tombstone too many does no harm.
    let since = context.clock.now();
    // It carries no subscriptions, so nothing is pushed but its own end.
    let lead = core.lead().await?;
    let (mut connection, lost) = open(core, &lead, |_| ()).await?;
    let asked = context.clock.now();
    let (info, client_id) = look(core, &mut connection).await?;
    context
        .roster
        .claim(&core.name, info.run_id())
        .map_err(Setback::Refused)?;
    if let Some(former) = former.as_ref()
        && former.run_id == info.run_id()
    {
        bury(&mut connection, former.client_id).await;
    }
    *former = client_id.map(|client_id| Former {
        run_id: info.run_id().to_owned(),
        client_id,
    });
    let clock = std::sync::Arc::clone(&context.clock);
    let link = Link::new(connection, looks.seen(info, asked), clock, since);
    link.end_with(lost.clone());
    if let Some(place) = lead.place {
        link.note_failover(&place.epoch);
        // The first lane looks for all of them whether it is the master, see `Core::replaced`.
        if let (Some(sentinels), 0) = (core.target.way.sentinels(), lane) {
            let (run_id, limit) = (link.info().run_id(), core.connect_timeout / 8);
            sentinels.accept(&place, run_id, limit).await?;
        }
    }
    if !matches!(link.info().evicted(), "" | "0") {
        // Before anybody asks for a lock.
        looks.evictions(&link).await?;
    }
    Ok((link, lost))
}

/// Opens a connection. The receiver hears when it ends, `hear` all that is pushed before.
pub(super) async fn open(
    core: &Core,
    lead: &Lead,
    hear: impl Fn(&PushInfo) + Send + Sync + 'static,
) -> Result<(MultiplexedConnection, watch::Receiver<()>), Setback> {
    // Should the client end without a word, it drops the sender, which the receiver sees too.
    let (sender, lost) = watch::channel(());
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUE)
        .set_push_sender(move |push: PushInfo| {
            hear(&push);
            if push.kind == PushKind::Disconnection {
                sender.send_replace(());
            }
            Ok::<(), String>(())
        });
    let connection = lead
        .client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .map_err(|error| setback(core, &error, "connect (`HELLO`, `AUTH`, `SELECT`)"))?;
    Ok((connection, lost))
}

/// Loads the scripts, asks the server about itself, and judges the answer.
async fn look(
    core: &Core,
    connection: &mut MultiplexedConnection,
) -> Result<(Info, Option<i64>), Setback> {
    let mut pipeline = redis::pipe();
    if core.replicas.is_some() {
        // It waits for nobody, and shows whether we may.
        pipeline.cmd("WAIT").arg(0).arg(1);
    }
    pipeline.cmd("INFO");
    for script in scripts::ALL {
        pipeline.add_command(script.load());
    }
    // The rest is a courtesy to operators and a precaution; an ACL may forbid it.
    pipeline.cmd("CLIENT").arg("SETNAME").arg("tower-redlock");
    pipeline.cmd("CLIENT").arg("ID");
    let answers = connection
        .send_packed_commands(&pipeline, 0, pipeline.len())
        .await
        .map_err(|error| setback(core, &error, "look at the server"))?;
    let mut answers = answers.into_iter().map(Value::extract_error);
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));

    let may_wait = core.replicas.as_ref().map(|_| next());
    let info = next().map_err(|error| setback(core, &error, "run `INFO`"))?;
    let info: String = redis::from_redis_value(info).unwrap_or_default();
    let info = Info::parse(&info);
    core.judge(&info)?;
    if let Some(Err(error)) = may_wait {
        return Err(setback(core, &error, "run `WAIT`"));
    }
    for _ in scripts::ALL {
        next().map_err(|error| setback(core, &error, "run `SCRIPT LOAD`"))?;
    }
    // Named or not.
    let _ = next();
    let client_id = match next() {
        Ok(Value::Int(id)) => Some(id),
        _ => None,
    };
    Ok((info, client_id))
}

/// Ends our previous connection on the server's side.
///
/// The server may still find commands in the socket of a connection that we gave up, and run an acquire after the
/// release that went out on the new one. Once the connection is killed, nothing of it runs any more. This needs
/// the right to run `CLIENT KILL`; without it such a key lives for its ttl.
async fn bury(connection: &mut MultiplexedConnection, client_id: i64) {
    let mut kill = redis::cmd("CLIENT");
    kill.arg("KILL").arg("ID").arg(client_id);
    let _ = connection.send_packed_command(&kill).await;
}

/// What a failure to `act` means for the node.
pub(super) fn setback(core: &Core, error: &RedisError, act: &str) -> Setback {
    let text = match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => server_text(error),
        _ => error.to_string(),
    };
    let cause = core.clean(&text);
    let misconfigured =
        |detail: String| Setback::Refused(NodeError::new(NodeErrorKind::Misconfigured, detail));
    let unavailable =
        |detail: String| Setback::Down(NodeError::new(NodeErrorKind::Unavailable, detail));
    match error.kind() {
        _ if is_not_ready(error) => unavailable(format!("it is not ready: {cause}")),
        ErrorKind::AuthenticationFailed => misconfigured(wrong_password(&cause)),
        ErrorKind::Server(_) | ErrorKind::Extension => {
            let code = error.code().unwrap_or_default();
            if matches!(code, "WRONGPASS" | "NOAUTH") {
                misconfigured(wrong_password(&cause))
            } else if text.contains("unknown command") && text.contains("HELLO") {
                // The client knows only one of the two ways servers quote the name.
                misconfigured(NO_RESP3.to_owned())
            } else if is_missing_right(&text) {
                misconfigured(format!(
                    "its ACL does not allow to {act}; allow what the docs of `RedisNode` list: {cause}"
                ))
            } else {
                misconfigured(format!("it refused to let us {act}: {cause}"))
            }
        }
        ErrorKind::RESP3NotSupported => misconfigured(NO_RESP3.to_owned()),
        ErrorKind::Io if is_tls(error) => misconfigured(format!(
            "TLS failed: {cause}; check that it speaks TLS at this port, that `root_certificate` is its authority's, and that it accepts our `client_certificate` if it asks for one"
        )),
        ErrorKind::Io => unavailable(format!("cannot connect: {cause}")),
        ErrorKind::Parse => misconfigured(format!(
            "it does not speak the Redis protocol; check the address, and use `rediss://` if it expects TLS: {cause}"
        )),
        _ => misconfigured(format!("cannot {act}: {cause}")),
    }
}

fn wrong_password(cause: &str) -> String {
    format!("it refused the credentials; check user and password in its URL: {cause}")
}

/// Whether the error came out of a TLS handshake that took place.
#[cfg(feature = "tls")]
fn is_tls(error: &RedisError) -> bool {
    use std::error::Error;

    // The client keeps its cause in an `Arc`, and shows that one.
    error
        .source()
        .and_then(|source| source.downcast_ref::<std::sync::Arc<dyn Error + Send + Sync>>())
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .and_then(std::io::Error::get_ref)
        .is_some_and(|inner| inner.is::<rustls::Error>())
}

#[cfg(not(feature = "tls"))]
const fn is_tls(_error: &RedisError) -> bool {
    false
}
