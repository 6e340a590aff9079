//! One server, 200 requests a second, and what happens to servers: for how long is nothing locked, and what becomes of a
//! lock that is held? The table stands in `src/docs/one_redis.md`.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{interval, sleep};
use tower_redlock::{LockManager, Settings};

use crate::forwarder::Forwarder;
use crate::support::server::{Kind, Server};

const EVERY: Duration = Duration::from_millis(5);
/// How long a request has its lock.
const WORK: Duration = Duration::from_millis(10);
/// How long the load goes on before an outage: longer than a list is new, for which a quarantine begins later.
const CALM: Duration = Duration::from_secs(4);
/// The longest that is waited for after it: the longer quarantine, and as long again.
const LONGEST: Duration = Duration::from_secs(25);

/// What happens.
#[derive(Clone, Copy)]
enum Outage {
    Restart,
    Stop,
    Flush,
    Failover,
}

/// When a request began, after the outage, how long it took, and whether it got its lock.
type Request = (Duration, Duration, bool);

pub(crate) async fn run() {
    run_with("the defaults", |settings| settings).await;
    // As the page proposes them.
    let five = Duration::from_secs(5);
    let of_page = |settings: Settings| {
        let settings = settings.ttl(five).max_ttl(five);
        settings.node_timeout(Duration::from_millis(500))
    };
    run_with("the settings of the guide", of_page).await;
}

async fn run_with(settings: &str, set: impl Fn(Settings) -> Settings) {
    println!(
        "\noutages of one server with {settings} under 200 requests a second, each on a key of its own; times in seconds"
    );
    println!(
        "{:34} | {:>12} | {:>7} | {:>12} | {:>12} | {:>8}",
        "outage", "held lock", "refused", "first after", "last after", "slowest"
    );
    for (name, outage) in [
        ("kill -9, and restart at once", Outage::Restart),
        ("SIGSTOP for 3 s", Outage::Stop),
        ("FLUSHALL", Outage::Flush),
        ("failover to a stand-by", Outage::Failover),
    ] {
        measure(name, outage, &set).await;
    }
}

async fn measure(name: &str, outage: Outage, set: impl Fn(Settings) -> Settings) {
    let server = Server::start(Kind::Redis, &[]);
    let standby = matches!(outage, Outage::Failover).then(|| {
        let standby = Server::replica_of(&server, &[]);
        standby.wait_to_follow(&server);
        standby
    });
    let address = Arc::new(Forwarder::start(server.port()).await);
    let builder = LockManager::builder().redis(address.url()).bootstrap(true);
    let locks = set(builder).connect().await.unwrap();
    let held = locks.acquire("held").await.unwrap();
    let mut strike = Some({
        let address = Arc::clone(&address);
        move || strike(outage, server, standby, &address)
    });
    let (mut requests, mut struck) = (JoinSet::new(), None);
    let (mut ticks, begin) = (interval(EVERY), Instant::now());
    for number in 0_u64.. {
        ticks.tick().await;
        if begin.elapsed() >= CALM
            && let Some(strike) = strike.take()
        {
            struck = Some((Instant::now(), spawn_blocking(strike)));
        }
        if begin.elapsed() >= CALM + LONGEST {
            break;
        }
        let locks = locks.clone();
        requests.spawn(async move {
            let began = Instant::now();
            let guard = locks.try_acquire(format!("order:{number}")).await;
            let request = (began, began.elapsed(), guard.is_ok());
            if let Ok(guard) = guard {
                sleep(WORK).await;
                drop(guard);
            }
            request
        });
    }
    let (at, servers) = struck.unwrap();
    let requests = requests.join_all().await.into_iter();
    let requests =
        requests.map(|(began, took, got)| (began.saturating_duration_since(at), took, got));
    let requests: Vec<Request> = requests.collect();
    let refused: Vec<&Request> = requests.iter().filter(|(.., got)| !got).collect();
    let seconds = |times: Option<Duration>| times.map_or(f64::NAN, |time| time.as_secs_f64());
    println!(
        "{name:34} | {:>12} | {:>7} | {:>12.1} | {:>12.1} | {:>8.2}",
        if held.is_lost() { "lost" } else { "held" },
        refused.len(),
        seconds(refused.iter().map(|(after, ..)| *after).min()),
        seconds(refused.iter().map(|(after, ..)| *after).max()),
        seconds(requests.iter().map(|(_, took, _)| *took).max()),
    );
    drop(held);
    locks.shutdown(Duration::from_secs(1)).await;
    drop(servers.await);
}

/// Returns the servers, which end with it.
fn strike(
    outage: Outage,
    mut server: Server,
    standby: Option<Server>,
    address: &Forwarder,
) -> (Server, Option<Server>) {
    match (outage, &standby) {
        (Outage::Restart, _) => server.restart(),
        (Outage::Stop, _) => {
            server.freeze();
            thread::sleep(Duration::from_secs(3));
            server.thaw();
        }
        (Outage::Failover, Some(standby)) => {
            server.kill();
            standby.run("REPLICAOF NO ONE");
            address.lead_to(standby.port());
        }
        _ => drop(server.run("FLUSHALL SYNC")),
    }
    (server, standby)
}
