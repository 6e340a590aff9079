//! [`Lanes`]: the connections for commands of one node, and what they come to together.

use tokio::sync::watch;

use super::link::{Link, no_link};
use crate::node::{NodeError, NodeErrorKind, NodeState};
use crate::token::OwnerToken;

/// The connections of one node that carry commands, one in most cases.
///
/// What belongs to one owner token goes over one of them, so that a release comes after the acquire that it undoes,
/// and `WAIT` after the write that it waits for.
pub(super) struct Lanes {
    status: watch::Sender<Status>,
}

/// What is known of all of them.
struct Status {
    lanes: Box<[Lane]>,
    /// Why the node counts for nothing though it is connected.
    doubt: Option<NodeState>,
}

/// The state of one connection, and its link while it is up.
#[derive(Clone)]
struct Lane {
    state: NodeState,
    link: Option<Link>,
}

impl Lanes {
    /// So many lanes, none of them connected.
    pub(super) fn new(count: usize) -> Self {
        let lane = Lane {
            state: NodeState::Connecting,
            link: None,
        };
        Self {
            status: watch::Sender::new(Status {
                lanes: vec![lane; count].into(),
                doubt: None,
            }),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.status.borrow().lanes.len()
    }

    /// The lane of everything that belongs to `token`.
    pub(super) fn of(&self, token: &OwnerToken) -> usize {
        of(token, self.count())
    }

    /// The link for what belongs to `token`, or why there is none.
    pub(super) fn link_for(&self, token: &OwnerToken) -> Result<Link, NodeError> {
        let lanes = &self.status.borrow().lanes;
        link(lanes.get(of(token, lanes.len())))
    }

    /// The link of one lane, or why there is none.
    pub(super) fn link(&self, lane: usize) -> Result<Link, NodeError> {
        link(self.status.borrow().lanes.get(lane))
    }

    /// What is left of a lane's link while the node is being closed.
    pub(super) fn last_link(&self, lane: usize) -> Option<Link> {
        self.status.borrow().lanes.get(lane)?.link.clone()
    }

    /// The state of the node.
    ///
    /// The lane that is worst off speaks for it: while one is down, some locks cannot be had here, and which they are
    /// is chance.
    pub(super) fn state(&self) -> NodeState {
        together(&self.status.borrow()).clone()
    }

    /// Waits until the node is in a state that `claim` accepts, and returns that.
    pub(super) async fn wait_for(&self, claim: impl Fn(&NodeState) -> bool) -> NodeState {
        let mut status = self.status.subscribe();
        let reached = status.wait_for(|status| claim(together(status))).await;
        // The sender lives in `self`, so this cannot fail.
        reached.map_or(NodeState::Closed, |status| together(&status).clone())
    }

    /// Waits until every lane has been closed and emptied.
    pub(super) async fn ended(&self) {
        let mut status = self.status.subscribe();
        let over = |lane: &Lane| lane.state == NodeState::Closed && lane.link.is_none();
        // Likewise.
        let _ = status
            .wait_for(|status| status.lanes.iter().all(over))
            .await;
    }

    /// Sets the state of a lane. Returns that of the node if it is another now.
    pub(super) fn publish(
        &self,
        lane: usize,
        state: NodeState,
        link: Option<Link>,
    ) -> Option<NodeState> {
        self.modify(|status| {
            if let Some(lane) = status.lanes.get_mut(lane) {
                *lane = Lane { state, link };
            }
        })
    }

    /// Says why the node counts for nothing though it is connected, or that it counts. Returns the state of the node if
    /// it is another now.
    pub(super) fn doubt(&self, reason: Option<NodeError>) -> Option<NodeState> {
        self.modify(|status| status.doubt = reason.map(NodeState::Down))
    }

    fn modify(&self, change: impl FnOnce(&mut Status)) -> Option<NodeState> {
        let mut news = None;
        self.status.send_modify(|status| {
            let before = together(status).clone();
            change(status);
            let after = together(status);
            news = (*after != before).then(|| after.clone());
        });
        news
    }

    /// Whether a lane is at the server of `other`, as far as it is anywhere.
    pub(super) fn is_at(&self, lane: usize, other: &Link) -> bool {
        let lanes = &self.status.borrow().lanes;
        let link = lanes.get(lane).and_then(|lane| lane.link.as_ref());
        link.is_none_or(|link| link.is_beside(other))
    }

    /// Has the lanes that are at another server than `link` look where they belong.
    pub(super) fn warn_strangers(&self, link: &Link) {
        let lanes = &self.status.borrow().lanes;
        let links = lanes.iter().filter_map(|lane| lane.link.as_ref());
        for stranger in links.filter(|other| !other.is_beside(link)) {
            stranger.signals().warned.notify_one();
        }
    }

    /// Has all other lanes look at the server again, because its nature has changed under this one.
    pub(super) fn warn_others(&self, lane: usize) {
        for (index, other) in self.status.borrow().lanes.iter().enumerate() {
            if let (true, Some(link)) = (index != lane, &other.link) {
                link.signals().warned.notify_one();
            }
        }
    }
}

fn of(token: &OwnerToken, lanes: usize) -> usize {
    if lanes < 2 {
        return 0;
    }
    // FNV-1a: the same token must give the same lane, nothing else.
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = token.expose().iter().fold(0xcbf2_9ce4_8422_2325, mix);
    // Its upper bits are the better half.
    usize::try_from(hash >> 40).unwrap_or_default() % lanes
}

fn link(lane: Option<&Lane>) -> Result<Link, NodeError> {
    let Some(lane) = lane else {
        return Err(closed());
    };
    Err(match (&lane.state, &lane.link) {
        (NodeState::Up, Some(link)) => return Ok(link.clone()),
        (NodeState::Down(reason), _) => no_link(reason),
        (NodeState::Refused(reason), _) => reason.clone(),
        (NodeState::Closed, _) => closed(),
        (NodeState::Connecting | NodeState::Up, _) => {
            NodeError::new(NodeErrorKind::Unavailable, "it is not connected yet")
        }
    })
}

fn together(status: &Status) -> &NodeState {
    let rank = |state: &&NodeState| match state {
        NodeState::Closed => 0,
        NodeState::Refused(_) => 1,
        NodeState::Down(_) => 2,
        NodeState::Connecting => 3,
        NodeState::Up => 4,
    };
    let states = status.lanes.iter().map(|lane| &lane.state);
    let worst = states.min_by_key(rank).unwrap_or(&NodeState::Closed);
    match &status.doubt {
        Some(doubt) if *worst == NodeState::Up => doubt,
        _ => worst,
    }
}

/// The error of whatever is asked of a closed node.
pub(super) fn closed() -> NodeError {
    NodeError::new(NodeErrorKind::Closed, "the node was closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down(why: &'static str) -> NodeState {
        NodeState::Down(NodeError::new(NodeErrorKind::Unavailable, why))
    }

    #[test]
    fn the_lane_that_is_worst_off_speaks_for_the_node() {
        let lanes = Lanes::new(3);
        assert_eq!(lanes.state(), NodeState::Connecting);
        assert_eq!(lanes.publish(0, NodeState::Up, None), None);
        assert_eq!(lanes.publish(1, NodeState::Up, None), None);
        assert_eq!(
            lanes.publish(2, NodeState::Up, None),
            Some(NodeState::Up),
            "all are"
        );
        assert_eq!(lanes.publish(1, down("x"), None), Some(down("x")));
        assert_eq!(
            lanes.publish(2, down("y"), None),
            None,
            "one reason is enough"
        );
        let refused = NodeState::Refused(NodeError::new(NodeErrorKind::Misconfigured, "z"));
        assert_eq!(
            lanes.publish(0, refused.clone(), None),
            Some(refused.clone())
        );
        assert_eq!(lanes.link(1).unwrap_err().to_string(), "it is down: x");
        assert_eq!(lanes.link(0).unwrap_err().to_string(), "z");
    }

    #[test]
    fn a_node_in_doubt_is_down_though_it_is_connected() {
        let lanes = Lanes::new(1);
        let reason = || NodeError::new(NodeErrorKind::Unavailable, "x");
        assert_eq!(lanes.doubt(Some(reason())), None, "not yet connected");
        assert_eq!(lanes.publish(0, NodeState::Up, None), Some(down("x")));
        assert_eq!(lanes.publish(0, down("y"), None), Some(down("y")));
        assert_eq!(lanes.doubt(None), None);
        assert_eq!(lanes.publish(0, NodeState::Up, None), Some(NodeState::Up));
        assert_eq!(lanes.doubt(Some(reason())), Some(down("x")));
        assert_eq!(lanes.doubt(None), Some(NodeState::Up));
    }

    #[test]
    fn tokens_are_spread_over_all_lanes_and_stay_on_theirs() {
        let lanes = Lanes::new(4);
        let token = |number: u8| OwnerToken::from_entropy([number; OwnerToken::ENTROPY_LEN]);
        let mut counts = [0; 4];
        for number in 0..=255 {
            let lane = lanes.of(&token(number));
            assert_eq!(lane, lanes.of(&token(number)));
            counts[lane] += 1;
        }
        assert!(counts.iter().all(|count| *count > 32), "{counts:?}");
        assert_eq!(Lanes::new(1).of(&token(7)), 0);
    }
}
