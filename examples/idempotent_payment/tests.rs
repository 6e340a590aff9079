//! The example as its users meet it, and the transaction alone.

use super::*;
use crate::bank::Receipt;

async fn locks() -> LockManager {
    LockManager::builder().memory(5).connect().await.unwrap()
}

#[tokio::test]
async fn the_demonstration_is_sound() {
    let (bank, locks) = (Bank::open().unwrap(), locks().await);
    assert!(demo::run(&bank, &locks).await.unwrap());
}

fn run_of(key: &str, of_account: i64, of_key: i64) -> Run {
    let fence = |resource: String, token| Fence {
        resource,
        token,
        owner: format!("owner-{token}"),
    };
    Run {
        customer: "alice".to_owned(),
        key: key.to_owned(),
        fences: [
            fence("account:7".to_owned(), of_account),
            fence(format!("key:alice:{key}"), of_key),
        ],
    }
}

fn order(amount: u32) -> Order {
    Order::of(amount).unwrap()
}

/// The process died after the transaction and before the layer kept the answer.
#[test]
fn a_second_run_gets_the_receipt_of_the_first_and_moves_nothing() {
    let bank = Bank::open().unwrap();
    let pay = |run| bank.pay(&run, ACCOUNT, order(100)).unwrap();
    let receipt = Receipt {
        payment: 1,
        account: ACCOUNT,
        amount: 100,
        balance: bank::BEGINNING - 100,
    };
    assert_eq!(pay(run_of("a", 1, 1)), Outcome::Paid(receipt.clone()));
    assert_ne!(pay(run_of("b", 2, 1)), Outcome::Paid(receipt.clone()));
    assert_eq!(pay(run_of("a", 3, 2)), Outcome::Paid(receipt));
    assert_eq!(bank.audit().unwrap(), (2, bank::BEGINNING - 200));
    let other = bank.pay(&run_of("a", 4, 3), ACCOUNT, order(101));
    assert_eq!(other.unwrap(), Outcome::KeyReused);
}

#[test]
fn a_run_that_was_overtaken_changes_nothing_by_either_token() {
    let bank = Bank::open().unwrap();
    let pay = |run| bank.pay(&run, ACCOUNT, order(100)).unwrap();
    assert!(matches!(pay(run_of("a", 5, 5)), Outcome::Paid(_)));
    // Another has had the account since, and another run has begun with this key.
    assert_eq!(pay(run_of("b", 4, 9)), Outcome::Overtaken);
    assert_eq!(pay(run_of("a", 8, 4)), Outcome::Overtaken);
    let mut twin = run_of("b", 5, 9);
    twin.fences[0].owner = "another".to_owned();
    assert_eq!(pay(twin), Outcome::Overtaken);
    assert_eq!(bank.audit().unwrap(), (1, bank::BEGINNING - 100));
    // Neither has left its fencing token behind.
    assert!(matches!(pay(run_of("b", 6, 1)), Outcome::Paid(_)));
}

#[test]
fn what_cannot_be_paid_is_not() {
    let bank = Bank::open().unwrap();
    let too_much = order(u32::try_from(bank::BEGINNING).unwrap() + 1);
    let refused = bank.pay(&run_of("a", 1, 1), ACCOUNT, too_much).unwrap();
    assert_eq!(refused, Outcome::TooLittle);
    let mut bob = run_of("a", 2, 1);
    bob.customer = "bob".to_owned();
    let refused = bank.pay(&bob, ACCOUNT, order(1)).unwrap();
    assert_eq!(refused, Outcome::NoSuchAccount);
    assert!(Order::of(0).is_none());
    assert_eq!(bank.audit().unwrap(), (0, bank::BEGINNING));
}
