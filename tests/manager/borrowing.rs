//! Running under a lock that another service lent.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::token::LoanProof;
use tower_redlock::{
    BorrowError, Fencing, LockGuard, LockKey, LockKeys, LockManager, LossReason, ReleaseError,
};

use super::{MS, Nodes, TTL, assert_idle};

const SECOND: Duration = Duration::from_secs(1);
const KEY: &str = "order:1";

pub(crate) async fn borrow(
    locks: &LockManager,
    proof: &LoanProof,
) -> Result<LockGuard, BorrowError> {
    let key = LockKey::new(KEY).unwrap();
    locks.borrow_keys(key.into(), proof).await
}

/// The proof as the other service reads it.
fn carried(proof: LoanProof) -> LoanProof {
    proof.expose().parse().unwrap()
}

/// A proof that looks right and belongs to nobody.
fn forged() -> LoanProof {
    format!(
        "v2;{};1;70000;1843200000000000000",
        "0123456789abcdef01".repeat(3)[..40].to_owned()
    )
    .parse()
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_borrower_runs_under_the_lock_and_leaves_no_trace() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    let token = nodes.token(KEY);
    let loan = guard.lend().unwrap();
    let borrowed = borrow(&b, &carried(loan.proof())).await.unwrap();
    assert!(borrowed.is_borrowed() && !guard.is_borrowed());
    assert_eq!(borrowed.owner_hash(), guard.owner_hash());
    assert_eq!(
        (borrowed.fence(), borrowed.key()),
        (guard.fence(), guard.key())
    );
    assert!(borrowed.fence().is_some());
    b.try_acquire(KEY).await.unwrap_err();
    borrowed.release().await.unwrap();
    sleep(SECOND).await;
    assert_eq!((nodes.holding(KEY), nodes.token(KEY)), (5, token));
    assert_idle(&b).await;
    assert!(!guard.is_lost());
    loan.returned();
    guard.release().await.unwrap();
    nodes.settle_free(KEY).await;
    assert_idle(&a).await;
}

#[tokio::test(start_paused = true)]
async fn it_can_be_borrowed_in_the_same_process_and_is_in_nobodys_way() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = locks.try_acquire(KEY).await.unwrap();
    let loans = [guard.lend().unwrap(), guard.lend().unwrap()];
    let first = borrow(&locks, &loans[0].proof()).await.unwrap();
    let second = borrow(&locks, &loans[1].proof()).await.unwrap();
    assert_eq!(locks.snapshot().held, 3);
    drop(first);
    assert!(!second.is_lost() && !guard.is_lost());
    second.release().await.unwrap();
    for loan in loans {
        loan.returned();
    }
    drop(guard);
    nodes.settle_free(KEY).await;
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_held_by_the_owner_of_the_proof_is_refused() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let proof = loan.proof();
    let held = nodes.token(KEY);
    let error = borrow(&b, &forged()).await.unwrap_err();
    assert_eq!(error, BorrowError::NotOwner);
    assert!(!error.to_string().contains("0123456789"), "{error}");
    let others: LockKeys = LockKey::new("order:2").unwrap().into();
    let refused = b.borrow_keys(others, &proof).await.unwrap_err();
    assert_eq!(refused, BorrowError::NotOwner, "of a free key");
    let both = LockKeys::new([KEY, "order:2"]).unwrap();
    let refused = b.borrow_keys(both, &proof).await.unwrap_err();
    assert_eq!(refused, BorrowError::NotOwner, "of one key too many");
    assert_eq!((nodes.token(KEY), nodes.holding("order:2")), (held, 0));
    loan.returned();
    guard.release().await.unwrap();
    let refused = borrow(&b, &proof).await.unwrap_err();
    assert_eq!(refused, BorrowError::NotOwner, "of a lock that has ended");
    let next = a.try_acquire(KEY).await.unwrap();
    let refused = borrow(&b, &proof).await.unwrap_err();
    assert_eq!(refused, BorrowError::NotOwner, "of the next holder's lock");
    drop(next);
    assert_idle(&b).await;
}

