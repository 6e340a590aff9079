//! The supervisor of one connection. We do not use the client's `ConnectionManager`, because it would send commands to
//! a restarted server before it is checked.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::node::redis::connect::{Former, LOOK, Looks, connect, keep_valid};
use crate::node::redis::connection::Connection;
use crate::node::redis::connections::BACKGROUND;
use crate::node::redis::discovery::witnesses::Witnesses;
use crate::node::redis::error::{ConnectFailure, unavailable};
use crate::node::redis::link::Link;
use crate::node::{NodeContext, NodeState};
use crate::protocol::backoff::{Backoff, jitter};
use crate::seam::for_pause;

/// The pauses between attempts to connect. Their upper limit doubles from 50 ms to 2 s.
pub(super) const NEW_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
/// The average pause before a refused server is checked again.
const SLOW_PAUSE: Duration = Duration::from_secs(1);

const DRAIN_LIMIT: Duration = Duration::from_secs(1);
const HEALTHY: Duration = Duration::from_secs(1);

pub(super) async fn supervise(link: Arc<Link>, index: usize, context: NodeContext) {
    // Even if the runtime drops this task, tasks that wait for its end must notice.
    let _end = OnEnd(&link, index);
    let work = serve(&link, index, &context);
    link.until_closing(work).await;
    drain(&link, index).await;
}

struct OnEnd<'a>(&'a Link, usize);

impl Drop for OnEnd<'_> {
    fn drop(&mut self) {
        self.0.publish(self.1, NodeState::Closed, None);
        // The credentials are not needed any more.
        crate::instruments::credentials_stale(&self.0.name, false);
    }
}

async fn serve(link: &Link, index: usize, context: &NodeContext) {
    let mut backoff = NEW_BACKOFF;
    let mut former = None;
    let looks = Looks::new(link, context);
    loop {
        let mut settled = false;
        let failure = match attempt(link, index, context, &looks, &mut former).await {
            Ok((connection, lost, again)) => {
                let since = context.clock.now();
                let failure = tokio::select! {
                    biased;
                    failure = keep_up(link, index, &connection, lost, &looks) => failure,
                    never = keep_valid(link, connection.multiplexed(), again) => match never {},
                };
                settled = context.clock.now().since(since) >= HEALTHY;
                if settled {
                    backoff = NEW_BACKOFF;
                }
                failure
            }
            Err(failure) => failure,
        };
        if matches!(failure, ConnectFailure::Changed | ConnectFailure::Promoted) {
            link.connections.warn_others(index);
        }
        let (state, pause) = match failure {
            ConnectFailure::Down(reason) => (NodeState::Down(reason), backoff.next(for_pause())),
            ConnectFailure::Refused(reason) => {
                let pause = SLOW_PAUSE / 2 + jitter(for_pause(), SLOW_PAUSE);
                (NodeState::Refused(reason), pause)
            }
            ConnectFailure::Changed | ConnectFailure::Warned | ConnectFailure::Promoted => {
                let reason = match failure {
                    ConnectFailure::Promoted => unavailable(PROMOTED),
                    _ => unavailable("it is no longer the master and is being checked again"),
                };
                // Reconnect immediately, unless this happens repeatedly.
                let pause = match settled {
                    true => Duration::ZERO,
                    false => backoff.next(for_pause()),
                };
                (NodeState::Down(reason), pause)
            }
        };
        link.publish(index, state, None);
        sleep(pause).await;
    }
}

/// Returns a connection, and when to authenticate again.
async fn attempt(
    link: &Link,
    index: usize,
    context: &NodeContext,
    looks: &Looks<'_>,
    former: &mut Option<Former>,
) -> Result<(Connection, watch::Receiver<()>, Option<Instant>), ConnectFailure> {
    // Ask outside the attempt's time limit, because the callback may take longer.
    let again = link.credentials().await?;
    let attempt = connect(link, index, context, looks, former);
    match timeout(link.connect_timeout, attempt).await {
        Ok(Ok((connection, lost))) => {
            link.credentials_work();
            Ok((connection, lost, again))
        }
        Ok(Err(failure)) => Err(failure),
        Err(_) => {
            let limit = link.connect_timeout;
            Err(ConnectFailure::down(format!(
                "no connection within {limit:?}"
            )))
        }
    }
}

