//! Reads settings from any format and from environment variables.
//!
//! The errors of formats quote values, and name lines instead of fields. Therefore, settings are first read into a tree
//! of values, which cannot fail, and then read from the tree, with [`Refusal`] as the error.

// `figment` and `config` would replace only the tree, because their trees lose repeated fields, their errors quote values,
// and they read `NODES_0_URL` as a table instead of a list; the deserializer and the rules for variables would remain.
// `toml::Value` also loses repeated fields, and has neither `null` nor numbers above `i64`, which other formats have.

use std::collections::BTreeMap;
use std::{env, fmt};

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    Deserialize, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;

use crate::settings::checked::Given;
use crate::settings::error::{ConfigError, Refusal};
use crate::settings::server::NodeSettings;

pub(super) fn read(value: Value) -> Result<Given, ConfigError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().clone();
        match path.to_string() {
            name if is_of_each_node(&name) => ConfigError::of(name, OF_EACH_NODE),
            _ => error.into_inner().at(&path),
        }
    })
}

fn is_of_each_node(name: &str) -> bool {
    // A known field refuses its value, because no field accepts `Nothing`. An unknown field is refused as unknown.
    let table = || Value::Table(vec![(name.to_owned(), Value::Nothing)]);
    let is_known = |refusal: Option<Refusal>| refusal.is_some_and(|refusal| !refusal.is_unknown());
    is_known(NodeSettings::deserialize(table()).err())
        && !is_known(Given::deserialize(table()).err())
}

const OF_EACH_NODE: &str = "is a setting of each node, not of all nodes; put it into the table of each node, or into its variables, which begin with `NODES_0_`";

pub(super) enum Value {
    Nothing,
    Flag(bool),
    Negative(i64),
    Whole(u64),
    Number(f64),
    Text(String),
    /// A text from the environment. Its field decides which type it has.
    Word(String),
    List(Vec<Self>),
    // A list, and not a map, so that repeated fields are found.
    Table(Vec<(String, Self)>),
}

impl Value {
    fn literal(self) -> Self {
        match self {
            Self::Word(word) => match word.as_str() {
                "true" => Self::Flag(true),
                "false" => Self::Flag(false),
                _ => number(&word).unwrap_or(Self::Text(word)),
            },
            other => other,
        }
    }
}

fn number(word: &str) -> Option<Value> {
    if !word.starts_with(['-', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        return None;
    }
    let whole = word.parse().map(Value::Whole);
    let number = whole.or_else(|_| word.parse().map(Value::Negative));
    number.or_else(|_| word.parse().map(Value::Number)).ok()
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A format that expects a map would quote any other value in its error, for example a URL with its password.
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

macro_rules! take {
    ($($visit:ident($value:ident: $kind:ty) => $made:expr;)*) => {
        $(fn $visit<E>(self, $value: $kind) -> Result<Value, E> {
            Ok($made)
        })*
    };
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of settings")
    }

    take! {
        visit_bool(flag: bool) => Value::Flag(flag);
        visit_i64(number: i64) => u64::try_from(number).map_or(Value::Negative(number), Value::Whole);
        // No field accepts so large a number.
        visit_i128(number: i128) => Value::Number(number as f64);
        visit_u64(number: u64) => Value::Whole(number);
        visit_u128(number: u128) => Value::Number(number as f64);
        visit_f64(number: f64) => Value::Number(number);
        visit_str(text: &str) => Value::Text(text.to_owned());
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
        Value::deserialize(inner)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = table.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Table(entries))
    }
}

