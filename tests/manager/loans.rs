//! Lending a lock to another service.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tower_redlock::error::{LendError, LossReason, ReleaseError};
use tower_redlock::key::LockKeys;
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::{LockKey, LockScope};

use super::borrowing::borrow;
use super::idempotent::{replay, run, with_record};
use super::{MS, Nodes, TTL, assert_idle, wait_for};

const SECOND: Duration = Duration::from_secs(1);
const KEY: &str = "order:1";

/// Whatever the two ttls are: the borrower follows the lender's extensions and never promises itself more.
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
    borrowed.release().await.unwrap();
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

#[tokio::test(start_paused = true)]
async fn work_takes_up_again_what_it_left_to_a_loan() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let scope = LockScope::new();
    let key: LockKeys = LockKey::new(KEY).unwrap().into();
    let first = locks.acquire_in(&scope, key.clone(), TTL).await.unwrap();
    let loan = first.lend().unwrap();
    drop(first);
    let again = locks.acquire_in(&scope, key, TTL).await.unwrap();
    loan.returned();
    sleep(3 * TTL).await;
    assert!(!again.is_lost(), "the loan leaves it to the guard");
    let loan = again.lend().unwrap();
    drop(again);
    sleep(MS).await;
    assert_eq!(nodes.holding(KEY), 5);
    loan.returned();
    nodes.settle_free(KEY).await;
    assert_idle(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_is_not_lent_for_its_lock_is_given_back_with_what_it_came_to() {
    for dropped in [true, false] {
        let nodes = Nodes::five();
        let locks = nodes.manager();
        let guard = run(&locks).await;
        let mut loan = Some(guard.handle().lend());
        if dropped {
            // As when the call under the loan failed.
            drop(loan.take());
        }
        guard.complete("charged").await.unwrap();
        assert_eq!(replay(&locks).await, "charged", "done twice");
        assert_eq!(with_record(&nodes).await, 5);
        if let Some(Ok(loan)) = loan {
            panic!("{loan:?} was out, and its lock given back");
        }
    }
    let locks = Nodes::five().manager();
    let error = run(&locks).await.handle().lend().unwrap_err();
    let error = error.to_string();
    assert!(error.contains("acquire a lock"), "{error}");
}
