//! Several processes, one key, many waiters in each, and a network between them and the nodes.

use std::time::Duration;

use crate::children::{Child, orders};
use crate::clock::{Alarm, millis, nanos, now, sleep_until};
use crate::cost::Calls;
use crate::measure::{Spread, ratio, seconds};
use crate::peers::{Peer, Turn, in_order};
use crate::proxy::{Proxies, ping};
use crate::queue::{Outcome, SECTION, crowd, remark, waits};
use crate::support::server::{Kind, Server};

pub(crate) const PROCESSES: usize = 4;
pub(crate) const WAITERS: usize = 16;
/// The way to a node, and the way back.
pub(crate) const WAY: Duration = Duration::from_micros(500);
/// The argument that makes a process one of the four.
pub(crate) const ROLE: &str = "contend";

/// What was measured of one library.
struct Result {
    turns: Vec<(Turn, usize)>,
    outcome: Outcome,
    calls: Calls,
    end: u64,
    busy_ping: Spread,
}

pub(crate) async fn run() {
    let length = seconds(10);
    let servers = Server::start_many(Kind::Redis, 5);
    let ports: Vec<u16> = servers.iter().map(Server::port).collect();
    let proxies = Proxies::start(&ports, WAY);
    println!(
        "\n{PROCESSES} processes x {WAITERS} waiters, 1 key, 5 nodes, {WAY:?} each way, sections of 1 ms, {length:?} each"
    );
    println!(
        "It shows how fast a lock goes from one process to another, and whether all processes and waiters get their turn."
    );
    let direct = ping(&ports, 200, Duration::from_millis(1));
    let idle = ping(proxies.ports(), 200, Duration::from_millis(1));
    print_ping("PING without the proxy", &direct);
    print_ping("PING through the proxy, idle", &idle);
    let mut base = None;
    for name in ["ours", "rslock"] {
        let result = measure(name, length, &servers, &proxies).await;
        print_ping("PING through the proxy during this run", &result.busy_ping);
        let direct = Peer::connect(name, proxies.urls()).await.direct();
        let rate = print(&result, length, idle.part(0.5), direct);
        let base = *base.get_or_insert(rate);
        println!("  rate, as a part of tower-redlock's: {:.4}", rate / base);
    }
}

fn print_ping(what: &str, spread: &Spread) {
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| spread.part(part));
    println!("{what}: p50 {p50:.2} ms, p99 {p99:.2} ms, max {max:.2} ms");
}

async fn measure(name: &str, length: Duration, servers: &[Server], proxies: &Proxies) -> Result {
    println!("\n{}", Peer::name(name));
    let mut children = Children::start(name, &proxies.urls(), SECTION).await;
    let before = Calls::of(servers);
    let end = children.run_for(length).await;
    let ports = proxies.ports().to_vec();
    let count = usize::try_from(length.as_millis() / 20).unwrap();
    let probe = move || ping(&ports, count, Duration::from_millis(15));
    let probe = tokio::task::spawn_blocking(probe);
    let (turns, outcome) = children.outcome().await;
    Result {
        calls: Calls::of(servers).since(&before),
        busy_ping: probe.await.unwrap(),
        turns: in_order(&turns),
        outcome,
        end,
    }
}

/// The processes, whose tasks all want one key.
pub(crate) struct Children(Vec<Child>);

impl Children {
    /// Starts them with a lock of this name, and waits until they are ready.
    pub(crate) async fn start(name: &str, urls: &[String], section: Duration) -> Self {
        let (urls, section) = (urls.join(","), section.as_micros().to_string());
        let mut children: Vec<_> = (0..PROCESSES)
            .map(|_| Child::start(&[ROLE, name, &urls, &section]))
            .collect();
        for child in &mut children {
            child.expect("ready").await;
        }
        Self(children)
    }

    /// Has them begin, and returns when they end.
    pub(crate) async fn run_for(&mut self, length: Duration) -> u64 {
        let start = now() + nanos(Duration::from_millis(50));
        let end = start + nanos(length);
        for child in &mut self.0 {
            child.say(&format!("{start} {end}")).await;
        }
        end
    }

