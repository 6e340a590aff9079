//! Lending a lock to another service, and running under one that was lent.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::token::LoanProof;
use tower_redlock::{
    BorrowError, Fencing, LendError, LockGuard, LockKey, LockKeys, LockManager, LossReason,
    ReleaseError,
};

use super::{MS, Nodes, TTL, assert_idle, wait_for};

const SECOND: Duration = Duration::from_secs(1);
const KEY: &str = "order:1";

async fn borrow(locks: &LockManager, proof: &LoanProof) -> Result<LockGuard, BorrowError> {
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
        "v1;{};1843200000000000000",
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
    let loan = guard.lend().unwrap();
    let first = borrow(&locks, &loan.proof()).await.unwrap();
    let second = borrow(&locks, &loan.proof()).await.unwrap();
    assert_eq!(locks.snapshot().held, 3);
    drop(first);
    assert!(!second.is_lost() && !guard.is_lost());
    drop(second);
    loan.returned();
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
    let loan = guard.lend().unwrap();
    for keys in [vec!["x", "y", "z"], vec!["z"], vec!["y", "x"]] {
        let keys = LockKeys::new(keys).unwrap();
        let borrowed = b.borrow_keys(keys.clone(), &loan.proof()).await.unwrap();
        assert_eq!(borrowed.keys(), keys.as_slice());
    }
    loan.returned();
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

/// Whatever the two ttls are: the borrower follows the lender's extensions and never promises itself more.
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
    // The borrower works on although the loan was given back.
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
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    nodes.each(3..5, MemoryNode::freeze);
    sleep(9_800 * MS).await;
    nodes.each(3..5, MemoryNode::thaw);
    let loan = guard.lend().unwrap();
    let borrowed = borrow(&b, &loan.proof()).await.unwrap();
    assert!(
        borrowed.remaining() > 6 * SECOND,
        "{:?}",
        borrowed.remaining()
    );
    loan.returned();
}

