//! What makes no sense in a plan: numbers of what it does not have, and numbers out of range.

use std::collections::BTreeSet;

use tower_redlock_simulated::world::{Fault, Named};

use super::{Call, Plan, Settings};

/// An hour: what is longer makes a run that nobody waits for.
const LONGEST: u64 = 3_600_000;
const MOST_KEYS: u32 = 1_000;

/// `count` of something, in words.
pub(crate) fn counted(count: usize, what: &str) -> String {
    match (count, what.ends_with('s')) {
        (1, _) => format!("1 {what}"),
        (_, true) => format!("{count} {what}es"),
        (_, false) => format!("{count} {what}s"),
    }
}

fn need(holds: bool, or_else: impl Into<String>) -> Result<(), String> {
    match holds {
        true => Ok(()),
        false => Err(or_else.into()),
    }
}

/// Refuses a number that is more than may be.
fn at_most(what: &str, number: u64, most: u64) -> Result<(), String> {
    let why = format!("{what} is {number}; it may be {most} at most");
    need(number <= most, why)
}

/// Refuses a number of something that the plan does not have.
pub(super) fn exists(what: &str, index: u64, count: usize) -> Result<(), String> {
    let all = counted(count, what);
    let why = format!("there is no {what} {index}: the plan has {all}, counted from 0");
    need(index < count as u64, why)
}

pub(super) fn first(plan: &Plan) -> Result<(), String> {
    at_most("`length`", plan.length, LONGEST)?;
    at_most("`keys`", plan.keys.into(), MOST_KEYS.into())?;
    need(plan.keys > 0, "at least 1 key is needed")?;
    let is_served = !plan.topology.groups.is_empty();
    need(is_served, "at least 1 group of servers is needed")
}

pub(super) fn settings(plan: &Plan, settings: &Settings) -> Result<(), String> {
    let (groups, nodes) = (plan.topology.groups.len(), settings.nodes.len());
    for group in &settings.nodes {
        exists("group", (*group).into(), groups)?;
    }
    let different = settings.nodes.iter().collect::<BTreeSet<_>>().len();
    let why = "`nodes` must be groups, one at least, and each of them once";
    need(nodes > 0 && different == nodes, why)?;
    let (mask, all) = (settings.mask, counted(nodes, "node"));
    let why = format!("`mask` {mask} is too much for {all}");
    need(settings.quorum() <= nodes, why)?;
    need(!settings.namespace.is_empty(), "`namespace` is empty")
}

/// What no single line shows.
pub(super) fn whole(plan: &Plan) -> Result<(), String> {
    let why = "there is no `process` line";
    need(!plan.processes.is_empty(), why)?;
    let mut lives = plan.processes.iter().map(|place| place.lives.len());
    let why = "a process has no `life` line";
    need(lives.all(|count| count > 0), why)?;
    let is_served = |settings: &Settings| settings.ttl <= settings.max_ttl;
    let why = "`ttl` is longer than `max_ttl` everywhere: all processes are refused";
    need(plan.all_settings().any(is_served), why)
}

pub(super) fn call(plan: &Plan, call: &Call) -> Result<(), String> {
    exists("process", call.place.into(), plan.processes.len())?;
    // Later all is over.
    at_most("the time of a call", call.at, LONGEST)
}

pub(super) fn fault(plan: &Plan, at: u64, fault: &Fault) -> Result<(), String> {
    let topology = &plan.topology;
    for (named, index) in fault.names() {
        match named {
            Named::Process => exists("process", index, plan.processes.len())?,
            Named::Host => exists("host", index, topology.hosts().len())?,
            Named::Group => exists("group", index, topology.groups.len())?,
        }
    }
    at_most("the time of a fault", at, LONGEST)
}