#[tokio::test(start_paused = true)]
async fn several_keys_are_borrowed_together_or_some_of_them() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.acquire_all(["x", "y", "z"]).await.unwrap();
    for keys in [vec!["x", "y", "z"], vec!["z"], vec!["y", "x"]] {
        let loan = guard.lend().unwrap();
        let keys = LockKeys::new(keys).unwrap();
        let borrowed = b.borrow_keys(keys.clone(), &loan.proof()).await.unwrap();
        assert_eq!(borrowed.keys(), keys.as_slice());
        loan.returned();
    }
}

#[tokio::test(start_paused = true)]
async fn too_few_nodes_and_a_shutdown_are_told_apart() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    nodes.each([3], MemoryNode::go_down);
    nodes.each([4], MemoryNode::freeze);
    drop(borrow(&b, &loan.proof()).await.unwrap());
    loan.returned();
    let loan = guard.lend().unwrap();
    nodes.each([2], MemoryNode::freeze);
    let start = Instant::now();
    let Err(BorrowError::NoQuorum(error)) = borrow(&b, &loan.proof()).await else {
        panic!("two of five are no quorum");
    };
    assert_eq!(start.elapsed(), b.node_timeout());
    let failed: Vec<&str> = error.failures().iter().map(|f| f.node.as_str()).collect();
    assert_eq!(failed, ["n2", "n3", "n4"]);
    b.shutdown(Duration::ZERO).await;
    let refused = borrow(&b, &loan.proof()).await.unwrap_err();
    assert!(matches!(refused, BorrowError::ShuttingDown(_)));
    loan.returned();
}

#[tokio::test(start_paused = true)]
async fn a_borrower_never_outlives_its_lender_and_follows_its_extensions() {
    for (ours, theirs) in [(10, 10), (1, 30), (30, 1), (10, 3)] {
        let nodes = Nodes::five();
        let a = nodes.builder().ttl(ours * SECOND).lazy().unwrap();
        let b = nodes.builder().ttl(theirs * SECOND).lazy().unwrap();
        let guard = a.try_acquire(KEY).await.unwrap();
        let loan = guard.lend().unwrap();
        let borrowed = borrow(&b, &loan.proof()).await.unwrap();
        for _ in 0..400 {
            sleep(100 * MS).await;
            assert!(!borrowed.is_lost(), "{ours} s lent to {theirs} s");
            assert!(borrowed.remaining() <= guard.remaining());
        }
        assert_eq!(nodes.holding(KEY), 5);
        loan.returned();
    }
}

#[tokio::test(start_paused = true)]
async fn a_borrower_asks_about_as_often_as_the_lender_extends() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let alone = {
        let before = nodes.commands();
        sleep(20 * SECOND).await;
        nodes.commands() - before
    };
    let borrowed = borrow(&b, &loan.proof()).await.unwrap();
    let before = nodes.commands();
    sleep(20 * SECOND).await;
    let looks = nodes.commands() - before - alone;
    assert!(looks >= alone && looks <= 2 * alone, "{looks} of {alone}");
    drop(borrowed);
    loan.returned();
}

#[tokio::test(start_paused = true)]
async fn a_borrower_is_lost_where_the_lender_is() {
    // No node can be reached by anybody.
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let borrowed = borrow(&b, &loan.proof()).await.unwrap();
    sleep(4 * SECOND).await;
    nodes.each(0..5, MemoryNode::freeze);
    let reason = borrowed.lost().await;
    assert_eq!(reason, LossReason::Expired);
    assert!(guard.remaining() <= 10 * MS || !guard.is_lost());
    guard.lost().await;
    assert!(borrowed.remaining() <= 6 * MS);
    nodes.each(0..5, MemoryNode::thaw);
    sleep(SECOND).await;
    assert!(borrowed.is_lost(), "for good");
    loan.returned();
}

