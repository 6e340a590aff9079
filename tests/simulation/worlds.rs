//! Small worlds: that each thing that can be done to one has its effect, and that nothing is left to chance.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Builder, RngSeed};
use tokio::time::{sleep, timeout};
use tower_redlock::node::RedisNode;
use tower_redlock::{AcquireError, LockManager};

use tower_redlock_simulated::world::{
    Fault, Group, HostId, Memory, ProcessId, Topology, Turn, Way, World,
};

use crate::seam;

const KEY: &str = "order:1";
const MS: Duration = Duration::from_millis(1);

/// Runs a world in which nothing panics. Returns the trace.
fn run<F>(seed: u64, topology: &Topology, work: impl FnOnce(World) -> F) -> (u64, Vec<String>)
where
    F: Future<Output = ()>,
{
    let (trace, panics) = run_any(seed, topology, work);
    assert_eq!(panics, [""; 0]);
    trace
}

/// Runs a world. Returns the trace, and the panics of processes.
fn run_any<F>(
    seed: u64,
    topology: &Topology,
    work: impl FnOnce(World) -> F,
) -> ((u64, Vec<String>), Vec<String>)
where
    F: Future<Output = ()>,
{
    let seed_of_runtime = RngSeed::from_bytes(&seed.to_le_bytes());
    let mut builder = Builder::new_current_thread();
    let builder = builder.enable_time().start_paused(true);
    let runtime = builder.rng_seed(seed_of_runtime).build().unwrap();
    let inside = runtime.enter();
    let world = World::new(seed, topology, true);
    let installed = seam::begin(&world);
    drop(inside);
    runtime.block_on(async {
        timeout(Duration::from_secs(600), work(world.clone()))
            .await
            .unwrap();
    });
    let inside = runtime.enter();
    let (trace, panics) = ((world.trace_hash(), world.trace()), world.panics());
    drop(inside);
    world.forget_program();
    drop(runtime);
    drop(installed);
    (trace, panics)
}

fn builder(world: &World, process: ProcessId) -> tower_redlock::Settings {
    let topology = world.topology();
    let urls: Vec<String> = (0..topology.groups.len())
        .map(|group| topology.url(group))
        .collect();
    let cluster = RedisNode::cluster(&urls).confirm_within(500 * MS);
    let builder = LockManager::builder();
    let builder = match topology.cluster {
        Some(_) => builder.redis_nodes([cluster]),
        None => builder.redis(urls),
    };
    builder
        .instance("")
        .clock(seam::clock(world, process))
        .ttl(1_000 * MS)
        .bootstrap(true)
}

/// What the processes of a world do, and what became of it.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<(u64, ProcessId, String)>>>);

impl Notes {
    fn add(&self, world: &World, process: ProcessId, text: impl Into<String>) {
        let note = (world.millis(), process, text.into());
        self.0.lock().unwrap().push(note);
    }

    fn texts(&self) -> Vec<String> {
        let notes = self.0.lock().unwrap();
        notes.iter().map(|(_, _, text)| text.clone()).collect()
    }

    fn when(&self, wanted: &str) -> Vec<u64> {
        let notes = self.0.lock().unwrap();
        let found = notes.iter().filter(|(_, _, text)| text == wanted);
        found.map(|(at, ..)| *at).collect()
    }
}

/// Processes that acquire the key again and again for `hold`, and note it.
fn holders(world: &World, notes: &Notes, hold: Duration) {
    let notes = notes.clone();
    world.set_program(move |world, process| {
        let notes = notes.clone();
        Box::pin(async move {
            let manager = builder(&world, process).connect().await.unwrap();
            loop {
                match manager.try_acquire(KEY).await {
                    Ok(guard) => {
                        notes.add(&world, process, "holds");
                        sleep(hold).await;
                        let lost = guard.is_lost();
                        let released = guard.release().await.is_ok();
                        notes.add(&world, process, format!("released {released}, lost {lost}"));
                    }
                    Err(error) => notes.add(&world, process, kind(&error)),
                }
                sleep(10 * MS).await;
            }
        })
    });
}

fn kind(error: &AcquireError) -> &'static str {
    match error {
        AcquireError::Contended { .. } => "contended",
        AcquireError::NoQuorum(_) => "no quorum",
        _ => "another error",
    }
}

fn one_lock(seed: u64) -> (u64, Vec<String>) {
    run(seed, &Topology::plain(3), async |world| {
        let notes = Notes::default();
        holders(&world, &notes, 50 * MS);
        let process = world.start(0);
        sleep(500 * MS).await;
        let texts = notes.texts();
        assert!(texts.len() > 4, "{texts:?}");
        assert_eq!(texts[..2], ["holds", "released true, lost false"]);
        assert!(world.is_running(process));
        let keys: Vec<Vec<u8>> = world
            .keys(HostId(0))
            .into_iter()
            .map(|stored| stored.key)
            .collect();
        assert!(keys.contains(&b"lk!node".to_vec()), "{keys:?}");
    })
}

