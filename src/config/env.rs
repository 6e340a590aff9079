//! Settings from environment variables: a tree of values, with words for leaves.
//!
//! The crates that read an environment (`figment`, `config`, `envy`) quote values in their errors, and two of them read
//! a password of digits as a number.

use std::collections::BTreeMap;
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

/// The settings in those `variables` that begin with `prefix` and `_`.
pub(super) fn read(
    prefix: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Given, ConfigError> {
    if prefix.is_empty() || prefix.ends_with('_') {
        return Err(ConfigError::new(BAD_PREFIX));
    }
    // The settings of nodes by their numbers.
    let (mut whole, mut nodes) = (Table::new(), BTreeMap::<usize, Table>::new());
    let mut names = Vec::new();
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
        let (table, place) = match node {
            Some(index) => (nodes.entry(index).or_default(), format!("nodes[{index}].")),
            None => (&mut whole, String::new()),
        };
        let (outer, inner) = outer_of(field);
        let value = value_of(inner, name, text, prefix, node.is_none()).map_err(|reason| {
            let field = outer.map_or_else(|| inner.to_owned(), |outer| format!("{outer}.{inner}"));
            from_variable(ConfigError::of(place + &field, reason), &variable)
        })?;
        put(table, outer, inner, value);
        names.push(name.to_owned());
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
    Given::read(Value::Table(whole)).map_err(|error| match variable_for(&names, error.field()) {
        Some(name) => from_variable(error, &format!("{prefix}_{name}")),
        None => error,
    })
}

/// Whether it looks like the name of a setting. What does not is in the wrong place, and is repeated nowhere.
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

/// The inner table that a field is in, and its name there: `tls_client_key` is the `client_key` of `tls`.
fn outer_of(field: &str) -> (Option<&str>, &str) {
    let split = |table| Some((table, field.strip_prefix(table)?.strip_prefix('_')?));
    match TABLES.into_iter().find_map(split) {
        Some((table, inner)) => (Some(table), inner),
        None => (None, field),
    }
}

/// Keeps both values of a field that is given twice, which is refused later.
fn put(table: &mut Table, outer: Option<&str>, field: &str, value: Value) {
    let entry = (field.to_owned(), value);
    let Some(outer) = outer else {
        return table.push(entry);
    };
    let inner = table.iter_mut().find_map(|(key, value)| match value {
        Value::Table(inner) if key == outer => Some(inner),
        _ => None,
    });
    match inner {
        Some(inner) => inner.push(entry),
        None => table.push((outer.to_owned(), Value::Table(vec![entry]))),
    }
}

/// The value of the variable `name` for `field`, or why it is refused.
fn value_of(
    field: &str,
    name: &str,
    text: String,
    prefix: &str,
    of_whole: bool,
) -> Result<Value, String> {
    if name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        return Err("the names of variables are in upper case, behind the prefix".to_owned());
    }
    if of_whole && is_of_each_node(field) {
        return Err(format!(
            "is a setting of each node, not of all at once; say {prefix}_NODES_0_{name} beside {prefix}_NODES_0_URL, and so on for each node"
        ));
    }
    // A namespace may be empty; any other empty value was forgotten.
    if text.is_empty() && field != "namespace" {
        return Err("is empty; unset the variable for the default".to_owned());
    }
    if !LISTS.contains(&field) {
        return Ok(Value::Word(text));
    }
    let items = text.split(',').map(|item| item.trim().to_owned());
    Ok(Value::List(items.map(Value::Word).collect()))
}

fn from_variable(error: ConfigError, variable: &str) -> ConfigError {
    error
        .named()
        .adding(&format!(" (environment variable {variable})"))
}

/// The variable for `field`, or for a table or list that it is in, or one of the variables for its parts.
fn variable_for<'a>(names: &'a [String], field: Option<&str>) -> Option<&'a String> {
    // The name of the variable for it: `NODES_0_URL` for `nodes[0].url`.
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

type Table = Vec<(String, Value)>;

/// Names of settings are shorter, with the number of a node too.
const LONGEST_NAME: usize = 80;

const NO_NAME: &str = ".. is an environment variable whose name is none of a setting: it is too long, or has more than letters, digits and `_`; rename or remove it";

const BAD_PREFIX: &str = "the prefix of the environment variables must be a name, as in `REDLOCK`; if there is a `_` at its end, leave it out, for it is put behind it anyway";
