//! The supervisor: connects, checks, watches and re-connects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connect::connect;
use super::error::scrub;
use super::hub::Hub;
use super::lanes::{Lanes, closed};
use super::link::Link;
use super::replicas::Replicas;
use super::url::{Target, Way};
use crate::node::{NodeContext, NodeError, NodeErrorKind, NodeState};
use crate::protocol::backoff::{Backoff, jitter};
use crate::token::OwnerToken;

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
    /// What a lock needs besides the server's word.
    pub(super) replicas: Option<Replicas>,
    /// Whether the server may throw keys away when it is full.
    pub(super) accept_eviction: bool,
    /// The connections that carry commands.
    pub(super) lanes: Lanes,
    closing: watch::Sender<bool>,
    started: AtomicBool,
}

/// Why there is no link, or no longer.
pub(super) enum Setback {
    /// It may come back any time.
    Down(NodeError),
    /// Somebody has to mend it.
    Refused(NodeError),
    /// It must be looked at again at once, because of an answer on this connection.
    Changed,
    /// The same, because of an answer on another connection.
    Warned,
}

impl Core {
    pub(super) fn new(
        name: String,
        target: Target,
        connect_timeout: Duration,
        replicas: Option<Replicas>,
        (lanes, accept_eviction): (usize, bool),
    ) -> Self {
        Self {
            name,
            target,
            connect_timeout,
            replicas,
            accept_eviction,
            hub: Arc::default(),
            lanes: Lanes::new(lanes),
            closing: watch::Sender::new(false),
            started: AtomicBool::new(false),
        }
    }

    pub(super) fn state(&self) -> NodeState {
        self.lanes.state()
    }

    /// The link that commands of `token` go out on whose answer counts, or why there is none.
    pub(super) fn link(&self, token: &OwnerToken) -> Result<Link, NodeError> {
        self.link_of(self.lanes.of(token))
    }

    /// The same of one lane.
    pub(super) fn link_of(&self, lane: usize) -> Result<Link, NodeError> {
        let link = self.lanes.link(lane)?;
        self.vouch(&link)?;
        Ok(link)
    }

    /// Waits for all links, or for news that there will be none.
    pub(super) async fn ready(&self) -> Result<(), NodeError> {
        let is_settled =
            |state: &NodeState| !matches!(state, NodeState::Connecting | NodeState::Down(_));
        match self.lanes.wait_for(is_settled).await {
            NodeState::Up => Ok(()),
            NodeState::Refused(reason) => Err(reason),
            _ => Err(closed()),
        }
    }

    /// Waits until the node takes commands.
    pub(super) async fn up(&self) {
        self.lanes.wait_for(|state| *state == NodeState::Up).await;
    }

    /// Waits until the node is to be closed.
    pub(super) async fn closing(&self) {
        let mut closing = self.closing.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = closing.wait_for(|closing| *closing).await;
    }

    /// Whether this is the first call; the supervisors are started once.
    pub(super) fn begin(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    /// Asks the supervisors to end.
    pub(super) fn stop(&self) {
        self.closing.send_replace(true);
        if self.begin() {
            // There are no supervisors, and there will be none.
            for lane in 0..self.lanes.count() {
                self.publish(lane, NodeState::Closed, None);
            }
        }
    }

    /// Waits until the supervisors have ended.
    pub(super) async fn stopped(&self) {
        self.lanes.ended().await;
    }

    /// Whether other lanes must come to the server of this one. One that stayed at another would have that grant what
    /// this one's has granted already.
    ///
    /// Where Sentinels tell, it is the first lane's, which looks again and again what most of them say.
    const fn is_leading(&self, lane: usize) -> bool {
        lane == 0 || matches!(self.target.way, Way::Direct(_))
    }

    /// Whether the link of a lane leads to the server where it must.
    fn agrees(&self, lane: usize, link: &Link) -> bool {
        self.is_leading(lane) || self.lanes.is_at(0, link)
    }

    fn publish(&self, lane: usize, state: NodeState, link: Option<Link>) {
        if let Some(state) = self.lanes.publish(lane, state, link) {
            self.changed(&state);
        }
    }

    /// Says why the node counts for nothing though it is connected, or that it counts.
    pub(super) fn doubt(&self, reason: Option<NodeError>) {
        if let Some(state) = self.lanes.doubt(reason) {
            self.changed(&state);
        }
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
        let secrets = self.target.secrets.iter();
        let text = secrets.fold(text.to_owned(), |text, secret| text.replace(secret, "…"));
        scrub(&text)
    }
}

/// Keeps one lane of the node connected until it is told to stop.
pub(super) async fn supervise(core: Arc<Core>, lane: usize, context: NodeContext) {
    // Also when the runtime drops this task: whoever waits for the end must see it.
    let _end = End(&core, lane);
    tokio::select! {
        biased;
        () = core.closing() => {}
        () = serve(&core, lane, &context) => {}
    }
    drain(&core, lane).await;
}

struct End<'a>(&'a Core, usize);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.publish(self.1, NodeState::Closed, None);
    }
}

async fn serve(core: &Core, lane: usize, context: &NodeContext) {
    let mut backoff = NEW_BACKOFF;
    let mut former = None;
    let limit = PING_LIMIT.max(context.node_timeout) + core.hold_up();
    loop {
        let mut settled = false;
        let setback = match timeout(
            core.connect_timeout,
            connect(core, lane, context, &mut former),
        )
        .await
        {
            Ok(Ok((link, lost))) => {
                let since = context.clock.now();
                let setback = keep_up(core, lane, &link, lost, limit).await;
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
        if matches!(setback, Setback::Changed) {
            core.lanes.warn_others(lane);
        }
        let pause = match setback {
            Setback::Down(reason) => {
                core.publish(lane, NodeState::Down(reason), None);
                backoff.next(random())
            }
            Setback::Refused(reason) => {
                core.publish(lane, NodeState::Refused(reason), None);
                SLOW_PAUSE / 2 + jitter(random(), SLOW_PAUSE)
            }
            Setback::Changed | Setback::Warned => {
                let reason = NodeError::new(
                    NodeErrorKind::Unavailable,
                    "it is no longer the master and is being looked at again",
                );
                core.publish(lane, NodeState::Down(reason), None);
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

/// Lets the link carry commands, until it is of no use any more.
async fn keep_up(
    core: &Core,
    lane: usize,
    link: &Link,
    lost: watch::Receiver<()>,
    limit: Duration,
) -> Setback {
    if !core.agrees(lane, link) {
        return Setback::Down(NodeError::new(
            NodeErrorKind::Unavailable,
            "its connections were led to different masters; a failover may be under way",
        ));
    }
    core.publish(lane, NodeState::Up, Some(link.clone()));
    // Again, for the first lane may have come up in between.
    if !core.agrees(lane, link) {
        return Setback::Warned;
    }
    if core.is_leading(lane) {
        core.lanes.warn_strangers(link);
    }
    tokio::select! {
        biased;
        setback = watch_over(link, lost, limit) => setback,
        () = core.replaced(lane, link) => Setback::Changed,
    }
}

/// Lets what is queued out, then ends the link.
async fn drain(core: &Core, lane: usize) {
    let link = core.lanes.last_link(lane);
    // New commands are refused from here on; the link stays so that `stopped` waits for the rest.
    core.publish(lane, NodeState::Closed, link.clone());
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
            () = signals.warned.notified() => return Setback::Warned,
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
