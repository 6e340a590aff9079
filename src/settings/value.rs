//! [`Value`]: the content of a configuration in any format.
//!
//! The errors of formats quote values and name lines instead of fields, and the environment has no types. So a
//! configuration is first read as a tree of values, which cannot fail, and then from there, with [`Refusal`] as the
//! error.

use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    Deserialize, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;

use crate::settings::checked::Given;
use crate::settings::error::ConfigError;
use crate::settings::node::Listed;
use crate::settings::refusal::Refusal;

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
    // No field accepts nothing, and an unknown field is refused as such.
    let table = || Value::Table(vec![(name.to_owned(), Value::Nothing)]);
    let is_known = |refusal: Option<Refusal>| refusal.is_some_and(|refusal| !refusal.is_unknown());
    cfg!(feature = "redis")
        && is_known(Listed::deserialize(table()).err())
        && !is_known(Given::deserialize(table()).err())
}

const OF_EACH_NODE: &str = "is a setting of each node, not of all at once; put it into the table of each node, or into its variables behind `NODES_0_`";

pub(super) enum Value {
    Nothing,
    Flag(bool),
    Negative(i64),
    Whole(u64),
    Number(f64),
    Text(String),
    /// A text of the environment, which has no other kinds: its field decides what it is.
    Word(String),
    List(Vec<Self>),
    // With repeated fields, so that they can be refused.
    Table(Vec<(String, Self)>),
}

impl Value {
    /// A word as the literal that it looks like.
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
        // Not as a map: a format that finds something else would quote it, and it may be a URL with its password.
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

    literals! { deserialize_bool deserialize_u32 deserialize_u64 deserialize_f64 }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        // `null` is refused by the field: it may be left out instead.
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

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        let (field, value) = match self {
            // It would be read as the fields in their order.
            Self::List(_) => return Err(Refusal::invalid_type(Unexpected::Seq, &visitor)),
            // A text in place of a table is one of its fields.
            Self::Text(url) | Self::Word(url) if fields.contains(&"url") => {
                ("url", Self::Text(url))
            }
            Self::Text(off) | Self::Word(off) if off == "off" && fields.contains(&"off") => {
                ("off", Self::Flag(true))
            }
            other => return other.deserialize_any(visitor),
        };
        visitor.visit_map(MapDeserializer::new([(field, value)].into_iter()))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 char string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

/// Whether `humantime` can read it without a panic: it adds the parts, such as `1m` and `30s`, and some have no sum.
fn has_sum(text: &str) -> bool {
    let mut numbers = text.split(|char: char| !char.is_ascii_digit());
    // `M` is a month for `humantime`, and a minute for whoever writes it.
    text.len() <= 100 && numbers.all(|digits| digits.len() <= 10) && !text.contains('M')
}

impl IntoDeserializer<'_, Refusal> for Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

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
