//! Settings from environment variables: the same tree of values, with words for leaves.

use std::env;

use super::value::Value;
use crate::manager::ConfigError;

/// Settings with settings of their own; their names are followed by `_` and the inner name.
const TABLES: [&str; 4] = ["fencing", "hand_off", "restart_guard", "tls"];
/// Settings that are lists, with `,` between the items.
const LISTS: [&str; 2] = ["nodes", "sentinels"];

/// What variables say, and which variable said it.
pub(super) struct Environment {
    entries: Vec<(String, Value)>,
    // Where a variable's value is (`nodes[0].url`), and the variable's name.
    sources: Vec<(String, String)>,
}

/// The variables of this process that begin with `prefix` and `_`.
pub(super) fn variables(prefix: &str) -> Result<Vec<(String, String)>, ConfigError> {
    let start = format!("{prefix}_");
    let mut variables = Vec::new();
    for (name, value) in env::vars_os() {
        // Not all of the environment is text, and most of it is none of our business.
        let name = name.to_string_lossy().into_owned();
        if !name.starts_with(&start) {
            continue;
        }
        let Ok(value) = value.into_string() else {
            let text = format!("the environment variable {name} is not UTF-8");
            return Err(ConfigError::new(text));
        };
        variables.push((name, value));
    }
    Ok(variables)
}

impl Environment {
    /// Sorts out those of `variables` that begin with `prefix` and `_`.
    pub(super) fn read(
        prefix: &str,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        if prefix.is_empty() {
            return Err(ConfigError::new(
                "the prefix of the environment variables is empty; choose one, as in `REDLOCK`",
            ));
        }
        if prefix.ends_with('_') {
            return Err(ConfigError::new(
                "the prefix of the environment variables ends with `_`, which is put behind it anyway; leave it out",
            ));
        }
        let mut environment = Self {
            entries: Vec::new(),
            sources: Vec::new(),
        };
        for (variable, text) in variables {
            let rest = variable.strip_prefix(prefix);
            if let Some(name) = rest.and_then(|rest| rest.strip_prefix('_')) {
                environment.take(name, text, &variable)?;
            }
        }
        number(&mut environment.entries)
            .map_err(|error| error.adding(&from_variables(&format!("{prefix}_NODES_.."))))?;
        Ok(environment)
    }

    /// Takes in the variable that is called `name` after the prefix.
    fn take(&mut self, name: &str, text: String, variable: &str) -> Result<(), ConfigError> {
        let steps = steps(&name.to_ascii_lowercase());
        let path = path_of(&steps);
        let refuse = |reason: &str| {
            let error = ConfigError::of(&path, format!("{path}: {reason}"));
            Err(error.adding(&from_variables(variable)))
        };
        if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
            return refuse("the names of variables are in upper case, behind the prefix");
        }
        let last = steps.last().map_or("", String::as_str);
        // An empty namespace means something; anything else that is empty was forgotten.
        if text.is_empty() && last != "namespace" {
            return refuse("is empty; unset the variable for the default");
        }
        let value = if LISTS.contains(&last) {
            let items = text.split(',').map(|item| item.trim().to_owned());
            Value::List(items.map(Value::Word).collect())
        } else {
            Value::Word(text)
        };
        insert(&mut self.entries, &steps, value);
        self.sources.push((path, variable.to_owned()));
        Ok(())
    }

    /// The settings, and what tells which variable is to blame for an error.
    pub(super) fn into_parts(self) -> (Value, impl FnOnce(ConfigError) -> ConfigError) {
        let sources = self.sources;
        let blame = move |error: ConfigError| match blamed(&sources, error.field()) {
            Some(variable) => {
                let more = from_variables(variable);
                error.adding(&more)
            }
            None => error,
        };
        (Value::Table(self.entries), blame)
    }
}

/// The variable that `field` came from, or whose value it is in, or one of those that it is made of.
fn blamed<'a>(sources: &'a [(String, String)], field: Option<&str>) -> Option<&'a String> {
    let field = field?;
    let within = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let outer = sources.iter().find(|(path, _)| within(field, path));
    let inner = || sources.iter().find(|(path, _)| within(path, field));
    outer.or_else(inner).map(|(_, variable)| variable)
}

fn from_variables(variable: &str) -> String {
    format!(" (environment variable {variable})")
}

/// Where the value of a variable belongs: `nodes_0_tls_client_key` is `nodes`, `0`, `tls`, `client_key`.
fn steps(name: &str) -> Vec<String> {
    if let Some(rest) = name.strip_prefix("nodes_") {
        let (index, field) = match rest.split_once('_') {
            Some((index, field)) => (index, Some(field)),
            None => (rest, None),
        };
        if let Ok(index) = index.parse::<usize>() {
            let mut steps = vec!["nodes".to_owned(), index.to_string()];
            steps.extend(field.into_iter().flat_map(inner_steps));
            return steps;
        }
    }
    inner_steps(name)
}

fn inner_steps(name: &str) -> Vec<String> {
    for table in TABLES {
        let rest = name.strip_prefix(table);
        if let Some(field) = rest.and_then(|rest| rest.strip_prefix('_')) {
            return vec![table.to_owned(), field.to_owned()];
        }
    }
    vec![name.to_owned()]
}

/// The same as it is written in errors.
fn path_of(steps: &[String]) -> String {
    let mut path = String::new();
    for step in steps {
        if step.bytes().all(|byte| byte.is_ascii_digit()) {
            path.push_str(&format!("[{step}]"));
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(step);
        }
    }
    path
}

/// Puts a value where it belongs. Where there is something else already, both are there, which is refused later.
fn insert(table: &mut Vec<(String, Value)>, steps: &[String], value: Value) {
    let Some((first, rest)) = steps.split_first() else {
        return;
    };
    if rest.is_empty() {
        table.push((first.clone(), value));
        return;
    }
    let same = table.iter_mut().find_map(|(key, value)| match value {
        Value::Table(inner) if key == first => Some(inner),
        _ => None,
    });
    if let Some(inner) = same {
        insert(inner, rest, value);
    } else {
        let mut inner = Vec::new();
        insert(&mut inner, rest, value);
        table.push((first.clone(), Value::Table(inner)));
    }
}

/// Makes a list of the nodes that were given by number.
fn number(entries: &mut [(String, Value)]) -> Result<(), ConfigError> {
    for (_, value) in entries.iter_mut().filter(|(key, _)| key == "nodes") {
        let Value::Table(nodes) = value else {
            continue;
        };
        let mut numbered: Vec<(usize, Value)> = std::mem::take(nodes)
            .into_iter()
            .filter_map(|(key, node)| Some((key.parse().ok()?, node)))
            .collect();
        numbered.sort_by_key(|(index, _)| *index);
        for (place, (index, _)) in numbered.iter().enumerate() {
            if *index > place {
                let field = format!("nodes[{place}]");
                let text = format!("{field}: is missing, though there is nodes[{index}]");
                return Err(ConfigError::of(field, text));
            }
            if *index < place {
                let field = format!("nodes[{index}]");
                let text = format!("{field}: is given twice; which one is meant?");
                return Err(ConfigError::of(field, text));
            }
        }
        *value = Value::List(numbered.into_iter().map(|(_, node)| node).collect());
    }
    Ok(())
}
