//! Copies of a call under a loan, as a proxy makes them: one runs, and nobody else has the lock meanwhile.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tower_redlock::error::ReleaseError;
use tower_redlock::node::memory::MemoryNode;

use super::borrowing::{borrow, carried};
use super::{MS, Nodes, TTL, assert_idle};

const SECOND: Duration = Duration::from_secs(1);
const KEY: &str = "order:1";

#[tokio::test(start_paused = true)]
async fn a_proof_is_good_for_one_borrower() {
    let nodes = Nodes::five();
    let (a, b, c) = (nodes.manager(), nodes.manager(), nodes.manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    let (loan, other) = (guard.lend().unwrap(), guard.lend().unwrap());
    let borrowed = borrow(&b, &carried(loan.proof())).await.unwrap();
    // A proxy has sent it again, to another replica or to the same one.
    for locks in [&b, &c] {
        let refused = borrow(locks, &carried(loan.proof())).await.unwrap_err();
        assert!(refused.to_string().contains("another copy"), "{refused}");
    }
    assert!(!borrowed.is_lost());
    // Another call has a loan of its own.
    let another = borrow(&c, &carried(other.proof())).await.unwrap();
    drop(another);
    other.returned();
    drop(borrowed);
    // When the first copy has been answered, for as long as the lock is held, whatever became of some nodes.
    for wait in [MS, 4 * TTL] {
        sleep(wait).await;
        borrow(&c, &loan.proof()).await.unwrap_err();
    }
    nodes.each([1, 3], MemoryNode::go_down);
    borrow(&c, &loan.proof()).await.unwrap_err();
    nodes.each([1, 3], MemoryNode::come_up);
    loan.returned();
    guard.release().await.unwrap();
    nodes.settle_free(KEY).await;
    for locks in [&a, &b, &c] {
        assert_idle(locks).await;
    }
}

/// A proxy that tries again has the lender answered by one copy, or by itself, while another is at work.
#[tokio::test(start_paused = true)]
async fn a_lock_is_not_released_under_a_borrower_at_work() {
    for dropped in [false, true] {
        let nodes = Nodes::five();
        let (a, b) = (nodes.manager(), nodes.manager());
        let guard = a.try_acquire(KEY).await.unwrap();
        let loan = guard.lend().unwrap();
        let borrowed = borrow(&b, &loan.proof()).await.unwrap();
        sleep(2 * TTL).await;
        loan.returned();
        let start = Instant::now();
        if dropped {
            drop(guard);
        } else {
            let _ = guard.release().await;
        }
        while !borrowed.is_lost() {
            let other = a.try_acquire(KEY).await;
            assert!(other.is_err(), "two at work after {:?}", start.elapsed());
            sleep(100 * MS).await;
        }
        assert!(start.elapsed() >= TTL / 2 && start.elapsed() <= TTL);
        drop(borrowed);
        sleep(TTL).await;
        assert_eq!(nodes.holding(KEY), 0);
        assert_idle(&a).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_released_when_the_borrower_has_ended_after_all() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let borrowed = borrow(&b, &loan.proof()).await.unwrap();
    loan.returned();
    let Err(ReleaseError::Unconfirmed(_)) = guard.release().await else {
        panic!("the borrower is at work");
    };
    sleep(TTL / 4).await;
    assert_eq!(nodes.holding(KEY), 5);
    borrowed.release().await.unwrap();
    // The next look after that.
    sleep(SECOND).await;
    assert_eq!(nodes.holding(KEY), 0);
    assert_idle(&a).await;
    assert_idle(&b).await;
}

/// Two copies reach the nodes in any order: never do both run.
#[tokio::test(start_paused = true)]
async fn of_copies_at_the_same_moment_at_most_one_runs() {
    let mut ran = 0;
    for first in 0..1_u32 << 5 {
        let nodes = Nodes::five();
        let (a, b, c) = (nodes.manager(), nodes.manager(), nodes.manager());
        let guard = a.try_acquire(KEY).await.unwrap();
        let loan = guard.lend().unwrap();
        let (one, two) = (loan.proof(), loan.proof());
        // The first copy is first at these nodes, the second at the others, and the first does not even reach those.
        let here = (0..5).filter(|n| first & 1 << n != 0);
        let there = (0..5).filter(|n| first & 1 << n == 0);
        nodes.each(here, MemoryNode::freeze);
        nodes.each(there.clone(), MemoryNode::go_down);
        let ours = tokio::spawn(async move { borrow(&b, &one).await });
        sleep(MS).await;
        nodes.each(there.clone(), MemoryNode::come_up);
        nodes.each(there, MemoryNode::freeze);
        let theirs = tokio::spawn(async move { borrow(&c, &two).await });
        sleep(MS).await;
        nodes.each(0..5, MemoryNode::thaw);
        let (ours, theirs) = (ours.await.unwrap(), theirs.await.unwrap());
        let count = usize::from(ours.is_ok()) + usize::from(theirs.is_ok());
        assert_eq!(count, 1, "{first:b}");
        ran += u32::from(ours.is_ok());
        drop((ours, theirs));
        loan.returned();
    }
    assert_eq!(ran, 16, "whoever has a quorum");
}

#[tokio::test(start_paused = true)]
async fn who_gave_up_before_it_ran_leaves_the_loan_to_another_copy() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    nodes.each(2..5, MemoryNode::freeze);
    // Its client has gone, or too few nodes answer.
    let cut = timeout(10 * MS, borrow(&b, &loan.proof())).await;
    assert!(cut.is_err(), "{cut:?}");
    borrow(&b, &loan.proof()).await.unwrap_err();
    nodes.each(2..5, MemoryNode::thaw);
    sleep(SECOND).await;
    let borrowed = borrow(&b, &loan.proof()).await.unwrap();
    borrowed.release().await.unwrap();
    loan.returned();
    guard.release().await.unwrap();
    nodes.settle_free(KEY).await;
    assert_idle(&b).await;
}
