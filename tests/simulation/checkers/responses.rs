//! Idempotency: all clients that get the response of a run of some work get that of one and the same run, until its
//! record ends, and nobody gets another's.
//!
//! Two responses may differ if, between the beginning of the earlier run and the later response, more nodes lost what
//! they had than the quorum masks: until all nodes have the record, one loss may be one too many. And they may differ
//! if the record had ended by some clock when the later run began, or if the one node that two lists share was emptied.
//! It is not replayed when it has ended by all of them.
//! Clocks go on while all machines are suspended, so the retention does.

use std::collections::{BTreeMap, BTreeSet};

use super::answers::pauses;
use super::strangers::have_two_records;
use super::{Found, History, Terms, losses};
use crate::workload::history::{Event, Told, What};

/// How much later a record may be written than its end was decided, in milliseconds: what the nodes may take.
const SLACK: u64 = 1_000;

/// A response that a client saw.
struct Seen<'a> {
    at: u64,
    /// By clocks, which go on while machines are suspended.
    date: u64,
    told: &'a Told,
    run: u64,
    retention: u64,
}

/// When a run began: in the order of events, and by clocks.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Began {
    at: u64,
    date: u64,
}

pub(super) fn check(history: &History, terms: &Terms) -> Found {
    let mut began: BTreeMap<u64, Began> = BTreeMap::new();
    let mut suspends: Vec<(u64, u64)> = Vec::new();
    let mut works: BTreeMap<&str, Vec<Seen<'_>>> = BTreeMap::new();
    let mut found = Vec::new();
    let mut replaced = Vec::new();
    for Event { at, what } in &history.events {
        let (at, date) = (*at, at + suspends.iter().map(|(_, ms)| ms).sum::<u64>());
        match what {
            What::Suspended { ms } => suspends.push((at, *ms)),
            What::Ran { run } => {
                began.insert(*run, Began { at, date });
            }
            What::Replaced { group, until } => replaced.push((at, *until, *group)),
            What::Saw {
                work,
                told,
                retention,
            } => {
                found.extend(misdirected(work, told).map(|text| (at, text)));
                if let Some(run) = told.run {
                    works.entry(work).or_default().push(Seen {
                        at,
                        date,
                        told,
                        run,
                        retention: *retention,
                    });
                }
            }
            _ => {}
        }
    }
    // Beyond the promises, two lists of nodes have two records.
    if terms.within || terms.agreed {
        let losses = losses(history).map(|(at, group)| (at, at, group));
        let mut losses: Vec<_> = losses.collect();
        if !terms.within {
            // There no loss waits for the one before it, and nobody notes when the new master votes.
            losses.extend(replaced);
        }
        let pauses = pauses(history);
        for (work, seen) in &works {
            found.extend(differ(history, work, seen, &began, &losses, terms));
            found.extend(outlived(work, seen, &suspends, &pauses, terms));
        }
    }
    found
}

/// What is wrong with a response by itself.
fn misdirected(work: &str, told: &Told) -> Option<String> {
    let Told { process, call, .. } = told;
    if told.run.is_some() && told.addressee != work {
        let other = &told.addressee;
        return Some(format!(
            "{process} (call {call}), {work}, got the response to {other}"
        ));
    }
    let refused = told.run.is_none() && told.replayed;
    refused.then(|| {
        format!("{process} (call {call}), {work}, got a stored refusal of a request that never ran")
    })
}

/// Clients that got the responses of different runs, where they should not.
fn differ(
    history: &History,
    work: &str,
    seen: &[Seen<'_>],
    began: &BTreeMap<u64, Began>,
    // Each from when to when, and of which group.
    losses: &[(u64, u64, u32)],
    terms: &Terms,
) -> Option<(u64, String)> {
    let start = |seen: &Seen<'_>| began.get(&seen.run).copied().unwrap_or_default();
    let may_differ = |earlier: &Seen<'_>, later: &Seen<'_>| {
        let (one, two) = (start(earlier), start(later));
        let (first, last) = (one.min(two), one.max(two));
        let lost = losses.iter();
        let lost = lost.filter(|(from, until, _)| *from <= later.at && first.at <= *until);
        let lost: BTreeSet<u32> = lost.map(|(.., group)| *group).collect();
        let ends = (first.date + earlier.retention).saturating_sub(terms.spread + SLACK);
        lost.len() > terms.mask
            || last.date >= ends
            || have_two_records(history, earlier.told.process, later.told.process, last.at)
    };
    seen.iter().enumerate().find_map(|(index, later)| {
        let mut before = seen[..index].iter();
        let other = before.find(|one| one.run != later.run && !may_differ(one, later))?;
        Some((later.at, pair(work, other, later)))
    })
}

fn pair(work: &str, one: &Seen<'_>, two: &Seen<'_>) -> String {
    let told = |seen: &Seen<'_>| {
        let Told {
            process,
            call,
            replayed,
            ..
        } = seen.told;
        let how = if *replayed { ", replayed" } else { "" };
        format!(
            "{process} (call {call}) got the response of run {}{how} at {} ms",
            seen.run, seen.at
        )
    };
    format!("{work}: {}; {}", told(one), told(two))
}