#[test]
fn a_lock_is_acquired_and_released_the_same_way_each_time() {
    let (hash, trace) = one_lock(5);
    assert_eq!(one_lock(5), (hash, trace));
    assert_ne!(one_lock(6).0, hash, "another seed, another world");
}

#[test]
fn two_processes_exclude_each_other() {
    run(1, &Topology::plain(3), async |world| {
        let notes = Notes::default();
        holders(&world, &notes, 50 * MS);
        world.start(0);
        world.start(1);
        sleep(2_000 * MS).await;
        let texts = notes.texts();
        let mut held = 0_i32;
        for text in &texts {
            match text.split(' ').next() {
                Some("holds") => held += 1,
                Some("released") => held -= 1,
                _ => {}
            }
            assert!((0..=1).contains(&held), "{texts:?}");
        }
        assert!(texts.iter().any(|text| text == "contended"), "{texts:?}");
    });
}

#[test]
fn what_is_held_up_arrives_when_the_pair_is_healed() {
    run(2, &Topology::plain(1), async |world| {
        let notes = Notes::default();
        holders(&world, &notes, 5_000 * MS);
        world.start(0);
        sleep(300 * MS).await;
        assert_eq!(notes.texts(), ["holds"]);
        let ttl = |world: &World| {
            let keys = world.keys(HostId(0));
            keys.into_iter()
                .find(|stored| stored.key == b"lk:order:1")?
                .expires_in_ms
        };
        sleep(1_500 * MS).await;
        assert!(ttl(&world).is_some(), "it is extended");
        let (process, host, way) = (0, HostId(0), Way::There);
        world.apply(&Fault::Hold { process, host, way });
        sleep(1_500 * MS).await;
        assert_eq!(ttl(&world), None, "nothing extends it any more");
        world.apply(&Fault::Heal { process, host });
        sleep(5_000 * MS).await;
        assert_eq!(notes.texts()[1], "released false, lost true");
        assert!(notes.texts().iter().filter(|text| *text == "holds").count() > 1);
    });
}

#[test]
fn a_process_that_starts_after_a_suspension_has_the_date_of_the_others() {
    run(2, &Topology::plain(1), async |world| {
        let notes = Notes::default();
        holders(&world, &notes, 100 * MS);
        world.start(0);
        world.apply(&Fault::Suspend { ms: 5_000 });
        world.start(1);
        let date = |place| world.clock(world.living(place).unwrap()).unix_micros();
        assert_eq!(date(0), date(1));
    });
}

#[test]
fn a_server_that_crashes_forgets_what_it_is_to_forget() {
    for (memory, keeps) in [(Memory::All, true), (Memory::None, false)] {
        run(3, &Topology::plain(3), async |world| {
            let notes = Notes::default();
            holders(&world, &notes, 400 * MS);
            world.start(0);
            sleep(300 * MS).await;
            let (host, back_after_ms) = (HostId(1), 100);
            let silent = false;
            world.apply(&Fault::Crash {
                host,
                memory,
                back_after_ms,
                silent,
            });
            assert!(!world.is_up(host));
            sleep(99 * MS).await;
            assert!(!world.is_up(host));
            sleep(2 * MS).await;
            assert!(world.is_up(host));
            let has = world
                .keys(host)
                .iter()
                .any(|stored| stored.key == b"lk:order:1");
            assert_eq!(has, keeps);
            sleep(2_000 * MS).await;
            assert!(world.connections(None) >= 3, "it is connected again");
        });
    }
}

#[test]
fn a_process_that_stands_still_goes_on_and_one_that_dies_does_not() {
    run(4, &Topology::plain(3), async |world| {
        let notes = Notes::default();
        holders(&world, &notes, 20 * MS);
        let first = world.start(0);
        sleep(300 * MS).await;
        world.apply(&Fault::Pause { process: 0 });
        let before = notes.texts().len();
        sleep(3_000 * MS).await;
        assert_eq!(notes.texts().len(), before);
        assert!(world.is_alive(first) && !world.is_running(first));
        world.apply(&Fault::Resume { process: 0 });
        sleep(1_000 * MS).await;
        let after = notes.texts().len();
        assert!(after > before);
        world.apply(&Fault::Kill { process: 0 });
        sleep(11_000 * MS).await;
        assert_eq!((notes.texts().len(), world.connections(None)), (after, 0));
        assert_eq!(world.living(0), None);
        world.apply(&Fault::Start { process: 0 });
        let second = world.living(0).unwrap();
        assert_eq!((second.place, second.life), (0, 1));
        sleep(3_000 * MS).await;
        assert!(notes.texts().len() > after);
    });
}

