//! Shared locks over real servers that die, freeze and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::task::JoinSet;

use crate::*;

/// A pair that writers change one half after the other, and what its readers saw.
#[derive(Default)]
struct Register {
    halves: [AtomicUsize; 2],
    reads: AtomicUsize,
    torn: AtomicUsize,
    stop: AtomicBool,
}

impl Register {
    async fn write(&self) {
        self.halves[0].fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(MS).await;
        self.halves[1].fetch_add(1, Ordering::SeqCst);
    }

    async fn read(&self) {
        let first = self.halves[0].load(Ordering::SeqCst);
        tokio::time::sleep(MS).await;
        let second = self.halves[1].load(Ordering::SeqCst);
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.torn
            .fetch_add(usize::from(first != second), Ordering::SeqCst);
    }

    /// Waits until so many more have read, and written.
    async fn goes_on(&self, reads: usize, writes: usize) {
        let seen = || [&self.reads, &self.halves[1]].map(|n| n.load(Ordering::SeqCst));
        let before = seen();
        let done = || seen()[0] >= before[0] + reads && seen()[1] >= before[1] + writes;
        eventually("readers and writers go on", done).await;
    }
}

/// In each process three readers and a writer, under locks or, as a control, without.
fn load(managers: &[LockManager], register: &Arc<Register>, locked: bool) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for number in 0..4 * managers.len() {
        let writes = number % 4 == 0;
        let locks = managers[number / 4].clone();
        let locks = if writes { locks } else { locks.shared() };
        let register = Arc::clone(register);
        tasks.spawn(async move {
            while !register.stop.load(Ordering::SeqCst) {
                let guard = match locked {
                    true => acquired(&locks).await,
                    false => None,
                };
                if locked && guard.is_none() {
                    continue;
                }
                match writes {
                    true => register.write().await,
                    false => register.read().await,
                }
                if let Some(guard) = guard {
                    assert!(!guard.is_lost());
                    let _ = guard.release().await;
                }
            }
        });
    }
    tasks
}

async fn end(register: &Register, tasks: JoinSet<()>) {
    register.stop.store(true, Ordering::SeqCst);
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_is_torn_while_servers_die_freeze_and_come_back_empty() {
    let mut cluster = Cluster::start();
    let short = || cluster.short(Duration::from_secs(2));
    let managers = [connected(short()).await, connected(short()).await];
    let register = Arc::new(Register::default());
    let tasks = load(&managers, &register, true);
    register.goes_on(60, 20).await;
    for node in [1, 3] {
        cluster.servers[node].kill();
        register.goes_on(60, 20).await;
        cluster.servers[node].restart();
        seen_by_all(&managers, node).await;
        register.goes_on(60, 20).await;
    }
    cluster.each([0, 2], Server::freeze);
    register.goes_on(30, 10).await;
    cluster.each([0, 2], Server::thaw);
    end(&register, tasks).await;
    assert_eq!(register.torn.load(Ordering::SeqCst), 0);
    // Those that were frozen hear of it late.
    eventually("all are free", || cluster.keys().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_without_a_lock_are_torn() {
    let cluster = Cluster::start();
    let managers = [connected(cluster.builder()).await];
    let register = Arc::new(Register::default());
    let tasks = load(&managers, &register, false);
    register.goes_on(200, 50).await;
    end(&register, tasks).await;
    assert!(register.torn.load(Ordering::SeqCst) > 0);
}