/// Responses that were replayed when their records had ended by all clocks.
fn outlived(
    work: &str,
    seen: &[Seen<'_>],
    suspends: &[(u64, u64)],
    // Which place, from when to when.
    pauses: &[(u32, u64, u64)],
    terms: &Terms,
) -> Found {
    // A response that was on its way when machines were suspended, or when its process was paused, is as old as before,
    // and one at which its caller did not look. Only calls that are kept do not look for longer than `SLACK`.
    let slept = |late: &Seen<'_>| {
        let is_kept = terms.keeps.contains(&late.told.call);
        let unseen = SLACK + if is_kept { terms.kept } else { 0 };
        let lately = late.at.saturating_sub(unseen)..=late.at;
        let pauses = pauses.iter().filter(|(place, _, until)| {
            *place == late.told.process.place && lately.contains(until)
        });
        let (mut paused, mut begin) = (0, *lately.start());
        for (_, from, until) in pauses {
            paused += until - from;
            begin = begin.min(*from);
        }
        let those = suspends
            .iter()
            .filter(|(at, _)| (begin..=late.at).contains(at));
        paused + those.map(|(_, ms)| ms).sum::<u64>()
    };
    let firsts = seen.iter().filter(|seen| !seen.told.replayed);
    let late = firsts.filter_map(|first| {
        let end = first.date + first.retention + terms.spread + terms.kept + SLACK;
        let is_late = |late: &&Seen<'_>| {
            let is_replay = late.run == first.run && late.told.replayed;
            is_replay && late.date - slept(late) > end
        };
        let late = seen.iter().find(is_late)?;
        let pair = pair(work, first, late);
        let text = format!("{pair}, though its record ended at {end} ms at the latest");
        Some((late.at, text))
    });
    late.collect()
}

#[cfg(test)]
mod tests {
    use super::super::hand::{connected, history, process};
    use super::*;

    const RETENTION: u64 = 60_000;

    fn ran(run: u64) -> What {
        What::Ran { run }
    }

    fn saw(run: u64, replayed: bool) -> What {
        saw_of("w", 0, run, replayed)
    }

    fn saw_of(addressee: &str, place: u32, run: u64, replayed: bool) -> What {
        let told = Told {
            process: process(place),
            call: 1,
            run: (run > 0).then_some(run),
            addressee: addressee.to_owned(),
            replayed,
        };
        What::Saw {
            work: "w".to_owned(),
            told,
            retention: RETENTION,
        }
    }

    fn count(events: &[(u64, What)], terms: &Terms) -> usize {
        check(&history(&[], events), terms).len()
    }

    /// Two clients that get the responses of two runs, of which the second begins at a time; and something else.
    fn two(begin: u64, at: u64, other: What) -> Vec<(u64, What)> {
        let mut events = vec![
            (10, ran(1)),
            (20, saw(1, false)),
            (begin, ran(2)),
            (begin + 10, saw(2, false)),
            (at, other),
        ];
        events.sort_by_key(|(at, _)| *at);
        events
    }

    #[test]
    fn two_responses_to_one_key_are_found() {
        let strict = Terms::strict();
        let one = [(10, ran(1)), (20, saw(1, false)), (30, saw(1, true))];
        assert_eq!(count(&one, &strict), 0);
        assert_eq!(count(&two(30, 50, ran(3)), &strict), 1);
        // Nobody has seen the first.
        let unseen = [(10, ran(1)), (30, ran(2)), (40, saw(2, false))];
        assert_eq!(count(&unseen, &strict), 0);
    }

    #[test]
    fn losses_meanwhile_excuse_that_and_others_do_not() {
        let forgot = |at| two(30, at, What::Forgot { group: 1 });
        let strict = Terms::strict();
        assert_eq!(count(&forgot(15), &strict), 0);
        assert_eq!(count(&forgot(5), &strict), 1);
        let masking = Terms::but(|terms| terms.mask = 1);
        assert_eq!(count(&forgot(15), &masking), 1);
    }

