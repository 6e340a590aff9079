//! The connection for release notices. It renews subscriptions itself, because the client's own re-subscription
//! mistakes the confirmations for replies to other commands.

use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, PushInfo, PushKind, RedisError, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::node::NodeState;
use crate::node::redis::connect::{keep_valid, open};
use crate::node::redis::connection::Multiplexed;
use crate::node::redis::error::{ConnectFailure, is_elsewhere, is_not_ready, server_text};
use crate::node::redis::link::Link;
use crate::node::redis::subscriptions::{Batch, Subscriptions};
use crate::node::redis::supervisor::NEW_BACKOFF;
use crate::seam::for_pause;

/// How often an idle connection is tested.
const TICK: Duration = Duration::from_secs(3);
const REPLY_LIMIT: Duration = Duration::from_secs(1);
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

enum Stopped {
    Lost,
    Refused(RedisError),
}

pub(super) async fn listen(link: Arc<Link>) {
    link.until_closing(serve(&link)).await;
    link.subscriptions.lost();
}

async fn serve(link: &Link) {
    let subscriptions = &link.subscriptions;
    let mut backoff = NEW_BACKOFF;
    loop {
        // Connect only for listeners, and only after the supervisors have reconnected the node.
        subscriptions.work().await;
        let is_up = |state: &NodeState| *state == NodeState::Up;
        link.connections.wait_for(is_up).await;
        if !subscriptions.is_used() {
            continue;
        }
        let end = match attempt(link).await {
            Some((mut connection, mut lost, again)) => {
                let mut well = || backoff = NEW_BACKOFF;
                let authenticated = connection.clone();
                let end = tokio::select! {
                    biased;
                    end = bring(subscriptions, &mut connection, &mut lost, &mut well) => end,
                    never = keep_valid(link, &authenticated, again) => match never {},
                };
                subscriptions.lost();
                end
            }
            None => Stopped::Lost,
        };
        let pause = match end {
            Stopped::Lost => backoff.next(for_pause()),
            Stopped::Refused(error) => {
                if subscriptions.report() {
                    let reason = link.clean(&server_text(&error));
                    crate::trace::notices_unavailable(&link.name, &reason);
                }
                REFUSED_PAUSE
            }
        };
        sleep(pause).await;
    }
}

/// Returns a connection, and when to authenticate again.
async fn attempt(link: &Link) -> Option<(Multiplexed, watch::Receiver<()>, Option<Instant>)> {
    let again = link.credentials().await.ok()?;
    let made = timeout(link.connect_timeout, connect(link)).await;
    let (connection, lost) = made.ok()?.ok()?;
    Some((connection, lost, again))
}

async fn connect(link: &Link) -> Result<(Multiplexed, watch::Receiver<()>), ConnectFailure> {
    let subscriptions = Arc::clone(&link.subscriptions);
    let route = link.route().await?;
    let hear = move |push: &PushInfo| hear(&subscriptions, push);
    let (mut connection, lost) = open(link, &route, hear).await?;
    // For operators. An ACL may forbid it.
    let mut name = redis::cmd("CLIENT");
    name.arg("SETNAME").arg("tower-redlock-notices");
    let _ = connection.send_packed_command(&name).await;
    Ok((connection, lost))
}

/// Returns whether the connection must end, because the server has ended a subscription whose slot has moved.
fn hear(subscriptions: &Subscriptions, push: &PushInfo) -> bool {
    match (&push.kind, &*push.data) {
        (PushKind::Message | PushKind::SMessage, [Value::BulkString(channel), notice]) => {
            subscriptions.announce(channel, waited(notice));
            false
        }
        (PushKind::SUnsubscribe, [Value::BulkString(channel), _]) => {
            !subscriptions.is_leaving(channel)
        }
        _ => false,
    }
}

/// How long the holder had waited, or zero if the text is not a number, because anyone can publish anything.
fn waited(notice: &Value) -> Duration {
    let text = match notice {
        Value::BulkString(text) => str::from_utf8(text).ok(),
        _ => None,
    };
    let millis: Option<u32> = text.and_then(|text| text.parse().ok());
    Duration::from_millis(millis.unwrap_or(0).into())
}

async fn bring(
    subscriptions: &Subscriptions,
    connection: &mut Multiplexed,
    lost: &mut watch::Receiver<()>,
    well: &mut (dyn FnMut() + Send),
) -> Stopped {
    loop {
        let batch = subscriptions.next_batch();
        let asked = async {
            if batch.is_empty() {
                let ping = redis::cmd("PING");
                return connection.send_packed_command(&ping).await.map(drop);
            }
            let mut other = connection.clone();
            // Send both at the same time, so that joining a channel does not wait until others are left.
            let (joined, left) = tokio::join!(join(connection, &batch), leave(&mut other, &batch));
            joined.and(left)
        };
        let reply = tokio::select! {
            biased;
            // An error means that the client's task has ended, which also ends the connection.
            _ = lost.changed() => return Stopped::Lost,
            reply = timeout(REPLY_LIMIT, asked) => reply,
        };
        match reply {
            Ok(Ok(())) => {}
            // Try again, because the server may run a long script or the slot may have moved.
            Ok(Err(error))
                if !batch.is_empty()
                    && (is_not_ready(&error) || is_elsewhere(&server_text(&error))) =>
            {
                return Stopped::Lost;
            }
            Ok(Err(error))
                if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) =>
            {
                // A refused PING is a reply, too.
                if !batch.is_empty() {
                    return Stopped::Refused(error);
                }
            }
            Ok(Err(_)) | Err(_) => return Stopped::Lost,
        }
        subscriptions.done(batch);
        well();
        tokio::select! {
            biased;
            _ = lost.changed() => return Stopped::Lost,
            () = subscriptions.work() => {}
            () = idle(subscriptions) => {}
        }
    }
}

