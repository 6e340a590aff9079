//! [`Listening`]: one contender's subscriptions to the releases of its keys, on all nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::namespace::NodeKeys;
use crate::node::{Ears, Heard, Node, Subscription};

/// Subscriptions on all nodes that can announce releases. Dropped, they end.
#[derive(Debug)]
pub(in crate::manager) struct Listening {
    ears: Ears,
    _subscriptions: Vec<Subscription>,
}

impl Listening {
    /// Begins to listen; whether and when each node is heard shows later.
    ///
    /// A release of any of several keys is heard: which of them was in the way is not known, and may change.
    pub(in crate::manager) fn start(nodes: &[Arc<dyn Node>], keys: &NodeKeys) -> Self {
        let ears = Ears::new(nodes.len());
        let notifiers = nodes.iter().enumerate();
        let notifiers = notifiers.filter_map(|(index, node)| Some((index, node.notifier()?)));
        let subscriptions = notifiers.flat_map(|(index, notifier)| {
            let ears = &ears;
            let keys = keys.as_slice().iter();
            keys.map(move |key| notifier.subscribe(key, ears.ear(index)))
        });
        Self {
            _subscriptions: subscriptions.collect(),
            ears,
        }
    }

    /// On how many nodes releases would be heard right now.
    pub(in crate::manager) fn open(&self) -> usize {
        self.ears.heard().open
    }

    /// Forgets what was heard: the nodes are about to be asked.
    pub(in crate::manager) fn forget(&self) {
        self.ears.forget();
    }

    /// Waits until there is reason to ask again: `needed` nodes announced a release, or fewer did and no more for
    /// `grace`, or enough of them can be heard at last and may have announced one before, if that is of interest.
    /// Returns how many contenders may have been woken by it, this one included; none if nothing was announced.
    pub(in crate::manager) async fn enough(
        &self,
        needed: usize,
        grace: Duration,
        opening: bool,
    ) -> usize {
        loop {
            let heard = self.ears.heard();
            if heard.released >= needed {
                return rivals(heard);
            }
            if heard.released > 0 {
                tokio::select! {
                    biased;
                    rivals = self.released(needed) => return rivals,
                    () = sleep(grace) => return rivals(self.ears.heard()),
                }
            }
            if opening && heard.open >= needed && heard.least_open < needed {
                return 0;
            }
            self.ears.changed().await;
        }
    }

    /// Waits until `needed` nodes have announced a release. Returns how many contenders may have been woken by it.
    pub(in crate::manager) async fn released(&self, needed: usize) -> usize {
        loop {
            let heard = self.ears.heard();
            if heard.released >= needed {
                return rivals(heard);
            }
            self.ears.changed().await;
        }
    }
}

/// How many contenders a release has woken. A node that does not tell may have woken a few.
fn rivals(heard: Heard) -> usize {
    usize::try_from(heard.listeners.unwrap_or(UNTOLD)).unwrap_or(usize::MAX)
}

/// How many contenders to reckon with when the nodes do not tell.
const UNTOLD: u32 = 3;
