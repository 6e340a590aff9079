//! Files that use each other in a circle, which cannot be understood, tested or moved one by one.

use std::collections::{BTreeMap, BTreeSet};

use crate::imports::Edge;

/// Every circle, with the lines that make it.
pub(crate) fn check(edges: &[Edge]) -> Vec<String> {
    let mut complaints = Vec::new();
    for circle in circles(edges) {
        let names: Vec<&str> = circle.iter().copied().collect();
        complaints.push(format!(
            "{} files use each other in a circle: {}",
            names.len(),
            names.join(", ")
        ));
        complaints.extend(uses(edges, &circle));
    }
    complaints
}

/// Lines of a file, and what they use of another.
type Uses<'a> = (BTreeSet<usize>, BTreeSet<&'a str>);
/// Each file with those that it leads to.
type Next<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// What the files of a circle use of each other: a line for each two, with every place.
fn uses(edges: &[Edge], circle: &BTreeSet<&str>) -> Vec<String> {
    let mut uses: BTreeMap<(&str, &str), Uses<'_>> = BTreeMap::new();
    for Edge {
        from,
        to,
        line,
        path,
    } in edges
    {
        if circle.contains(from.as_str()) && circle.contains(to.as_str()) {
            let (lines, paths) = uses.entry((from, to)).or_default();
            lines.insert(*line);
            paths.insert(path);
        }
    }
    let row = |((from, to), (lines, paths)): ((&str, &str), Uses<'_>)| {
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let is_told = |path: &&&str| {
            let parents = path.match_indices("::").map(|(end, _)| &path[..end]);
            !parents.into_iter().any(|parent| paths.contains(parent))
        };
        let paths: Vec<&str> = paths.iter().filter(is_told).copied().collect();
        let (lines, paths) = (lines.join(","), paths.join(", "));
        format!("    {from}:{lines}: uses {to}: {paths}")
    };
    uses.into_iter().map(row).collect()
}

/// The sets of two files and more in which each file leads to each other one.
fn circles(edges: &[Edge]) -> Vec<BTreeSet<&str>> {
    let mut uses: Next<'_> = BTreeMap::new();
    let mut used_by: Next<'_> = BTreeMap::new();
    for Edge { from, to, .. } in edges {
        uses.entry(from).or_default().insert(to);
        used_by.entry(to).or_default().insert(from);
    }
    let mut circles = Vec::new();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for file in uses.keys().copied() {
        if !done.contains(file) {
            let below = reach(file, &uses);
            let circle: BTreeSet<&str> = reach(file, &used_by)
                .intersection(&below)
                .copied()
                .collect();
            done.extend(&circle);
            circles.extend((!circle.is_empty()).then_some(circle));
        }
    }
    circles
}

/// All that `start` leads to; itself only if it leads back.
fn reach<'a>(start: &'a str, next: &Next<'a>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        for &to in next.get(file).into_iter().flatten() {
            if reached.insert(to) {
                open.push(to);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(uses: &[(&str, &str)]) -> Vec<Edge> {
        let edge = |(line, (from, to)): (usize, &(&str, &str))| Edge {
            from: (*from).to_owned(),
            to: (*to).to_owned(),
            line,
            path: format!("{to}::X"),
        };
        uses.iter().enumerate().map(edge).collect()
    }

    #[test]
    fn files_without_a_circle_are_accepted() {
        assert_eq!(check(&[]), [""; 0]);
        let diamond = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("b", "c")];
        assert_eq!(check(&edges(&diamond)), [""; 0]);
    }

    #[test]
    fn each_circle_is_named_with_the_lines_that_make_it() {
        let two = [
            ("a", "b"),
            ("b", "c"),
            ("c", "a"),
            ("c", "d"),
            ("d", "e"),
            ("e", "d"),
            ("b", "c"),
        ];
        assert_eq!(
            check(&edges(&two)),
            [
                "3 files use each other in a circle: a, b, c",
                "    a:0: uses b: b::X",
                "    b:1,6: uses c: c::X",
                "    c:2: uses a: a::X",
                "2 files use each other in a circle: d, e",
                "    d:4: uses e: e::X",
                "    e:5: uses d: d::X",
            ]
        );
    }

    #[test]
    fn of_a_name_and_what_is_in_it_only_the_name_is_told() {
        let mut uses = edges(&[("a", "b"), ("b", "a")]);
        let mut inner = uses[0].clone();
        inner.path.push_str("::new");
        uses.push(inner);
        assert_eq!(check(&uses)[1], "    a:0: uses b: b::X");
    }
}
