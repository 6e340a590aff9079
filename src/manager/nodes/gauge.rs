//! The gauges of the nodes and of the quorum.

use std::sync::{Arc, Weak};

use tokio::time::sleep;

use crate::instruments::WithoutQuorum;
use crate::manager::nodes::node_set::{LOOK, NodeSet};
use crate::manager::nodes::voting::statuses::VotingStatuses;

/// Sets the gauges of the nodes and of the quorum, again and again until the manager is gone: not all kinds of nodes
/// report a change.
pub(crate) async fn gauge(set: Weak<NodeSet>, voting: Arc<VotingStatuses>) {
    let mut shown: Vec<String> = Vec::new();
    let mut lack: Option<WithoutQuorum> = None;
    loop {
        let news = voting.news();
        let Some(set) = set.upgrade() else {
            // Otherwise they would look fine for as long as the process runs.
            for name in shown {
                crate::instruments::node(&name, false, false);
            }
            return;
        };
        if shown.is_empty() {
            let names = set.nodes.iter().map(|node| node.name().to_owned());
            shown.extend(names);
        }
        for (index, node) in set.nodes.iter().enumerate() {
            crate::instruments::node(node.name(), set.is_up(index), set.counts(index));
        }
        lack = (!set.has_quorum()).then(|| lack.take().unwrap_or_else(WithoutQuorum::new));
        drop(set);
        tokio::select! {
            biased;
            () = news => {}
            () = sleep(LOOK) => {}
        }
    }
}
