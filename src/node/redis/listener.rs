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
use super::error::{is_not_ready, server_text};
use super::hub::{Batch, Hub};

/// How often a connection that brings nothing is tried.
const TICK: Duration = Duration::from_secs(3);
/// How long the server may take to confirm what it was asked.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// How long to wait before a server that refused to let us listen is asked again.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

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
        if !hub.is_used() {
            // They have left while the node was down.
            continue;
        }
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
    let (mut connection, lost) =
        open(core, &core.lead().await?, move |push| hear(&hub, push)).await?;
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
            // A script that runs for long, say. It lets us listen, only not now.
            Ok(Err(error)) if !batch.is_empty() && is_not_ready(&error) => return End::Lost,
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
    match names(&batch.join) {
        names if names.is_empty() => Ok(()),
        names => connection.subscribe(&names).await,
    }
}

async fn leave(connection: &mut MultiplexedConnection, batch: &Batch) -> Result<(), RedisError> {
    match names(&batch.leave) {
        // Without names it would end all subscriptions.
        names if names.is_empty() => Ok(()),
        names => connection.unsubscribe(&names).await,
    }
}

fn names(batch: &[Arc<str>]) -> Vec<&str> {
    batch.iter().map(|name| &**name).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::Instant;

    use super::*;
    use crate::lock_key::LockKey;
    use crate::namespace::{Namespace, NodeKey};
    use crate::node::Ears;

    /// Room for the longest command.
    const LONGEST: usize = 1 << 20;
    /// How far away the server is.
    const AWAY: Duration = Duration::from_millis(250);

    fn key(number: usize) -> NodeKey {
        Namespace::default().node_key(&LockKey::new(format!("k{number}")).unwrap())
    }

    /// A server that takes its time for each command, and that answers so many PINGs and then falls silent.
    async fn serve(mut stream: DuplexStream, pings: Arc<AtomicU32>, answered: u32) {
        let mut buffer = vec![0; LONGEST];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            let asked = String::from_utf8_lossy(&buffer[..count]).into_owned();
            let word = if asked.contains("UNSUBSCRIBE") {
                "unsubscribe"
            } else {
                "subscribe"
            };
            let names = asked.lines().filter(|line| line.starts_with("lk!free:"));
            let mut answer: String = names
                .map(|name| format!(">3\r\n+{word}\r\n+{name}\r\n:1\r\n"))
                .collect();
            if asked.contains("HELLO") {
                answer.push_str("%1\r\n+server\r\n+redis\r\n");
            }
            if asked.contains("PING") && pings.fetch_add(1, Ordering::Relaxed) < answered {
                answer.push_str("+PONG\r\n");
            }
            sleep(AWAY).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    /// A connection to such a server, which counts the PINGs.
    async fn connected(answered: u32) -> (MultiplexedConnection, Arc<AtomicU32>) {
        let pings = Arc::new(AtomicU32::new(0));
        let (ours, theirs) = tokio::io::duplex(LONGEST);
        tokio::spawn(serve(theirs, Arc::clone(&pings), answered));
        let info = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let made = MultiplexedConnection::new_with_config(&info, ours, config).await;
        let (connection, driver) = made.unwrap();
        tokio::spawn(driver);
        (connection, pings)
    }

    #[tokio::test(start_paused = true)]
    async fn more_channels_than_are_confirmed_in_one_time_limit_are_joined_on_one_connection() {
        let many = 2_500;
        let (hub, ears) = (Arc::new(Hub::default()), Ears::new(many));
        let _all: Vec<_> = (0..many)
            .map(|n| hub.subscribe(&key(n), ears.ear(n)))
            .collect();
        let (mut connection, _) = connected(u32::MAX).await;
        let (_alive, mut lost) = watch::channel(());
        let mut well = || {};
        let bring = bring(&hub, &mut connection, &mut lost, &mut well);
        let ended = timeout(10 * ANSWER_LIMIT, bring).await.is_ok();
        assert!(!ended, "the connection was given up");
        assert_eq!(ears.heard().open, many);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_falls_silent_is_noticed_by_a_ping() {
        let (hub, ears) = (Arc::new(Hub::default()), Ears::new(1));
        let _listening = hub.subscribe(&key(0), ears.ear(0));
        let (mut connection, pings) = connected(2).await;
        let (_alive, mut lost) = watch::channel(());
        let begin = Instant::now();
        let mut well = || {};
        let bring = bring(&hub, &mut connection, &mut lost, &mut well);
        let end = timeout(60 * TICK, bring).await;
        assert!(matches!(end, Ok(End::Lost)), "it was not noticed");
        assert_eq!(ears.heard().open, 1, "it was fine before");
        assert_eq!(pings.load(Ordering::Relaxed), 3);
        let limit = 3 * (TICK + AWAY) + ANSWER_LIMIT;
        let after = begin.elapsed();
        assert!(after >= limit && after < limit + TICK / 10, "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_nobody_needs_is_not_tried() {
        let (hub, ears) = (Arc::new(Hub::default()), Ears::new(1));
        let listening = hub.subscribe(&key(0), ears.ear(0));
        let (mut connection, pings) = connected(u32::MAX).await;
        let (_alive, mut lost) = watch::channel(());
        let leave = async {
            sleep(TICK / 2).await;
            drop(listening);
            sleep(60 * TICK).await;
        };
        let mut well = || {};
        let ended = tokio::select! {
            biased;
            () = leave => false,
            _ = bring(&hub, &mut connection, &mut lost, &mut well) => true,
        };
        assert!(!ended && !hub.is_used());
        assert_eq!(pings.load(Ordering::Relaxed), 0);
    }
}