#[test]
fn a_master_at_another_address_gives_its_role_back_when_all_is_healed() {
    let group = Group {
        replicas: 1,
        sentinels: 0,
    };
    let topology = Topology {
        groups: vec![group],
        cluster: None,
    };
    run(7, &topology, async |world| {
        let (first, second) = (HostId(0), HostId(1));
        assert_eq!(world.misled(), [0_u32; 0]);
        world.apply(&Fault::Promote { host: second });
        world.apply(&Fault::Demote {
            host: first,
            of: second,
        });
        assert_eq!(world.misled(), [0]);
        world.apply(&Fault::HealAll);
        assert_eq!(world.misled(), [0_u32; 0]);
    });
}

fn crash(host: HostId, back_after_ms: u64) -> Fault {
    let (memory, silent) = (Memory::All, false);
    Fault::Crash {
        host,
        memory,
        back_after_ms,
        silent,
    }
}

/// Whether a server has a lock or a marker.
fn has(world: &World, host: u32, ending: &str) -> bool {
    let keys = world.keys(HostId(host)).into_iter();
    let mut keys = keys.map(|stored| String::from_utf8_lossy(&stored.key).into_owned());
    keys.any(|key| key.ends_with(ending))
}

#[test]
fn in_a_cluster_each_node_is_on_another_master() {
    run(8, &Topology::cluster(3, 1, 500), async |world| {
        let notes = Notes::default();
        holders(&world, &notes, 1_000 * MS);
        world.start(0);
        sleep(500 * MS).await;
        assert_eq!(notes.texts(), ["holds"]);
        // Masters, each with its replica.
        assert!((0..6).all(|host| has(&world, host, "}lk:order:1")));
        sleep(2_000 * MS).await;
        assert_eq!(notes.texts()[1], "released true, lost false");
        assert_eq!(world.take_turns(), []);
    });
}

#[test]
fn a_replica_takes_the_place_of_a_master_that_died() {
    run(9, &Topology::cluster(3, 1, 500), async |world| {
        let notes = Notes::default();
        holders(&world, &notes, 100 * MS);
        world.start(0);
        sleep(1_000 * MS).await;
        world.apply(&crash(HostId(2), 5_000));
        sleep(4_500 * MS).await;
        assert_eq!(world.take_turns(), [(HostId(3), Turn::Master)]);
        let held = notes.when("holds");
        assert!(held.iter().any(|at| *at > 5_000), "{held:?}");
        sleep(1_500 * MS).await;
        assert_eq!(world.take_turns(), [(HostId(2), Turn::Replica)]);
        assert!(!notes.texts().iter().any(|text| text.contains("lost true")));
        // Its quarantine over, it votes, and its replica has what it has.
        sleep(20_000 * MS).await;
        let (held, end) = (notes.when("holds"), world.millis());
        assert!(held.iter().any(|at| *at + 200 > end), "{held:?}");
    });
}

#[test]
fn a_task_that_panics_is_noted_and_the_world_goes_on() {
    let (_, panics) = run_any(5, &Topology::plain(1), async |world| {
        world.set_program(|_, _| Box::pin(async {}));
        let process = world.start(0);
        let task = world.spawn_in(process, async { panic!("on purpose") });
        assert_eq!(task.await.unwrap(), None::<()>);
        let task = world.spawn_in(process, async { World::current() });
        assert_eq!(task.await.unwrap(), Some(process));
    });
    assert_eq!(panics, ["p0: on purpose"]);
}

#[test]
fn what_is_doubled_arrives_twice() {
    let arrived = |fault: Option<Fault>| {
        let (_, trace) = run(6, &Topology::plain(1), async |world| {
            let notes = Notes::default();
            holders(&world, &notes, 20 * MS);
            world.start(0);
            sleep(300 * MS).await;
            if let Some(fault) = fault {
                world.apply(&fault);
            }
            sleep(500 * MS).await;
            assert!(!notes.when("holds").is_empty());
        });
        trace.iter().filter(|line| line.contains("-> h0")).count()
    };
    let (process, host, late_ms) = (0, HostId(0), 100);
    let doubled = arrived(Some(Fault::Duplicate {
        process,
        host,
        late_ms,
    }));
    let once = arrived(None);
    assert!(doubled > once + 10, "{doubled} and {once}");
}
