//! Sending a command to one node until it answers.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::clock::Clock as _;
use crate::manager::nodes::node_set::NodeSet;
use crate::moment::Moment;
use crate::node::{Node, NodeError, NodeErrorKind, NodeFuture};
use crate::protocol::backoff::Backoff;
use crate::random::for_pause;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    Refused,
    Late,
}

pub(crate) async fn retry<T>(
    set: &NodeSet,
    index: usize,
    until: Moment,
    name: &'static str,
    command: impl Fn(&dyn Node) -> NodeFuture<Result<T, NodeError>> + Send,
) -> Result<T, Missed> {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
    // A node that is slow rather than down must get time to answer, or each of its commands would go on until the end.
    let mut patience = set.node_timeout;
    let node = set.nodes.get(index).ok_or(Missed::Refused)?;
    loop {
        let left = until.since(set.clock.now());
        match timeout(left, node.ready()).await {
            Ok(Ok(())) => {}
            // Refused, perhaps for a moment only, as while a password changes.
            Ok(Err(error)) if is_retryable(&error) && !left.is_zero() => {
                sleep(backoff.next(for_pause()).min(left)).await;
                continue;
            }
            Ok(Err(_)) | Err(_) => return Err(Missed::Late),
        }
        patience = patience.saturating_mul(2);
        match timeout(patience, command(&**node)).await {
            Ok(Ok(reply)) => {
                set.tell_run(index, name);
                return Ok(reply);
            }
            Ok(Err(error)) if !is_retryable(&error) => {
                set.refused(index, name, &error);
                return Err(Missed::Refused);
            }
            Ok(Err(_)) | Err(_) => {}
        }
        if set.clock.now() >= until {
            return Err(Missed::Late);
        }
        sleep(backoff.next(for_pause())).await;
    }
}

/// Whether the same command may work later: not if the server refuses it or the node is closed.
pub(crate) fn is_retryable(error: &NodeError) -> bool {
    !matches!(
        error.kind(),
        NodeErrorKind::Rejected
            | NodeErrorKind::WrongType
            | NodeErrorKind::Foreign
            | NodeErrorKind::Closed
    )
}
