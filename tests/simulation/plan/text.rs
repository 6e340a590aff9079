//! A plan as text: JSON, one line for each process, fault and call, in the order of time, to be read, edited and run
//! again. What would run as something else than its author meant is refused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Call, Episode, Place, Plan, Settings, sense};
use tower_redlock_simulated::world::Fault;

/// A line of a plan.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// The first one.
    Plan(Plan),
    Process(Place),
    /// Of the process above it.
    Life(Settings),
    Episode(Episode),
    Fault {
        at: u64,
        /// The number of its episode, counted from 0.
        episode: usize,
        fault: Fault,
    },
    Call(Call),
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![Line::Plan(self.clone())];
        for place in &self.processes {
            lines.push(Line::Process(place.clone()));
            lines.extend(place.lives.iter().cloned().map(Line::Life));
        }
        lines.extend(self.episodes.iter().cloned().map(Line::Episode));
        let mut timed = Vec::new();
        for (episode, about) in self.episodes.iter().enumerate() {
            let steps = about.steps.iter().copied();
            timed.extend(steps.map(|(at, fault)| (at, Line::Fault { at, episode, fault })));
        }
        let calls = self.calls.iter().cloned();
        timed.extend(calls.map(|call| (call.at, Line::Call(call))));
        timed.sort_by_key(|(at, _)| *at);
        lines.extend(timed.into_iter().map(|(_, line)| line));
        for line in lines {
            writeln!(
                f,
                "{}",
                serde_json::to_string(&line).map_err(|_| fmt::Error)?
            )?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut plan = None;
        for (index, line) in text.lines().map(str::trim).enumerate() {
            if !line.is_empty() && !line.starts_with('#') {
                take(&mut plan, line).map_err(|why| format!("line {}: {why}", index + 1))?;
            }
        }
        let plan = plan.ok_or("there is no `plan` line")?;
        sense::whole(&plan)?;
        Ok(plan)
    }
}

