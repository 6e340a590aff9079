//! Faults of the network: cuts of all kinds, and what arrives late.

use super::super::Episode;
use super::super::generate::QUIET;
use super::super::rolls::Rolls;
use super::super::settings::Shape;
use super::{Kind, Made};
use tower_redlock_simulated::world::{Fault, HostId, Way};

/// One process is cut off from one host, in one of the ways in which that happens.
pub(super) fn cut(process: u32, host: HostId, rolls: &mut Rolls) -> Vec<Fault> {
    let way =
        |rolls: &mut Rolls| rolls.weighted(&[(3, Way::Both), (1, Way::There), (1, Way::Back)]);
    let hold = |way| Fault::Hold { process, host, way };
    match rolls.below(4) {
        0 => vec![hold(way(rolls))],
        1 => {
            let way = way(rolls);
            vec![Fault::Lose { process, host, way }]
        }
        2 => vec![
            Fault::Refuse { process, host },
            Fault::Break { process, host },
        ],
        _ => vec![hold(Way::Both)],
    }
}

pub(super) fn network(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let (places, hosts) = (shape.places(), shape.hosts());
    let time = rolls.wide(100, 6_000);
    match kind {
        Kind::Slow => {
            let max_ms = rolls.wide(3, 300);
            for process in rolls.some(&places, 40) {
                for host in rolls.some(&hosts, 40) {
                    let min_ms = rolls.below(max_ms);
                    let slow = Fault::Delay {
                        process,
                        host,
                        min_ms,
                        max_ms,
                    };
                    made.add(0, slow);
                    made.heal(time, process, host);
                }
            }
        }
        Kind::Cut => {
            let (process, host) = (rolls.pick(&places), rolls.pick(&hosts));
            made.cut(0, process, host, rolls);
            made.heal(time, process, host);
        }
        Kind::Break => {
            for host in rolls.some(&hosts, 30) {
                for process in rolls.some(&places, 50) {
                    made.add(0, Fault::Break { process, host });
                }
            }
        }
        _ => {
            // Each process and each host is on one side; some hosts are on both.
            let sides: Vec<bool> = places.iter().map(|_| rolls.percent(50)).collect();
            for host in hosts {
                let side = rolls.weighted(&[(35, Some(true)), (35, Some(false)), (30, None)]);
                for (process, own) in places.iter().zip(&sides) {
                    if side.is_none_or(|side| side == *own) {
                        continue;
                    }
                    let process = *process;
                    made.cut(0, process, host, rolls);
                    made.heal(time, process, host);
                }
            }
        }
    }
}

/// What connections carried arrives late, or once more.
pub(super) fn copies(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let (process, host) = (rolls.pick(&shape.places()), rolls.pick(&shape.hosts()));
    let late_ms = rolls.wide(20, 5_000);
    if kind == Kind::Duplicate {
        let twice = Fault::Duplicate {
            process,
            host,
            late_ms,
        };
        made.add(0, twice);
        made.heal(rolls.range(100, 3_000), process, host);
        return;
    }
    let late = Fault::DrainLate {
        process,
        host,
        late_ms,
    };
    made.add(0, late);
    let (time, way) = (rolls.range(50, 1_500), Way::Both);
    let mut end = time;
    if rolls.percent(60) {
        made.add(time, Fault::Hold { process, host, way });
        end += rolls.range(50, 1_000);
    }
    made.add(end, Fault::Break { process, host });
    made.heal(time + 2_000, process, host);
}

/// The network is in two parts, with the new master of a group and most of its Sentinels on one side and its other
/// servers on the other. That is why there is a new one.
pub(super) fn apart(
    shape: &Shape,
    rolls: &mut Rolls,
    made: &mut Made,
    (group, to): (u32, HostId),
    time: u64,
) {
    let servers = shape.topology.servers(group as usize);
    let places = shape.places();
    // There are processes on both sides.
    let turn = rolls.percent(50);
    let mut sides: Vec<bool> = places.iter().map(|_| rolls.percent(50)).collect();
    sides[0] = turn;
    sides[1] = !turn;
    let mut left_behind = rolls.below(4);
    let is_halved = rolls.percent(65);
    for host in shape.hosts() {
        let side = match shape.group(host) {
            own if own == group && servers.contains(&host) => Some(host == to),
            own if own == group => {
                left_behind = left_behind.wrapping_sub(1);
                Some(left_behind != 0)
            }
            // Every other one of the rest.
            other if is_halved => Some((other + u32::from(other < group)).is_multiple_of(2)),
            _ => rolls.weighted(&[(30, Some(true)), (30, Some(false)), (40, None)]),
        };
        for (process, own) in places.iter().zip(&sides) {
            if side.is_some_and(|side| side != *own) {
                let process = *process;
                made.cut(0, process, host, rolls);
                made.heal(time, process, host);
            }
        }
    }
}

