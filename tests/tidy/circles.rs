//! Files that use each other in a circle, which cannot be understood, tested or moved one by one.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Edge;

/// Every use of one file by another that is part of a circle, once for each two.
pub(crate) fn check(edges: &[Edge]) -> Vec<String> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Edge { from, to, .. } in edges {
        next.entry(from).or_default().insert(to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next
        .keys()
        .map(|file| (*file, reach(file, &next)))
        .collect();
    let leads = |from: &str, to: &str| {
        reached
            .get(from)
            .is_some_and(|reached| reached.contains(to))
    };
    let mut told = BTreeSet::new();
    let circular = edges
        .iter()
        .filter(|edge| leads(&edge.to, &edge.from) && told.insert((&edge.from, &edge.to)));
    let complain =
        |Edge {
             from,
             to,
             line,
             path,
         }: &Edge| { format!("{from}:{line}: uses {to} ({path}), which leads back to it") };
    circular.map(complain).collect()
}

/// All that `start` leads to; itself only if it leads back.
fn reach<'a>(start: &'a str, next: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        let found = next.get(file).into_iter().flatten();
        open.extend(
            found
                .filter(|to| reached.insert(**to))
                .copied()
                .collect::<Vec<_>>(),
        );
    }
    reached
}

#[test]
fn the_uses_of_a_circle_are_named_and_no_others() {
    let uses = ["ab", "ac", "bd", "cd", "bc", "de", "ef", "fe"];
    let edges = uses.map(|pair| Edge {
        from: pair[..1].to_owned(),
        to: pair[1..].to_owned(),
        line: 7,
        path: "x::Y".to_owned(),
    });
    let wanted = [
        "e:7: uses f (x::Y), which leads back to it",
        "f:7: uses e (x::Y), which leads back to it",
    ];
    assert_eq!(check(&edges), wanted);
}
