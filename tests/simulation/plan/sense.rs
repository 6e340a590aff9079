//! What makes no sense in a plan: numbers out of range, and faults that could do nothing where they are.

use tower_redlock_simulated::world::{Fault, HostId, HostKind, Memory, Topology};

use super::{Call, Settings};

/// An hour: what is longer makes a run that nobody waits for.
const LONGEST: u64 = 3_600_000;
/// A clock that runs at half its speed, or at one and a half.
const MOST_PPM: u64 = 500_000;
const MOST_KEYS: u32 = 1_000;

/// Refuses a number that is more than may be.
fn at_most(what: &str, number: u64, most: u64) -> Result<(), String> {
    match number <= most {
        true => Ok(()),
        false => Err(format!("{what} is {number}; it may be {most} at most")),
    }
}

pub(super) fn length(length: u64) -> Result<(), String> {
    at_most("`length`", length, LONGEST)
}

pub(super) fn keys(keys: u32) -> Result<(), String> {
    if keys == 0 {
        return Err("at least 1 key is needed".to_owned());
    }
    at_most("`keys`", u64::from(keys), u64::from(MOST_KEYS))
}

pub(super) fn settings(settings: &Settings) -> Result<(), String> {
    if settings.namespace.is_empty() {
        return Err("`namespace` is empty".to_owned());
    }
    Ok(())
}

/// That not all processes are refused.
pub(super) fn all_settings<'a>(mut all: impl Iterator<Item = &'a Settings>) -> Result<(), String> {
    match all.any(|settings| settings.ttl <= settings.max_ttl) {
        true => Ok(()),
        false => {
            Err("`ttl` is longer than `max_ttl` everywhere: all processes are refused".to_owned())
        }
    }
}

/// That a call is not one that is made when all is over.
pub(super) fn call(call: &Call) -> Result<(), String> {
    at_most("the time of a call", call.at, LONGEST)
}

pub(super) fn fault(fault: &Fault, at: u64, topology: &Topology) -> Result<(), String> {
    at_most("the time of a fault", at, LONGEST)?;
    times(fault)?;
    roles(fault, topology)
}

fn times(fault: &Fault) -> Result<(), String> {
    match *fault {
        Fault::Delay { min_ms, max_ms, .. } => {
            at_most("`max_ms`", max_ms, LONGEST)?;
            at_most("`min_ms`", min_ms, max_ms)
        }
        Fault::Crash {
            memory: Memory::Some { percent },
            ..
        } => at_most("`percent`", u64::from(percent), 100),
        Fault::HostRate { ppm, .. } | Fault::ProcessRate { ppm, .. } => {
            at_most("`ppm`, up or down,", ppm.unsigned_abs(), MOST_PPM)
        }
        Fault::HostStep { ms, .. } | Fault::ProcessStep { ms, .. } => {
            at_most("`ms`, up or down,", ms.unsigned_abs(), 24 * LONGEST)
        }
        Fault::Jitter {
            permille, max_ms, ..
        } => {
            at_most("`permille`", u64::from(permille), 1_000)?;
            at_most("`max_ms`", max_ms, LONGEST)
        }
        Fault::Suspend { ms } | Fault::ReplicaLag { ms, .. } => at_most("`ms`", ms, LONGEST),
        Fault::Bus { ms, .. } => at_most("`ms`", ms.unwrap_or(0), LONGEST),
        _ => Ok(()),
    }
}

/// That a fault can happen to the hosts that it names, all of which exist.
fn roles(fault: &Fault, topology: &Topology) -> Result<(), String> {
    let hosts = topology.hosts();
    let known = |host: HostId| hosts.iter().find(|(id, ..)| *id == host);
    let group = |host: HostId| known(host).map(|(_, group, _)| *group);
    let is_sentinel = |host: HostId| matches!(known(host), Some((.., HostKind::Sentinel(_))));
    let is_replica = |host: HostId| matches!(known(host), Some((.., HostKind::Replica(_))));
    let holds = match *fault {
        Fault::Opinion {
            sentinel, master, ..
        } => is_sentinel(sentinel) && !is_sentinel(master) && group(sentinel) == group(master),
        Fault::Failover { group: of, to, .. } => group(to) == Some(of as usize) && !is_sentinel(to),
        Fault::Bus { host, to, .. } => topology.cluster.is_some() && host != to,
        Fault::Demote { host, of } => {
            topology.cluster.is_none()
                && host != of
                && group(host) == group(of)
                && !is_sentinel(host)
                && !is_sentinel(of)
        }
        Fault::ReplicaCut { host, .. } | Fault::ReplicaLag { host, .. } => {
            // After a failover the first master is a replica.
            is_replica(host)
                || hosts
                    .iter()
                    .any(|(id, of, _)| Some(*of) == group(host) && is_replica(*id))
        }
        Fault::Promote { host } => !is_sentinel(host),
        _ => true,
    };
    match holds {
        true => Ok(()),
        false => Err(format!("{fault} names hosts that it cannot happen to")),
    }
}
