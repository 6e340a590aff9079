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
        let (Some((connected, groups)), Some((_, others))) = (
            connection(history, new.process),
            connection(history, old.process),
        ) else {
            return false;
        };
        groups != others
            && losses(history).any(|(emptied, group, _)| {
                let span = emptied..=emptied + TWO_CHECKS;
                groups.contains(&group)
                    && others.contains(&group)
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
    let (Some((_, groups)), Some((_, others))) = (
        connection(history, earlier.process),
        connection(history, later.process),
    ) else {
        return false;
    };
    let span = earlier.granted..=later.granted;
    let is_lost =
        |group: &&u32| losses(history).any(|(at, of, _)| of == **group && span.contains(&at));
    let mut common = groups.iter().filter(|group| others.contains(group));
    groups != others
        && later.started < earlier.granted + ahead
        && common.all(|group| is_lost(&group))
}

/// Whether two processes have different lists of nodes, and the nodes that both lists have were emptied before `until`:
/// from then on they may serve the other list, which has none of the records of the former.
pub(super) fn have_two_records(
    history: &History,
    one: ProcessId,
    two: ProcessId,
    until: u64,
) -> bool {
    let (Some((_, groups)), Some((_, others))) =
        (connection(history, one), connection(history, two))
    else {
        return false;
    };
    let is_lost = |group: &&u32| losses(history).any(|(at, of, _)| of == **group && at <= until);
    let mut common = groups.iter().filter(|group| others.contains(group));
    groups != others && common.all(|group| is_lost(&group))
}

/// When a process was connected, and to which groups of servers.
fn connection(history: &History, of: ProcessId) -> Option<(u64, &[u32])> {
    let mut events = history.events.iter();
    events.find_map(|event| match &event.what {
        What::Connected { process, groups } if *process == of => Some((event.at, &**groups)),
        _ => None,
    })
}
