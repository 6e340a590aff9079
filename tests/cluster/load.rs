//! Exclusion under load while masters are killed, frozen, demoted and lose slots. `REDLOCK_SOAK_SECONDS` goes on with it
//! for so long.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::server::Server;
use crate::*;

/// What is seen inside the lock.
#[derive(Default)]
struct Room {
    inside: AtomicU32,
    entered: AtomicU32,
    overlaps: AtomicU32,
    /// The highest fencing token so far, and how many came later with a lower one.
    highest: AtomicU64,
    fell: AtomicU32,
}

impl Room {
    #[expect(clippy::print_stdout, reason = "it is for whoever reads the run")]
    fn had_one_holder(&self) {
        let of = |counter: &AtomicU32| counter.load(Ordering::SeqCst);
        let (overlaps, fell) = (of(&self.overlaps), of(&self.fell));
        println!("locks so far: {}", of(&self.entered));
        assert_eq!((overlaps, fell), (0, 0), "overlaps, tokens out of order");
    }
}

async fn work(locks: LockManager, room: Arc<Room>, stop: Arc<AtomicBool>) {
    let locks = locks.with_max_wait(200 * MS);
    while !stop.load(Ordering::Relaxed) {
        let Ok(guard) = locks.acquire("k").await else {
            tokio::time::sleep(2 * MS).await;
            continue;
        };
        let before = room.inside.fetch_add(1, Ordering::SeqCst);
        if !guard.is_lost() {
            let token = guard.fence().unwrap().get();
            let highest = room.highest.fetch_max(token, Ordering::SeqCst);
            room.overlaps
                .fetch_add(u32::from(before > 0), Ordering::SeqCst);
            room.fell
                .fetch_add(u32::from(token <= highest), Ordering::SeqCst);
        }
        room.entered.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(2 * MS).await;
        room.inside.fetch_sub(1, Ordering::SeqCst);
        drop(guard);
    }
}

struct Scene {
    cluster: RedisCluster,
    locks: LockManager,
    room: Arc<Room>,
}

impl Scene {
    /// Waits until locks are granted again, and until all nodes vote.
    async fn goes_on(&self, what: &str) {
        let before = self.room.entered.load(Ordering::SeqCst);
        let more = || self.room.entered.load(Ordering::SeqCst) > before + 20;
        eventually_or_tell(what, more, || format!("{:?}", self.locks.snapshot().nodes)).await;
        all_vote(&self.locks).await;
    }

    fn owner(&self, slot: u16) -> usize {
        let mut servers = self.cluster.servers.iter();
        let witness = servers.position(Server::is_running).unwrap();
        self.cluster.owner(slot, witness).unwrap()
    }

    async fn promoted(&self, slot: u16, before: usize) {
        let witness = (0..6).find(|server| *server != before).unwrap();
        let is_new = || self.cluster.owner(slot, witness) != Some(before);
        let nodes = || self.cluster.servers[witness].run("CLUSTER NODES");
        eventually_or_tell("promoted", is_new, nodes).await;
    }

    async fn round(&mut self) {
        let replica = self.cluster.replica_of(self.owner(SLOTS[0]));
        self.cluster.fail_over_to(replica);
        self.goes_on("a planned failover").await;

        let (from, to) = (self.owner(SLOTS[1]), self.owner(SLOTS[2]));
        for (from, to) in [(from, to), (to, from)] {
            self.cluster.begin_migration(SLOTS[1], from, to);
            self.cluster.end_migration(SLOTS[1], from, to);
            self.goes_on("a slot that moves").await;
        }

        self.cluster.agree();
        let frozen = self.owner(SLOTS[2]);
        self.cluster.servers[frozen].freeze();
        self.promoted(SLOTS[2], frozen).await;
        self.goes_on("a master that is frozen").await;
        self.cluster.servers[frozen].thaw();
        self.cluster.rejoins(frozen, SLOTS[2]);

        self.cluster.agree();
        let killed = self.owner(SLOTS[1]);
        self.cluster.servers[killed].kill();
        self.promoted(SLOTS[1], killed).await;
        self.goes_on("a master that is killed").await;
        self.cluster.servers[killed].restart();
        self.cluster.rejoins(killed, SLOTS[1]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder_at_a_time_while_the_cluster_changes() {
    let cluster = RedisCluster::start(Kind::Valkey, 3, 1);
    let (room, stop) = (Arc::new(Room::default()), Arc::new(AtomicBool::new(false)));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let locks = connected(settings(node(&cluster), 1_000 * MS)).await;
        for _ in 0..2 {
            let work = work(locks.clone(), Arc::clone(&room), Arc::clone(&stop));
            tasks.push(tokio::spawn(work));
        }
    }
    let locks = connected(settings(node(&cluster), 1_000 * MS)).await;
    let (mut scene, begin) = (
        Scene {
            cluster,
            locks,
            room,
        },
        Instant::now(),
    );
    let seconds = env::var("REDLOCK_SOAK_SECONDS").unwrap_or_default();
    let end = Duration::from_secs(seconds.parse().unwrap_or_default());
    loop {
        scene.round().await;
        scene.room.had_one_holder();
        if begin.elapsed() >= end {
            break;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    scene.room.had_one_holder();
}
