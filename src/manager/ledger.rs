//! [`Ledger`]: what this manager may have set on nodes, from before the first byte leaves until all is given back.
//!
//! ```text
//!   begin ──► Acquiring ──► Held ──► Releasing ──► ended: no node has it any more
//!                 └────────────────────▲  └──────► left to expire
//! ```
//!
//! Each owner token has one [`Obligation`], which is passed on with the work: from the attempt to the lock that it
//! wins, from the lock to its release, and from there to the job that goes on in the background. It is never counted
//! anew on the way, so there is no moment at which it is not counted; and whoever drops it without a word has left the
//! token on the nodes, whether it was an error, a full background or the end of the runtime.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::clock::Clock;

/// All obligations of one manager.
#[derive(Clone)]
pub(in crate::manager) struct Ledger(Arc<Book>);

struct Book {
    clock: Arc<dyn Clock>,
    ttl: Duration,
    state: Mutex<State>,
    empty: Notify,
}

#[derive(Default)]
struct State {
    open: Open,
    closed: bool,
    // How many were left to expire, by the second by which they have, so that there are never more entries than
    // seconds in a ttl.
    left: BTreeMap<u64, usize>,
}

/// How many obligations there are in each stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::manager) struct Open {
    pub(in crate::manager) acquiring: usize,
    pub(in crate::manager) held: usize,
    pub(in crate::manager) releasing: usize,
}

/// How far what is owed has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::manager) enum Stage {
    /// Nodes are being asked.
    Acquiring,
    /// A guard or a loan has it.
    Held,
    /// It is being given back.
    Releasing,
}

impl Open {
    pub(in crate::manager) const fn is_empty(self) -> bool {
        self.acquiring == 0 && self.held == 0 && self.releasing == 0
    }

    const fn of(&mut self, stage: Stage) -> &mut usize {
        match stage {
            Stage::Acquiring => &mut self.acquiring,
            Stage::Held => &mut self.held,
            Stage::Releasing => &mut self.releasing,
        }
    }
}

impl Ledger {
    /// The ledger of a manager whose locks nodes keep for `ttl`.
    pub(in crate::manager) fn new(clock: Arc<dyn Clock>, ttl: Duration) -> Self {
        Self(Arc::new(Book {
            clock,
            ttl,
            state: Mutex::default(),
            empty: Notify::new(),
        }))
    }

    /// Counts what is about to be asked of the nodes; `None` if nothing is any more.
    pub(in crate::manager) fn begin(&self) -> Option<Obligation> {
        let mut state = self.0.state();
        if state.closed {
            return None;
        }
        state.open.acquiring += 1;
        drop(state);
        Some(Obligation {
            entry: Arc::new(Entry {
                book: Arc::clone(&self.0),
                stage: Mutex::new(Stage::Acquiring),
                left: AtomicBool::new(false),
            }),
            is_met: false,
        })
    }

    /// Lets nothing begin any more.
    pub(in crate::manager) fn close(&self) {
        self.0.state().closed = true;
    }

    pub(in crate::manager) fn open(&self) -> Open {
        self.0.state().open
    }

    /// How many were left on nodes and may not have expired there yet.
    pub(in crate::manager) fn left(&self) -> usize {
        let now = self.0.seconds(Duration::ZERO);
        self.0.state().left.range(now..).map(|(_, left)| left).sum()
    }

    /// Waits until there are none, at most for `limit`; tells whether there are none.
    pub(in crate::manager) async fn is_empty_within(&self, limit: Duration) -> bool {
        let empty = async {
            loop {
                let notified = self.0.empty.notified();
                if self.open().is_empty() {
                    return;
                }
                notified.await;
            }
        };
        timeout(limit, empty).await.is_ok()
    }
}

impl Book {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The second in which the time `from` now lies.
    fn seconds(&self, from: Duration) -> u64 {
        (self.clock.now() + from).as_nanos() / 1_000_000_000
    }

    fn end(&self, stage: Stage, is_left: bool) {
        let mut state = self.state();
        if is_left {
            // A command may be under way yet, so the ttl counts from here at the earliest.
            let now = self.seconds(Duration::ZERO);
            state.left = state.left.split_off(&now);
            *state.left.entry(self.seconds(self.ttl)).or_default() += 1;
        }
        *state.open.of(stage) -= 1;
        let is_empty = state.open.is_empty();
        drop(state);
        if is_empty {
            self.empty.notify_waiters();
        }
    }
}

/// A share in the obligation to free all nodes of one owner token.
///
/// It ends with its last share, and well only if each of them was [met](Self::meet).
#[derive(Debug)]
#[must_use = "what is dropped unmet counts as left on the nodes"]
pub(in crate::manager) struct Obligation {
    entry: Arc<Entry>,
    is_met: bool,
}

struct Entry {
    book: Arc<Book>,
    stage: Mutex<Stage>,
    // A share was dropped unmet.
    left: AtomicBool,
}

impl Obligation {
    /// One more share, for another who has to do with the same token.
    pub(in crate::manager) fn share(&self) -> Self {
        Self {
            entry: Arc::clone(&self.entry),
            is_met: self.is_met,
        }
    }

    /// The same of one who sets nothing on any node, and is only to be waited for.
    pub(in crate::manager) const fn owing_nothing(mut self) -> Self {
        self.is_met = true;
        self
    }

