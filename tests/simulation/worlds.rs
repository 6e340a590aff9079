//! Small worlds: that each thing that can be done to one has its effect.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;
use tower_redlock::node::RedisNode;
use tower_redlock::{AcquireError, LockManager};

use tower_redlock_simulated::world::{
    Fault, Group, HostId, Memory, ProcessId, Topology, Turn, Way, World,
};

use crate::{runner, seam};

const KEY: &str = "order:1";
const MS: Duration = Duration::from_millis(1);

/// Runs a world in which nothing panics. Returns the trace, with all commands.
fn run<F: Future<Output = ()>>(topology: &Topology, work: impl FnOnce(World) -> F) -> Vec<String> {
    let (trace, panics) = run_any(topology, work);
    assert_eq!(panics, [""; 0]);
    trace
}

/// Runs a world. Returns the trace, and the panics of processes.
fn run_any<F: Future<Output = ()>>(
    topology: &Topology,
    work: impl FnOnce(World) -> F,
) -> (Vec<String>, Vec<String>) {
    let look = |world: &World| (world.trace(), world.panics());
    let (ended, seen) = runner::in_world((5, topology, true), 600_000 * MS, work, look);
    ended.unwrap_or_else(|panic| resume_unwind(panic)).unwrap();
    seen
}

async fn connect(world: &World, process: ProcessId) -> LockManager {
    let topology = world.topology();
    let urls = (0..topology.groups.len()).map(|group| topology.url(group));
    let builder = match topology.cluster {
        Some(_) => {
            let cluster = RedisNode::cluster(urls).confirm_within(500 * MS);
            LockManager::builder().redis_nodes([cluster])
        }
        None => LockManager::builder().redis(urls),
    };
    let builder = builder.clock(seam::clock(world, process));
    let builder = builder.instance("").ttl(1_000 * MS).bootstrap(true);
    builder.connect().await.unwrap()
}

/// What the processes of a world do, and when.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<(u64, String)>>>);

impl Notes {
    fn add(&self, world: &World, text: impl Into<String>) {
        let note = (world.millis(), text.into());
        self.0.lock().unwrap().push(note);
    }

    fn texts(&self) -> Vec<String> {
        let notes = self.0.lock().unwrap();
        notes.iter().map(|(_, text)| text.clone()).collect()
    }

    /// When a process got the lock.
    fn held(&self) -> Vec<u64> {
        let notes = self.0.lock().unwrap();
        let held = notes.iter().filter(|(_, text)| text == "holds");
        held.map(|(at, _)| *at).collect()
    }
}

/// Has processes acquire the key again and again for `hold`, and starts the first one.
fn hold(world: &World, hold: Duration) -> Notes {
    let notes = Notes::default();
    let own = notes.clone();
    world.set_program(move |world, process| {
        let notes = own.clone();
        Box::pin(async move {
            let manager = connect(&world, process).await;
            loop {
                match manager.try_acquire(KEY).await {
                    Ok(guard) => {
                        notes.add(&world, "holds");
                        sleep(hold).await;
                        let lost = guard.is_lost();
                        let released = guard.release().await.is_ok();
                        notes.add(&world, format!("released {released}, lost {lost}"));
                    }
                    Err(AcquireError::Contended { .. }) => notes.add(&world, "contended"),
                    Err(error) => notes.add(&world, error.to_string()),
                }
                sleep(10 * MS).await;
            }
        })
    });
    world.start(0);
    notes
}

/// Whether a server has the lock.
fn has_lock(world: &World, host: u32) -> bool {
    let keys = world.keys(HostId(host));
    keys.iter()
        .any(|stored| stored.key.ends_with(b"lk:order:1"))
}

fn crash(host: HostId, memory: Memory, back_after_ms: u64) -> Fault {
    Fault::Crash {
        host,
        memory,
        back_after_ms,
        silent: false,
    }
}

#[test]
fn what_is_held_up_arrives_when_the_pair_is_healed() {
    run(&Topology::plain(1), async |world| {
        let notes = hold(&world, 5_000 * MS);
        sleep(300 * MS).await;
        assert_eq!(notes.texts(), ["holds"]);
        sleep(1_500 * MS).await;
        assert!(has_lock(&world, 0), "it is extended");
        let (process, host, way) = (0, HostId(0), Way::There);
        world.apply(&Fault::Hold { process, host, way });
        sleep(1_500 * MS).await;
        assert!(!has_lock(&world, 0), "nothing extends it any more");
        world.apply(&Fault::Heal { process, host });
        sleep(5_000 * MS).await;
        assert_eq!(notes.texts()[1], "released false, lost true");
        assert!(notes.held().len() > 1);
    });
}

