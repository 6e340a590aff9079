//! The example as its users meet it, and the transaction alone, on both databases.

use std::sync::atomic::AtomicBool;

use axum::body::Bytes;

use super::*;
use crate::bank::{BEGINNING, Encode, Receipt};
use crate::demo::Replica;
use crate::support::eventually;
use crate::support::server::{Kind, Server};

async fn locks() -> LockManager {
    LockManager::builder().memory(5).connect().await.unwrap()
}

/// Set for a process that is the service.
const SERVES: &str = "PAYMENTS_SERVE";

/// A bank of its own, whatever the environment says.
fn fresh(on_postgres: bool) -> (String, Box<dyn std::any::Any>) {
    if on_postgres {
        return place(true).unwrap();
    }
    let dir = Dir::new().unwrap();
    (dir.bank(), Box::new(dir))
}

async fn is_sound(on_postgres: bool) -> bool {
    let (place, _end) = fresh(on_postgres);
    let mut itself = Command::new(std::env::current_exe().unwrap());
    itself
        .args([
            "--exact",
            "tests::is_the_service_if_it_is_told",
            "--nocapture",
        ])
        .env(SERVES, "1")
        .env("DATABASE_URL", &place);
    let bank = Bank::open(&place).await.unwrap();
    demo::run(&bank, &locks().await, itself).await.unwrap()
}

#[tokio::test]
async fn the_demonstration_is_sound() {
    assert!(is_sound(false).await);
}

#[tokio::test]
async fn the_demonstration_is_sound_on_postgres() {
    assert!(is_sound(true).await);
}

#[tokio::test]
async fn is_the_service_if_it_is_told() {
    if std::env::var_os(SERVES).is_some() {
        let url = std::env::var("DATABASE_URL").unwrap();
        let bank = Bank::open(&url).await.unwrap();
        serve(app(&bank, &locks().await, PATIENCE)).await.unwrap();
    }
}

fn payment(id: &str, token: i64, amount: i64) -> Payment {
    let encode: Encode = Arc::new(|response| response.body().clone());
    Payment {
        id: id.to_owned(),
        encode,
        fence: Some(Fence {
            resource: "account:7".to_owned(),
            token,
            owner: format!("owner-{token}"),
        }),
        customer: "alice".to_owned(),
        account: ACCOUNT,
        amount,
    }
}

/// A fresh bank for each database.
async fn with_each_bank(test: impl AsyncFn(&Bank)) {
    for on_postgres in [false, true] {
        let (place, _end) = fresh(on_postgres);
        test(&Bank::open(&place).await.unwrap()).await;
    }
}

/// The process died after the transaction and before the layer kept the response.
#[tokio::test]
async fn a_second_run_gets_the_response_of_the_first_and_moves_nothing() {
    with_each_bank(async |bank| {
        let receipt = Receipt {
            payment: 1,
            account: ACCOUNT,
            amount: 100,
            balance: BEGINNING - 100,
        };
        let first = bank.pay(payment("a", 1, 100)).await.unwrap();
        let Outcome::Paid(response) = first else {
            panic!("{first:?}");
        };
        let told: Bytes = response.into_body();
        assert_eq!(serde_json::from_slice::<Receipt>(&told).unwrap(), receipt);
        let other = bank.pay(payment("b", 2, 100)).await.unwrap();
        assert!(matches!(other, Outcome::Paid(_)), "{other:?}");
        // Also if it comes with a smaller token: it does nothing.
        for token in [3, 1] {
            let again = bank.pay(payment("a", token, 100)).await.unwrap();
            assert!(
                matches!(&again, Outcome::PaidBefore(stored) if *stored == told),
                "{again:?}"
            );
        }
        assert_eq!(bank.audit().await.unwrap(), (2, BEGINNING - 200));
    })
    .await;
}