    /// What they did: each turn with the number of its process, and all together.
    pub(crate) async fn outcome(&mut self) -> (Vec<(Turn, usize)>, Outcome) {
        let mut turns = Vec::new();
        let mut outcome = Outcome::default();
        for (number, child) in self.0.iter_mut().enumerate() {
            loop {
                let line = child.hear().await;
                let words: Vec<&str> = line.split(' ').collect();
                let time = |index: usize| words[index].parse().unwrap();
                match words[0] {
                    "turn" => {
                        let turn = Turn {
                            asked: time(1),
                            began: time(2),
                            ended: time(3),
                            confirmed: words[4] == "true",
                        };
                        turns.push((turn, number));
                        outcome.turns.push(turn);
                    }
                    "failure" => outcome.failures.push(words[1..].join(" ")),
                    _ => break,
                }
            }
        }
        (turns, outcome)
    }
}

/// Prints what was measured of one library, and returns its rate.
fn print(result: &Result, length: Duration, ping: f64, direct: &[&str]) -> f64 {
    let in_time = || {
        result
            .turns
            .iter()
            .filter(|(turn, _)| turn.ended <= result.end)
    };
    let count = |number: usize| in_time().filter(|(_, owner)| *owner == number).count();
    let all = in_time().count();
    let rate = ratio(u64::try_from(all).unwrap(), 1) / length.as_secs_f64();
    println!("  {rate:.1} sections/s, no two at once (checked)");
    let shares: Vec<_> = (0..PROCESSES).map(count).collect();
    let least = *shares.iter().min().unwrap() * PROCESSES;
    let least = ratio(u64::try_from(least).unwrap(), u64::try_from(all).unwrap());
    println!("  sections by process: {shares:?}; the least is {least:.2} of a fair share");
    print_handing_on(&result.turns, ping);
    let waits = waits(&result.outcome.turns);
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| waits.part(part));
    println!(
        "  wait: p50 {p50:.1} p99 {p99:.1} max {max:.1} ms; max/median {:.1}",
        max / p50
    );
    let sections = u64::try_from(result.turns.len()).unwrap();
    println!(
        "  per section, on all nodes: {:.1} commands sent, {:.1} run with those inside scripts",
        ratio(result.calls.sent(direct), sections),
        ratio(result.calls.executed(), sections)
    );
    println!("  {} without a turn", result.outcome.failures.len());
    remark(&result.outcome);
    rate
}

/// How fast the lock goes on, and how long it stays.
fn print_handing_on(turns: &[(Turn, usize)], ping: f64) {
    let mut between = [Vec::new(), Vec::new()];
    for pair in turns.windows(2) {
        let ((first, owner), (second, next)) = (pair[0], pair[1]);
        between[usize::from(owner == next)].push(millis(first.ended, second.began));
    }
    let [others, same] = between.map(Spread::of);
    for (what, spread) in [("another process", &others), ("the same process", &same)] {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|part| spread.part(part));
        println!(
            "  from release to the next section in {what} ({} times): p50 {p50:.2} p90 {p90:.2} p99 {p99:.2} ms \
             = {:.2}, {:.2}, {:.2} round trips",
            spread.len(),
            p50 / ping,
            p90 / ping,
            p99 / ping
        );
    }
    let visits = turns.chunk_by(|(_, owner), (_, next)| owner == next);
    let stays = Spread::of(
        visits
            .map(|visit| millis(visit[0].0.began, visit[visit.len() - 1].0.ended))
            .collect(),
    );
    println!(
        "  a process keeps the lock for {:.1} sections on average, for {:.1} ms at most",
        ratio(
            u64::try_from(turns.len()).unwrap(),
            u64::try_from(stays.len()).unwrap()
        ),
        stays.part(1.0)
    );
}

/// One of the processes: `words` are the library, the URLs and the length of a section in µs.
pub(crate) async fn child(words: &[String]) {
    let urls = words[1].split(',').map(str::to_owned).collect();
    let peer = Peer::connect(&words[0], urls).await;
    let section = Alarm::new(Duration::from_micros(words[2].parse().unwrap()));
    peer.turn(&format!("warm:{}", std::process::id()), &section)
        .await
        .unwrap();
    let mut orders = orders();
    println!("ready");
    let line = orders.recv().await.unwrap();
    let (start, end) = line.split_once(' ').unwrap();
    sleep_until(start.parse().unwrap());
    let end = end.parse().unwrap();
    let outcome = crowd(&peer, "bench:contention", &section, WAITERS, end).await;
    for turn in outcome.turns {
        let Turn {
            asked,
            began,
            ended,
            confirmed,
        } = turn;
        println!("turn {asked} {began} {ended} {confirmed}");
    }
    for failure in outcome.failures {
        println!("failure {}", failure.replace('\n', " "));
    }
    println!("done");
}
