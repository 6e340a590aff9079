//! [`Ledger`]: counts the owner tokens of this manager that nodes may have, each before the first command with the
//! token leaves.
//!
//! ```text
//!   begin ──► Acquiring ──► Held ──► Releasing ──► met: no node has it any more
//!                 └────────────────────▲  └──────► left to expire
//! ```
//!
//! Each owner token has one [`Obligation`], which moves with the work. If an obligation is dropped before it is met, for
//! example because a node failed or the runtime ended, its token counts as left on nodes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::clock::Clock;
use crate::manager::tasks::notified_until;

#[derive(Debug)]
pub(crate) struct Ledger {
    clock: Arc<dyn Clock>,
    // How many obligations are open, by their stage.
    open: [AtomicUsize; 3],
    closed: AtomicBool,
    // How many tokens were left to expire, by the second in which they expire. Old entries are removed, so there is at
    // most one entry for each second of the longest ttl.
    left: Mutex<BTreeMap<u64, usize>>,
    empty: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Acquiring,
    Held,
    Releasing,
}

const STAGES: [Stage; 3] = [Stage::Acquiring, Stage::Held, Stage::Releasing];

impl Ledger {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            open: Default::default(),
            closed: AtomicBool::new(false),
            left: Mutex::default(),
            empty: Notify::new(),
        })
    }

    /// Counts a token that is about to be sent to nodes. `None` once the ledger is closed.
    pub(crate) fn begin(self: &Arc<Self>, ttl: Duration) -> Option<Obligation> {
        // Count the token before reading `closed`, so that a shutdown misses no token: either this call sees that the
        // ledger is closed, or the shutdown, which closes it first, sees the count.
        self.count(Stage::Acquiring).fetch_add(1, SeqCst);
        let is_closed = self.closed.load(SeqCst);
        let obligation = Obligation {
            ledger: Arc::clone(self),
            ttl,
            stage: Stage::Acquiring,
            is_met: is_closed,
        };
        (!is_closed).then_some(obligation)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
    }

    /// Counts the open obligations by stage. An obligation enters its next stage before it leaves the last one, and the
    /// stages are read in order, so none is missed.
    pub(crate) fn open(&self) -> [usize; 3] {
        STAGES.map(|stage| self.count(stage).load(SeqCst))
    }

    fn count(&self, stage: Stage) -> &AtomicUsize {
        let [acquiring, held, releasing] = &self.open;
        match stage {
            Stage::Acquiring => acquiring,
            Stage::Held => held,
            Stage::Releasing => releasing,
        }
    }

    fn is_empty(&self) -> bool {
        self.open() == [0; 3]
    }

    pub(crate) fn left(&self) -> usize {
        let now = self.second_after(Duration::ZERO);
        self.left_by_second()
            .range(now..)
            .map(|(_, left)| left)
            .sum()
    }

    pub(crate) async fn is_empty_within(&self, limit: Duration) -> bool {
        let empty = notified_until(&self.empty, || self.is_empty().then_some(()));
        timeout(limit, empty).await.is_ok()
    }

    fn left_by_second(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn second_after(&self, span: Duration) -> u64 {
        (self.clock.now() + span).as_nanos() / 1_000_000_000
    }
}

/// The duty to delete one owner token from all nodes.
#[derive(Debug)]
#[must_use = "what is dropped unmet counts as left on the nodes"]
pub(crate) struct Obligation {
    ledger: Arc<Ledger>,
    ttl: Duration,
    stage: Stage,
    is_met: bool,
}

impl Obligation {
    pub(crate) fn enter(&mut self, next: Stage) {
        self.ledger.count(next).fetch_add(1, SeqCst);
        self.ledger.count(self.stage).fetch_sub(1, SeqCst);
        self.stage = next;
    }

    /// No node has the token any more. The obligation counts as open until it is dropped.
    pub(crate) const fn meet(&mut self) {
        self.is_met = true;
    }
}