/// Waits until the connection must be tested, which is never without listeners.
async fn idle(subscriptions: &Subscriptions) {
    loop {
        sleep(TICK).await;
        if subscriptions.is_used() {
            return;
        }
    }
}

async fn join(connection: &mut Multiplexed, batch: &Batch) -> Result<(), RedisError> {
    match names(&batch.join) {
        names if names.is_empty() => Ok(()),
        names if are_sharded(&names) => each(connection, "SSUBSCRIBE", &names).await,
        names => connection.subscribe(&names).await,
    }
}

async fn leave(connection: &mut Multiplexed, batch: &Batch) -> Result<(), RedisError> {
    match names(&batch.leave) {
        // Without names, the command would end all subscriptions.
        names if names.is_empty() => Ok(()),
        names if are_sharded(&names) => each(connection, "SUNSUBSCRIBE", &names).await,
        names => connection.unsubscribe(&names).await,
    }
}

fn are_sharded(names: &[&str]) -> bool {
    names.iter().any(|name| name.starts_with('{'))
}

/// Sends one command per channel, because the client expects one reply per command.
async fn each(
    connection: &mut Multiplexed,
    command: &str,
    names: &[&str],
) -> Result<(), RedisError> {
    let mut pipeline = redis::pipe();
    for name in names {
        pipeline.cmd(command).arg(*name);
    }
    let replies = connection
        .send_packed_commands(&pipeline, 0, names.len())
        .await?;
    replies
        .into_iter()
        .try_for_each(|reply| reply.extract_error().map(drop))
}

fn names(batch: &[Arc<str>]) -> Vec<&str> {
    batch.iter().map(|name| &**name).collect()
}

#[cfg(test)]
#[test]
fn a_notice_may_say_anything() {
    let told = |text: &[u8]| waited(&Value::BulkString(text.to_vec()));
    assert_eq!(told(b"1500"), Duration::from_millis(1_500));
    for text in [&b""[..], b"-1", b"1e3", b"99999999999", b"\xff", b"0"] {
        assert_eq!(told(text), Duration::ZERO, "{text:?}");
    }
    assert_eq!(waited(&Value::Nil), Duration::ZERO);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::lock_key::LockKey;
    use crate::namespace::{Namespace, NodeKey};
    use crate::node::NoticeReceiver;
    use crate::node::redis::connection::over;

    const LONGEST: usize = 1 << 20;
    const AWAY: Duration = Duration::from_millis(250);

    fn key(number: usize) -> NodeKey {
        Namespace::default().node_key(&LockKey::new(format!("k{number}")).unwrap())
    }

    /// A slow server that answers this many PINGs and then is silent.
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

    async fn connected(answered: u32) -> (Multiplexed, Arc<AtomicU32>) {
        let pings = Arc::new(AtomicU32::new(0));
        let (ours, theirs) = tokio::io::duplex(LONGEST);
        tokio::spawn(serve(theirs, Arc::clone(&pings), answered));
        let info = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        (over(ours, info, config).await, pings)
    }

    #[tokio::test(start_paused = true)]
    async fn more_channels_than_are_confirmed_in_one_time_limit_are_joined_on_one_connection() {
        let many = 2_500;
        let (subscriptions, receiver) = (
            Arc::new(Subscriptions::default()),
            NoticeReceiver::new(many),
        );
        let _all: Vec<_> = (0..many)
            .map(|n| subscriptions.subscribe(&key(n), receiver.sender(n)))
            .collect();
        let (mut connection, _) = connected(u32::MAX).await;
        let (_alive, mut lost) = watch::channel(());
        let mut well = || {};
        let bring = bring(&subscriptions, &mut connection, &mut lost, &mut well);
        let ended = timeout(10 * REPLY_LIMIT, bring).await.is_ok();
        assert!(!ended, "the connection was given up");
        assert_eq!(receiver.notices().open, many);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_falls_silent_is_noticed_by_a_ping() {
        let (subscriptions, receiver) =
            (Arc::new(Subscriptions::default()), NoticeReceiver::new(1));
        let _listening = subscriptions.subscribe(&key(0), receiver.sender(0));
        let (mut connection, pings) = connected(2).await;
        let (_alive, mut lost) = watch::channel(());
        let begin = Instant::now();
        let mut well = || {};
        let bring = bring(&subscriptions, &mut connection, &mut lost, &mut well);
        let end = timeout(60 * TICK, bring).await;
        assert!(matches!(end, Ok(Stopped::Lost)), "it was not noticed");
        assert_eq!(receiver.notices().open, 1, "it was fine before");
        assert_eq!(pings.load(Ordering::Relaxed), 3);
        let limit = 3 * (TICK + AWAY) + REPLY_LIMIT;
        let after = begin.elapsed();
        assert!(after >= limit && after < limit + TICK / 10, "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_nobody_needs_is_not_tried() {
        let (subscriptions, receiver) =
            (Arc::new(Subscriptions::default()), NoticeReceiver::new(1));
        let listening = subscriptions.subscribe(&key(0), receiver.sender(0));
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
            _ = bring(&subscriptions, &mut connection, &mut lost, &mut well) => true,
        };
        assert!(!ended && !subscriptions.is_used());
        assert_eq!(pings.load(Ordering::Relaxed), 0);
    }
}
