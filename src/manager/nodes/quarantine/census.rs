//! What the other nodes know while one is quarantined.

use std::time::Duration;

use tokio::time::sleep;

use crate::manager::nodes::node_set::NodeSet;
use crate::manager::nodes::quarantine::check_in::check_in;
use crate::node::{CheckInMode, CheckInReply};
use crate::token::FencingToken;

/// What the other nodes answered.
#[derive(Default)]
pub(crate) struct Others {
    pub(crate) intact: usize,
    pub(crate) answered: usize,
    pub(crate) known: Duration,
    // The longest lease under a config before, on nodes that may not have waited for it yet.
    pub(crate) earlier: Duration,
    pub(crate) high_water: Option<FencingToken>,
}

pub(crate) async fn census(set: &NodeSet, except: usize) -> Others {
    let mut census = Others::default();
    let others = (0..set.nodes.len()).filter(|index| *index != except);
    let mut replies = set.send(others, |node| check_in(set, node, CheckInMode::Normal));
    // Those that do not answer in time do not count.
    replies.until(sleep(set.node_timeout));
    while let Some((_, reply)) = replies.next().await {
        match reply {
            Ok(CheckInReply::Voting {
                max_lease,
                high_water,
                ..
            }) => {
                census.intact += 1;
                census.answered += 1;
                census.known = census.known.max(max_lease);
                census.high_water = census.high_water.max(high_water);
            }
            Ok(CheckInReply::Quarantined {
                max_lease, earlier, ..
            }) => {
                census.answered += 1;
                census.known = census.known.max(max_lease);
                census.earlier = census.earlier.max(earlier);
            }
            Ok(CheckInReply::Foreign { .. }) | Err(_) => {}
        }
    }
    census
}
