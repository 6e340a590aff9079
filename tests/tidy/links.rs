//! Names that Markdown gives: files and folders of the project, and headings of the guide. Rustdoc checks the links to
//! items and looks at no heading.

use std::collections::{BTreeMap, BTreeSet};

/// The folders whose files are called by their path.
const FOLDERS: [&str; 4] = ["benches/", "examples/", "src/", "tests/"];

/// The pages of the guide.
const GUIDE: &str = "src/docs/";

/// Files and headings that a text names and that do not exist.
pub(crate) fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let headings = headings(files);
    let mut complaints = Vec::new();
    for (path, text) in files {
        if path.ends_with(".md") {
            let beside = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let gone = named(text)
                .filter(|name| !exists(name, files) && !exists(&format!("{beside}/{name}"), files));
            complaints.extend(gone.map(|name| format!("{path}: there is no `{name}`")));
        }
        if path.starts_with(GUIDE) {
            let gone = anchors(path, text).filter(|anchor| !headings.contains(anchor));
            complaints.extend(gone.map(|(page, heading)| {
                format!("{path}: the page `{page}` has no heading `#{heading}`")
            }));
        }
    }
    complaints
}

/// The paths in backticks.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let spans = text.split('`').skip(1).step_by(2);
    spans.filter(|span| {
        FOLDERS.iter().any(|folder| span.starts_with(folder)) && !span.contains(['*', '<', ' '])
    })
}

/// Whether `name` is a file, a folder, or a file without its ending.
fn exists(name: &str, files: &BTreeMap<String, String>) -> bool {
    let name = name.trim_end_matches('/');
    let rest = |path: &String| path.strip_prefix(name).map(|rest| rest.chars().next());
    files
        .keys()
        .filter_map(rest)
        .any(|next| matches!(next, None | Some('/' | '.')))
}

/// Page and heading of each link within the guide.
fn anchors<'a>(path: &'a str, text: &'a str) -> impl Iterator<Item = (String, String)> + 'a {
    let links = text.split("](").skip(1).filter_map(|rest| {
        let (target, _) = rest.split_once(')')?;
        let (page, heading) = target.split_once('#')?;
        Some((page, heading.to_owned()))
    });
    links.filter_map(move |(page, heading)| {
        let inside = path.ends_with("mod.rs") && !page.contains(['/', ':']) && !page.is_empty();
        match page.strip_prefix("crate::docs::") {
            Some(page) => Some((page.to_owned(), heading)),
            None if inside => Some((page.to_owned(), heading)),
            None if page.is_empty() => Some((page_of(path)?, heading)),
            None => None,
        }
    })
}

/// Page and heading of each heading of the guide, as rustdoc makes its anchor.
fn headings(files: &BTreeMap<String, String>) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for (path, text) in files {
        let Some(page) = page_of(path) else { continue };
        let mut code = false;
        for line in text.lines() {
            code ^= line.starts_with("```");
            if !code && line.starts_with('#') {
                found.insert((page.clone(), anchor(line.trim_start_matches('#').trim())));
            }
        }
    }
    found
}

fn page_of(path: &str) -> Option<String> {
    let page = path.strip_prefix(GUIDE)?.strip_suffix(".md")?;
    Some(page.to_owned())
}

/// `3. The end` as `3-the-end`.
fn anchor(heading: &str) -> String {
    let letters = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => Some(letter.to_ascii_lowercase()),
        _ => None,
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(page: &str) -> usize {
        let files = [
            ("src/docs/one.md", page),
            (
                "src/docs/two.md",
                "# 3. The `end`\n\n```\n# let x = 1;\n```\n",
            ),
            ("tests/chaos/main.rs", ""),
            ("README.md", "`tests/chaos`"),
            ("tests/chaos/README.md", "`src/server`"),
            ("tests/chaos/src/server.rs", ""),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        check(&files.into()).len()
    }

    #[test]
    fn names_that_exist_are_accepted() {
        assert_eq!(
            complaints("`tests/chaos`, `tests/chaos/main.rs`, `tests/<x>`"),
            0
        );
        assert_eq!(
            complaints("# It\n[a](#it) [b](crate::docs::two#3-the-end) [c](x::y#z)"),
            0
        );
    }

    #[test]
    fn names_that_do_not_exist_are_told() {
        assert_eq!(complaints("`tests/chao`"), 1);
        assert_eq!(complaints("# It\n[a](#its)"), 1);
        assert_eq!(complaints("[b](crate::docs::two#the-end)"), 1);
        assert_eq!(complaints("[b](crate::docs::two#let-x--1)"), 1);
    }
}
