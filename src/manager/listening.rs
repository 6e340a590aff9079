//! [`Listening`]: one contender's subscriptions to the releases of its key, on all nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::namespace::NodeKey;
use crate::node::{Ears, Heard, Node, Subscription};

/// Subscriptions on all nodes that can announce releases. Dropped, they end.
#[derive(Debug)]
pub(super) struct Listening {
    ears: Ears,
    _subscriptions: Vec<Subscription>,
}

impl Listening {
    /// Begins to listen; whether and when each node is heard shows later.
    pub(super) fn start(nodes: &[Arc<dyn Node>], place: &NodeKey) -> Self {
        let ears = Ears::new(nodes.len());
        let subscriptions = nodes.iter().enumerate().filter_map(|(index, node)| {
            let notifier = node.notifier()?;
            Some(notifier.subscribe(place, ears.ear(index)))
        });
        Self {
            _subscriptions: subscriptions.collect(),
            ears,
        }
    }

    /// On how many nodes releases would be heard right now.
    pub(super) fn open(&self) -> usize {
        self.ears.heard().open
    }

    /// Forgets what was heard: the nodes are about to be asked.
    pub(super) fn forget(&self) {
        self.ears.forget();
    }

    /// Waits until `needed` nodes gave reason to ask again, or fewer did and no more came for `grace`. Returns how
    /// many contenders may have been woken by it, this one included.
    pub(super) async fn enough(&self, needed: usize, grace: Duration) -> usize {
        loop {
            let heard = self.ears.heard();
            if heard.nodes >= needed {
                return rivals(heard);
            }
            if heard.nodes > 0 {
                tokio::select! {
                    biased;
                    () = self.last_words(needed) => {}
                    () = sleep(grace) => {}
                }
                return rivals(self.ears.heard());
            }
            self.ears.changed().await;
        }
    }

    async fn last_words(&self, needed: usize) {
        while self.ears.heard().nodes < needed {
            self.ears.changed().await;
        }
    }
}

/// How many contenders a release has woken. A node that does not tell may have woken a few.
fn rivals(heard: Heard) -> usize {
    if !heard.released {
        return 1;
    }
    let listeners = heard.listeners.unwrap_or(UNTOLD);
    usize::try_from(listeners).unwrap_or(usize::MAX)
}

/// How many contenders to reckon with when the nodes do not tell.
const UNTOLD: u32 = 3;