    /// Notes that this share is done: no node has anything of it any more.
    pub(in crate::manager) fn meet(self) {
        drop(self.owing_nothing());
    }

    /// Notes how far it has come.
    pub(in crate::manager) fn enter(&self, next: Stage) {
        let mut stage = self.entry.stage();
        let mut state = self.entry.book.state();
        *state.open.of(*stage) -= 1;
        *state.open.of(next) += 1;
        *stage = next;
    }
}

/// A share in an obligation, with the nodes that are to be freed for it. It is met once all of them are.
#[derive(Debug)]
pub(in crate::manager) struct Owing {
    nodes: Vec<usize>,
    // As long as there are such nodes.
    obligation: Option<Obligation>,
}

impl Owing {
    pub(in crate::manager) fn new(obligation: Option<Obligation>, nodes: Vec<usize>) -> Self {
        let mut owing = Self { nodes, obligation };
        owing.look();
        owing
    }

    /// Notes that `node` has nothing of the token any more.
    pub(in crate::manager) fn freed(&mut self, node: usize) {
        self.nodes.retain(|other| *other != node);
        self.look();
    }

    fn look(&mut self) {
        if self.nodes.is_empty()
            && let Some(obligation) = self.obligation.take()
        {
            obligation.meet();
        }
    }

    /// The nodes that are not free yet.
    pub(in crate::manager) fn nodes(&self) -> Vec<usize> {
        self.nodes.clone()
    }
}

impl Drop for Obligation {
    fn drop(&mut self) {
        if !self.is_met {
            self.entry.left.store(true, Ordering::Release);
        }
    }
}

impl Entry {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let stage = *self.stage();
        self.book.end(stage, self.left.load(Ordering::Acquire));
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&*self.stage()).finish()
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("open", &self.open())
            .field("left", &self.left())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

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

    fn ledger() -> (Arc<Hand>, Ledger) {
        let clock = Arc::new(Hand::default());
        clock.step(SECOND / 2);
        (Arc::clone(&clock), Ledger::new(clock, TTL))
    }

    fn open(ledger: &Ledger) -> (usize, usize, usize) {
        let open = ledger.open();
        (open.acquiring, open.held, open.releasing)
    }

    #[tokio::test(start_paused = true)]
    async fn an_obligation_is_counted_once_in_every_stage_until_its_last_share_is_met() {
        let (_, ledger) = ledger();
        assert!(ledger.is_empty_within(Duration::ZERO).await);
        let first = ledger.begin().unwrap();
        let other = ledger.begin().unwrap();
        assert_eq!(open(&ledger), (2, 0, 0));
        first.enter(Stage::Held);
        assert_eq!(open(&ledger), (1, 1, 0));
        let share = first.share();
        first.enter(Stage::Releasing);
        first.meet();
        other.meet();
        assert_eq!(open(&ledger), (0, 0, 1), "one share is not met");
        assert!(!ledger.is_empty_within(TTL).await);
        let waiting = tokio::spawn({
            let ledger = ledger.clone();
            async move { ledger.is_empty_within(TTL).await }
        });
        tokio::task::yield_now().await;
        share.meet();
        assert!(waiting.await.unwrap());
        assert_eq!(ledger.left(), 0);
    }

    #[test]
    fn what_is_dropped_without_a_word_is_left_for_a_ttl() {
        let (clock, ledger) = ledger();
        let obligation = ledger.begin().unwrap();
        drop(obligation.share());
        obligation.meet();
        assert_eq!((open(&ledger), ledger.left()), ((0, 0, 0), 1));
        clock.step(TTL / 2);
        drop(ledger.begin());
        assert_eq!(ledger.left(), 2);
        clock.step(TTL / 2);
        assert_eq!(ledger.left(), 2, "not before its ttl is over");
        clock.step(SECOND);
        assert_eq!(ledger.left(), 1);
        clock.step(TTL);
        assert_eq!(ledger.left(), 0);
        drop(ledger.begin());
        assert_eq!(ledger.0.state().left.len(), 1, "what is over is forgotten");
        drop(ledger.begin().unwrap().owing_nothing());
        assert_eq!(ledger.left(), 1);
    }

    #[test]
    fn an_obligation_is_met_once_all_nodes_are_free() {
        let (_, ledger) = ledger();
        let mut owing = Owing::new(ledger.begin(), vec![0, 2]);
        for node in [2, 1] {
            owing.freed(node);
            assert_eq!((owing.nodes(), open(&ledger)), (vec![0], (1, 0, 0)));
        }
        owing.freed(0);
        assert_eq!((open(&ledger), ledger.left()), ((0, 0, 0), 0));
        drop(Owing::new(ledger.begin(), Vec::new()));
        assert_eq!(ledger.left(), 0);
        drop(Owing::new(ledger.begin(), vec![0]));
        assert_eq!((open(&ledger), ledger.left()), ((0, 0, 0), 1));
    }

    #[test]
    fn nothing_begins_once_it_is_closed() {
        let (_, ledger) = ledger();
        let before = ledger.begin().unwrap();
        ledger.close();
        assert!(ledger.begin().is_none());
        before.enter(Stage::Held);
        assert_eq!(open(&ledger), (0, 1, 0), "what has begun goes on");
        before.meet();
    }
}
