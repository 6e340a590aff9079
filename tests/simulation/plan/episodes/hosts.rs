//! Faults of servers: what they forget, their clocks, and their room.

use super::super::rolls::Rolls;
use super::super::settings::Shape;
use super::super::{Episode, Seen};
use super::{Kind, Made};
use tower_redlock_simulated::world::{Fault, Memory, Refusal};

pub(super) fn host(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let group = rolls.pick(&shape.groups());
    let mut host = shape.topology.master(group as usize);
    let back_after_ms = rolls.wide(10, 3_000);
    let silent = rolls.percent(40);
    let memory = match kind {
        Kind::Freeze => {
            host = rolls.pick(&shape.hosts());
            made.add(0, Fault::Freeze { host });
            return made.add(rolls.wide(30, 4_000), Fault::Thaw { host });
        }
        Kind::Flush => {
            made.add(0, Fault::Flush { host });
            return made.loses(group, Seen::Yes);
        }
        Kind::Crash => {
            host = rolls.pick(&shape.hosts());
            Memory::All
        }
        Kind::OldData => {
            let age_ms = rolls.wide(50, 4_000);
            // It decides nothing any more, but whatever follows it is rolled as for ever.
            rolls.percent(75);
            Memory::Old { age_ms }
        }
        _ => {
            let percent = rolls.range(10, 90) as u32;
            match rolls.percent(70) {
                true => Memory::None,
                false => Memory::Some { percent },
            }
        }
    };
    let crash = Fault::Crash {
        host,
        memory,
        back_after_ms,
        silent,
    };
    made.add(0, crash);
    if kind != Kind::Crash {
        made.loses(group, Seen::Yes);
    }
}

/// No clock that leases depend on runs faster or slower than the drift allows for: together less than a hundredth.
const MOST_PPM: u64 = 3_500;

pub(super) fn clocks(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let group = rolls.pick(&shape.groups());
    let host = shape.topology.master(group as usize);
    let process = rolls.pick(&shape.places());
    match kind {
        Kind::Rates => {
            let ppm = rolls.below(2 * MOST_PPM) as i64 - MOST_PPM as i64;
            let rate = match rolls.percent(50) {
                true => Fault::HostRate { host, ppm },
                false => Fault::ProcessRate { process, ppm },
            };
            made.add(0, rate);
        }
        Kind::StepBack => {
            let ms = -(rolls.wide(1, 1_500) as i64);
            made.add(0, Fault::HostStep { host, ms });
        }
        Kind::StepAhead => {
            let group = rolls.pick(&shape.unseen);
            let host = shape.topology.master(group as usize);
            let ms = rolls.wide(100, 20_000) as i64;
            made.add(0, Fault::HostStep { host, ms });
            made.loses(group, Seen::No);
        }
        _ => {
            let ms = rolls.range(1, 150) as i64;
            let ms = if rolls.percent(50) { ms } else { -ms };
            made.add(0, Fault::ProcessStep { process, ms });
        }
    }
}

pub(super) fn server(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let group = rolls.pick(&shape.groups());
    let host = shape.topology.master(group as usize);
    match kind {
        Kind::Evict => {
            let unseen = shape.unseen.contains(&group) && rolls.percent(50);
            // By then each process that can reach it has seen that it may evict, and uses it no more.
            let after = if unseen { 0 } else { 2_700 };
            let volatile = rolls.percent(50);
            let policy = |on| Fault::EvictionPolicy { host, on, volatile };
            made.add(0, policy(true));
            let most = rolls.pick(&[3, 20, 100]);
            let time = rolls.range(300, 1_500);
            for _ in 0..rolls.range(1, 6) {
                let keys = rolls.wide(1, most) as u32;
                made.add(after + rolls.below(time), Fault::Evict { host, keys });
            }
            made.add(after + time + rolls.range(1, 700), policy(false));
            made.loses(group, if unseen { Seen::No } else { Seen::Yes });
        }
        Kind::Full => {
            let full = |on| Fault::OutOfMemory { host, on };
            made.add(0, full(true));
            made.add(rolls.wide(50, 4_000), full(false));
        }
        Kind::Refuses => {
            let why = rolls.pick(&[Refusal::Busy, Refusal::CannotSave, Refusal::NoScripts]);
            let refuses = |on| Fault::Refuses { host, why, on };
            made.add(0, refuses(true));
            made.add(rolls.wide(50, 4_000), refuses(false));
        }
        Kind::Scribble => {
            let seed = rolls.below(1 << 32);
            let share = rolls.pick(&[40, 100]);
            for group in rolls.some(&shape.groups(), share) {
                let host = shape.topology.master(group as usize);
                made.add(rolls.below(50), Fault::Scribble { host, seed });
            }
        }
        _ => {
            let fault = match rolls.percent(50) {
                true => Fault::FlushScripts { host },
                false => Fault::KillClients { host },
            };
            made.add(0, fault);
        }
    }
}

/// Most nodes forget at once, or all of them.
pub(super) fn majority(shape: &Shape, rolls: &mut Rolls, at: u64) -> Vec<Episode> {
    let share = rolls.pick(&[80, 100]);
    let groups = rolls.some(&shape.groups(), share);
    let one = |group: u32| {
        let mut made = Made::new("majority", at + rolls.below(50));
        let crash = Fault::Crash {
            host: shape.topology.master(group as usize),
            memory: Memory::None,
            back_after_ms: rolls.wide(5, 500),
            silent: false,
        };
        made.add(0, crash);
        made.loses(group, Seen::Yes);
        made.done()
    };
    groups.into_iter().map(one).collect()
}

/// A node that two lists have in common forgets now and then, while all who use it reach it: it may take the other list
/// then, and both lists stop.
pub(in crate::plan) fn common(shape: &Shape, rolls: &mut Rolls) -> Vec<Episode> {
    let Some(group) = shape.common.first().copied() else {
        return Vec::new();
    };
    let host = shape.topology.master(group as usize);
    let one = |at| {
        let mut made = Made::new("common", at);
        made.add(0, Fault::Flush { host });
        made.loses(group, Seen::Yes);
        made.done()
    };
    let times = 0..rolls.range(1, 6);
    let latest = shape.length.saturating_sub(700);
    times.map(|_| one(rolls.range(2_500, latest))).collect()
}
