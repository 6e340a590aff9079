//! Settings from environment variables: a tree of values, with words for leaves.
//!
//! Of our own, because the crates that read an environment (`figment`, `config`, `envy`) quote values in their errors,
//! and two of them take a password of digits for a number.

use std::env;

use super::read::{Given, is_of_each_node};
use super::value::Value;
use crate::manager::ConfigError;

/// Settings with settings of their own; their names are followed by `_` and the inner name.
const TABLES: [&str; 4] = ["fencing", "hand_off", "restart_guard", "tls"];
/// Settings that are lists, with `,` between the items.
const LISTS: [&str; 2] = ["nodes", "sentinels"];

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

/// What those of `variables` say that begin with `prefix` and `_`.
pub(super) fn read(
    prefix: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Given, ConfigError> {
    if prefix.is_empty() || prefix.ends_with('_') {
        return Err(ConfigError::new(BAD_PREFIX));
    }
    let (mut entries, mut names) = (Vec::new(), Vec::new());
    for (variable, text) in variables {
        let rest = variable.strip_prefix(prefix);
        let Some(name) = rest.and_then(|rest| rest.strip_prefix('_')) else {
            continue;
        };
        let steps = steps(&name.to_ascii_lowercase());
        let value = value_of(&steps, name, text, prefix)
            .map_err(|reason| from_variable(ConfigError::of(path_of(&steps), reason), &variable))?;
        insert(&mut entries, &steps, value);
        names.push(name.to_owned());
    }
    let blame = |error: ConfigError| match blamed(&names, error.field()) {
        Some(name) => from_variable(error, &format!("{prefix}_{name}")),
        None => error,
    };
    number(&mut entries).map_err(|error| from_variable(error, &format!("{prefix}_NODES_..")))?;
    Given::read(Value::Table(entries)).map_err(blame)
}

/// What the variable `name` says of the field at `steps`, or why that cannot be.
fn value_of(steps: &[String], name: &str, text: String, prefix: &str) -> Result<Value, String> {
    let field = steps.last().map_or("", String::as_str);
    if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Err("the names of variables are in upper case, behind the prefix".to_owned());
    }
    if steps.len() == 1 && is_of_each_node(field) {
        return Err(format!(
            "is a setting of each node, not of all at once; say {prefix}_NODES_0_{name} beside {prefix}_NODES_0_URL, and so on for each node"
        ));
    }
    // An empty namespace means something; anything else that is empty was forgotten.
    if text.is_empty() && field != "namespace" {
        return Err("is empty; unset the variable for the default".to_owned());
    }
    Ok(match LISTS.contains(&field) {
        true => {
            let items = text.split(',').map(|item| item.trim().to_owned());
            Value::List(items.map(Value::Word).collect())
        }
        false => Value::Word(text),
    })
}

fn from_variable(error: ConfigError, variable: &str) -> ConfigError {
    error
        .named()
        .adding(&format!(" (environment variable {variable})"))
}

/// The variable that `field` came from, or whose value it is in, or one of those that it is made of.
fn blamed<'a>(names: &'a [String], field: Option<&str>) -> Option<&'a String> {
    // As the variable for `nodes[0].url` is called: `NODES_0_URL`.
    let field = field?.to_ascii_uppercase();
    let field = field.replace("].", "_").replace(['[', '.'], "_");
    let field = field.trim_end_matches(']');
    let within = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let outer = names.iter().find(|name| within(field, name));
    outer.or_else(|| names.iter().find(|name| within(name, field)))
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
                let text = format!("is missing, though there is nodes[{index}]");
                return Err(ConfigError::of(field, text));
            }
            if *index < place {
                let field = format!("nodes[{index}]");
                return Err(ConfigError::of(
                    field,
                    "is given twice; which one is meant?",
                ));
            }
        }
        *value = Value::List(numbered.into_iter().map(|(_, node)| node).collect());
    }
    Ok(())
}

const BAD_PREFIX: &str = "the prefix of the environment variables must be a name, as in `REDLOCK`; if there is a `_` at its end, leave it out, for it is put behind it anyway";
