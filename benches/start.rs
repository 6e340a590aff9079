//! Many processes want one free key at the same moment: how long until any of them has it?

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::children::{Child, orders};
use crate::clock::{Alarm, millis, nanos, now, sleep_until};
use crate::contention::WAY;
use crate::cost::Calls;
use crate::measure::{Spread, ratio, seconds};
use crate::peers::{Peer, TTL};
use crate::proxy::{Proxies, ping};
use crate::queue::SECTION;
use crate::support::server::{Kind, Server};

const RACES: usize = 200;
/// The argument that makes a process one of the contenders.
pub(crate) const ROLE: &str = "race";

/// What was measured of one crowd.
#[derive(Default)]
struct Races {
    first: Vec<f64>,
    skew: Vec<f64>,
    attempts: f64,
    failures: u64,
}

pub(crate) async fn run() {
    println!(
        "\nall at once on one free key: processes with one contender each, 5 nodes, up to {RACES} races"
    );
    println!(
        "It shows how long a split vote lasts: the time from the start to the first holder, in ms."
    );
    println!(
        "`sent by`: when the last of the contenders had begun, which is what starting alone takes; `attempts`: of all\n\
         contenders together, counted at the nodes, per race."
    );
    for what in ["no proxy", "with the proxy"] {
        // The guard takes other addresses for other nodes.
        let servers = Server::start_many(Kind::Redis, 5);
        let direct: Vec<u16> = servers.iter().map(Server::port).collect();
        let proxies = (what != "no proxy").then(|| Proxies::start(&direct, WAY));
        let (urls, ports) = match &proxies {
            Some(proxies) => (proxies.urls(), proxies.ports()),
            None => (servers.iter().map(Server::url).collect(), &direct[..]),
        };
        let trip = ping(ports, 200, Duration::from_millis(1)).part(0.5);
        println!("\n{what}, round trip (PING, p50) {trip:.3} ms");
        println!(
            "{:28} {:>6} | {:>8} {:>8} {:>8} {:>8} | {:>26} | {:>7} {:>8}",
            "contenders",
            "races",
            "p50",
            "p90",
            "p99",
            "max",
            "in round trips",
            "sent by",
            "attempts"
        );
        for count in [3, 10, 30] {
            for name in ["ours", "rslock"] {
                let races = races(name, count, &servers, &urls).await;
                print(&format!("{count:2} {}", Peer::name(name)), races, trip);
            }
        }
    }
}

fn print(name: &str, races: Races, trip: f64) {
    let first = Spread::of(races.first);
    let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(|part| first.part(part));
    let trips = [p50, p90, p99, max].map(|part| format!("{:>5.1}", part / trip));
    println!(
        "{name:28} {:>6} | {p50:>8.2} {p90:>8.2} {p99:>8.2} {max:>8.2} | {:>26} | {:>7.2} {:>8.1}",
        first.len(),
        trips.join("  "),
        Spread::of(races.skew).part(0.5),
        races.attempts
    );
    if races.failures > 0 {
        println!("{:28} {} errors on the way", "", races.failures);
    }
}

async fn races(name: &str, count: usize, servers: &[Server], urls: &[String]) -> Races {
    let urls = urls.join(",");
    let mut children: Vec<_> = (0..count)
        .map(|_| Child::start(&[ROLE, name, &urls]))
        .collect();
    for child in &mut children {
        child.expect("ready").await;
    }
    // A peer that pauses for up to 200 ms after a split needs no more races to show it.
    let limit = seconds(if name == "ours" { 8 } else { 3 });
    let (began, before) = (Instant::now(), Calls::of(servers));
    let mut races = Races::default();
    while races.first.len() < RACES && began.elapsed() < limit {
        let key = format!("bench:start:{}", races.first.len());
        let start =
            now() + nanos(Duration::from_millis(3)) + 100_000 * u64::try_from(count).unwrap();
        for child in &mut children {
            child.say(&format!("{key} {start}")).await;
        }
        let first = race(&mut children).await;
        races.first.push(millis(start, first));
        let mut last = start;
        for child in &mut children {
            let report = child.hear().await;
            let (asked, failures) = report.split_once(' ').unwrap();
            last = last.max(asked.parse().unwrap());
            races.failures += failures.parse::<u64>().unwrap();
        }
        races.skew.push(millis(start, last));
        // What was left on the nodes is released in the background, which is not what is measured.
        sleep(Duration::from_millis(10)).await;
    }
    let calls = Calls::of(servers).since(&before);
    // What every attempt is on every node, once: ours reads before it writes.
    let attempt = if name == "ours" { "mget" } else { "set" };
    let per_race = ratio(
        calls.named(attempt),
        u64::try_from(races.first.len()).unwrap(),
    );
    races.attempts = per_race / ratio(u64::try_from(servers.len()).unwrap(), 1);
    races
}