#[tokio::test(start_paused = true)]
async fn a_lent_lock_is_not_handed_on_nor_one_that_was_lent() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = locks.try_acquire(KEY).await.unwrap();
    let token = nodes.token(KEY);
    let loan = guard.lend().unwrap();
    let waiter = wait_for(&locks, KEY).await;
    drop(guard);
    sleep(2 * SECOND).await;
    assert!(!waiter.is_finished(), "the borrower may be at work");
    assert_eq!(nodes.token(KEY), token);
    loan.returned();
    let next = waiter.await.unwrap().unwrap();
    assert_ne!(nodes.token(KEY), token, "granted anew");

    let token = nodes.token(KEY);
    next.lend().unwrap().returned();
    let waiter = wait_for(&locks, KEY).await;
    drop(next);
    let third = waiter.await.unwrap().unwrap();
    // A late copy of the call would find the proof valid otherwise.
    assert_ne!(nodes.token(KEY), token, "granted anew");
    drop(third);
    nodes.settle_free(KEY).await;
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_goes_while_its_lock_is_lent_leaves_the_release_to_the_last_loan() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = locks.try_acquire(KEY).await.unwrap();
    let (first, second) = (guard.lend().unwrap(), guard.lend().unwrap());
    let handle = guard.handle();
    let borrowed = borrow(&locks, &first.proof()).await.unwrap();
    let start = Instant::now();
    guard.release().await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(
        handle.lend().unwrap_err(),
        LendError::Ended(LossReason::Released),
        "who lends it must have it"
    );
    sleep(3 * TTL).await;
    assert!(!borrowed.is_lost(), "it is extended for the borrower");
    drop(borrowed);
    first.returned();
    sleep(MS).await;
    assert_eq!(nodes.holding(KEY), 5, "the second is out");
    second.returned();
    nodes.settle_free(KEY).await;
    assert!(handle.is_lost());
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn a_loan_without_an_answer_leaves_the_lock_to_expire() {
    // Whoever goes first, and with a waiter in line.
    for guard_first in [true, false] {
        let nodes = Nodes::five();
        let (a, b) = (nodes.manager(), nodes.manager());
        let guard = a.try_acquire(KEY).await.unwrap();
        sleep(20 * SECOND).await;
        let loan = guard.lend().unwrap();
        let borrowed = borrow(&b, &loan.proof()).await.unwrap();
        let promised = borrowed.remaining();
        let waiter = wait_for(&a, KEY).await;
        let start = Instant::now();
        if guard_first {
            drop(guard);
            drop(loan);
        } else {
            drop(loan);
            let Err(ReleaseError::Unconfirmed(_)) = guard.release().await else {
                panic!("nothing is released");
            };
        }
        sleep(promised - MS).await;
        assert_eq!(nodes.holding(KEY), 5, "the borrower has it");
        assert!(borrowed.remaining() <= MS);
        // The manager's max_wait is 5 s.
        let _ = waiter.await.unwrap();
        while nodes.holding(KEY) > 0 {
            sleep(MS).await;
        }
        assert!(start.elapsed() <= TTL, "{:?}", start.elapsed());
        assert!(borrowed.is_lost());
        drop(borrowed);
        assert_idle(&a).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_loan_without_an_answer_the_guard_has_what_is_left() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = locks.try_acquire(KEY).await.unwrap();
    let (lost, kept) = (guard.lend().unwrap(), guard.lend().unwrap());
    drop(lost);
    assert!(!guard.is_lost());
    let left = guard.remaining();
    let start = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(left - start.elapsed() <= 6 * MS);
    // The answer to another call does not bring it back.
    kept.returned();
    drop(guard);
    assert_idle(&locks).await;
    sleep(200 * MS).await;
    assert_eq!(nodes.holding(KEY), 0);
}

#[tokio::test(start_paused = true)]
async fn the_next_in_line_gets_the_lock_when_one_that_was_left_has_expired() {
    let nodes = Nodes::five();
    let locks = nodes.builder().max_wait(3 * TTL).lazy().unwrap();
    let guard = locks.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let waiter = wait_for(&locks, KEY).await;
    drop(loan);
    drop(guard);
    sleep(TTL - 200 * MS).await;
    assert!(!waiter.is_finished());
    let next = timeout(SECOND, waiter).await.unwrap().unwrap().unwrap();
    assert!(!next.is_lost());
}

#[tokio::test(start_paused = true)]
async fn run_returns_the_loan_with_an_answer_and_only_then() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let lend = async || {
        let guard = locks.try_acquire(KEY).await.unwrap();
        let loan = guard.lend().unwrap();
        (guard, loan)
    };
    let (guard, loan) = lend().await;
    let answer = loan.run(async { Ok::<_, ()>("done") }).await;
    assert_eq!(answer, Ok("done"));
    guard.release().await.unwrap();
    nodes.settle_free(KEY).await;

    let (guard, loan) = lend().await;
    loan.run(async { Err::<(), _>("broken pipe") })
        .await
        .unwrap_err();
    guard.release().await.unwrap_err();
    sleep(TTL / 2).await;
    assert_eq!(nodes.holding(KEY), 5);
    sleep(TTL / 2).await;

    let (guard, loan) = lend().await;
    let call = loan.run(std::future::pending::<Result<(), ()>>());
    assert!(timeout(SECOND, call).await.is_err());
    guard.release().await.unwrap_err();
    sleep(TTL / 2).await;
    assert_eq!(nodes.holding(KEY), 5);
    sleep(TTL / 2).await;
    assert_eq!(nodes.holding(KEY), 0);
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_or_is_borrowed_is_not_lent() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let guard = locks.try_acquire(KEY).await.unwrap();
    let handle = guard.handle();
    let loan = handle.lend().unwrap();
    assert!(!format!("{loan:?}").contains(guard.owner_hash().as_str()));
    let borrowed = borrow(&locks, &loan.proof()).await.unwrap();
    assert_eq!(borrowed.lend().unwrap_err(), LendError::Borrowed);
    drop(borrowed);
    loan.returned();
    guard.release().await.unwrap();
    let error = handle.lend().unwrap_err();
    assert_eq!(error, LendError::Ended(LossReason::Released));
    let guard = locks.try_acquire(KEY).await.unwrap();
    nodes.each(0..5, MemoryNode::freeze);
    guard.lost().await;
    let error = guard.lend().unwrap_err();
    assert_eq!(error, LendError::Ended(LossReason::Expired));
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
async fn a_shutdown_ends_borrowed_locks_and_releases_no_lent_one() {
    let nodes = Nodes::five();
    let (a, b) = (nodes.manager(), nodes.manager());
    let guard = a.try_acquire(KEY).await.unwrap();
    let loan = guard.lend().unwrap();
    let borrowed = borrow(&b, &loan.proof()).await.unwrap();
    let lost = tokio::spawn(borrowed.lost());
    let report = b.shutdown(Duration::ZERO).await;
    assert_eq!((report.lost, report.held), (1, 1));
    assert_eq!(lost.await.unwrap(), LossReason::Shutdown);
    assert!(!guard.is_lost());

    a.shutdown(Duration::ZERO).await;
    assert!(guard.is_lost());
    drop(guard);
    sleep(MS).await;
    assert_eq!(nodes.holding(KEY), 5, "the borrower may be at work");
    drop(loan);
    sleep(TTL).await;
    assert_eq!(nodes.holding(KEY), 0);
}
