//! Reader-writer locks on three nodes, ours beside Redisson's, which is on the first node alone: how fast, how long the
//! longest wait, and how often somebody wrote beside others while something happened to a node.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::{millis, nanos, sleep_until};
use crate::contest::{Outcome, READERS, Turn, now};
use crate::fleet::{self, OURS, present};
use crate::measure::{Spread, ratio, seconds};
use crate::semaphores::{Fault, USERS, happen, order, servers};

/// Of each library what reads and what writes.
const LIBRARIES: [(&str, &str); 2] = [(READERS, OURS), ("redisson-read", "redisson-write")];
const WRITERS: usize = 2;

pub(crate) fn run() {
    fleet::build();
    let length = seconds(6);
    println!(
        "\nreaders: {} processes x 4 tasks read, one x {WRITERS} writes, sections of 1 ms, 3 nodes; halfway of {length:?} a fault\n\
         {:28} {:10} | {:>9} | {:>9} | {:>18} | {:>18} | {:>14}",
        USERS.len(),
        "",
        "fault",
        "reads/s",
        "writes/s",
        "after the fault, /s",
        "longest waits, ms",
        "writes beside"
    );
    for (reads, writes) in LIBRARIES {
        if present(&[reads, writes]).len() == 2 {
            for fault in Fault::ALL {
                measure(reads, writes, fault, length);
            }
        }
    }
}

fn measure(reads: &str, writes: &str, fault: Fault, length: Duration) {
    let mut servers = servers();
    let mut orders: Vec<_> = USERS.map(|user| order(reads, &servers, user)).into();
    let mut writer = order(writes, &servers, USERS[0]);
    writer.tasks = WRITERS;
    orders.push(writer);
    let happened = Cell::new(0);
    let (nodes, at) = (servers.as_mut_slice(), &happened);
    let mut outcomes = fleet::together(&orders, length, move || {
        sleep_until(now() + nanos(length / 2));
        at.set(now());
        happen(fault, nodes)
    });
    let written = turns(&[outcomes.pop().unwrap()]);
    let read = turns(&outcomes);
    let beside = beside(&written, &read);
    assert!(
        writes != OURS || beside == 0,
        "{beside} WROTE BESIDE OTHERS"
    );
    let rates = |turns: &[Turn]| {
        let before = turns
            .iter()
            .filter(|turn| turn.began < happened.get())
            .count();
        [before, turns.len() - before]
            .map(|count| ratio(u64::try_from(count).unwrap(), 1) / (length / 2).as_secs_f64())
    };
    let longest = |turns: &[Turn]| {
        let waits = turns.iter().map(|turn| millis(turn.asked, turn.began));
        Spread::of(waits.collect()).part(1.0)
    };
    let ([reads_before, reads_after], [writes_before, writes_after]) =
        (rates(&read), rates(&written));
    println!(
        "{writes:28} {:10} | {reads_before:>9.0} | {writes_before:>9.0} | {:>18} | {:>18} | {beside:>14}",
        format!("{fault:?}"),
        format!("{reads_after:.0}, {writes_after:.0}"),
        format!("{:.0}, {:.0}", longest(&read), longest(&written)),
    );
}

fn turns(outcomes: &[Outcome]) -> Vec<Turn> {
    outcomes
        .iter()
        .flat_map(|outcome| outcome.turns.clone())
        .collect()
}

/// How many sections of writers overlap with another section.
fn beside(written: &[Turn], read: &[Turn]) -> usize {
    let overlap = |one: &Turn, other: &Turn| one.began < other.ended && other.began < one.ended;
    let is_beside = |index: usize, one: &Turn| {
        let others = written
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != index);
        let mut all = others.map(|(_, turn)| turn).chain(read);
        all.any(|other| overlap(one, other))
    };
    let written = written.iter().enumerate();
    written
        .filter(|(index, one)| is_beside(*index, one))
        .count()
}
