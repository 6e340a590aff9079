//! When what is kept ends, over nodes and processes whose clocks differ: many histories in which nodes come and go
//! around the end.

use std::collections::BTreeMap;

use super::idempotent::with_record;
use super::*;

const TTL: Duration = Duration::from_secs(1);
const KEEP: Duration = Duration::from_secs(50);
/// By how many milliseconds no two clocks differ more, but for one.
const SKEW: u64 = 5_000;
/// Each shape of a cluster once.
const HISTORIES: u64 = 5;

/// What became of pieces of work each of which is done again and again.
#[derive(Debug, Default)]
struct Seen {
    // When each run of the present one said what came of it; whether it was told that this is kept.
    ended: BTreeMap<u64, (Instant, bool)>,
    runs: u64,
    replays: u64,
    // Of these those near an end, when the clocks do not agree.
    late: u64,
    refused: u64,
}

impl Seen {
    /// Somebody is to do it at `now`.
    fn run(&mut self, now: Instant, seed: u64) {
        for (body, (then, kept)) in &self.ended {
            let early = Duration::from_millis(SKEW);
            assert!(
                !kept || now + early >= *then + KEEP,
                "seed {seed}: {body} is kept since {:?}, and it is to be done again",
                now - *then
            );
        }
        self.runs += 1;
    }

    /// Somebody is told `body` at `now`.
    fn replay(&mut self, body: u64, now: Instant, seed: u64) {
        let (then, _) = self.ended[&body];
        let late = Duration::from_millis(SKEW);
        assert!(
            now <= then + KEEP + late,
            "seed {seed}: {body} is told after {:?}",
            now - then
        );
        self.replays += 1;
        self.late += u64::from(now + late >= then + KEEP);
    }
}

/// Whether one clock is wrong by any time.
async fn history(seed: u64, wild: bool, seen: &mut Seen) {
    let mut dice = Rng::with_seed(seed);
    let (count, masked) = [(3, 0), (4, 0), (5, 0), (6, 1), (5, 2)][seed as usize % 5];
    let wrong = |dice: &mut Rng| Wrong(TokioClock::new(), dice.u64(..SKEW) as i64);
    let nodes = nodes(count);
    for (index, node) in nodes.iter().enumerate() {
        let mut clock = wrong(&mut dice);
        if wild && index == 0 {
            clock.1 = [-1_000_000_000, 1_000_000_000][dice.usize(..2)];
        }
        let context = NodeContext::new(Arc::new(clock), ServerRegistry::new());
        node.start(context);
    }
    let mut managers = Vec::new();
    for _ in 0..3 {
        let builder = LockManager::builder().nodes(nodes.iter().cloned());
        let builder = builder.clock(wrong(&mut dice)).ttl(TTL);
        let builder = builder.without_restart_guard().mask_losses(masked);
        managers.push(builder.connect_lazy().unwrap());
    }
    for body in 0..300_u64 {
        // Mostly around the end of what was kept last.
        let last = seen.ended.values().map(|(then, _)| *then).max();
        let left = last.map_or(Duration::ZERO, |last| {
            (last + KEEP).duration_since(Instant::now())
        });
        let around = Duration::from_millis(2 * SKEW);
        let pause = match left.checked_sub(around) {
            Some(left) if dice.u64(..3) > 0 => left,
            _ => Duration::from_millis(dice.u64(..SKEW / 2)),
        };
        sleep(pause).await;
        let all = wild && left.is_zero() && dice.u64(..2) > 0;
        for node in &nodes {
            // One that is wrong by any time is as good as one more that lost what it had.
            match all || dice.u8(..if wild { 8 } else { 4 }) > 0 {
                true => node.come_up(),
                false => node.go_down(),
            }
        }
        let locks = &managers[dice.usize(..3)];
        // Some keep it for longer or shorter.
        let keep = [KEEP, KEEP, 10 * KEEP, KEEP / 10][dice.usize(..4)];
        let asked = Instant::now();
        match locks.begin_idempotent("work", keep, Duration::ZERO).await {
            Ok(IdempotentRun::Replay(told)) => {
                let told = u64::from_be_bytes(told[..].try_into().unwrap());
                seen.replay(told, asked, seed);
            }
            Ok(IdempotentRun::Execute(run)) => {
                seen.run(asked, seed);
                if keep != KEEP || dice.u64(..4) == 0 {
                    let _ = run.abandon().await;
                    continue;
                }
                if wild {
                    // Else the one that is wrong may be one too few.
                    nodes.iter().for_each(MemoryNode::come_up);
                }
                let kept = run.complete(body.to_be_bytes().to_vec());
                let then = Instant::now();
                let kept = kept.await.is_ok();
                sleep(Duration::from_millis(u64::from(wild))).await;
                seen.ended.insert(body, (then, kept));
            }
            Ok(other) => panic!("{other:?}"),
            Err(_) => seen.refused += 1,
        }
    }
}

fn histories(wild: bool) {
    let mut seen = Seen::default();
    for seed in 0..HISTORIES {
        seen.ended.clear();
        paused().block_on(history(seed, wild, &mut seen));
    }
    assert!(seen.runs > 20 * HISTORIES, "{seen:?}");
    assert!(seen.replays > 40 * HISTORIES, "{seen:?}");
    assert!(seen.late > 10 * HISTORIES, "{seen:?}");
    assert!(seen.refused < 150 * HISTORIES, "{seen:?}");
}

#[test]
fn nothing_is_told_after_its_end_nor_done_again_before_by_more_than_the_clocks_differ() {
    histories(false);
}

/// It neither decides an end nor keeps a record nor ends it.
#[test]
fn one_clock_that_is_wrong_by_any_time_does_not_matter_while_all_have_the_record() {
    histories(true);
}

/// The copies of a record that are made late, by a process that keeps records for longer or shorter or by one that
/// adopts it, end when the first ones do.
#[tokio::test(start_paused = true)]
async fn a_record_ends_once_whoever_brings_it_to_other_nodes() {
    let wait = super::TTL;
    let cases = [(false, DAY), (true, DAY), (false, wait), (true, wait)];
    for (adopted, asked_for) in cases {
        let (nodes, [locks]) = five_met().await;
        let begin = async |keep| locks.begin_idempotent("order", keep, wait).await;
        nodes.each([3, 4], MemoryNode::go_down);
        let run = to_run(begin(1_000 * SECOND).await);
        run.complete("done").await.unwrap();
        sleep(900 * SECOND).await;
        nodes.each([3, 4], MemoryNode::come_up);
        // One is away so that they are heard at all, or two so that it is adopted.
        nodes.each(0..1 + usize::from(adopted), MemoryNode::go_down);
        assert_eq!(replayed(begin(asked_for).await), "done");
        nodes.each(0..5, MemoryNode::come_up);
        assert_eq!(replayed(begin(asked_for).await), "done");
        sleep(99 * SECOND).await;
        assert_eq!(with_record(&nodes).await, 5, "{adopted} {asked_for:?}");
        sleep(2 * SECOND).await;
        assert_eq!(with_record(&nodes).await, 0, "{adopted} {asked_for:?}");
        to_run(begin(DAY).await).abandon().await.unwrap();
    }
}
