//! The supervisor: connects, checks, watches and re-connects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::connect::connect;
use super::error::scrub;
use super::hub::Hub;
use super::info::Allowed;
use super::lanes::{Lanes, closed};
use super::link::Link;
use super::look::{LOOK, Looks};
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
    /// What the server may be like.
    pub(super) allowed: Allowed,
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
    /// It was demoted, has another's data, and was promoted again.
    Promoted,
}

impl Core {
    pub(super) fn new(
        name: String,
        target: Target,
        connect_timeout: Duration,
        replicas: Option<Replicas>,
        (lanes, allowed): (usize, Allowed),
    ) -> Self {
        Self {
            name,
            target,
            connect_timeout,
            replicas,
            allowed,
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
    let looks = Looks::new(core, context);
    loop {
        let mut settled = false;
        let attempt = connect(core, lane, context, &looks, &mut former);
        let setback = match timeout(core.connect_timeout, attempt).await {
            Ok(Ok((link, lost))) => {
                let since = context.clock.now();
                let setback = keep_up(core, lane, &link, lost, &looks).await;
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
        if matches!(setback, Setback::Changed | Setback::Promoted) {
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
            Setback::Changed | Setback::Warned | Setback::Promoted => {
                let reason = match setback {
                    Setback::Promoted => PROMOTED,
                    _ => "it is no longer the master and is being looked at again",
                };
                let reason = NodeError::new(NodeErrorKind::Unavailable, reason);
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

const PROMOTED: &str = "it was demoted and promoted again, and may have another server's data now; it is being looked at again";

/// Lets the link carry commands, until it is of no use any more.
async fn keep_up(
    core: &Core,
    lane: usize,
    link: &Link,
    lost: watch::Receiver<()>,
    looks: &Looks<'_>,
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
        setback = watch_over(core, lane, link, lost, looks) => setback,
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

/// Waits until the link is of no use any more, and sees to it that commands go out with what is known of the server.
async fn watch_over(
    core: &Core,
    lane: usize,
    link: &Link,
    mut lost: watch::Receiver<()>,
    looks: &Looks<'_>,
) -> Setback {
    let (signals, mut link) = (link.share(), link.clone());
    let mut next = Instant::now() + LOOK;
    loop {
        let due = tokio::select! {
            biased;
            // An error says that the client's task is gone, which is the same.
            _ = lost.changed() => return disconnected(),
            () = signals.recheck.notified() => return Setback::Changed,
            () = signals.warned.notified() => return Setback::Warned,
            // Before the next: as many suspicions as there may be must not put it off.
            () = sleep_until(next) => true,
            () = signals.suspect.notified() => false,
        };
        let look = async {
            if due {
                looks.again(&link).await
            } else {
                looks.is_there(&link).await.map(|()| None)
            }
        };
        let seen = tokio::select! {
            biased;
            _ = lost.changed() => return disconnected(),
            seen = look => seen,
        };
        match seen {
            Ok(Some(seen)) => {
                core.publish(lane, NodeState::Up, Some(seen.clone()));
                link = seen;
            }
            Ok(None) => {}
            Err(setback) => return setback,
        }
        if due {
            next = Instant::now() + LOOK;
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
