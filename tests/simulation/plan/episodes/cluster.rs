//! Faults of a cluster: its servers lose sight of each other, and a replica takes over.

use super::super::rolls::Rolls;
use super::super::settings::Shape;
use super::Made;
use tower_redlock_simulated::world::{Fault, HostId};

/// The cluster is divided, and its clients with it; often while it votes, so that some who voted never hear the outcome.
pub(super) fn divide(shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let small = small_side(shape, rolls);
    let is_small = |host: &HostId| small.contains(host);
    let hosts = shape.hosts();
    let across = hosts.iter().filter(|host| is_small(host)).flat_map(|host| {
        let others = hosts.iter().filter(|other| !is_small(other));
        others.map(|to| (*host, *to))
    });
    let across: Vec<(HostId, HostId)> = across.collect();
    let mut bus = |after, ms| {
        for (host, to) in &across {
            let (host, to) = (*host, *to);
            made.add(after, Fault::Bus { host, to, ms });
        }
    };
    // A question goes there, a vote comes back, and the outcome is on its way there: that is when they are divided, or
    // near it.
    let slow = rolls.range(10, 200);
    let votes = rolls.percent(75);
    let after = match (votes, rolls.percent(50)) {
        (true, true) => slow * 5 / 2,
        (true, false) => rolls.range(slow, slow * 4),
        (false, _) => 0,
    };
    if votes {
        bus(0, Some(slow));
    }
    let time = after + rolls.range(2_000, 10_000);
    bus(after, None);
    bus(time, Some(0));
    if votes {
        // The first of them is a master.
        let group = shape.group(small[0]) as usize;
        let host = shape.topology.replica(group, 0);
        made.add(0, Fault::Promote { host });
    }
    // There are processes on both sides; some reach all servers.
    let first = rolls.percent(50);
    for process in shape.places() {
        let side = match process {
            0 => Some(first),
            1 => Some(!first),
            _ => rolls.pick(&[Some(true), Some(false), None]),
        };
        for host in hosts.iter().copied() {
            if side.is_some_and(|side| side != is_small(&host)) {
                made.cut(after, process, host, rolls);
                made.heal(time, process, host);
            }
        }
    }
}

/// The servers of one side: two masters, which are most of three, or a master with any others.
fn small_side(shape: &Shape, rolls: &mut Rolls) -> Vec<HostId> {
    let group = rolls.pick(&shape.places[0].lives[0].nodes);
    let mut groups = shape.groups();
    groups.retain(|other| *other != group);
    let master = shape.topology.master(group as usize);
    let mut small = vec![master];
    if rolls.percent(75) {
        small.push(shape.topology.master(rolls.pick(&groups) as usize));
    } else {
        let chance = rolls.pick(&[0, 20, 50]);
        let others = shape.hosts().into_iter().filter(|host| *host != master);
        small.extend(others.filter(|_| rolls.percent(chance)));
    }
    small
}

/// A replica takes the place of its master, on demand.
pub(super) fn take_over(shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let group = rolls.pick(&shape.groups()) as usize;
    let host = rolls.pick(&shape.topology.servers(group));
    made.add(0, Fault::Promote { host });
}