#[tokio::test]
async fn a_run_that_was_overtaken_changes_nothing() {
    with_each_bank(async |bank| {
        let first = bank.pay(payment("a", 5, 100)).await.unwrap();
        assert!(matches!(first, Outcome::Paid(_)), "{first:?}");
        // Another has had the account since, or has a token that is equal.
        let mut twin = payment("c", 5, 100);
        twin.fence.as_mut().unwrap().owner = "another".to_owned();
        for late in [payment("b", 4, 100), twin] {
            let outcome = bank.pay(late).await.unwrap();
            assert!(matches!(outcome, Outcome::Overtaken), "{outcome:?}");
        }
        assert_eq!(bank.audit().await.unwrap(), (1, BEGINNING - 100));
        // It has left no row without a response behind.
        let again = bank.pay(payment("b", 6, 100)).await.unwrap();
        assert!(matches!(again, Outcome::Paid(_)), "{again:?}");
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_paid_is_not() {
    with_each_bank(async |bank| {
        let refused = bank.pay(payment("a", 1, BEGINNING + 1)).await.unwrap();
        assert!(matches!(refused, Outcome::TooLittle), "{refused:?}");
        let mut bob = payment("a", 2, 1);
        bob.customer = "bob".to_owned();
        let refused = bank.pay(bob).await.unwrap();
        assert!(matches!(refused, Outcome::NoSuchAccount), "{refused:?}");
        assert_eq!(bank.audit().await.unwrap(), (0, BEGINNING));
        let paid = bank.pay(payment("a", 3, 1)).await.unwrap();
        assert!(matches!(paid, Outcome::Paid(_)), "{paid:?}");
    })
    .await;
}

/// A replica of the service, with its own connection to the database and to Redis.
async fn replica(place: &str, redis: &str) -> (Replica, LockManager) {
    let ttl = Duration::from_secs(2);
    let locks = LockManager::builder().redis([redis]).ttl(ttl).max_ttl(ttl);
    let locks = locks.bootstrap(true).connect().await.unwrap();
    let bank = Bank::open(place).await.unwrap();
    let replica = Replica::start(&bank, &locks, PATIENCE).await.unwrap();
    (replica, locks)
}

/// Sends each payment to both replicas at the same time until `end` is set, and returns how many payments that were.
async fn pay_twice_each(client: usize, replicas: [Replica; 2], end: Arc<AtomicBool>) -> i64 {
    let mut paid = 0;
    while !end.load(Ordering::Relaxed) {
        let key = format!("{client}-{paid}");
        let [one, other] = replicas.each_ref().map(|it| it.pay(&key, 1));
        let (one, other) = tokio::join!(one, other);
        let (one, other) = (one.unwrap(), other.unwrap());
        for answer in [&one, &other] {
            let text = String::from_utf8_lossy(&answer.body);
            assert_eq!(answer.status, StatusCode::CREATED, "{key}: {text}");
        }
        assert_eq!(one.body, other.body, "{key}");
        paid += 1;
    }
    paid
}

#[tokio::test]
async fn no_payment_fails_while_redis_is_killed_flushed_quarantined_and_full() {
    let (place, _end) = fresh(true);
    let mut server = Server::start(Kind::Redis, &[]);
    let (first, locks) = replica(&place, &server.url()).await;
    let (second, _locks) = replica(&place, &server.url()).await;
    let end = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let replicas = [first.clone(), second.clone()];
            tokio::spawn(pay_twice_each(client, replicas, Arc::clone(&end)))
        })
        .collect();
    let is_well = |wanted: bool| {
        let locks = &locks;
        eventually("the node is as it should be", move || {
            locks.has_quorum() == wanted
        })
    };
    is_well(true).await;
    for _ in 0..2 {
        server.kill();
        is_well(false).await;
        server.restart();
        is_well(true).await;
        server.run("FLUSHALL");
        is_well(false).await;
        is_well(true).await;
    }
    server.run("CONFIG SET maxmemory 1mb");
    while locks.acquire("x").await.is_ok() {}
    server.run("CONFIG SET maxmemory 0");
    end.store(true, Ordering::Relaxed);
    let mut paid = 0;
    for client in clients {
        paid += client.await.unwrap();
    }
    let bank = Bank::open(&place).await.unwrap();
    assert_eq!(bank.audit().await.unwrap(), (paid, BEGINNING - paid));
    println!("{paid} payments, each sent twice");
}
