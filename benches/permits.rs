//! Permits: what they cost beside locks while half of them are held, and how long callers wait where many more want them
//! than there are.

use std::time::Duration;

use tower_redlock::LockManager;

use crate::acquire::{Took, at_once, ours};
use crate::clock::millis;
use crate::contention::{Children, PROCESSES, WAITERS};
use crate::measure::{Spread, ratio, seconds};
use crate::peers::{PERMITS, Turn};
use crate::queue::{remark, waits};
use crate::support::server::{Kind, Server};

/// How many tasks hold permits at half load.
const TASKS: u32 = PERMITS / 2;
const HOLD: Duration = Duration::from_millis(5);

pub(crate) async fn run() {
    println!(
        "\nhalf load: {TASKS} tasks of one process take and release one of {PERMITS} permits of a key, beside a lock each, \
         in turns; processor time of a cycle in µs: client, all servers"
    );
    for nodes in [1, 3] {
        half(&Server::start_many(Kind::Redis, nodes)).await;
    }
    let length = seconds(5);
    println!(
        "\nfull load: {PROCESSES} processes x {WAITERS} tasks, {PERMITS} permits, held for {HOLD:?}, {length:?}"
    );
    println!(
        "x fair: a wait as a multiple of the wait for the same place in a fair queue, (tasks ahead + 1) / {PERMITS} x {HOLD:?};\n\
         x even: the same at the rate that was reached. Of the tasks that found {PERMITS} or more ahead of them"
    );
    for nodes in [1, 3] {
        full(&Server::start_many(Kind::Redis, nodes), length).await;
    }
}

async fn half(servers: &[Server]) {
    const CYCLES: u32 = 100;
    const TURNS: u32 = 20;
    let locks = ours(servers).await;
    let permits = locks.permits(PERMITS).unwrap();
    let mut took = [Took::default(); 2];
    let mut ratios = Vec::new();
    // The first turn warms up.
    for turn in 0..=TURNS {
        let plain = |n: u32| cycles(locks.clone(), format!("bench:lock:{n}"), CYCLES);
        let permit = |_: u32| cycles(permits.clone(), "bench:permit".to_owned(), CYCLES);
        let turns = [
            at_once(servers, TASKS, plain).await,
            at_once(servers, TASKS, permit).await,
        ];
        if turn > 0 {
            ratios.push(turns[0].time.as_secs_f64() / turns[1].time.as_secs_f64());
            for (sum, turn) in took.iter_mut().zip(turns) {
                sum.time += turn.time;
                sum.client += turn.client;
                sum.servers += turn.servers;
            }
        }
    }
    let cycles = f64::from(TASKS * CYCLES * TURNS);
    for (name, sum) in ["locks", "permits"].iter().zip(took) {
        let rate = cycles / sum.time.as_secs_f64();
        let [client, all] = [sum.client, sum.servers].map(|time| time.as_secs_f64() * 1e6 / cycles);
        println!(
            "{} node(s), {name:10} {rate:>10.0} cycles/s {client:>8.1} {all:>8.1}",
            servers.len()
        );
    }
    let ratios = Spread::of(ratios);
    let [least, median, most] = [0.0, 0.5, 1.0].map(|part| ratios.part(part));
    println!(
        "  rate of permits, as a part of that of locks: {median:.2} ({least:.2} to {most:.2})"
    );
}

async fn cycles(locks: LockManager, key: String, cycles: u32) {
    for _ in 0..cycles {
        let guard = locks.try_acquire(key.as_str()).await.unwrap();
        guard.release().await.unwrap();
    }
}

async fn full(servers: &[Server], length: Duration) {
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    let mut children = Children::start("permits", &urls, HOLD).await;
    let end = children.run_for(length).await;
    let (turns, outcome) = children.outcome().await;
    let all = u64::try_from(turns.len()).unwrap();
    let most = most_at_once(&outcome.turns);
    assert!(most <= PERMITS as usize, "{most} HOLDERS AT ONCE");
    let in_time = turns.iter().filter(|(turn, _)| turn.ended <= end);
    let rate = ratio(u64::try_from(in_time.count()).unwrap(), 1) / length.as_secs_f64();
    let count = |number: usize| turns.iter().filter(|(_, owner)| *owner == number).count();
    let least = (0..PROCESSES).map(count).min().unwrap() * PROCESSES;
    println!(
        "{} node(s): {rate:.0} sections/s of {:.0}, {most} at once at most, least share of a process {:.2}",
        servers.len(),
        f64::from(PERMITS) / HOLD.as_secs_f64(),
        ratio(u64::try_from(least).unwrap(), all)
    );
    let fair = f64::from(PERMITS) / HOLD.as_secs_f64();
    print("wait in ms", &waits(&outcome.turns));
    print("x fair", &beside_a_fair_queue(&outcome.turns, fair));
    print("x even", &beside_a_fair_queue(&outcome.turns, rate));
    remark(&outcome);
}

fn print(name: &str, spread: &Spread) {
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| spread.part(part));
    println!("  {name:10} p50 {p50:>8.2} p99 {p99:>8.2} max {max:>8.2}");
}

/// How many held permits at once, at most.
fn most_at_once(turns: &[Turn]) -> usize {
    let began = sorted(turns, |turn| turn.began);
    let ended = sorted(turns, |turn| turn.ended);
    let at =
        |(before, began): (usize, &u64)| before + 1 - ended.partition_point(|end| end <= began);
    began.iter().enumerate().map(at).max().unwrap_or_default()
}

/// Each wait as a multiple of that for the same place in a queue that is served in order, so often a second.
fn beside_a_fair_queue(turns: &[Turn], rate: f64) -> Spread {
    let asked = sorted(turns, |turn| turn.asked);
    let began = sorted(turns, |turn| turn.began);
    let waits = turns.iter().filter_map(|turn| {
        let before = asked.partition_point(|other| *other < turn.asked);
        let ahead = before.saturating_sub(began.partition_point(|other| *other <= turn.asked));
        let place = ratio(u64::try_from(ahead + 1).unwrap(), 1);
        let wait = millis(turn.asked, turn.began);
        (ahead >= PERMITS as usize).then_some(wait / (place / rate * 1e3))
    });
    Spread::of(waits.collect())
}

fn sorted(turns: &[Turn], of: fn(&Turn) -> u64) -> Vec<u64> {
    let mut times: Vec<_> = turns.iter().map(of).collect();
    times.sort_unstable();
    times
}
