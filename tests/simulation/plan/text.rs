//! A plan as text: one line for each process, fault and call, in the order of time, to be read, edited and run again.

use std::fmt;

use serde::Serialize;

use super::Plan;

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