/// What fails seldom fails alone: about when something else goes wrong, a process is cut off from some other host.
pub(in crate::plan) fn together(
    shape: &Shape,
    rolls: &mut Rolls,
    others: &[Episode],
) -> Vec<Episode> {
    let chance = rolls.pick(&[0, 20, 60]);
    let hosts = shape.hosts();
    let mut all = Vec::new();
    for other in others.iter().filter(|other| other.loses.is_some()) {
        if !rolls.percent(chance) {
            continue;
        }
        let began = other.steps.first().map_or(QUIET, |(at, _)| *at);
        let before = rolls.wide(1, 3_000);
        for process in rolls.some(&shape.places(), 40) {
            let mut elsewhere = hosts.clone();
            elsewhere.retain(|host| other.loses.is_none_or(|(of, _)| shape.group(*host) != of));
            if elsewhere.is_empty() {
                continue;
            }
            let host = rolls.pick(&elsewhere);
            let mut made = Made::new("together", began.saturating_sub(before).max(QUIET));
            made.cut(0, process, host, rolls);
            made.heal(before + rolls.wide(300, 7_000), process, host);
            all.push(made.done());
        }
    }
    all
}

/// Through the whole plan, each process is cut off now from these hosts, now from those.
pub(super) fn flaky(shape: &Shape, rolls: &mut Rolls) -> Vec<Episode> {
    let chance = rolls.pick(&[8, 15, 25]);
    let longest = rolls.pick(&[700, 1_500, 4_000]);
    let mut all = Vec::new();
    for host in shape.hosts() {
        for process in shape.places() {
            let mut at = QUIET + rolls.below(longest);
            while at < shape.length {
                let time = rolls.range(100, longest);
                if rolls.percent(chance) {
                    let mut made = Made::new(&Kind::Flaky.name(), at);
                    made.cut(0, process, host, rolls);
                    made.heal(time, process, host);
                    all.push(made.done());
                }
                at += time + 1;
            }
        }
    }
    all
}

/// Each process has no more nodes than a quorum, now these and now those: what is granted has nothing to spare.
pub(super) fn lopsided(shape: &Shape, rolls: &mut Rolls) -> Vec<Episode> {
    let (shortest, longest) = rolls.pick(&[(300, 1_500), (1_000, 4_000), (3_000, 9_000)]);
    let mut all = Vec::new();
    for process in shape.places() {
        let mut at = QUIET + rolls.below(500);
        while at < shape.length {
            let time = rolls.range(shortest, longest);
            let mut left = shape.groups();
            for _ in 0..shape.spare {
                let group = left.swap_remove(rolls.below(left.len() as u64) as usize);
                let mut made = Made::new(&Kind::Lopsided.name(), at);
                for host in shape.topology.servers(group as usize) {
                    made.cut(0, process, host, rolls);
                    made.heal(time, process, host);
                }
                all.push(made.done());
            }
            at += time + rolls.pick(&[1, 1, 50, 700]);
        }
    }
    all
}

/// A node that two lists have in common is cut off from some processes before anything was granted.
pub(in crate::plan) fn late(shape: &Shape, rolls: &mut Rolls) -> Vec<Episode> {
    let mut made = Made::new("late", 0);
    let time = rolls.range(300, shape.length);
    for group in &shape.common {
        let host = shape.topology.master(*group as usize);
        for process in rolls.some(&shape.places(), 70) {
            made.cut(0, process, host, rolls);
            made.heal(time, process, host);
        }
    }
    vec![made.done()]
}