impl Drop for Obligation {
    fn drop(&mut self) {
        let ledger = &self.ledger;
        if !self.is_met {
            // A command that sets the token may still be in flight, so its ttl counts from now, not from the grant.
            let mut left = ledger.left_by_second();
            *left = left.split_off(&ledger.second_after(Duration::ZERO));
            *left.entry(ledger.second_after(self.ttl)).or_default() += 1;
        }
        ledger.count(self.stage).fetch_sub(1, SeqCst);
        if ledger.is_empty() {
            ledger.empty.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::moment::Moment;

    const SECOND: Duration = Duration::from_secs(1);
    const TTL: Duration = Duration::from_secs(10);

    /// A clock that is set by hand.
    #[derive(Debug, Default)]
    struct Hand(AtomicU64);

    impl Hand {
        fn step(&self, span: Duration) {
            let to = self.now() + span;
            self.0.store(to.as_nanos(), Ordering::Relaxed);
        }
    }

    impl Clock for Hand {
        fn now(&self) -> Moment {
            Moment::from_nanos(self.0.load(Ordering::Relaxed))
        }
    }

    fn ledger() -> (Arc<Hand>, Arc<Ledger>) {
        let clock = Arc::new(Hand::default());
        clock.step(SECOND / 2);
        (Arc::clone(&clock), Ledger::new(clock))
    }

    fn meet(mut obligation: Obligation) {
        obligation.meet();
    }

    #[tokio::test(start_paused = true)]
    async fn an_obligation_is_counted_once_in_every_stage_until_it_ends() {
        let (_, ledger) = ledger();
        assert!(ledger.is_empty_within(Duration::ZERO).await);
        let mut first = ledger.begin(TTL).unwrap();
        let other = ledger.begin(TTL).unwrap();
        assert_eq!(ledger.open(), [2, 0, 0]);
        first.enter(Stage::Held);
        assert_eq!(ledger.open(), [1, 1, 0]);
        first.enter(Stage::Releasing);
        first.meet();
        meet(other);
        assert_eq!(ledger.open(), [0, 0, 1], "one is not dropped yet");
        assert!(!ledger.is_empty_within(TTL).await);
        let waiting = tokio::spawn({
            let ledger = ledger.clone();
            async move { ledger.is_empty_within(TTL).await }
        });
        tokio::task::yield_now().await;
        drop(first);
        assert!(waiting.await.unwrap());
        assert_eq!(ledger.left(), 0);
    }

    #[test]
    fn what_is_dropped_unmet_is_left_for_a_ttl() {
        let (clock, ledger) = ledger();
        drop(ledger.begin(TTL).unwrap());
        assert_eq!((ledger.open(), ledger.left()), ([0, 0, 0], 1));
        clock.step(TTL / 2);
        drop(ledger.begin(TTL));
        assert_eq!(ledger.left(), 2);
        clock.step(TTL / 2);
        assert_eq!(ledger.left(), 2, "not before its ttl is over");
        clock.step(SECOND);
        assert_eq!(ledger.left(), 1);
        clock.step(TTL);
        assert_eq!(ledger.left(), 0);
        drop(ledger.begin(TTL));
        let entries = ledger.left_by_second().len();
        assert_eq!(entries, 1, "what is over is forgotten");
        drop(ledger.begin(3 * TTL));
        clock.step(2 * TTL);
        assert_eq!(ledger.left(), 1, "each by its own ttl");
        clock.step(2 * TTL);
        drop(ledger.begin(TTL));
        meet(ledger.begin(TTL).unwrap());
        assert_eq!(ledger.left(), 1);
    }

    #[test]
    fn nothing_begins_once_it_is_closed() {
        let (_, ledger) = ledger();
        let mut before = ledger.begin(TTL).unwrap();
        ledger.close();
        assert!(ledger.begin(TTL).is_none());
        before.enter(Stage::Held);
        assert_eq!(ledger.open(), [0, 1, 0], "what has begun goes on");
        meet(before);
    }
}