const PROMOTED: &str = "it was demoted and promoted again, and may have another server's data now; it is being checked again";

async fn keep_up(
    link: &Link,
    index: usize,
    connection: &Connection,
    lost: watch::Receiver<()>,
    looks: &Looks<'_>,
) -> ConnectFailure {
    if !link.agrees(index, connection) {
        return ConnectFailure::down(
            "its connections were led to different masters; a failover may be under way",
        );
    }
    link.publish(index, NodeState::Up, Some(connection.clone()));
    // Check again, because the leading connection may have come up in between.
    if !link.agrees(index, connection) {
        return ConnectFailure::Warned;
    }
    if link.is_leading(index) {
        link.connections.warn_strangers(connection);
    }
    tokio::select! {
        biased;
        failure = watch_over(link, index, connection, lost, looks) => failure,
        () = replaced(link, index, connection) => ConnectFailure::Changed,
    }
}

async fn drain(link: &Link, index: usize) {
    let connection = link.connections.last_connection(index);
    // From here on new commands are refused. Keep the connection, because `Connections::ended` waits until it is gone.
    link.publish(index, NodeState::Closed, connection.clone());
    if let Some(mut connection) = connection {
        // Replies come in order, so after this reply all earlier commands are answered.
        let _ = timeout(DRAIN_LIMIT, connection.call(&redis::cmd("PING"))).await;
        connection.signals().condemn();
    }
}

async fn watch_over(
    link: &Link,
    index: usize,
    connection: &Connection,
    mut lost: watch::Receiver<()>,
    looks: &Looks<'_>,
) -> ConnectFailure {
    let (signals, mut connection) = (Arc::clone(connection.signals()), connection.clone());
    let mut next = Instant::now() + LOOK;
    loop {
        let due = tokio::select! {
            biased;
            // An error means that the client's task has ended, which also ends the connection.
            _ = lost.changed() => return disconnected(),
            () = signals.recheck.notified() => return ConnectFailure::Changed,
            () = signals.warned.notified() => return ConnectFailure::Warned,
            // Poll the timer before the suspicions, so that these cannot delay the check.
            () = sleep_until(next) => true,
            () = signals.suspect.notified() => false,
        };
        let look = async {
            if due {
                looks.again(&connection).await
            } else {
                looks.is_there(&connection).await.map(|()| None)
            }
        };
        let seen = tokio::select! {
            biased;
            _ = lost.changed() => return disconnected(),
            seen = look => seen,
        };
        match seen {
            Ok(Some(seen)) => {
                link.publish(index, NodeState::Up, Some(seen.clone()));
                connection = seen;
            }
            Ok(None) => {}
            Err(failure) => return failure,
        }
        if due {
            next = Instant::now() + LOOK;
        }
    }
}

fn disconnected() -> ConnectFailure {
    ConnectFailure::down("the connection was lost")
}

/// Waits until most witnesses name another server and that server confirms it. A server that is cut off from its
/// witnesses still serves us, and a single witness proves nothing.
async fn replaced(link: &Link, index: usize, connection: &Connection) {
    let (Some(witnesses), BACKGROUND) = (link.target.way.witnesses(), index) else {
        return std::future::pending().await;
    };
    tokio::select! {
        biased;
        () = show_doubt(link, witnesses, connection) => {}
        () = witnesses.left(connection, link.connect_timeout) => {}
    }
}

async fn show_doubt(link: &Link, witnesses: &Witnesses, connection: &Connection) {
    let mut news = witnesses.confirmation.subscribe();
    let mut doubted = None;
    loop {
        let until = witnesses.confirmed_until(connection).ok();
        if doubted != Some(until.is_none()) {
            doubted = Some(until.is_none());
            // Keep the connection, because locks can still be released on it.
            link.doubt(until.is_none().then(|| witnesses.unconfirmed()));
        }
        let over = async {
            match until {
                Some(until) => sleep(until.since(witnesses.reach.now())).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = news.changed() => {}
            () = over => {}
        }
    }
}
