//! The supervisor: connects, checks, watches and re-connects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connect::connect;
use super::error::scrub;
use super::hub::Hub;
use super::link::{Link, no_link};
use super::url::Target;
use crate::node::{NodeContext, NodeError, NodeErrorKind, NodeState};
use crate::protocol::backoff::{Backoff, jitter};

/// The pauses between attempts to connect: the bound doubles from 50 ms to 2 s.
pub(super) const NEW_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
/// The pause, more or less by half, before a server that cannot serve is looked at again: it takes somebody to
/// mend it.
const SLOW_PAUSE: Duration = Duration::from_secs(1);

/// How often an idle connection is tried.
const TICK: Duration = Duration::from_secs(1);
/// How long a server may take to answer a PING before it counts as down, or the node time-out if that is longer.
const PING_LIMIT: Duration = Duration::from_millis(200);
/// A PING that is late because this process was held up is given this much more.
const PING_GRACE: Duration = Duration::from_millis(5);
/// How long `close` waits for commands that are under way.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// A connection that lived for this long ends a series of failures.
const HEALTHY: Duration = Duration::from_secs(1);

/// What the supervisor and the commands share.
pub(super) struct Core {
    pub(super) name: String,
    pub(super) target: Target,
    pub(super) connect_timeout: Duration,
    /// Who listens to releases.
    pub(super) hub: Arc<Hub>,
    status: watch::Sender<Status>,
    closing: watch::Sender<bool>,
    started: AtomicBool,
}

/// The state, and the link while it is up.
#[derive(Clone)]
struct Status {
    state: NodeState,
    link: Option<Link>,
}

/// Why there is no link, or no longer.
pub(super) enum Setback {
    /// It may come back any time.
    Down(NodeError),
    /// Somebody has to mend it.
    Refused(NodeError),
    /// It must be looked at again at once.
    Changed,
}

impl Core {
    pub(super) fn new(name: String, target: Target, connect_timeout: Duration) -> Self {
        Self {
            name,
            target,
            connect_timeout,
            hub: Arc::default(),
            status: watch::Sender::new(Status {
                state: NodeState::Connecting,
                link: None,
            }),
            closing: watch::Sender::new(false),
            started: AtomicBool::new(false),
        }
    }

    pub(super) fn state(&self) -> NodeState {
        self.status.borrow().state.clone()
    }

    /// The link that commands go out on, or why there is none.
    pub(super) fn link(&self) -> Result<Link, NodeError> {
        let status = self.status.borrow();
        Err(match (&status.state, &status.link) {
            (NodeState::Up, Some(link)) => return Ok(link.clone()),
            (NodeState::Down(reason), _) => no_link(reason),
            (NodeState::Refused(reason), _) => reason.clone(),
            (NodeState::Closed, _) => closed(),
            (NodeState::Connecting | NodeState::Up, _) => {
                NodeError::new(NodeErrorKind::Unavailable, "it is not connected yet")
            }
        })
    }

    /// Waits for a link, or for news that there will be none.
    pub(super) async fn ready(&self) -> Result<(), NodeError> {
        let mut status = self.status.subscribe();
        let settled = status
            .wait_for(|status| !matches!(status.state, NodeState::Connecting | NodeState::Down(_)))
            .await;
        match settled.as_deref() {
            Ok(Status {
                state: NodeState::Up,
                ..
            }) => Ok(()),
            Ok(Status {
                state: NodeState::Refused(reason),
                ..
            }) => Err(reason.clone()),
            _ => Err(closed()),
        }
    }

    /// Waits until the node takes commands.
    pub(super) async fn up(&self) {
        let mut status = self.status.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = status
            .wait_for(|status| status.state == NodeState::Up)
            .await;
    }

    /// Waits until the node is to be closed.
    pub(super) async fn closing(&self) {
        let mut closing = self.closing.subscribe();
        // Likewise.
        let _ = closing.wait_for(|closing| *closing).await;
    }

    /// Whether this is the first call; the supervisor is started once.
    pub(super) fn begin(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    /// Asks the supervisor to end.
    pub(super) fn stop(&self) {
        self.closing.send_replace(true);
        if self.begin() {
            // There is no supervisor, and there will be none.
            self.publish(NodeState::Closed, None);
        }
    }

    /// Waits until the supervisor has ended.
    pub(super) async fn stopped(&self) {
        let mut status = self.status.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = status
            .wait_for(|status| matches!(status.state, NodeState::Closed) && status.link.is_none())
            .await;
    }

    fn publish(&self, state: NodeState, link: Option<Link>) {
        let news = self.status.borrow().state != state;
        if news {
            self.changed(&state);
        }
        self.status.send_replace(Status { state, link });
    }

    /// Every change of the state passes here, once.
    fn changed(&self, state: &NodeState) {
        let name = &self.name;
        match state {
            NodeState::Up => crate::trace::node_changed(name, "up", &""),
            NodeState::Down(reason) => crate::trace::node_changed(name, "down", reason),
            NodeState::Refused(reason) => crate::trace::node_changed(name, "refused", reason),
            NodeState::Connecting | NodeState::Closed => {}
        }
    }

    /// A text fit for logs: without tokens, and without the password whoever quotes it.
    pub(super) fn clean(&self, text: &str) -> String {
        match &self.target.secret {
            Some(secret) => scrub(&text.replace(secret.as_str(), "…")),
            None => scrub(text),
        }
    }
}

fn closed() -> NodeError {
    NodeError::new(NodeErrorKind::Closed, "the node was closed")
}

/// Keeps the node connected until it is told to stop.
pub(super) async fn supervise(core: Arc<Core>, context: NodeContext) {
    // Also when the runtime drops this task: whoever waits for the end must see it.
    let _end = End(&core);
    tokio::select! {
        biased;
        () = core.closing() => {}
        () = serve(&core, &context) => {}
    }
    drain(&core).await;
}

struct End<'a>(&'a Core);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.publish(NodeState::Closed, None);
    }
}

