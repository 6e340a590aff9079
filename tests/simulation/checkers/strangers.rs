//! Who cannot know of each other: of two lists of nodes with one in common, nothing is promised where that one is
//! emptied while a process connects, which cannot have known whom it served; until those of the other list see at their
//! next checks that it was. Who asks for a lock later than that is no stranger any more.

use super::{History, losses};
use crate::workload::history::{Holder, What};
use tower_redlock_simulated::world::ProcessId;

/// Two checks of a node, in milliseconds.
const TWO_CHECKS: u64 = 2_000;

/// Whether one of two holders could not know of the other: it connected right after a node that both lists have was
/// emptied, and those of the other list had not checked it since.
pub(super) fn are_strangers(history: &History, one: &Holder, two: &Holder) -> bool {
    let came_between = |new: &Holder, old: &Holder| {
        let common = in_common(history, new.process, old.process);
        let connected = connection(history, new.process).map_or(0, |(at, _)| at);
        losses(history).any(|(emptied, group)| {
            let span = emptied..=emptied + TWO_CHECKS;
            common
                .as_ref()
                .is_some_and(|common| common.contains(&group))
                && span.contains(&connected)
                && old.granted <= emptied + TWO_CHECKS
                && new.started <= connected + TWO_CHECKS
        })
    };
    came_between(one, two) || came_between(two, one)
}

/// Whether two holders have different lists of nodes, and the nodes that both lists have have lost what they were told
/// since the earlier one. The first tokens after a loss are ahead of the clock, and those of the other list need not be:
/// so `ahead` milliseconds later at the latest the order is promised again.
pub(super) fn was_forgotten(
    history: &History,
    earlier: &Holder,
    later: &Holder,
    ahead: u64,
) -> bool {
    let span = (earlier.granted, later.granted);
    later.started < earlier.granted + ahead
        && forgot(history, (earlier.process, later.process), span)
}

/// Whether two processes have different lists of nodes, and the nodes that both lists have were emptied before `until`:
/// from then on they may serve the other list, which has none of the records of the former.
pub(super) fn have_two_records(
    history: &History,
    one: ProcessId,
    two: ProcessId,
    until: u64,
) -> bool {
    forgot(history, (one, two), (0, until))
}

/// Whether two processes have different lists of nodes, all common nodes of which lost something meanwhile.
fn forgot(history: &History, two: (ProcessId, ProcessId), (from, to): (u64, u64)) -> bool {
    let is_lost = |group: &u32| {
        let mut losses = losses(history);
        losses.any(|(at, of)| of == *group && (from..=to).contains(&at))
    };
    in_common(history, two.0, two.1).is_some_and(|common| common.iter().all(is_lost))
}

/// The nodes that two processes with different lists of nodes have in common.
fn in_common(history: &History, one: ProcessId, two: ProcessId) -> Option<Vec<u32>> {
    let (_, groups) = connection(history, one)?;
    let (_, others) = connection(history, two)?;
    let common = groups.iter().filter(|group| others.contains(group));
    (groups != others).then(|| common.copied().collect())
}

/// When a process was connected, and to which groups of servers.
fn connection(history: &History, of: ProcessId) -> Option<(u64, &[u32])> {
    let mut events = history.events.iter();
    events.find_map(|event| match &event.what {
        What::Connected { process, groups } if *process == of => Some((event.at, &**groups)),
        _ => None,
    })
}