macro_rules! literals {
    ($($read:ident)*) => {
        $(fn $read<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
            self.literal().deserialize_any(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Value {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self {
            Self::Nothing => visitor.visit_unit(),
            Self::Flag(flag) => visitor.visit_bool(flag),
            Self::Negative(number) => visitor.visit_i64(number),
            Self::Whole(number) => visitor.visit_u64(number),
            Self::Number(number) => visitor.visit_f64(number),
            Self::Text(text) | Self::Word(text) => visitor.visit_string(text),
            Self::List(values) => visitor.visit_seq(SeqDeserializer::new(values.into_iter())),
            Self::Table(entries) => visitor.visit_map(MapDeserializer::new(entries.into_iter())),
        }
    }

    literals! { deserialize_bool deserialize_u16 deserialize_u32 deserialize_u64 }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        // The field refuses `null`.
        visitor.visit_some(self)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self {
            Self::Text(text) | Self::Word(text) if !has_sum(&text) => {
                Err(Refusal::invalid_value(Unexpected::Str(&text), &visitor))
            }
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self {
            // One server needs no list.
            Self::Text(_) | Self::Word(_) => Self::List(vec![self]).deserialize_any(visitor),
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match self {
            // Otherwise `serde` would read the list as the fields in their order.
            Self::List(_) => Err(Refusal::invalid_type(Unexpected::Seq, &visitor)),
            // A node can be written as its URL alone.
            Self::Text(url) | Self::Word(url) if fields.contains(&"url") => {
                let table = [("url", Self::Text(url))];
                visitor.visit_map(MapDeserializer::new(table.into_iter()))
            }
            other => other.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u128 f32 f64 char string bytes byte_buf unit unit_struct newtype_struct tuple tuple_struct
        map enum identifier ignored_any
    }
}

/// Whether `humantime` can read the text without a panic, which occurs if the sum of its parts overflows.
fn has_sum(text: &str) -> bool {
    let mut numbers = text.split(|char: char| !char.is_ascii_digit());
    // `M` is a month for `humantime`, but probably a minute for the writer.
    text.len() <= 100 && numbers.all(|digits| digits.len() <= 10) && !text.contains('M')
}

impl IntoDeserializer<'_, Refusal> for Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

const LISTS: [&str; 3] = ["cluster", "nodes", "sentinels"];

pub(super) fn variables(prefix: &str) -> Result<Vec<(String, String)>, ConfigError> {
    let start = format!("{prefix}_");
    let mut variables = Vec::new();
    for (name, value) in env::vars_os() {
        // Other variables need not be UTF-8, so the name is checked before the value.
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

// Not settings, but variables of the program `redlock`.
const OF_THE_PROGRAM: [&str; 4] = ["CONFIG", "FENCE", "KEY", "SLOT"];

type Table = Vec<(String, Value)>;

pub(super) fn given(
    prefix: &str,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Given, ConfigError> {
    if prefix.is_empty() || prefix.ends_with('_') {
        return Err(ConfigError::new(BAD_PREFIX));
    }
    // Nodes are keyed by their numbers.
    let (mut whole, mut nodes) = (Table::new(), BTreeMap::<usize, Table>::new());
    // The place of each setting, with its variable.
    let mut found = Vec::new();
    for (variable, text) in variables {
        let rest = variable.strip_prefix(prefix);
        let Some(name) = rest.and_then(|rest| rest.strip_prefix('_')) else {
            continue;
        };
        if OF_THE_PROGRAM.contains(&name) {
            continue;
        }
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
        if let Some(rest) = field.strip_prefix("tls_") {
            place += "tls.";
            table = table_in(table, "tls");
            inner = rest;
        }
        let place = place + inner;
        let value = value_of(inner, name, text)
            .map_err(|reason| ConfigError::of(&place, reason).of_variable(&variable))?;
        table.push((inner.to_owned(), value));
        found.push((place, variable));
    }
    let mut numbers = nodes.keys().enumerate();
    if let Some((place, index)) = numbers.find(|(place, index)| place != *index) {
        let reason = format!("is missing, though there is nodes[{index}]");
        let error = ConfigError::of(format!("nodes[{place}]"), reason);
        return Err(error.of_variable(&format!("{prefix}_NODES_{index}..")));
    }
    if !nodes.is_empty() {
        let nodes = nodes.into_values().map(Value::Table);
        whole.push(("nodes".to_owned(), Value::List(nodes.collect())));
    }
    read(Value::Table(whole)).map_err(|error| match variable_of(&found, error.field()) {
        Some(variable) => error.of_variable(variable),
        None => error,
    })
}

/// Whether `name` looks like the name of a setting. Errors never repeat other names.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.len() <= LONGEST_NAME && name.bytes().all(fits)
}

/// The index of the node in a variable's name, and the field. Both `nodes_0_url` and `nodes_0` are the `url` of node 0.
fn node_of(name: &str) -> (Option<usize>, &str) {
    let rest = name.strip_prefix("nodes_");
    let numbered = rest.map(|rest| rest.split_once('_').unwrap_or((rest, "url")));
    match numbered.and_then(|(index, field)| Some((index.parse().ok()?, field))) {
        Some((index, field)) => (Some(index), field),
        None => (None, name),
    }
}

/// The inner table called `name`. If there is also a value of that name, it remains and is refused later.
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
        return Err("the name of the variable must be in upper case after the prefix");
    }
    // Only a namespace may be empty. Any other empty value is a mistake.
    if text.is_empty() && field != "namespace" {
        return Err("is empty; unset the variable for the default");
    }
    if !LISTS.contains(&field) {
        return Ok(Value::Word(text));
    }
    let items = text.split(',').map(str::trim);
    if items.clone().any(str::is_empty) {
        return Err("has an empty entry; is there a comma too many?");
    }
    let items = items.map(|item| Value::Word(item.to_owned()));
    Ok(Value::List(items.collect()))
}

/// The variable for `field`, for a table or list that contains it, or for one of its parts.
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

const NO_NAME: &str = ".. is an environment variable, but no setting has such a name, because it is too long, or has characters other than letters, digits and `_`; rename or remove the variable";

const BAD_PREFIX: &str = "the prefix of the environment variables must be a name, as in `REDLOCK`; if it ends with `_`, leave it out, because a `_` is added to the prefix";

#[cfg(test)]
mod tests {
    use super::*;
    use humantime_serde::re::humantime;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_duration_with_a_sum_panics(text in "([ 0-9.]{0,11}(s|ms|min|h|y|µs|x|-)? ?){0,40}") {
            let _ = !has_sum(&text) || humantime::parse_duration(&text).is_ok();
        }
    }

    #[test]
    fn the_longest_durations_have_a_sum() {
        let longest = "9999999999y".repeat(9);
        assert!(has_sum(&longest) && humantime::parse_duration(&longest).is_ok());
        assert!(!has_sum("18446744073709551615s1000ms"));
    }
}
