//! Faults of servers with replicas: they lag, and one takes the place of another.

use super::super::Seen;
use super::super::rolls::Rolls;
use super::super::settings::Shape;
use super::network::apart;
use super::{Kind, Made};
use tower_redlock_simulated::world::{Fault, HostId};

pub(super) fn replicas(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let watched = kind == Kind::Failover;
    let mut groups = shape.with_replicas(watched);
    if kind == Kind::Lag {
        groups.extend(shape.with_replicas(!watched));
    }
    let group = rolls.pick(&groups);
    let servers = shape.topology.servers(group as usize);
    match kind {
        Kind::Lag => return lag(&servers, rolls, made),
        Kind::FailoverAndBack => back_and_forth(&servers, rolls, made),
        _ => fail_over(shape, group, &servers, rolls, made),
    }
    made.loses(group, Seen::Yes);
}

fn lag(servers: &[HostId], rolls: &mut Rolls, made: &mut Made) {
    let host = servers[1];
    let time = rolls.range(300, 3_000);
    if rolls.percent(50) {
        let lag = |ms| Fault::ReplicaLag { host, ms };
        made.add(0, lag(rolls.wide(5, 500)));
        made.add(time, lag(0));
    } else {
        let cut = |on| Fault::ReplicaCut { host, on };
        made.add(0, cut(true));
        made.add(time, cut(false));
    }
}

/// A replica takes the place of its master, whose data it replaces by its own, and gives it back.
fn back_and_forth(servers: &[HostId], rolls: &mut Rolls, made: &mut Made) {
    let (master, replica) = (servers[0], servers[1]);
    let cut = |on| Fault::ReplicaCut { host: replica, on };
    let demote = |host, of| Fault::Demote { host, of };
    let mut after = rolls.wide(10, 1_500);
    if rolls.percent(70) {
        made.add(0, cut(true));
    }
    made.add(after, Fault::Promote { host: replica });
    after += rolls.wide(5, 1_500);
    made.add(after, demote(master, replica));
    after += rolls.wide(5, 300);
    made.add(after, Fault::Promote { host: master });
    after += rolls.wide(5, 500);
    made.add(after, demote(replica, master));
    made.add(after, cut(false));
}

/// The Sentinels of a group choose a master.
fn fail_over(shape: &Shape, group: u32, servers: &[HostId], rolls: &mut Rolls, made: &mut Made) {
    // Mostly a replica, for the master is what failed.
    let to = match rolls.percent(70) {
        true => rolls.pick(&servers[1..]),
        false => rolls.pick(servers),
    };
    if rolls.percent(40) {
        made.add(0, Fault::ReplicaCut { host: to, on: true });
    }
    let after = rolls.wide(5, 800);
    // The number of a failover is higher than that of every one before.
    let epoch = made.at;
    let (learn_ms, demote_ms) = if rolls.percent(70) {
        let time = after + rolls.range(500, 10_000);
        apart(shape, rolls, made, (group, to), time);
        // The old master learns of it when the network is whole again.
        (rolls.wide(5, 1_000), time - after + rolls.wide(1, 500))
    } else {
        (rolls.wide(5, 3_000), rolls.wide(5, 6_000))
    };
    let failover = Fault::Failover {
        group,
        to,
        epoch,
        learn_ms,
        demote_ms,
    };
    made.add(after, failover);
}
