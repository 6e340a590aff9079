//! The [`Notifier`] port: hearing of releases on a node, so that whoever waits for a lock need not keep asking.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::namespace::NodeKey;

/// Tells who waits for a lock when it is released on one node.
///
/// Notices are hints. They may be missing, late, twice or for nothing: whoever waits asks again now and then all
/// the same, and no lock is taken because of a notice.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot tell of releases",
    label = "must be a `Notifier`",
    note = "implement it, or return `None` from `Node::notifier`: whoever waits then asks again now and then"
)]
pub trait Notifier: fmt::Debug + Send + Sync + 'static {
    /// Tells `ear` of the releases of `key` until the subscription is dropped.
    ///
    /// It returns at once. The ear hears [`opened`](Ear::opened) when the subscription begins to work, also when
    /// it does so again after it was [`closed`](Ear::closed) by the loss of a connection. A subscription that is
    /// refused stays silent.
    fn subscribe(&self, key: &NodeKey, ear: Ear) -> Subscription;
}

/// Keeps a subscription until it is dropped. Made by [`Notifier::subscribe`].
#[must_use = "a subscription that is dropped ends"]
pub struct Subscription {
    _end: Box<dyn Any + Send + Sync>,
}

impl Subscription {
    /// A subscription that ends when `end` is dropped.
    pub fn new(end: impl Send + Sync + 'static) -> Self {
        Self {
            _end: Box::new(end),
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

/// Where the notices of several nodes about one key, or about some keys that are wanted together, come together.
///
/// For one listener: [`changed`](Self::changed) wakes one task.
#[derive(Debug)]
pub struct Ears {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    lines: Mutex<Lines>,
    changed: Notify,
}

#[derive(Debug)]
struct Lines {
    nodes: Vec<Line>,
    least_open: usize,
    listeners: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    // How many ears there are for the node, and a bit for each that is open.
    ears: u32,
    open: u64,
    released: bool,
}

impl Line {
    /// Whether no ear of the node may miss anything.
    const fn is_open(&self) -> bool {
        self.ears > 0 && self.open.count_ones() == self.ears
    }
}

/// What was heard since the last [`Ears::forget`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heard {
    /// On how many nodes the key was released.
    pub released: usize,
    /// How many listened to the releases, as far as the nodes tell.
    pub listeners: Option<u32>,
    /// On how many nodes all subscriptions work right now.
    pub open: usize,
    /// How many there were when there were fewest: what was released then, those that were missing did not hear.
    pub least_open: usize,
}

impl Ears {
    /// Ears for so many nodes.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                lines: Mutex::new(Lines {
                    nodes: vec![Line::default(); nodes],
                    least_open: 0,
                    listeners: None,
                }),
                changed: Notify::new(),
            }),
        }
    }

    /// One more ear for one node: one for each key. There may be 64.
    #[must_use]
    pub fn ear(&self, node: usize) -> Ear {
        let mut bit = 0;
        self.shared.change(node, |line| {
            bit = line.ears.min(u64::BITS - 1);
            line.ears = bit + 1;
        });
        Ear {
            shared: Arc::clone(&self.shared),
            node,
            bit: 1 << bit,
        }
    }

    /// What was heard since the last [`forget`](Self::forget).
    #[must_use]
    pub fn heard(&self) -> Heard {
        let lines = self.shared.lines();
        Heard {
            released: lines.count(|line| line.released),
            listeners: lines.listeners,
            open: lines.count(Line::is_open),
            least_open: lines.least_open,
        }
    }

    /// Forgets what was heard, to be called before the nodes are asked again.
    pub fn forget(&self) {
        let mut lines = self.shared.lines();
        lines
            .nodes
            .iter_mut()
            .for_each(|line| line.released = false);
        lines.listeners = None;
        lines.least_open = lines.count(Line::is_open);
    }

    /// Waits until something changes.
    ///
    /// # Cancel safety
    ///
    /// No change is lost when the future is dropped.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

impl Shared {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        // Nothing below can panic half-way.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, node: usize, change: impl FnOnce(&mut Line)) {
        self.change(node, change);
        self.changed.notify_one();
    }

    fn change(&self, node: usize, change: impl FnOnce(&mut Line)) {
        let mut lines = self.lines();
        if let Some(line) = lines.nodes.get_mut(node) {
            change(line);
        }
        lines.least_open = lines.least_open.min(lines.count(Line::is_open));
    }
}

impl Lines {
    fn count(&self, what: fn(&Line) -> bool) -> usize {
        self.nodes.iter().filter(|line| what(line)).count()
    }
}

/// What a [`Notifier`] tells of one key on one node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ear {
    shared: Arc<Shared>,
    node: usize,
    // Its own among those of the node.
    bit: u64,
}

impl Ear {
    /// The subscription works from now on. What was released before, it did not hear.
    pub fn opened(&self) {
        self.shared.note(self.node, |line| line.open |= self.bit);
    }

    /// The subscription does not work any more.
    pub fn closed(&self) {
        self.shared.note(self.node, |line| line.open &= !self.bit);
    }

    /// The key was released; so many listened, if that is known.
    pub fn released(&self, listeners: Option<u32>) {
        {
            let mut lines = self.shared.lines();
            lines.listeners = lines.listeners.max(listeners);
        }
        self.shared.note(self.node, |line| line.released = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn news_of_several_nodes_come_together() {
        let ears = Ears::new(3);
        let (first, second) = (ears.ear(0), ears.ear(1));
        first.opened();
        ears.changed().await;
        let heard = Heard {
            open: 1,
            ..Heard::default()
        };
        assert_eq!(ears.heard(), heard, "it was deaf before");
        ears.forget();
        first.released(Some(2));
        second.released(None);
        second.released(Some(3));
        let heard = Heard {
            released: 2,
            listeners: Some(3),
            open: 1,
            least_open: 1,
        };
        assert_eq!(ears.heard(), heard);
        first.closed();
        first.opened();
        assert_eq!(
            (ears.heard().open, ears.heard().least_open),
            (1, 0),
            "it may have missed something"
        );
        ears.forget();
        assert_eq!((ears.heard().released, ears.heard().listeners), (0, None));
        // An ear too many changes nothing.
        ears.ear(9).opened();
        assert_eq!(ears.heard().open, 1);
    }

    #[test]
    fn a_node_is_heard_when_it_is_for_every_key() {
        let ears = Ears::new(1);
        let (a, b) = (ears.ear(0), ears.ear(0));
        a.opened();
        ears.forget();
        assert_eq!(ears.heard().open, 0, "releases of the other are missed");
        b.opened();
        assert_eq!((ears.heard().open, ears.heard().least_open), (1, 0));
        ears.forget();
        a.closed();
        a.closed();
        a.opened();
        assert_eq!((ears.heard().open, ears.heard().least_open), (1, 0));
    }

    #[test]
    fn sixty_four_keys_are_heard() {
        let ears = Ears::new(1);
        let all: Vec<Ear> = (0..64).map(|_| ears.ear(0)).collect();
        for ear in &all {
            assert_eq!(ears.heard().open, 0);
            ear.opened();
        }
        assert_eq!(ears.heard().open, 1);
    }
}