async fn serve(core: &Core, context: &NodeContext) {
    let mut backoff = NEW_BACKOFF;
    let mut former = None;
    loop {
        let mut settled = false;
        let setback = match timeout(core.connect_timeout, connect(core, context, &mut former)).await
        {
            Ok(Ok((link, lost))) => {
                let since = context.clock.now();
                core.publish(NodeState::Up, Some(link.clone()));
                let setback = watch_over(&link, lost, PING_LIMIT.max(context.node_timeout)).await;
                settled = context.clock.now().since(since) >= HEALTHY;
                if settled {
                    backoff = NEW_BACKOFF;
                }
                setback
            }
            Ok(Err(setback)) => setback,
            Err(_) => Setback::Down(NodeError::new(
                NodeErrorKind::Unavailable,
                format!("no connection within {:?}", core.connect_timeout),
            )),
        };
        let pause = match setback {
            Setback::Down(reason) => {
                core.publish(NodeState::Down(reason), None);
                backoff.next(random())
            }
            Setback::Refused(reason) => {
                core.publish(NodeState::Refused(reason), None);
                SLOW_PAUSE / 2 + jitter(random(), SLOW_PAUSE)
            }
            Setback::Changed => {
                let reason = NodeError::new(
                    NodeErrorKind::Unavailable,
                    "it no longer takes writes and is being looked at again",
                );
                core.publish(NodeState::Down(reason), None);
                // At once, unless it says so again and again while it looks fit to serve.
                if settled {
                    Duration::ZERO
                } else {
                    backoff.next(random())
                }
            }
        };
        sleep(pause).await;
    }
}

/// Lets what is queued out, then ends the link.
async fn drain(core: &Core) {
    let link = core.status.borrow().link.clone();
    // New commands are refused from here on; the link stays so that `stopped` waits for the rest.
    core.publish(NodeState::Closed, link.clone());
    if let Some(mut link) = link {
        // Answers come in order: once this one is there, so are those of all commands before it.
        let _ = timeout(DRAIN_LIMIT, link.call(&redis::cmd("PING"))).await;
        link.condemn();
    }
}

/// Waits until the link is of no use any more.
async fn watch_over(link: &Link, mut lost: watch::Receiver<()>, limit: Duration) -> Setback {
    let signals = link.signals();
    loop {
        tokio::select! {
            biased;
            // An error says that the client's task is gone, which is the same.
            _ = lost.changed() => return disconnected(),
            () = signals.recheck.notified() => return Setback::Changed,
            () = signals.suspect.notified() => {}
            () = sleep(TICK) => {}
        }
        tokio::select! {
            biased;
            _ = lost.changed() => return disconnected(),
            alive = answers(link, limit) => if !alive {
                link.condemn();
                return Setback::Down(NodeError::new(
                    NodeErrorKind::Unavailable,
                    format!("it did not answer a PING within {limit:?}"),
                ));
            },
        }
    }
}

fn disconnected() -> Setback {
    Setback::Down(NodeError::new(
        NodeErrorKind::Unavailable,
        "the connection was lost",
    ))
}

/// A random number for pauses: processes that lost a server together must not come back together.
pub(super) fn random() -> u64 {
    // Without a random source (which stops the manager elsewhere) the pause is the whole bound.
    getrandom::u64().unwrap_or(u64::MAX)
}

/// Whether the server answers at all; what it answers does not matter.
async fn answers(link: &Link, limit: Duration) -> bool {
    let ping = redis::cmd("PING");
    let mut link = link.clone();
    let mut call = std::pin::pin!(link.call(&ping));
    let answer = match timeout(limit, call.as_mut()).await {
        Ok(answer) => answer,
        // If it was this process that slept, the answer is in the socket and needs only to be read.
        Err(_) => match timeout(PING_GRACE, call).await {
            Ok(answer) => answer,
            Err(_) => return false,
        },
    };
    !answer.is_err_and(|error| error.kind() == redis::ErrorKind::Io)
}
