//! The numbers of holders.

use super::*;

/// Tokio's time, and a date that the test sets.
#[derive(Clone, Debug)]
struct Dated {
    clock: TokioClock,
    micros: Arc<AtomicU64>,
}

impl Clock for Dated {
    fn follows_runtime(&self) -> bool {
        true
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn unix_micros(&self) -> u64 {
        self.micros.load(Ordering::SeqCst)
    }
}

/// A manager whose process believes in a date that the test sets. The nodes' date is the system's.
pub(crate) fn dated(builder: Settings, micros: u64) -> (LockManager, Arc<AtomicU64>) {
    let micros = Arc::new(AtomicU64::new(micros));
    let clock = Dated {
        clock: TokioClock::new(),
        micros: Arc::clone(&micros),
    };
    (lazy(builder.clock(clock)), micros)
}

/// In the year 2001.
pub(crate) const PAST: u64 = 1_000_000_000_000_000;
/// In the year 2200.
const FAR: u64 = 7_258_118_400_000_000;

pub(crate) async fn fence(locks: &LockManager, key: &str) -> u64 {
    let guard = locks.try_acquire(key).await.unwrap();
    let fence = guard.fence().unwrap().get();
    guard.release().await.unwrap();
    fence
}

#[tokio::test(start_paused = true)]
async fn who_is_handed_the_lock_has_the_next_number() {
    let (_nodes, [locks]) = five();
    let mut guard = locks.acquire("order:1").await.unwrap();
    let first = guard.fence().unwrap().get();
    for passes in 1..=5 {
        let waiter = wait_for(&locks, "order:1").await;
        let before = guard.handle();
        guard.release().await.unwrap();
        guard = waiter.await.unwrap().unwrap();
        assert_eq!(guard.fence().unwrap().get(), first + passes);
        assert_eq!(before.fence().unwrap().get(), first + passes - 1);
    }
    guard.release().await.unwrap();
    assert!(fence(&locks, "order:1").await >= first + FencingToken::STEP);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_agree_take_one_round_and_others_a_second() {
    let nodes = Nodes::five();
    let (locks, _) = dated(nodes.builder(), PAST);
    let start = PAST << 10;
    fence(&locks, "order:1").await;
    assert_eq!(locks.snapshot().fences_agreed, 1);
    // One that is ahead of a majority that agrees changes nothing.
    count_up(&nodes.0[0], place("order:1"), start + (1 << 30)).await;
    let second = fence(&locks, "order:1").await;
    assert!(second < start + (1 << 30), "{second}");
    // Three that differ do.
    for (node, ahead) in [(1, 31), (2, 32), (3, 33)] {
        count_up(&nodes.0[node], place("order:1"), start + (1 << ahead)).await;
    }
    let before = nodes.commands();
    let guard = locks.try_acquire("order:1").await.unwrap();
    let third = guard.fence().unwrap().get();
    // Two at least are written to.
    assert!(nodes.commands() >= before + 7);
    let snapshot = locks.snapshot();
    let counts = (snapshot.fences_agreed, snapshot.fences_written_back);
    assert_eq!(counts, (2, 1));
    guard.release().await.unwrap();
    // Whichever quorum answers next, it knows.
    for away in [[0, 1], [2, 3], [3, 4], [0, 4]] {
        nodes.each(away, MemoryNode::go_down);
        let next = fence(&locks, "order:1").await;
        assert!(next > third, "without {away:?}: {next} after {third}");
        nodes.each(away, MemoryNode::come_up);
    }
}

#[tokio::test(start_paused = true)]
async fn a_number_that_cannot_be_written_back_is_not_handed_out() {
    let nodes = Nodes::five();
    let locks = lazy(Odd::over(&nodes.0, |_, call| {
        let refusal = "it does not count fencing tokens";
        (call == Call::Raise).then(|| NodeError::of(NodeErrorKind::Rejected, refusal))
    }));
    assert!(fence(&locks, "order:1").await > 0, "agreed upon at once");
    // Two agree; the third that is needed has another number.
    let now = fence(&locks, "order:2").await;
    for (node, ahead) in [(0, 37), (1, 38), (2, 39), (3, 40)] {
        count_up(&nodes.0[node], place("order:1"), now + (1 << ahead)).await;
    }
    no_quorum(&locks, "order:1").await;
    nodes.settle_free("order:1").await;
}

/// They have gone so many times when they are to raise a counter.
#[tokio::test(start_paused = true)]
async fn nodes_that_die_between_grant_and_confirmation_cost_a_caller_one_round() {
    let nodes = Nodes::five();
    let left = Arc::new(AtomicU64::new(0));
    let times = Arc::clone(&left);
    let builder = Odd::over(&nodes.0, move |_, call| {
        let one_less = |left: u64| left.checked_sub(1);
        let (set, fetched) = (Ordering::SeqCst, Ordering::SeqCst);
        let goes = call == Call::Raise && times.fetch_update(set, fetched, one_less).is_ok();
        goes.then(|| NodeError::of(NodeErrorKind::Interrupted, "broken pipe"))
    });
    let locks = lazy(builder.max_wait(TTL));
    let differ = async || {
        let now = fence(&locks, "order:1").await;
        for (node, ahead) in [(0, 37), (1, 38), (2, 39), (3, 40), (4, 41)] {
            count_up(&nodes.0[node], place("order:1"), now + (1 << ahead)).await;
        }
        now
    };
    // Whether it waits or not.
    let acquire = async |waits: bool| match waits {
        true => locks.acquire("order:1").await,
        false => locks.try_acquire("order:1").await,
    };
    for waits in [true, false] {
        let now = differ().await;
        left.store(4, Ordering::SeqCst);
        let guard = acquire(waits).await.unwrap();
        assert_eq!(left.load(Ordering::SeqCst), 0, "all were asked");
        assert!(guard.fence().unwrap().get() > now + (1 << 40));
        guard.release().await.unwrap();
    }
    // Twice in a row is a lack of a quorum.
    for waits in [true, false] {
        differ().await;
        left.store(8, Ordering::SeqCst);
        let error = acquire(waits).await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum(_)), "{error}");
        assert_eq!(left.load(Ordering::SeqCst), 0);
        nodes.settle_free("order:1").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_goes_backwards_or_mad_breaks_no_order() {
    let nodes = Nodes::five();
    // The nodes have the clock of their first manager.
    let _sane = nodes.manager();
    let (locks, micros) = dated(nodes.builder(), PAST);
    let mut last = 0;
    for date in [PAST, PAST - 1_000_000, 0, PAST, FAR, u64::MAX, PAST + 5] {
        micros.store(date, Ordering::SeqCst);
        let next = fence(&locks, "order:1").await;
        assert!(next >= last + FencingToken::STEP, "{date}: {last} {next}");
        assert!(next < (PAST + 1_000_000) << 10, "{date}: they are used up");
        last = next;
    }
    // Nor is a key that nobody has counted yet spoilt.
    micros.store(FAR, Ordering::SeqCst);
    assert!(fence(&locks, "order:2").await < (PAST + 1_000_000) << 10);
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_has_expired_goes_on_from_the_highest_number() {
    let nodes = Nodes::five();
    let (locks, _) = dated(nodes.builder().fencing_keep(TTL), PAST);
    let last = fence(&locks, "order:1").await;
    // A lock that is held for longer than that keeps its counter.
    let held = locks.try_acquire("order:2").await.unwrap();
    sleep(3 * TTL).await;
    let number = held.fence().unwrap().get();
    held.release().await.unwrap();
    assert!(fence(&locks, "order:1").await > last);
    assert!(fence(&locks, "order:2").await > number);
}

/// A node that may have lost the lock, and got it back, between its grant and the command that raises its counter.
#[derive(Clone, Debug)]
struct Restored {
    node: MemoryNode,
    /// The kinds of errors with which it refused to raise a counter.
    refused: Arc<Mutex<Vec<NodeErrorKind>>>,
}

impl Between for Restored {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        if call != Call::Raise || self.node.name() != "a" {
            return reply;
        }
        let Self { node, refused } = self.clone();
        Box::pin(async move {
            node.restore(&node.snapshot());
            let reply = reply.await;
            let kind = reply.as_ref().err().map(NodeError::kind);
            refused.lock().unwrap().extend(kind);
            reply
        })
    }
}

#[tokio::test(start_paused = true)]
async fn no_token_is_written_back_to_a_node_that_came_back_meanwhile() {
    let refused = Arc::new(Mutex::new(Vec::new()));
    let nodes = ["a", "b", "c"].map(|name| Restored {
        node: MemoryNode::new(name),
        refused: Arc::clone(&refused),
    });
    let [_, second, last] = nodes.clone();
    let locks = connected(over(nodes.map(Wrapped)).bootstrap(true)).await;
    // Ahead of all clocks, and not so far that it would not count.
    let ahead = fence(&locks, "order:1").await + (1 << 38);
    count_up(&last.node, place("order:1"), ahead).await;
    // The two that are left do not agree, and too few have the higher token.
    second.node.go_down();
    no_quorum(&locks, "order:1").await;
    assert_eq!(*refused.lock().unwrap(), [NodeErrorKind::Quarantined]);
}
