//! Settings from environment variables: a tree of values, with words for leaves.
//!
//! The crates that read an environment (`figment`, `config`, `envy`) quote values in their errors, and two of them read
//! a password of digits as a number.

use std::collections::BTreeMap;
use std::env;

use crate::settings::checked::Given;
use crate::settings::error::ConfigError;
use crate::settings::value::{Value, read};

const TABLES: [&str; 4] = ["fencing", "hand_off", "restart_guard", "tls"];
const LISTS: [&str; 2] = ["nodes", "sentinels"];

pub(super) fn variables(prefix: &str) -> Result<Vec<(String, String)>, ConfigError> {
    let start = format!("{prefix}_");
    let mut variables = Vec::new();
    for (name, value) in env::vars_os() {
        // Not all of the environment is text, and most of it has no settings.
        let name = name.to_string_lossy().into_owned();
        if !name.starts_with(&start) {
            continue;
        }
        let Ok(value) = value.into_string() else {
            let name = name.escape_debug();
            let text = format!("the environment variable {name} is not UTF-8");
            return Err(ConfigError::new(text));
        };
        variables.push((name, value));
    }
    Ok(variables)
}

type Table = Vec<(String, Value)>;

pub(super) fn given(
    prefix: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Given, ConfigError> {
    if prefix.is_empty() || prefix.ends_with('_') {
        return Err(ConfigError::new(BAD_PREFIX));
    }
    // The settings of nodes by their numbers, and each setting that was found with its variable.
    let (mut whole, mut nodes) = (Table::new(), BTreeMap::<usize, Table>::new());
    let mut found = Vec::new();
    for (variable, text) in variables {
        let rest = variable.strip_prefix(prefix);
        let Some(name) = rest.and_then(|rest| rest.strip_prefix('_')) else {
            continue;
        };
        if !is_name(name) {
            return Err(ConfigError::new(format!("{prefix}_{NO_NAME}")));
        }
        let lower = name.to_ascii_lowercase();
        let (node, field) = node_of(&lower);
        let (mut table, mut place) = match node {
            Some(index) => (nodes.entry(index).or_default(), format!("nodes[{index}].")),
            None => (&mut whole, String::new()),
        };
        let mut inner = field;
        let split = |table| Some((table, field.strip_prefix(table)?.strip_prefix('_')?));
        if let Some((outer, rest)) = TABLES.into_iter().find_map(split) {
            place = place + outer + ".";
            table = table_in(table, outer);
            inner = rest;
        }
        let place = place + inner;
        let value = value_of(inner, name, text)
            .map_err(|reason| from_variable(ConfigError::of(&place, reason), &variable))?;
        table.push((inner.to_owned(), value));
        found.push((place, variable));
    }
    let mut numbers = nodes.keys().enumerate();
    if let Some((place, index)) = numbers.find(|(place, index)| place != *index) {
        let reason = format!("is missing, though there is nodes[{index}]");
        let error = ConfigError::of(format!("nodes[{place}]"), reason);
        return Err(from_variable(error, &format!("{prefix}_NODES_{index}..")));
    }
    if !nodes.is_empty() {
        let nodes = nodes.into_values().map(Value::Table);
        whole.push(("nodes".to_owned(), Value::List(nodes.collect())));
    }
    read(Value::Table(whole)).map_err(|error| match variable_of(&found, error.field()) {
        Some(variable) => from_variable(error, variable),
        None => error,
    })
}

/// Whether it looks like the name of a setting. Other texts are repeated nowhere.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.len() <= LONGEST_NAME && name.bytes().all(fits)
}

/// The node that a variable is about, and the rest of its name: `nodes_0_url`, or `nodes_0`, is the `url` of the first.
fn node_of(name: &str) -> (Option<usize>, &str) {
    let rest = name.strip_prefix("nodes_");
    let numbered = rest.map(|rest| rest.split_once('_').unwrap_or((rest, "url")));
    match numbered.and_then(|(index, field)| Some((index.parse().ok()?, field))) {
        Some((index, field)) => (Some(index), field),
        None => (None, name),
    }
}

/// The inner table called `name`. A value of that name beside it stays, and is refused later.
fn table_in<'a>(table: &'a mut Table, name: &str) -> &'a mut Table {
    let is_it = |(key, value): &(String, Value)| key == name && matches!(value, Value::Table(_));
    let place = table.iter().position(is_it).unwrap_or_else(|| {
        table.push((name.to_owned(), Value::Table(Table::new())));
        table.len() - 1
    });
    match table.get_mut(place) {
        Some((_, Value::Table(inner))) => inner,
        _ => unreachable!("it was found, or put there"),
    }
}

fn value_of(field: &str, name: &str, text: String) -> Result<Value, &'static str> {
    if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Err("the names of variables are in upper case, behind the prefix");
    }
    // A namespace may be empty; any other empty value was forgotten.
    if text.is_empty() && field != "namespace" {
        return Err("is empty; unset the variable for the default");
    }
    if !LISTS.contains(&field) {
        return Ok(Value::Word(text));
    }
    let items = text.split(',').map(|item| item.trim().to_owned());
    Ok(Value::List(items.map(Value::Word).collect()))
}

fn from_variable(error: ConfigError, variable: &str) -> ConfigError {
    error.adding(&format!(" (environment variable {variable})"))
}

/// The variable for `field`, or for a table or list that it is in, or one of the variables for its parts.
fn variable_of<'a>(found: &'a [(String, String)], field: Option<&str>) -> Option<&'a str> {
    let field = field?;
    let within = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let outer = found.iter().find(|(place, _)| within(field, place));
    let part = outer.or_else(|| found.iter().find(|(place, _)| within(place, field)));
    part.map(|(_, variable)| variable.as_str())
}

const LONGEST_NAME: usize = 80;

const NO_NAME: &str = ".. is an environment variable whose name is none of a setting: it is too long, or has more than letters, digits and `_`; rename or remove it";

const BAD_PREFIX: &str = "the prefix of the environment variables must be a name, as in `REDLOCK`; if there is a `_` at its end, leave it out, for it is put behind it anyway";
