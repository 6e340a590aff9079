//! The list of defects in `src/mutant.rs`, and the table in `README.md` beside this file.

use std::fs;

/// A known defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Defect {
    pub(crate) name: String,
    /// What is wrong.
    pub(crate) sentence: String,
    /// The commit that mended it, if this crate had it.
    pub(crate) until: Option<String>,
}

impl Defect {
    /// All of them, as `src/mutant.rs` declares them: a sentence, and then a name.
    pub(crate) fn all() -> Vec<Self> {
        let text = fs::read_to_string(super::file("src/mutant.rs")).unwrap();
        let (_, list) = text.split_once("\nmutants! {\n").unwrap();
        let (list, _) = list.split_once("\n}\n").unwrap();
        let lines: Vec<&str> = list.lines().map(str::trim).collect();
        let names = lines.iter().enumerate();
        let names = names.filter_map(|(index, line)| Some((index, line.strip_suffix(',')?)));
        let declared = names.map(|(index, name)| {
            let docs = lines[..index].iter().rev();
            let docs = docs.map_while(|line| line.strip_prefix("/// "));
            let mut docs: Vec<&str> = docs.collect();
            docs.reverse();
            Self::of(name, &docs.join(" "))
        });
        declared.collect()
    }

    fn of(name: &str, docs: &str) -> Self {
        let name = name.to_owned();
        let until = docs
            .strip_suffix(')')
            .and_then(|docs| docs.rsplit_once(" ("));
        let (sentence, until) = match until {
            Some((sentence, commit)) => (sentence, Some(commit.to_owned())),
            None => (docs, None),
        };
        assert!(sentence.ends_with('.'), "{name}: {docs}");
        Self {
            name,
            sentence: sentence.to_owned(),
            until,
        }
    }
}

/// A test that finds a defect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Killer {
    /// Its suite, or `lib`.
    pub(crate) suite: String,
    /// Its path in there.
    pub(crate) test: String,
}

/// A row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) defect: Defect,
    /// The fastest test that finds it.
    pub(crate) test: Killer,
    /// One on real servers, if there is another.
    pub(crate) on_servers: Option<Killer>,
    /// The model that is wrong without the rule, and the rule's name in it.
    pub(crate) model: Option<Killer>,
    /// After how many seeds the simulator finds it, or why it does not.
    pub(crate) simulator: String,
}

impl Row {
    /// All of them.
    pub(crate) fn all() -> Vec<Self> {
        let text = fs::read_to_string(super::file("tests/mutants/README.md")).unwrap();
        text.lines().filter_map(Self::read).collect()
    }

    fn read(line: &str) -> Option<Self> {
        let cells = line.strip_prefix("| `")?.strip_suffix(" |")?;
        let cells: Vec<&str> = cells.split(" | ").collect();
        let [name, sentence, until, test, on_servers, model, simulator] = cells[..] else {
            panic!("not a row: {line}");
        };
        Some(Self {
            defect: Defect {
                name: name.trim_end_matches('`').to_owned(),
                sentence: sentence.to_owned(),
                until: quoted(until).map(str::to_owned),
            },
            test: killer(test).unwrap_or_else(|| panic!("no test finds it: {line}")),
            on_servers: killer(on_servers),
            model: killer(model),
            simulator: simulator.to_owned(),
        })
    }

    /// The tests that find the defect.
    pub(crate) fn killers(&self) -> impl Iterator<Item = &Killer> {
        std::iter::once(&self.test).chain(&self.on_servers)
    }
}

/// What stands in backticks; nothing for a dash.
fn quoted(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`')
}

fn killer(cell: &str) -> Option<Killer> {
    let (suite, test) = quoted(cell)?.split_once(' ')?;
    Some(Killer {
        suite: suite.to_owned(),
        test: test.to_owned(),
    })
}
