//! One process, one key, many tasks that want it all the time: what does it cost to hand a lock on?

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::clock::{Alarm, millis, nanos, now};
use crate::cost::Calls;
use crate::measure::{Spread, ratio, seconds};
use crate::peers::{Peer, Turn, in_order};
use crate::support::server::{Kind, Server};

const WAITERS: usize = 64;
pub(crate) const SECTION: Duration = Duration::from_millis(1);
/// For how long waiters are waited for after the time is over.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
const NAMES: [&str; 5] = ["mutex", "ours", "rslock", "rslock-20ms", "redlock"];

/// What many tasks did.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) turns: Vec<Turn>,
    pub(crate) failures: Vec<String>,
    /// How many turns the one with the fewest had.
    pub(crate) fewest: u64,
}

pub(crate) async fn run() {
    let length = seconds(3);
    let servers = Server::start_many(Kind::Redis, 5);
    println!(
        "\n1 process, 1 key, {WAITERS} waiters all the time, 5 nodes, sections of 1 ms, {length:?} each"
    );
    println!("It shows what handing a lock on costs inside a process, and how even the waits are.");
    println!(
        "A section is a wait kept by a sleeping thread (it costs no CPU, and a timer of tokio would round it up).\n\
         `sent` are commands by clients per section, `run` those and what scripts call; the waits are in ms;\n\
         `least`: the turns of the waiter with the fewest, as a part of a fair share;\n\
         `no turn`: waiters with an error, or still without the lock {GRACE:?} after the time was over.\n"
    );
    println!(
        "{:28} {:>10} {:>8} | {:>8} {:>8} {:>8} {:>10} | {:>7} {:>7} | {:>6} {:>7}",
        "",
        "sections/s",
        "x Mutex",
        "wait p50",
        "p99",
        "max",
        "max/median",
        "sent",
        "run",
        "least",
        "no turn"
    );
    let mut base = None;
    for name in NAMES {
        let peer = Peer::connect(name, servers.iter().map(Server::url).collect()).await;
        let key = format!("bench:queue:{name}");
        let section = Alarm::new(SECTION);
        peer.turn(&key, &section).await.unwrap();
        let before = Calls::of(&servers);
        let began = now();
        let outcome = crowd(&peer, &key, &section, WAITERS, began + nanos(length)).await;
        let calls = Calls::of(&servers).since(&before);
        let turns: Vec<_> = outcome.turns.iter().map(|turn| (*turn, ())).collect();
        in_order(&turns);
        let in_time = turns
            .iter()
            .filter(|(turn, ())| turn.ended <= began + nanos(length));
        let all = u64::try_from(turns.len()).unwrap();
        let rate = ratio(u64::try_from(in_time.count()).unwrap(), 1) / length.as_secs_f64();
        let base = *base.get_or_insert(rate);
        let waits = waits(&outcome.turns);
        println!(
            "{:28} {rate:>10.1} {:>8.4} | {:>8.1} {:>8.1} {:>8.1} {:>10.1} | {:>7.1} {:>7.1} | {:>6.2} {:>7}",
            Peer::name(name),
            rate / base,
            waits.part(0.5),
            waits.part(0.99),
            waits.part(1.0),
            waits.part(1.0) / waits.part(0.5),
            ratio(calls.sent(peer.direct()), all),
            ratio(calls.executed(), all),
            ratio(outcome.fewest * u64::try_from(WAITERS).unwrap(), all),
            outcome.failures.len(),
        );
        remark(&outcome);
    }
}

/// What the first failure was, if there was one, and what else was not as it is to be.
pub(crate) fn remark(outcome: &Outcome) {
    let doubtful = outcome.turns.iter().filter(|turn| !turn.confirmed).count();
    if doubtful > 0 {
        println!("{:28} {doubtful} releases were not confirmed in time", "");
    }
    if let Some(failure) = outcome.failures.first() {
        println!("{:28} the first without a turn: {failure}", "");
    }
}

pub(crate) fn waits(turns: &[Turn]) -> Spread {
    let waits = turns.iter().map(|turn| millis(turn.asked, turn.began));
    Spread::of(waits.collect())
}

/// So many tasks that take the lock again and again until `end`.
pub(crate) async fn crowd(
    peer: &Peer,
    key: &str,
    section: &Alarm,
    waiters: usize,
    end: u64,
) -> Outcome {
    let key: Arc<str> = key.into();
    let mut tasks = JoinSet::new();
    for _ in 0..waiters {
        let (peer, key, section) = (peer.clone(), Arc::clone(&key), section.clone());
        tasks.spawn(async move {
            let mut outcome = Outcome::default();
            while now() < end {
                let limit = Duration::from_nanos(end.saturating_sub(now())) + GRACE;
                match timeout(limit, peer.turn(&key, &section)).await {
                    Ok(Ok(turn)) => outcome.turns.push(turn),
                    Ok(Err(failure)) => outcome.failures.push(failure),
                    Err(_) => outcome.failures.push("still waiting".to_owned()),
                }
            }
            outcome
        });
    }
    let mut sum = Outcome {
        fewest: u64::MAX,
        ..Outcome::default()
    };
    for outcome in tasks.join_all().await {
        sum.fewest = sum.fewest.min(u64::try_from(outcome.turns.len()).unwrap());
        sum.turns.extend(outcome.turns);
        sum.failures.extend(outcome.failures);
    }
    sum
}
