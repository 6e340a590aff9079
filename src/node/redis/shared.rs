//! What the supervisor, the commands and the listener of one node share.

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

impl Core {
    /// Whether another server's data can take the place of this one's without its connections being lost, at any time,
    /// so that the scripts have to look themselves whose it is.
    pub(super) const fn reads_identity_itself(&self) -> bool {
        self.allowed.replicas
    }

    /// How long the server may hold up a connection by our own wish.
    pub(super) fn hold_up(&self) -> Duration {
        self.replicas
            .as_ref()
            .map_or(Duration::ZERO, Replicas::limit)
    }
}