/// Takes one line.
fn take(plan: &mut Option<Plan>, text: &str) -> Result<(), String> {
    let line = serde_json::from_str(text).map_err(|error| {
        let why = error.to_string();
        why.replace(" at line 1 column ", " at character ")
    })?;
    let Some(known) = plan.as_mut() else {
        let Line::Plan(first) = line else {
            return Err("before it must come the `plan` line".to_owned());
        };
        sense::first(&first)?;
        *plan = Some(first);
        return Ok(());
    };
    match line {
        Line::Plan(_) => return Err("a second `plan` line".to_owned()),
        Line::Process(place) => known.processes.push(place),
        Line::Life(settings) => {
            sense::settings(known, &settings)?;
            let process = known.processes.last_mut();
            let process = process.ok_or("before it must come a `process` line")?;
            process.lives.push(settings);
        }
        Line::Episode(episode) => {
            if let Some((group, _)) = episode.loses {
                sense::exists("group", group.into(), known.topology.groups.len())?;
            }
            known.episodes.push(episode);
        }
        Line::Fault { at, episode, fault } => {
            sense::fault(known, at, &fault)?;
            // A fault without fields of its own takes any.
            if fault == Fault::HealAll && !text.replace(' ', "").contains(r#"{"do":"heal_all"}"#) {
                return Err("`heal_all` has no fields".to_owned());
            }
            sense::exists("episode", episode as u64, known.episodes.len())?;
            known.episodes[episode].steps.push((at, fault));
        }
        Line::Call(call) => {
            sense::call(known, &call)?;
            known.calls.push(call);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan with every kind of line, for people.
    const EXAMPLE: &str = include_str!("example.plan");

    /// Why the example is refused if `from` is replaced in it. Its remarks do not count as lines.
    fn why_not(from: &str, to: &str) -> String {
        let lines = EXAMPLE.lines().filter(|line| !line.starts_with('#'));
        let text = lines.collect::<Vec<_>>().join("\n");
        assert!(text.contains(from), "no `{from}` in\n{text}");
        match text.replacen(from, to, 1).parse::<Plan>() {
            Ok(_) => "read".to_owned(),
            Err(error) => error,
        }
    }

    #[test]
    fn a_plan_is_read_from_its_text() {
        for seed in 0..200 {
            let text = Plan::generate(seed).to_string();
            let read: Plan = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
        let example: Plan = EXAMPLE.parse().unwrap();
        assert_eq!((example.calls.len(), example.faults().count()), (1, 1));
    }

    #[test]
    fn a_seed_makes_one_plan() {
        assert_eq!(Plan::generate(7), Plan::generate(7));
        assert_ne!(Plan::generate(7), Plan::generate(8));
    }

    #[test]
    fn what_is_no_plan_is_refused_with_its_line_and_the_reason() {
        let first = EXAMPLE.lines().find(|line| line.starts_with('{')).unwrap();
        let process = r#"{"process":{"start":0}}"#;
        let none = "there is no `plan` line";
        assert_eq!("# Nothing".parse::<Plan>().unwrap_err(), none);
        assert_eq!(
            process.parse::<Plan>().unwrap_err(),
            "line 1: before it must come the `plan` line"
        );
        for (from, to, why) in [
            (r#""seed":7"#, r#""seed":8"#, "read"),
            (
                r#"{"plan""#,
                r#"{"hello""#,
                "line 1: unknown variant `hello`",
            ),
            (first, "hello", "line 1: expected value at character 1"),
            (
                first,
                &format!("{first}\n{first}"),
                "line 2: a second `plan`",
            ),
            (
                r#""seed":7"#,
                r#""seed":"one""#,
                "line 1: invalid type: string",
            ),
            (
                r#""seed":7"#,
                r#""seed":7,"seed":7"#,
                "line 1: duplicate field",
            ),
            (process, "", "line 3: before it must come a `process` line"),
            (process, &process.repeat(2), "line 2: trailing characters"),
            (
                process,
                &format!("{process}\n{process}"),
                "a process has no `life` line",
            ),
        ] {
            let found = why_not(from, to);
            assert!(found.starts_with(why), "{from} as {to}: {found}");
        }
    }

    #[test]
    fn fields_that_are_unknown_or_missing_are_refused() {
        for (from, to, why) in [
            (r#""place":0"#, r#""place":0,"odd":1"#, "line 5: unknown"),
            (
                r#"{"keys":[0]"#,
                r#"{"odd":1,"keys":[0]"#,
                "line 5: unknown",
            ),
            (
                r#""namespace""#,
                r#""odd":1,"namespace""#,
                "line 3: unknown",
            ),
            (
                r#"{"replicas""#,
                r#"{"odd":1,"replicas""#,
                "line 1: unknown",
            ),
            (r#""start":0"#, r#""start":0,"odd":1"#, "line 2: unknown"),
            (r#"{"name""#, r#"{"odd":1,"name""#, "line 4: unknown"),
            (r#""skew":1000"#, r#""odd":1000"#, "line 3: unknown"),
            (r#""seed":7,"#, "", "line 1: missing field `seed`"),
            (r#""skew":1000,"#, "", "line 3: missing field `skew`"),
            (r#","loses":[1,"yes"]"#, "", "line 4: missing field `loses`"),
        ] {
            let found = why_not(from, to);
            assert!(found.starts_with(why), "{from} as {to}: {found}");
        }
    }

    #[test]
    fn what_would_run_nothing_or_makes_no_sense_is_refused() {
        let whole = "line 5: there is no process 5: the plan has 1 process, counted from 0";
        assert_eq!(why_not(r#""place":0"#, r#""place":5"#), whole);
        for (from, to, why) in [
            (
                r#""episode":0"#,
                r#""episode":7"#,
                "line 6: there is no episode 7",
            ),
            ("[0,1,2]", "[0,1,3]", "line 3: there is no group 3"),
            ("[0,1,2]", "[0,1,1]", "line 3: `nodes` must be groups"),
            (
                r#"[1,"yes"]"#,
                r#"[3,"yes"]"#,
                "line 4: there is no group 3",
            ),
            (r#""mask":0"#, r#""mask":9"#, "line 3: `mask` 9 is too much"),
            ("\"keys\":1,", "\"keys\":1001,", "line 1: `keys` is 1001;"),
            (
                r#"h":3000"#,
                r#"h":3600001"#,
                "line 1: `length` is 3600001;",
            ),
            (
                r#""ttl":400"#,
                r#""ttl":90000"#,
                "`ttl` is longer than `max_ttl`",
            ),
            (r#""lk""#, r#""""#, "line 3: `namespace` is empty"),
        ] {
            let found = why_not(from, to);
            assert!(found.starts_with(why), "{from} as {to}: {found}");
        }
    }

    #[test]
    fn faults_of_what_is_not_there_are_refused() {
        for (fault, why) in [
            (r#""heal_all""#, "read"),
            (r#""heal_all","odd":1"#, "`heal_all` has no fields"),
            (r#""thaw","host":1,"odd":1"#, "unknown field `odd`"),
            (r#""pause","process":1"#, "there is no process 1"),
            (
                r#""freeze","host":4"#,
                "there is no host 4: the plan has 4 hosts, counted from 0",
            ),
        ] {
            let found = why_not(r#""flush","host":2"#, fault);
            let is_there = found == "read" || found.starts_with("line 6: ");
            assert!(is_there && found.contains(why), "{fault}: {found}");
        }
    }
}