    #[test]
    fn two_lists_have_two_records_once_the_node_that_they_share_was_emptied() {
        let two = |groups, group| {
            let events = [
                (1, connected(0, groups)),
                (1, connected(1, [2, 3, 4])),
                (5, What::Forgot { group }),
                (10, ran(1)),
                (20, saw_of("w", 1, 1, false)),
                (30, ran(2)),
                (40, saw_of("w", 0, 2, false)),
            ];
            count(&events, &Terms::strict())
        };
        assert_eq!(two([0, 1, 2], 2), 0);
        assert_eq!(two([0, 1, 2], 3), 1);
        assert_eq!(two([2, 3, 4], 2), 1);
    }

    #[test]
    fn beyond_the_promises_a_replaced_master_loses_what_it_is_told_until_it_is_demoted() {
        let replaced = |until| two(30, 5, What::Replaced { group: 1, until });
        let beyond = Terms::but(|terms| terms.within = false);
        assert_eq!(count(&replaced(15), &beyond), 0);
        assert_eq!(count(&replaced(9), &beyond), 1);
        let text = "a loss is noted there";
        assert_eq!(count(&replaced(15), &Terms::strict()), 1, "{text}");
    }

    #[test]
    fn a_record_neither_ends_early_nor_outlives_its_end() {
        let strict = Terms::strict();
        let anew = |at| two(at, at, ran(3));
        assert_eq!(count(&anew(RETENTION), &strict), 0);
        assert_eq!(count(&anew(RETENTION - 5_000), &strict), 1);
        let replay = |at| [(10, ran(1)), (20, saw(1, false)), (at, saw(1, true))];
        assert_eq!(count(&replay(RETENTION), &strict), 0);
        assert_eq!(count(&replay(RETENTION + 5_000), &strict), 1);
        let apart = Terms::but(|terms| terms.spread = 10_000);
        assert_eq!(count(&replay(RETENTION + 5_000), &apart), 0);
        assert_eq!(count(&anew(RETENTION - 5_000), &apart), 0);
    }

    #[test]
    fn the_retention_goes_on_while_machines_are_suspended() {
        let strict = Terms::strict();
        let anew = |ms| two(40, 30, What::Suspended { ms });
        assert_eq!(count(&anew(RETENTION), &strict), 0);
        assert_eq!(count(&anew(RETENTION - 5_000), &strict), 1);
        let replay = |ms, at| {
            [
                (10, ran(1)),
                (20, saw(1, false)),
                (30, What::Suspended { ms }),
                (at, saw(1, true)),
            ]
        };
        assert_eq!(count(&replay(RETENTION + 5_000, 2_000), &strict), 1);
        assert_eq!(count(&replay(RETENTION - 5_000, 2_000), &strict), 0);
        // It was on its way.
        assert_eq!(count(&replay(RETENTION + 5_000, 40), &strict), 0);
        // It was there, and its caller did not look; or another one did not.
        let kept = |call| {
            Terms::but(|terms| {
                terms.kept = 3_000;
                terms.keeps = [call].into();
            })
        };
        assert_eq!(count(&replay(RETENTION + 10_000, 2_000), &kept(1)), 0);
        assert_eq!(count(&replay(RETENTION + 10_000, 2_000), &kept(2)), 1);
        // Its process was paused, or had gone on long before; or another one was.
        let paused = |place, until, at| {
            [
                (10, ran(1)),
                (20, saw(1, false)),
                (30, What::Paused { place }),
                (until, What::Resumed { place }),
                (at, saw(1, true)),
            ]
        };
        let late = RETENTION + 5_000;
        assert_eq!(count(&paused(0, late, late), &strict), 0);
        assert_eq!(count(&paused(0, late, late + 1_100), &strict), 1);
        assert_eq!(count(&paused(1, late, late), &strict), 1);
        // The machines were suspended during its pause.
        let mut both = paused(0, 3_000, 3_000).to_vec();
        both.insert(3, (1_500, What::Suspended { ms: late }));
        assert_eq!(count(&both, &strict), 0);
    }

    #[test]
    fn the_response_to_another_and_a_stored_refusal_are_found() {
        let strict = Terms::strict();
        let other = saw_of("v", 0, 1, true);
        assert_eq!(count(&[(10, ran(1)), (20, other)], &strict), 1);
        assert_eq!(count(&[(20, saw(0, true))], &strict), 1);
        assert_eq!(count(&[(20, saw(0, false))], &strict), 0);
    }
}