#[test]
fn a_process_that_starts_after_a_suspension_has_the_date_of_the_others() {
    run(&Topology::plain(1), async |world| {
        hold(&world, 100 * MS);
        world.apply(&Fault::Suspend { ms: 5_000 });
        world.start(1);
        let date = |place| world.clock(world.living(place).unwrap()).unix_micros();
        assert_eq!(date(0), date(1));
    });
}

#[test]
fn a_server_that_crashes_forgets_what_it_is_to_forget() {
    for (memory, keeps) in [(Memory::All, true), (Memory::None, false)] {
        run(&Topology::plain(3), async |world| {
            hold(&world, 400 * MS);
            sleep(300 * MS).await;
            let host = HostId(1);
            world.apply(&crash(host, memory, 100));
            assert!(!world.is_up(host));
            sleep(99 * MS).await;
            assert!(!world.is_up(host));
            sleep(2 * MS).await;
            assert!(world.is_up(host));
            assert_eq!(has_lock(&world, 1), keeps);
            sleep(2_000 * MS).await;
            assert!(world.connections() >= 3, "it is connected again");
        });
    }
}

#[test]
fn a_process_that_stands_still_goes_on_and_one_that_dies_does_not() {
    run(&Topology::plain(3), async |world| {
        let notes = hold(&world, 20 * MS);
        let first = world.living(0).unwrap();
        sleep(300 * MS).await;
        world.apply(&Fault::Pause { process: 0 });
        let before = notes.texts().len();
        sleep(3_000 * MS).await;
        assert_eq!(notes.texts().len(), before);
        assert!(world.is_alive(first));
        world.apply(&Fault::Resume { process: 0 });
        sleep(1_000 * MS).await;
        let after = notes.texts().len();
        assert!(after > before);
        world.apply(&Fault::Kill { process: 0 });
        sleep(11_000 * MS).await;
        assert_eq!((notes.texts().len(), world.connections()), (after, 0));
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
    let mut topology = Topology::plain(1);
    topology.groups = vec![Group {
        replicas: 1,
        sentinels: 0,
    }];
    run(&topology, async |world| {
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

#[test]
fn in_a_cluster_each_node_is_on_another_master() {
    run(&Topology::cluster(3, 1, 500), async |world| {
        let notes = hold(&world, 1_000 * MS);
        sleep(500 * MS).await;
        assert_eq!(notes.texts(), ["holds"]);
        // Masters, each with its replica.
        assert!((0..6).all(|host| has_lock(&world, host)));
        sleep(2_000 * MS).await;
        assert_eq!(notes.texts()[1], "released true, lost false");
        assert_eq!(world.take_turns(), []);
    });
}

#[test]
fn a_replica_takes_the_place_of_a_master_that_died() {
    run(&Topology::cluster(3, 1, 500), async |world| {
        let notes = hold(&world, 100 * MS);
        sleep(1_000 * MS).await;
        world.apply(&crash(HostId(2), Memory::All, 5_000));
        sleep(4_500 * MS).await;
        assert_eq!(world.take_turns(), [(HostId(3), Turn::Master)]);
        let held = notes.held();
        assert!(held.iter().any(|at| *at > 5_000), "{held:?}");
        sleep(1_500 * MS).await;
        assert_eq!(world.take_turns(), [(HostId(2), Turn::Replica)]);
        assert!(!notes.texts().iter().any(|text| text.contains("lost true")));
        // Its quarantine over, it votes, and its replica has what it has.
        sleep(20_000 * MS).await;
        let (held, end) = (notes.held(), world.millis());
        assert!(held.iter().any(|at| *at + 200 > end), "{held:?}");
    });
}

#[test]
fn a_task_that_panics_is_noted_and_the_world_goes_on() {
    let (_, panics) = run_any(&Topology::plain(1), async |world| {
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
    let doubled = Fault::Duplicate {
        process: 0,
        host: HostId(0),
        late_ms: 100,
    };
    let [doubled, once] = [Some(doubled), None].map(|fault| {
        let trace = run(&Topology::plain(1), async |world| {
            let notes = hold(&world, 20 * MS);
            sleep(300 * MS).await;
            if let Some(fault) = fault {
                world.apply(&fault);
            }
            sleep(500 * MS).await;
            assert!(!notes.held().is_empty());
        });
        trace.iter().filter(|line| line.contains("-> h0")).count()
    });
    assert!(doubled > once + 10, "{doubled} and {once}");
}
