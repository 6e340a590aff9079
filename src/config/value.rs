//! [`Value`]: the content of a configuration in any format.
//!
//! The errors of formats quote values and name lines instead of fields, and the environment has no types. So a
//! configuration is first read as a tree of values, which cannot fail, and then from there, with [`Refusal`] as the
//! error.

use std::fmt;
use std::time::Duration;

use humantime_serde::re::humantime;
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    Deserialize, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::refusal::Refusal;

/// A value of any kind.
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
        f.write_str("the settings of a LockConfig")
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

    /// Durations and nothing else are read by this method.
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

/// Whether the parts of a duration, such as `1m` and `30s`, have a sum. `humantime` panics on some that have none.
fn has_sum(text: &str) -> bool {
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|char: char| !char.is_alphabetic());
        let after = unit.trim_start_matches(char::is_alphabetic).trim_start();
        let part = rest.strip_suffix(after).unwrap_or(rest);
        // Which `humantime` takes for months, and few others do.
        if part.trim_end().ends_with('M') {
            return false;
        }
        let part = humantime::parse_duration(part).ok();
        let Some(more) = part.and_then(|part| sum.checked_add(part)) else {
            return false;
        };
        (rest, sum) = (after, more);
    }
    true
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
    use proptest::prelude::*;

    proptest! {
        /// What can be read has a sum; only where there is none, reading could panic.
        #[test]
        fn a_duration_has_a_sum_if_it_can_be_read(text in "([ 0-9.]{0,3}(s|ms|min|h|y|µs|x|-)? ?){0,4}") {
            let is_read = humantime::parse_duration(&text).is_ok();
            prop_assert!(has_sum(&text) || !is_read, "{}", text);
            // A zero needs no unit, but for itself alone.
            let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
            let has_zero = numbers.any(|part| part.bytes().all(|digit| digit == b'0'));
            prop_assert!(is_read || has_zero || text.is_empty() || !has_sum(&text), "{}", text);
        }
    }
}
