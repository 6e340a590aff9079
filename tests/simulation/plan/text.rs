//! A plan as text: one line for each process, fault and call, in the order of time, to be read, edited and run again.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Call, Class, Episode, Place, Plan, Seen};
use crate::world::{Fault, Topology};

/// `value` on one line.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "class {}", json(&self.class))?;
        writeln!(f, "length {}", self.length)?;
        writeln!(f, "keys {}", self.keys)?;
        writeln!(f, "topology {}", json(&self.topology))?;
        for (index, place) in self.processes.iter().enumerate() {
            writeln!(f, "process {index} starts {}", place.start)?;
            for settings in &place.lives {
                writeln!(f, "life {index} {}", json(settings))?;
            }
        }
        for (index, episode) in self.episodes.iter().enumerate() {
            let loses = json(&episode.loses);
            writeln!(f, "episode {index} {loses} {}", episode.name)?;
        }
        let mut lines = Vec::new();
        for (index, episode) in self.episodes.iter().enumerate() {
            let steps = episode.steps.iter();
            lines.extend(steps.map(|(at, fault)| (*at, format!("fault {index} {fault}"))));
        }
        let calls = self.calls.iter();
        lines.extend(calls.map(|call| (call.at, format!("call {}", json(call)))));
        lines.sort_by_key(|(at, _)| *at);
        for (at, line) in lines {
            writeln!(f, "at {at} {line}")?;
        }
        Ok(())
    }
}

/// A text that is no plan: the line, and why.
#[derive(Clone, Debug)]
pub(crate) struct PlanError(String);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no plan: {}", self.0)
    }
}

impl std::error::Error for PlanError {}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let mut plan = Self {
            seed: 0,
            class: Class::Within,
            topology: Topology::default(),
            processes: Vec::new(),
            episodes: Vec::new(),
            calls: Vec::new(),
            keys: 0,
            length: 0,
        };
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let error = |why: String| PlanError(format!("`{line}`: {why}"));
            plan.take(line).map_err(error)?;
        }
        Ok(plan)
    }
}

impl Plan {
    /// Takes one line.
    fn take(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').ok_or("one word")?;
        match word {
            "seed" => self.seed = read(rest)?,
            "class" => self.class = read(rest)?,
            "length" => self.length = read(rest)?,
            "keys" => self.keys = read(rest)?,
            "topology" => self.topology = read(rest)?,
            "process" => {
                let (_, start) = rest.split_once(" starts ").ok_or("no start")?;
                let lives = Vec::new();
                let start = read(start)?;
                self.processes.push(Place { start, lives });
            }
            "life" => {
                let (place, settings) = rest.split_once(' ').ok_or("no settings")?;
                let place: usize = read(place)?;
                let place = self.processes.get_mut(place).ok_or("no such process")?;
                place.lives.push(read(settings)?);
            }
            "episode" => {
                let mut parts = rest.splitn(3, ' ');
                let (_, loses) = (parts.next(), parts.next().ok_or("no loss")?);
                let loses: Option<(u32, Seen)> = read(loses)?;
                let name = parts.next().unwrap_or_default().to_owned();
                let steps = Vec::new();
                self.episodes.push(Episode { name, loses, steps });
            }
            "at" => {
                let (at, what) = rest.split_once(' ').ok_or("nothing")?;
                let (word, rest) = what.split_once(' ').ok_or("one word")?;
                if word == "call" {
                    let call: Call = read(rest)?;
                    self.calls.push(call);
                    return Ok(());
                }
                let (episode, fault) = rest.split_once(' ').ok_or("no fault")?;
                let (episode, fault): (usize, Fault) = (read(episode)?, read(fault)?);
                let episode = self.episodes.get_mut(episode).ok_or("no such episode")?;
                episode.steps.push((read(at)?, fault));
            }
            _ => return Err("an unknown word".to_owned()),
        }
        Ok(())
    }
}

#[test]
fn a_plan_is_read_from_its_text() {
    for seed in 0..200 {
        let plan = Plan::generate(seed);
        let text = plan.to_string();
        let read: Plan = text.parse().unwrap();
        assert_eq!(read.to_string(), text);
    }
}

#[test]
fn a_seed_makes_one_plan() {
    assert_eq!(Plan::generate(7), Plan::generate(7));
    assert_ne!(Plan::generate(7), Plan::generate(8));
}
