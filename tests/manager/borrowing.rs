//! Running under a lock that another service lent.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tower_redlock::config::Fencing;
use tower_redlock::error::{BorrowError, LossReason, ReleaseError};
use tower_redlock::key::LockKeys;
use tower_redlock::lock::LoanProof;
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::{LockGuard, LockKey, LockManager};

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
pub(crate) fn carried(proof: LoanProof) -> LoanProof {
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
        let a = nodes
            .builder()
            .ttl(ours * SECOND)
            .max_ttl(60 * SECOND)
            .lazy()
            .unwrap();
        let b = nodes
            .builder()
            .ttl(theirs * SECOND)
            .max_ttl(60 * SECOND)
            .lazy()
            .unwrap();
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
async fn a_borrower_may_have_a_ttl_of_far_more_than_the_lender_has_left() {
    let nodes = Nodes::five();
    let manager = || nodes.builder().max_ttl(1_000 * TTL).lazy().unwrap();
    let (a, b) = (manager(), manager());
    let b = b.with_ttl(1_000 * TTL).unwrap();
    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let borrowed = borrow(&b, &carried(loan.proof())).await.unwrap();
    assert!(borrowed.remaining() <= guard.remaining());
    assert!(borrowed.remaining() > TTL / 2);
    sleep(3 * TTL).await;
    assert!(!borrowed.is_lost(), "it follows the lender");
    nodes.0.iter().for_each(MemoryNode::freeze);
    sleep(TTL).await;
    assert!(borrowed.is_lost() && guard.is_lost());
    nodes.0.iter().for_each(MemoryNode::thaw);
    drop(borrowed);
    loan.returned();
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
async fn without_fencing_the_proof_has_no_token() {
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
