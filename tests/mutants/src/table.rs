//! `defects.toml`.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::copy;

/// What stands in a wrong text for the question whether the defect is switched on.
const QUESTION: &str = "DEFECT";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// Where every script passes through, so that defects of scripts can be put into it.
    scripts: Change,
    #[serde(rename = "defect")]
    pub(crate) defects: Vec<Defect>,
}

/// A known defect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Defect {
    pub(crate) name: String,
    /// What is wrong.
    pub(crate) what: String,
    /// The commit that mended it, if this crate had it.
    #[serde(rename = "until")]
    _until: Option<String>,
    /// The fastest test that finds it.
    test: String,
    /// One on real servers, if there is another.
    on_servers: Option<String>,
    /// The model that is wrong without the rule, and the rule's name in it.
    model: Option<String>,
    /// After how many seeds the simulator finds it, or in how many it did not, if that was tried.
    #[serde(rename = "simulator")]
    _simulator: Option<String>,
    #[serde(rename = "change")]
    pub(crate) changes: Vec<Change>,
}

/// A text of a file, and what stands there with the defect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    pub(crate) file: String,
    pub(crate) right: String,
    pub(crate) wrong: String,
}

/// A test that finds a defect, or a model's rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Killer {
    /// Its suite, or `lib`.
    pub(crate) suite: String,
    /// Its path in there.
    pub(crate) test: String,
}

impl Killer {
    fn of(text: &str) -> Self {
        let (suite, test) = text.split_once(' ').expect("a suite and a test");
        Self {
            suite: suite.to_owned(),
            test: test.to_owned(),
        }
    }
}

impl Table {
    pub(crate) fn read(root: &Path) -> Self {
        let text = fs::read_to_string(root.join("tests/mutants/defects.toml")).unwrap();
        toml::from_str(&text).unwrap_or_else(|error| panic!("defects.toml: {error}"))
    }

    pub(crate) fn changes(&self) -> impl Iterator<Item = &Change> {
        let changes = self.defects.iter().flat_map(|defect| &defect.changes);
        changes.chain([&self.scripts])
    }

    /// The text of a source file in the copy.
    pub(crate) fn apply(&self, file: &str, text: String) -> String {
        let mut text = text;
        if self.scripts.file == file {
            text = replaced(&text, &self.scripts, &self.scripts.wrong);
        }
        for defect in &self.defects {
            for change in defect
                .changes
                .iter()
                .filter(|change| change.file == file && !change.is_script())
            {
                let (right, wrong) = (&change.right, &change.wrong);
                let question = format!("crate::mutant::is({:?})", defect.name);
                let both = match wrong.contains(QUESTION) {
                    true => wrong.replace(QUESTION, &question),
                    false => format!("if {question} {{ {wrong} }} else {{ {right} }}"),
                };
                text = replaced(&text, change, &both);
            }
        }
        text
    }

    /// The copy of the tree with all defects.
    pub(crate) fn copy(&self) -> PathBuf {
        copy::make("tree", |file, text| self.apply(file, text), &self.module())
    }

    /// The module that the copy has beside the source files.
    fn module(&self) -> String {
        let names: Vec<&str> = self
            .defects
            .iter()
            .map(|defect| defect.name.as_str())
            .collect();
        let scripts = self.defects.iter().flat_map(|defect| {
            let changes = defect.changes.iter().filter(|change| change.is_script());
            changes.map(|change| {
                (
                    defect.name.as_str(),
                    change.right.as_str(),
                    change.wrong.as_str(),
                )
            })
        });
        let scripts: Vec<_> = scripts.collect();
        let module = include_str!("module.rs");
        let module = replaced_once(module, "&[/* names */]", &format!("&{names:?}"));
        replaced_once(&module, "&[/* scripts */]", &format!("&{scripts:?}"))
    }

    /// The defects of these names, with commas in between; all, if there are none.
    pub(crate) fn chosen(&self, names: &str) -> Vec<&Defect> {
        let names: Vec<&str> = names
            .split(',')
            .map(str::trim)
            .filter(|name| !["", "all"].contains(name))
            .collect();
        let all: Vec<&str> = self
            .defects
            .iter()
            .map(|defect| defect.name.as_str())
            .collect();
        for name in &names {
            assert!(all.contains(name), "`{name}` is none of {}", all.join(", "));
        }
        let chosen = self.defects.iter();
        chosen
            .filter(|defect| names.is_empty() || names.contains(&&*defect.name))
            .collect()
    }
}

impl Defect {
    /// The tests that find it.
    pub(crate) fn killers(&self) -> impl Iterator<Item = Killer> {
        std::iter::once(&self.test)
            .chain(&self.on_servers)
            .map(|text| Killer::of(text))
    }

    pub(crate) fn model(&self) -> Option<Killer> {
        self.model.as_deref().map(Killer::of)
    }
}

impl Change {
    fn is_script(&self) -> bool {
        self.file.ends_with(".lua")
    }

    /// Why it cannot be made, if it cannot.
    pub(crate) fn complaint(&self, root: &Path) -> Option<String> {
        let Self { file, right, .. } = self;
        let Ok(text) = fs::read_to_string(root.join(file)) else {
            return Some(format!("{file} is not there"));
        };
        let count = text.matches(right.as_str()).count();
        (count != 1).then(|| format!("{file} has this {count} times, not once: {right}"))
    }
}

fn replaced(text: &str, change: &Change, by: &str) -> String {
    assert!(
        text.contains(&change.right),
        "{} lacks {}",
        change.file,
        change.right
    );
    text.replacen(&change.right, by, 1)
}

fn replaced_once(text: &str, what: &str, by: &str) -> String {
    assert_eq!(text.matches(what).count(), 1, "{what}");
    text.replace(what, by)
}
