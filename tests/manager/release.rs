//! Every way to let go of a lock.

use std::task::Poll;

use super::*;

/// Dropped, or unwound by a panic.
#[tokio::test(start_paused = true)]
async fn a_dropped_guard_releases_on_every_node() {
    for panics in [false, true] {
        let (nodes, [locks]) = five();
        let task = tokio::spawn(async move {
            let _guard = locks.try_acquire("order:1").await.unwrap();
            assert!(!panics, "on purpose");
        });
        assert_eq!(task.await.is_err(), panics);
        nodes.settle_free("order:1").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_confirmed_says_so_and_goes_on() {
    let (nodes, _locks, guard) = held("order:1").await;
    nodes.each([0, 1, 2], MemoryNode::go_down);
    assert_eq!(
        guard.release().await.unwrap_err().to_string(),
        "the release was confirmed by 2 nodes where 3 are needed; it goes on in the background, and the lock may stay until its ttl ends"
    );
    assert_eq!(nodes.holding("order:1"), 3);
    nodes.each([0, 1, 2], MemoryNode::come_up);
    sleep(SECOND).await;
    assert_eq!(nodes.holding("order:1"), 0, "long before the ttl");
}

/// Keeps how each release would be sent.
#[derive(Clone, Debug)]
struct Watched(MemoryNode, Arc<Mutex<Vec<ReleaseRequest>>>);

impl Between for Watched {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.0
    }

    fn pass<T: Send + 'static>(&self, _call: Call, reply: Reply<T>) -> Reply<T> {
        reply
    }

    fn sees_release(&self, request: &ReleaseRequest) {
        self.1.lock().unwrap().push(request.clone());
    }
}

/// The command that was given up may be in the socket of an old connection.
#[tokio::test(start_paused = true)]
async fn a_release_is_to_void_what_was_given_up_on_its_node_and_nothing_else() {
    let nodes = Nodes::five();
    let watched: Vec<Watched> = nodes
        .0
        .iter()
        .map(|node| Watched(node.clone(), Arc::default()))
        .collect();
    let locks = lazy(over(watched.iter().cloned().map(Wrapped)));
    meet(&locks).await;
    nodes.each([4], MemoryNode::freeze);
    let guard = locks.try_acquire("order:1").await.unwrap();
    sleep(SECOND).await;
    guard.release().await.unwrap();
    for (index, Watched(_, releases)) in watched.iter().enumerate() {
        let releases = releases.lock().unwrap();
        let voids = |request: &ReleaseRequest| request.since == Some(Moment::ORIGIN);
        assert!(
            releases
                .iter()
                .all(|request| voids(request) == (index == 4)),
            "{index}: {releases:?}"
        );
        assert!(!releases.is_empty(), "{index}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_may_yet_grant_does_not_count_as_free() {
    let (nodes, [locks]) = five_met().await;
    nodes.each([3, 4], MemoryNode::freeze);
    let guard = locks.try_acquire("order:1").await.unwrap();
    nodes.each([1, 2], MemoryNode::freeze);
    assert_unconfirmed(&guard.release().await);
    nodes.each(1..5, MemoryNode::thaw);
    nodes.settle_free("order:1").await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_were_slow_to_grant_count_for_the_release() {
    let (nodes, [locks]) = five_met().await;
    nodes.each([3, 4], MemoryNode::freeze);
    let guard = locks.try_acquire("order:1").await.unwrap();
    // One of the three that granted stops, and the two others answer at last.
    nodes.each([0], MemoryNode::freeze);
    nodes.each([3, 4], MemoryNode::thaw);
    let began = Instant::now();
    guard.release().await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    nodes.each([0], MemoryNode::thaw);
    nodes.settle_free("order:1").await;
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_lost_its_lock_never_releases_the_next_holders() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.forgetful(), nodes.forgetful());
    let guard = a.try_acquire("order:1").await.unwrap();
    nodes.each(0..5, MemoryNode::forget);
    let next = b.try_acquire("order:1").await.unwrap();
    drop(guard);
    sleep(SECOND).await;
    assert_eq!(nodes.holding("order:1"), 5);
    assert!(!next.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_after_the_release_leaves_nothing() {
    let (nodes, _locks, guard) = held("order:1").await;
    nodes.each(0..5, MemoryNode::freeze);
    // The renewal at a third of the ttl is under way now, and would set the key anew where it is absent.
    sleep(Duration::from_millis(3_500)).await;
    drop(guard);
    nodes.each(0..5, MemoryNode::thaw);
    sleep(Duration::from_millis(500)).await;
    assert_eq!(nodes.holding("order:1"), 0);
}

/// What is dropped there, released there and completed there.
#[test]
fn a_lock_can_be_given_back_outside_its_runtime() {
    fn now<T>(work: impl Future<Output = T>) -> T {
        match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done,
            Poll::Pending => panic!("nodes in memory answer at once"),
        }
    }
    let runtime = Runtime::new().unwrap();
    let node = MemoryNode::new("n0");
    let minute = 60 * SECOND;
    let (locks, guard, other, run) = runtime.block_on(async {
        let locks = lazy(LockManager::builder().nodes([node.clone()]));
        let guard = locks.try_acquire("order:1").await.unwrap();
        let other = locks.try_acquire("order:2").await.unwrap();
        let begun = locks.begin_idempotent("invoice:1", minute, Duration::ZERO);
        (locks.clone(), guard, other, to_run(begun.await))
    });
    drop(other);
    now(guard.release()).unwrap();
    now(run.complete("sent")).unwrap();
    let report = runtime.block_on(locks.shutdown(minute));
    assert_eq!((report.held, report.unconfirmed), (0, 0));
    assert!(node.holder("lk:order:1").is_none() && node.holder("lk:order:2").is_none());
}

/// A caller that does not wait may wait for the release of a lock that it has seen to be over.
#[test]
fn a_lock_that_is_over_is_about_to_come_free() {
    let runtime = Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
    for _ in 0..20 {
        let connect = LockManager::builder().memory(1).connect();
        let locks = runtime.block_on(connect).unwrap();
        let guard = runtime.block_on(locks.try_acquire("k")).unwrap();
        let handle = guard.handle();
        // So many that it takes a moment to wake them.
        let mut waiting: Vec<_> = (0..2_000).map(|_| Box::pin(handle.lost())).collect();
        let mut cx = Context::from_waker(Waker::noop());
        for lost in &mut waiting {
            assert!(lost.as_mut().poll(&mut cx).is_pending());
        }
        let inside = runtime.handle().clone();
        let release = std::thread::spawn(move || {
            let _inside = inside.enter();
            drop(guard);
        });
        while !handle.is_lost() {
            std::hint::spin_loop();
        }
        drop(runtime.block_on(locks.try_acquire("k")).unwrap());
        release.join().unwrap();
    }
}
