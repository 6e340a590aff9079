//! Reads a plan from its text, and refuses what would run as something else than its author meant.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::de::DeserializeOwned;

use super::{Action, Call, Class, Episode, Place, Plan, Seen, Settings, sense};
use tower_redlock_simulated::world::{Fault, Named, Topology};

/// The lines that a plan has once each, before all others.
const FIRST: [&str; 5] = ["seed", "class", "length", "keys", "topology"];
/// The others.
const OTHERS: [&str; 4] = ["process", "life", "episode", "at"];
/// What the lines that begin with `at` hold.
const AFTER_TIME: &str = "after the time must come `call` or `fault <episode>`";

/// A text that is no plan: the line, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanError(String);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlanError {}

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let mut reading = Reading::default();
        for (index, line) in text.lines().map(str::trim).enumerate() {
            if !line.is_empty() && !line.starts_with('#') {
                let error = |why| PlanError(format!("line {}: {why}", index + 1));
                reading.take(line).map_err(error)?;
            }
        }
        reading.end().map_err(PlanError)?;
        Ok(reading.plan)
    }
}

/// `count` of something, in words.
pub(crate) fn counted(count: usize, what: &str) -> String {
    match (count, what.ends_with('s')) {
        (1, _) => format!("1 {what}"),
        (_, true) => format!("{count} {what}es"),
        (_, false) => format!("{count} {what}s"),
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| {
        let all = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        let why = all.strip_suffix(&place).unwrap_or(&all);
        format!("{why} (at character {} of the value)", error.column())
    })
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

/// Refuses a number of something that the plan does not have.
fn exists(what: &str, index: u64, count: usize) -> Result<(), String> {
    match index < count as u64 {
        true => Ok(()),
        false => Err(format!(
            "there is no {what} {index}: the plan has {}, counted from 0",
            counted(count, what)
        )),
    }
}

/// Refuses what is not numbered in order.
fn is_next(what: &str, index: &str, count: usize) -> Result<(), String> {
    match number::<usize>(index)? == count {
        true => Ok(()),
        false => Err(format!(
            "`{what} {index}` where `{what} {count}` is the next"
        )),
    }
}

/// A plan of which some lines have been read.
struct Reading {
    plan: Plan,
    /// Which of the first lines.
    seen: BTreeSet<String>,
}

impl Default for Reading {
    fn default() -> Self {
        let plan = Plan {
            seed: 0,
            class: Class::Within,
            topology: Topology::default(),
            processes: Vec::new(),
            episodes: Vec::new(),
            calls: Vec::new(),
            keys: 0,
            length: 0,
        };
        let seen = BTreeSet::new();
        Self { plan, seen }
    }
}

impl Reading {
    /// Takes one line.
    fn take(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line
            .split_once(' ')
            .ok_or_else(|| format!("`{line}` has no value"))?;
        if FIRST.contains(&word) {
            return self.first(word, rest);
        }
        if !OTHERS.contains(&word) {
            let known = [&FIRST[..], &OTHERS[..]].concat().join("`, `");
            return Err(format!(
                "`{word}` is none of the words that lines begin with: `{known}`"
            ));
        }
        if let Some(missing) = self.missing() {
            return Err(format!("before `{word}` must come `{missing}`"));
        }
        match word {
            "process" => self.process(rest),
            "life" => self.life(rest),
            "episode" => self.episode(rest),
            _ => self.at(rest),
        }
    }

    fn missing(&self) -> Option<&'static str> {
        FIRST.into_iter().find(|word| !self.seen.contains(*word))
    }

    fn first(&mut self, word: &str, rest: &str) -> Result<(), String> {
        if !self.seen.insert(word.to_owned()) {
            return Err(format!("a second `{word}`"));
        }
        match word {
            "seed" => self.plan.seed = number(rest)?,
            "class" => self.plan.class = read(rest)?,
            "length" => self.plan.length = number(rest)?,
            "keys" => self.plan.keys = number(rest)?,
            _ => self.plan.topology = read(rest)?,
        }
        match word {
            "keys" => sense::keys(self.plan.keys),
            "length" => sense::length(self.plan.length),
            "topology" if self.plan.topology.groups.is_empty() => {
                Err("at least 1 group of servers is needed".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn process(&mut self, rest: &str) -> Result<(), String> {
        let (index, start) = rest
            .split_once(" starts ")
            .ok_or("after the number of the process must come `starts <time>`")?;
        is_next("process", index, self.plan.processes.len())?;
        let (start, lives) = (number(start)?, Vec::new());
        self.plan.processes.push(Place { start, lives });
        Ok(())
    }

    fn life(&mut self, rest: &str) -> Result<(), String> {
        let (place, settings) = rest
            .split_once(' ')
            .ok_or("after the number of the process must come its settings")?;
        let place = number(place)?;
        let settings: Settings = read(settings)?;
        exists("process", place, self.plan.processes.len())?;
        for group in &settings.nodes {
            exists("group", u64::from(*group), self.plan.topology.groups.len())?;
        }
        let nodes: BTreeSet<&u32> = settings.nodes.iter().collect();
        if nodes.is_empty() || nodes.len() < settings.nodes.len() {
            return Err("`nodes` must be groups, one at least, and each of them once".to_owned());
        }
        if settings.quorum() > settings.nodes.len() {
            return Err(format!(
                "`mask` {} is too much for {}",
                settings.mask,
                counted(settings.nodes.len(), "node")
            ));
        }
        sense::settings(&settings)?;
        self.plan.processes[place as usize].lives.push(settings);
        Ok(())
    }

    fn episode(&mut self, rest: &str) -> Result<(), String> {
        let mut parts = rest.splitn(3, ' ');
        is_next(
            "episode",
            parts.next().unwrap_or_default(),
            self.plan.episodes.len(),
        )?;
        let loses = parts
            .next()
            .ok_or("after the number of the episode must come what is lost, or `null`")?;
        let loses: Option<(u32, Seen)> = read(loses)?;
        if let Some((group, _)) = loses {
            exists("group", u64::from(group), self.plan.topology.groups.len())?;
        }
        let name = parts.next().unwrap_or_default().to_owned();
        let steps = Vec::new();
        self.plan.episodes.push(Episode { name, loses, steps });
        Ok(())
    }

    fn at(&mut self, rest: &str) -> Result<(), String> {
        let (at, what) = rest.split_once(' ').ok_or(AFTER_TIME)?;
        let at = number(at)?;
        match what.split_once(' ') {
            Some(("call", call)) => self.call(at, read(call)?),
            Some(("fault", rest)) => {
                let (episode, fault) = rest.split_once(' ').ok_or(AFTER_TIME)?;
                self.fault(at, number(episode)?, fault)
            }
            _ => Err(AFTER_TIME.to_owned()),
        }
    }

    fn call(&mut self, at: u64, call: Call) -> Result<(), String> {
        let processes = self.plan.processes.len();
        exists("process", u64::from(call.place), processes)?;
        if at != call.at {
            return Err(format!("`at {at}`, and the call has `\"at\":{}`", call.at));
        }
        sense::call(&call)?;
        self.plan.calls.push(call);
        Ok(())
    }

    fn fault(&mut self, at: u64, episode: u64, text: &str) -> Result<(), String> {
        let fault: Fault = read(text)?;
        exists("episode", episode, self.plan.episodes.len())?;
        for (named, index) in fault.names() {
            match named {
                Named::Process => exists("process", index, self.plan.processes.len())?,
                Named::Host => exists("host", index, self.plan.topology.hosts().len())?,
                Named::Group => exists("group", index, self.plan.topology.groups.len())?,
            }
        }
        sense::fault(&fault, at, &self.plan.topology)?;
        let fields = |text: &str| read::<serde_json::Map<_, _>>(text).map(|all| all.len());
        // A fault without fields of its own takes any.
        if fault == Fault::HealAll && fields(text)? > 1 {
            return Err("`heal_all` has no fields".to_owned());
        }
        self.plan.episodes[episode as usize].steps.push((at, fault));
        Ok(())
    }

    /// Refuses what lacks lines.
    fn end(&self) -> Result<(), String> {
        if let Some(missing) = self.missing() {
            return Err(format!("there is no `{missing}` line"));
        }
        if self.plan.processes.is_empty() {
            return Err("there is no `process` line".to_owned());
        }
        let is_bare = |place: &Place| place.lives.is_empty();
        match self.plan.processes.iter().position(is_bare) {
            Some(index) => Err(format!("process {index} has no `life` line")),
            None => sense::all_settings(self.plan.all_settings()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a plan of one process, three servers and one fault, in which `from` is replaced.
    fn why_not(from: &str, to: &str) -> String {
        let mut plan = Plan::generate(1);
        plan.topology = Topology::plain(3);
        plan.processes.truncate(1);
        plan.processes[0].lives.truncate(1);
        plan.processes[0].lives[0].nodes = vec![0, 1, 2];
        plan.processes[0].lives[0].mask = 0;
        plan.episodes = vec![Episode {
            name: "end".to_owned(),
            loses: None,
            steps: vec![(70, Fault::HealAll)],
        }];
        let action = Action::Run { key: 0, hold: 5 };
        let (at, place, cut) = (80, 0, crate::plan::Cut::Never);
        plan.calls = vec![Call {
            at,
            place,
            cut,
            action,
        }];
        let text = plan.to_string();
        assert!(text.contains(from), "no `{from}` in\n{text}");
        match text.replacen(from, to, 1).parse::<Plan>() {
            Ok(_) => "read".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_no_plan_is_refused_with_its_line_and_the_reason() {
        assert_eq!(why_not("seed 1", "seed 2"), "read");
        let line = "seed 1\nclass";
        assert_eq!(
            why_not(line, "seed 1\nhello\nclass"),
            "line 2: `hello` has no value"
        );
        assert!(why_not(line, "hello 5\nclass").starts_with("line 1: `hello` is none of"));
        assert_eq!(
            why_not("seed 1\n", ""),
            "line 5: before `process` must come `seed`"
        );
        assert_eq!(why_not("seed 1", "seed one"), "line 1: `one` is no number");
        assert_eq!(
            why_not("seed 1", "seed 1\nseed 1"),
            "line 2: a second `seed`"
        );
        assert_eq!(
            why_not("process 0", "process 1"),
            "line 6: `process 1` where `process 0` is the next"
        );
        assert_eq!(
            why_not("at 70 fault 0 ", "at 70 hello 0 "),
            format!("line 9: {AFTER_TIME}")
        );
        assert_eq!(
            "".parse::<Plan>().unwrap_err().to_string(),
            "there is no `seed` line"
        );
    }

    #[test]
    fn what_would_run_nothing_is_refused() {
        let one = "the plan has 1 process, counted from 0";
        assert_eq!(
            why_not("\"place\":0", "\"place\":5"),
            format!("line 10: there is no process 5: {one}")
        );
        let pause = r#"{"do":"pause","process":1}"#;
        assert_eq!(
            why_not(r#"{"do":"heal_all"}"#, pause),
            format!("line 9: there is no process 1: {one}")
        );
        let freeze = r#"{"do":"freeze","host":3}"#;
        assert_eq!(
            why_not(r#"{"do":"heal_all"}"#, freeze),
            "line 9: there is no host 3: the plan has 3 hosts, counted from 0"
        );
        assert_eq!(
            why_not("fault 0", "fault 7"),
            "line 9: there is no episode 7: the plan has 1 episode, counted from 0"
        );
        assert_eq!(
            why_not("[0,1,2]", "[0,1,3]"),
            "line 7: there is no group 3: the plan has 3 groups, counted from 0"
        );
        assert_eq!(
            why_not("at 80", "at 90"),
            "line 10: `at 90`, and the call has `\"at\":80`"
        );
    }

    #[test]
    fn the_plan_of_the_readme_is_one() {
        let readme = include_str!("../README.md");
        let (_, from) = readme.split_once("```text\n# Its subject").unwrap();
        let (plan, _) = from.split_once("```").unwrap();
        let plan: Plan = format!("# {plan}").parse().unwrap();
        assert_eq!((plan.calls.len(), plan.faults().count()), (1, 1));
    }

    #[test]
    fn fields_that_are_unknown_or_missing_are_refused() {
        let unknown = |from, to| {
            let why = why_not(from, to);
            assert!(why.contains("unknown field `odd`"), "{why}");
        };
        unknown("\"place\":0", "\"place\":0,\"odd\":1");
        unknown("{\"key\":0", "{\"odd\":1,\"key\":0");
        unknown("\"namespace\"", "\"odd\":1,\"namespace\"");
        unknown("{\"replicas\":0", "{\"odd\":1,\"replicas\":0");
        unknown(r#"{"do":"heal_all"}"#, r#"{"do":"thaw","host":1,"odd":1}"#);
        let heal = r#"{"do":"heal_all","odd":1}"#;
        assert_eq!(
            why_not(r#"{"do":"heal_all"}"#, heal),
            "line 9: `heal_all` has no fields"
        );
        let why = why_not("\"skew\":", "\"odd\":");
        assert!(why.contains("unknown field"), "{why}");
        let skew = Plan::generate(1).processes[0].lives[0].skew;
        let skew = format!("\"skew\":{},", skew.unwrap());
        let why = why_not(&skew, "");
        assert!(why.contains("missing field `skew`"), "{why}");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let fault = |to| why_not(r#"{"do":"heal_all"}"#, to);
        assert_eq!(
            fault(r#"{"do":"delay","process":0,"host":1,"min_ms":50,"max_ms":5}"#),
            "line 9: `min_ms` is 50; it may be 5 at most"
        );
        assert_eq!(
            fault(r#"{"do":"host_rate","host":1,"ppm":-2000000}"#),
            "line 9: `ppm`, up or down, is 2000000; it may be 500000 at most"
        );
        let opinion = r#"{"do":"opinion","sentinel":1,"master":0,"epoch":1}"#;
        assert_eq!(
            fault(opinion),
            format!("line 9: {opinion} names hosts that it cannot happen to")
        );
        for nonsense in [
            r#"{"do":"replica_cut","host":1,"on":true}"#,
            r#"{"do":"demote","host":1,"of":2}"#,
            r#"{"do":"failover","group":0,"to":1,"epoch":1,"learn_ms":1,"demote_ms":1}"#,
        ] {
            assert!(fault(nonsense).ends_with("cannot happen to"), "{nonsense}");
        }
        let keys = format!("keys {}", Plan::generate(1).keys);
        assert_eq!(
            why_not(&keys, "keys 1001"),
            "line 4: `keys` is 1001; it may be 1000 at most"
        );
        assert!(why_not("length ", "length 9999").contains("it may be 3600000 at most"));
        let ttl = Plan::generate(1).processes[0].lives[0].ttl;
        let why = why_not(&format!("\"ttl\":{ttl}"), "\"ttl\":90000");
        assert!(why.contains("all processes are refused"), "{why}");
        assert!(why_not("\"lk\"", "\"\"").contains("`namespace` is empty"));
    }
}
