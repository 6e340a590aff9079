//! Money moves between accounts under locks of two keys at a time: sums are conserved, and everybody gets its turn.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use tokio::task::JoinSet;

use crate::*;

const ACCOUNTS: u64 = 16;
const WORKERS: usize = 64;
const MANAGERS: usize = 2;
const START: i64 = 1_000;
/// How long it goes on for, in seconds.
const SECONDS: &str = "REDLOCK_SOAK_SECONDS";

/// One account. Reads and writes are apart, so that two who are in at the same time lose money.
#[derive(Default)]
struct Account {
    balance: AtomicI64,
    inside: AtomicU32,
}

struct Bank {
    accounts: Vec<Account>,
    end: Instant,
    // Grants that the lock was lost for meanwhile: nothing was written.
    lost: AtomicU64,
}

impl Bank {
    async fn transfer(&self, locks: &LockManager) {
        let from = fastrand::u64(..ACCOUNTS);
        let to = (from + 1 + fastrand::u64(..ACCOUNTS - 1)) % ACCOUNTS;
        let keys = [from, to].map(|number| format!("account:{number}"));
        let guard = locks.acquire(keys).await.unwrap();
        let pair = [from, to].map(|number| &self.accounts[usize::try_from(number).unwrap()]);
        for account in pair {
            let inside = account.inside.fetch_add(1, Ordering::SeqCst);
            assert_eq!(inside, 0, "two in one account");
        }
        let [mut credit, mut debit] = pair.map(|account| account.balance.load(Ordering::SeqCst));
        let amount = i64::try_from(fastrand::u64(..10)).unwrap();
        match fastrand::u64(..4) {
            0 => tokio::time::sleep(MS).await,
            1 => {}
            _ => tokio::task::yield_now().await,
        }
        credit -= amount;
        debit += amount;
        if guard.is_lost() {
            self.lost.fetch_add(1, Ordering::SeqCst);
        } else {
            pair[0].balance.store(credit, Ordering::SeqCst);
            pair[1].balance.store(debit, Ordering::SeqCst);
        }
        for account in pair {
            let inside = account.inside.fetch_sub(1, Ordering::SeqCst);
            assert_eq!(inside, 1, "two in one account");
        }
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_is_conserved_and_everybody_gets_its_turn() {
    let seconds: u64 = env::var(SECONDS).map_or(4, |text| text.parse().unwrap());
    let cluster = Cluster::start();
    let mut managers = Vec::new();
    for _ in 0..MANAGERS {
        managers.push(connected(cluster.builder().max_wait(Duration::from_secs(60))).await);
    }
    let new = || Account {
        balance: AtomicI64::new(START),
        inside: AtomicU32::new(0),
    };
    let bank = Arc::new(Bank {
        accounts: (0..ACCOUNTS).map(|_| new()).collect(),
        end: Instant::now() + Duration::from_secs(seconds),
        lost: AtomicU64::new(0),
    });
    let mut workers = JoinSet::new();
    for locks in managers.iter().cycle().take(WORKERS) {
        let (bank, locks) = (Arc::clone(&bank), locks.clone());
        workers.spawn(async move {
            let mut transfers = 0;
            while Instant::now() < bank.end {
                bank.transfer(&locks).await;
                transfers += 1;
            }
            transfers
        });
    }
    let transfers = workers.join_all().await;
    let late = bank.end.elapsed();
    let balances = bank.accounts.iter().map(|account| &account.balance);
    let sum: i64 = balances.map(|balance| balance.load(Ordering::SeqCst)).sum();
    assert_eq!(sum, START * i64::try_from(ACCOUNTS).unwrap());
    let lost = bank.lost.load(Ordering::SeqCst);
    assert_eq!(lost, 0, "no lock is lost in a minute");
    assert!(!transfers.contains(&0), "{transfers:?}");
    assert!(late < Duration::from_secs(20), "{late:?}");
    cluster.settle_free("all transfers").await;
}
