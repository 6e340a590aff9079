//! The connection that brings release notices. It carries nothing else.
//!
//! The client cannot tell a subscription's confirmations from the answers to other commands when it subscribes anew
//! by itself, so the connection for commands carries no subscription, and this one is made anew by us.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, PushInfo, PushKind, RedisError, Value};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connect::open;
use super::connection::{Core, NEW_BACKOFF, Setback, random};
use super::error::server_text;
use super::hub::{Batch, Hub};

/// How often a connection that brings nothing is tried.
const TICK: Duration = Duration::from_secs(3);
/// How long the server may take to confirm what it was asked.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// How long to wait before a server that refused to let us listen is asked again.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// How many channels are joined or left by one command: a long one holds up everybody else on the server.
const CHUNK: usize = 500;

/// Why a connection is of no use any more.
enum End {
    Lost,
    Refused(RedisError),
}

/// Brings the hub's notices until the node is closed.
pub(super) async fn listen(core: Arc<Core>) {
    tokio::select! {
        biased;
        () = core.closing() => {}
        () = serve(&core) => {}
    }
    core.hub.lost();
}

async fn serve(core: &Core) {
    let hub = &core.hub;
    let mut backoff = NEW_BACKOFF;
    loop {
        // Nobody listens: no connection is needed. The node is down: the other connection looks after that.
        hub.work().await;
        core.up().await;
        let end = match timeout(core.connect_timeout, connect(core)).await {
            Ok(Ok((mut connection, mut lost))) => {
                let end = bring(hub, &mut connection, &mut lost, &mut || {
                    backoff = NEW_BACKOFF
                })
                .await;
                hub.lost();
                end
            }
            Ok(Err(_)) | Err(_) => End::Lost,
        };
        let pause = match end {
            End::Lost => backoff.next(random()),
            End::Refused(error) => {
                if hub.report() {
                    let reason = core.clean(&server_text(&error));
                    crate::trace::notices_unavailable(&core.name, &reason);
                }
                REFUSED_PAUSE
            }
        };
        sleep(pause).await;
    }
}

async fn connect(core: &Core) -> Result<(MultiplexedConnection, watch::Receiver<()>), Setback> {
    let hub = Arc::clone(&core.hub);
    let (mut connection, lost) = open(core, move |push| hear(&hub, push)).await?;
    // A courtesy to operators; an ACL may forbid it.
    let mut name = redis::cmd("CLIENT");
    name.arg("SETNAME").arg("tower-redlock-notices");
    let _ = connection.send_packed_command(&name).await;
    Ok((connection, lost))
}

/// Takes in what the server pushes.
fn hear(hub: &Hub, push: &PushInfo) {
    if let (PushKind::Message, [Value::BulkString(channel), Value::BulkString(payload)]) =
        (&push.kind, push.data.as_slice())
    {
        // The payload tells how many listen, if the releasing user may ask for that.
        let listeners = std::str::from_utf8(payload)
            .ok()
            .and_then(|text| text.parse().ok());
        hub.announce(channel, listeners);
    }
}

/// Keeps the server informed of what we want to hear, until the connection ends.
async fn bring(
    hub: &Hub,
    connection: &mut MultiplexedConnection,
    lost: &mut watch::Receiver<()>,
    well: &mut (dyn FnMut() + Send),
) -> End {
    loop {
        let batch = hub.next_batch();
        let asked = async {
            if batch.is_empty() {
                let ping = redis::cmd("PING");
                return connection.send_packed_command(&ping).await.map(drop);
            }
            let mut other = connection.clone();
            // Both are sent at once: who begins to listen does not wait for who ends.
            let (joined, left) = tokio::join!(join(connection, &batch), leave(&mut other, &batch));
            joined.and(left)
        };
        let answer = tokio::select! {
            biased;
            // An error says that the client's task is gone, which is the same.
            _ = lost.changed() => return End::Lost,
            answer = timeout(ANSWER_LIMIT, asked) => answer,
        };
        match answer {
            Ok(Ok(())) => {}
            Ok(Err(error))
                if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) =>
            {
                // Whatever the server has against a PING, it answers.
                if !batch.is_empty() {
                    return End::Refused(error);
                }
            }
            Ok(Err(_)) | Err(_) => return End::Lost,
        }
        hub.done(batch);
        well();
        tokio::select! {
            biased;
            _ = lost.changed() => return End::Lost,
            () = hub.work() => {}
            () = idle(hub) => {}
        }
    }
}

/// Waits until the connection is to be tried, which is never while nobody listens.
async fn idle(hub: &Hub) {
    loop {
        sleep(TICK).await;
        if hub.is_used() {
            return;
        }
    }
}

async fn join(connection: &mut MultiplexedConnection, batch: &Batch) -> Result<(), RedisError> {
    for chunk in batch.join.chunks(CHUNK) {
        let names: Vec<&str> = chunk.iter().map(|name| &**name).collect();
        connection.subscribe(&names).await?;
    }
    Ok(())
}

async fn leave(connection: &mut MultiplexedConnection, batch: &Batch) -> Result<(), RedisError> {
    for chunk in batch.leave.chunks(CHUNK) {
        let names: Vec<&str> = chunk.iter().map(|name| &**name).collect();
        connection.unsubscribe(&names).await?;
    }
    Ok(())
}