#[tokio::test(start_paused = true)]
async fn a_borrower_is_lost_at_once_when_too_many_nodes_have_lost_the_lender() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.forgetful(), nodes.forgetful());
    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let borrowed = borrow(&b, &loan.proof()).await.unwrap();
    nodes.each(0..5, MemoryNode::forget);
    loan.returned();
    guard.release().await.unwrap();
    let start = Instant::now();
    assert_eq!(borrowed.lost().await, LossReason::Lender);
    assert!(start.elapsed() <= TTL / 3, "{:?}", start.elapsed());
    assert!(borrowed.is_lost());
    let Err(ReleaseError::Lost(LossReason::Lender)) = borrowed.release().await else {
        panic!("the work ran without the lock");
    };

    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let borrowed = borrow(&b, &loan.proof()).await.unwrap();
    nodes.each(0..2, MemoryNode::forget);
    assert!(timeout(40 * SECOND, borrowed.lost()).await.is_err());
    loan.returned();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_missed_an_extension_does_not_shorten_the_loan() {
    for missing in [0..2, 1..3, 2..4, 3..5] {
        let nodes = Nodes::five();
        let (a, b) = (nodes.manager(), nodes.manager());
        let guard = a.try_acquire(KEY).await.unwrap();
        nodes.each(missing.clone(), MemoryNode::go_down);
        sleep(9_800 * MS).await;
        nodes.each(missing, MemoryNode::come_up);
        let loan = guard.lend().unwrap();
        let borrowed = borrow(&b, &loan.proof()).await.unwrap();
        assert!(
            borrowed.remaining() > 6 * SECOND,
            "{:?}",
            borrowed.remaining()
        );
        loan.returned();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_borrowed_while_the_manager_shuts_down_is_refused() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let proof = loan.proof();
    nodes.each(0..5, MemoryNode::freeze);
    let asking = {
        let b = b.clone();
        tokio::spawn(async move { borrow(&b, &proof).await })
    };
    sleep(10 * MS).await;
    let shutdown = tokio::spawn(async move { b.shutdown(Duration::ZERO).await });
    sleep(10 * MS).await;
    nodes.each(0..5, MemoryNode::thaw);
    let refused = asking.await.unwrap().unwrap_err();
    assert!(matches!(refused, BorrowError::ShuttingDown(_)), "{refused}");
    let report = shutdown.await.unwrap();
    assert_eq!((report.lost, report.held), (0, 0));
    assert!(!guard.is_lost());
    loan.returned();
}

#[tokio::test(start_paused = true)]
async fn without_numbers_there_is_none_in_the_proof() {
    let nodes = Nodes::five();
    let locks = nodes.builder().fencing(Fencing::OFF).lazy().unwrap();
    let guard = locks.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let proof = carried(loan.proof());
    assert_eq!(proof.fence(), None);
    let borrowed = borrow(&locks, &proof).await.unwrap();
    assert_eq!(borrowed.fence(), None);
    loan.returned();
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_lenders_lock_is_seen_also_close_to_our_own_max_hold() {
    let nodes = Nodes::five();
    let a = nodes.forgetful();
    let b = nodes.unguarded().max_hold(TTL).lazy().unwrap();
    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    sleep(SECOND).await;
    let borrowed = borrow(&b, &loan.proof()).await.unwrap();
    // Now there is more left of it than we may use.
    sleep(4 * SECOND).await;
    assert!(borrowed.remaining() <= 6 * SECOND);
    loan.returned();
    // Else they would keep it for the borrower.
    nodes.each(0..5, MemoryNode::forget);
    let _ = guard.release().await;
    let reason = timeout(4 * SECOND, borrowed.lost()).await.unwrap();
    assert_eq!(reason, LossReason::Lender);
    assert_idle(&a).await;
}

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
    // When the first copy has been answered, at once and for as long as the lock is held, whatever became of some nodes.
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