/// Waits for the holder and calls the race off. Returns when the lock was held.
async fn race(children: &mut [Child]) -> u64 {
    let (won, winner) = {
        let mut lines: Vec<_> = children.iter_mut().map(|c| Box::pin(c.hear())).collect();
        let first = std::future::poll_fn(|cx| {
            let mut each = lines.iter_mut().enumerate();
            let heard = each.find_map(|(index, line)| match line.as_mut().poll(cx) {
                std::task::Poll::Ready(line) => Some((line, index)),
                std::task::Poll::Pending => None,
            });
            heard.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
        });
        let limit = tokio::time::timeout(TTL * 3, first).await;
        limit.expect("three ttls, and nobody has the lock")
    };
    let time = |line: &str| {
        line.strip_prefix("won ")
            .map(|time| time.parse::<u64>().unwrap())
    };
    let won = time(&won).unwrap_or_else(|| panic!("instead of winning: {won}"));
    let off = now();
    for child in children.iter_mut() {
        child.say("off").await;
    }
    for (index, child) in children.iter_mut().enumerate() {
        let mut line = child.hear().await;
        if index != winner
            && let Some(second) = time(&line)
        {
            // The winner gives the lock back only after the race is called off.
            assert!(second >= off, "TWO HOLDERS AT ONCE: {won} and {second}");
            line = child.hear().await;
        }
        assert_eq!(line, "off");
    }
    won
}

/// One of the contenders: `words` are the library and the URLs.
pub(crate) async fn child(words: &[String]) {
    let urls = words[1].split(',').map(str::to_owned).collect();
    let peer = Peer::connect(&words[0], urls).await;
    let section = Alarm::new(SECTION);
    let warm = format!("warm:{}", std::process::id());
    peer.turn(&warm, &section).await.unwrap();
    let mut orders = orders();
    println!("ready");
    while let Some(line) = orders.recv().await {
        let (key, start) = line.split_once(' ').unwrap();
        sleep_until(start.parse().unwrap());
        let asked = now();
        let mut failures = 0;
        // Whoever has the lock says so, and keeps it until the race is called off.
        tokio::select! {
            biased;
            _ = orders.recv() => {}
            guard = hold(&peer, key, &mut failures) => {
                println!("won {}", now());
                orders.recv().await;
                guard.release().await;
            }
        }
        println!("off\n{asked} {failures}");
    }
}

/// A lock that is held.
enum Guard {
    Ours(tower_redlock::LockGuard),
    Theirs(rslock::LockGuard),
}

/// Tries until it has the lock, and counts the errors.
async fn hold(peer: &Peer, key: &str, failures: &mut u64) -> Guard {
    loop {
        let guard = match peer {
            Peer::Ours(locks) => locks.acquire(key).await.ok().map(Guard::Ours),
            Peer::Rslock(locks) => locks.acquire(key, TTL).await.ok().map(Guard::Theirs),
            Peer::Mutex(_) | Peer::Redlock(_) => panic!("not in this race"),
        };
        match guard {
            Some(guard) => return guard,
            None => *failures += 1,
        }
    }
}

impl Guard {
    async fn release(self) {
        match self {
            // If too few answered in time, the rest is done in the background.
            Self::Ours(guard) => drop(guard.release().await),
            Self::Theirs(guard) => guard.release().await,
        }
    }
}
