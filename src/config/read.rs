//! From values to settings, field by field, so that every refusal names its field.

use std::time::Duration;

use super::duration;
use super::value::Value;
use crate::manager::{ConfigError, Fencing, HandOff, RestartGuard};

/// A value, and where it stands: `nodes[1].url`.
pub(super) struct Spot {
    path: String,
    value: Value,
}

impl Spot {
    /// The whole of a configuration.
    pub(super) const fn root(value: Value) -> Self {
        Self {
            path: String::new(),
            value,
        }
    }

    /// A refusal, with what the value should have been.
    fn wrong(self, wanted: &str) -> ConfigError {
        let kind = self.value.kind();
        if self.path.is_empty() {
            return ConfigError::new(format!("the configuration is {kind}; {wanted}"));
        }
        let text = format!("{}: is {kind}; {wanted}", self.path);
        ConfigError::of(self.path, text)
    }

    /// A refusal of a value that is of the right kind.
    fn bad(path: String, reason: &str) -> ConfigError {
        let text = format!("{path}: {reason}");
        ConfigError::of(path, text)
    }

    /// The fields of a table.
    pub(super) fn fields(self, wanted: &str) -> Result<Fields, ConfigError> {
        match self.value {
            Value::Table(entries) => Ok(Fields {
                path: self.path,
                entries,
                known: Vec::new(),
            }),
            _ => Err(self.wrong(wanted)),
        }
    }

    /// Whether it is a text and no more.
    pub(super) const fn is_text(&self) -> bool {
        matches!(self.value, Value::Text(_) | Value::Word(_))
    }

    /// The fields of a setting that can be switched off; `None` if it is.
    fn unless_off(self, wanted: &str) -> Result<Option<Fields>, ConfigError> {
        match &self.value {
            Value::Text(text) | Value::Word(text) if text == "off" => Ok(None),
            _ => self.fields(wanted).map(Some),
        }
    }
}

/// The fields of a table that have not been read yet.
pub(super) struct Fields {
    path: String,
    entries: Vec<(String, Value)>,
    known: Vec<&'static str>,
}

impl Fields {
    /// Reads `name` into `setting`, which stays as it is if the field is not there.
    pub(super) fn read<T: Setting>(
        &mut self,
        name: &'static str,
        setting: &mut T,
    ) -> Result<(), ConfigError> {
        self.known.push(name);
        let Some(place) = self.entries.iter().position(|(key, _)| key == name) else {
            return Ok(());
        };
        let (_, value) = self.entries.swap_remove(place);
        let path = join(&self.path, name);
        if self.entries.iter().any(|(key, _)| key == name) {
            return Err(Spot::bad(path, "is given twice; which one is meant?"));
        }
        *setting = T::read(Spot { path, value })?;
        Ok(())
    }

    /// Refuses what is left.
    pub(super) fn finish(self) -> Result<(), ConfigError> {
        let Some((key, _)) = self.entries.into_iter().next() else {
            return Ok(());
        };
        let known = self.known.join(", ");
        // What does not look like a name is something in the wrong place, perhaps a URL with its password.
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if key.len() <= LONGEST_NAME && key.bytes().all(plain) {
            let reason = format!("there is no such setting; there are: {known}");
            return Err(Spot::bad(join(&self.path, &key), &reason));
        }
        let reason = format!("holds something that is no name of a setting; there are: {known}");
        Err(match self.path.as_str() {
            "" => ConfigError::new(format!("the configuration {reason}")),
            _ => Spot::bad(self.path, &reason),
        })
    }
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

/// Names of settings are shorter.
const LONGEST_NAME: usize = 40;

/// What a value can be read as.
pub(super) trait Setting: Sized {
    fn read(spot: Spot) -> Result<Self, ConfigError>;
}

impl<T: Setting> Setting for Option<T> {
    fn read(spot: Spot) -> Result<Self, ConfigError> {
        T::read(spot).map(Some)
    }
}

impl<T: Setting> Setting for Vec<T> {
    fn read(spot: Spot) -> Result<Self, ConfigError> {
        let Spot { path, value } = spot;
        let Value::List(values) = value else {
            return Err(Spot { path, value }.wrong("it must be a list"));
        };
        let values = values.into_iter().enumerate();
        let spots = values.map(|(index, value)| Spot {
            path: format!("{path}[{index}]"),
            value,
        });
        spots.map(T::read).collect()
    }
}

impl Setting for String {
    fn read(spot: Spot) -> Result<Self, ConfigError> {
        match spot.value {
            Value::Text(text) | Value::Word(text) => Ok(text),
            _ => Err(spot.wrong("it must be a text, in quotes")),
        }
    }
}

impl Setting for Duration {
    fn read(spot: Spot) -> Result<Self, ConfigError> {
        match spot.value {
            Value::Text(text) | Value::Word(text) => {
                duration::parse(&text).map_err(|reason| Spot::bad(spot.path, reason))
            }
            Value::Whole(number) if number >= 0 => {
                let reason =
                    format!("is a number without a unit; say \"{number}s\" or \"{number}ms\"");
                Err(Spot::bad(spot.path, &reason))
            }
            _ => Err(spot.wrong("it must be a duration in quotes, as in \"10s\" or \"250ms\"")),
        }
    }
}

impl Setting for bool {
    fn read(spot: Spot) -> Result<Self, ConfigError> {
        match &spot.value {
            Value::Flag(flag) => Ok(*flag),
            Value::Word(word) if word == "true" => Ok(true),
            Value::Word(word) if word == "false" => Ok(false),
            Value::Word(_) => Err(Spot::bad(spot.path, "must be `true` or `false`")),
            _ => Err(spot.wrong("it must be true or false, without quotes")),
        }
    }
}

impl Setting for f64 {
    fn read(spot: Spot) -> Result<Self, ConfigError> {
        match &spot.value {
            Value::Number(number) => Ok(*number),
            #[expect(clippy::cast_precision_loss, reason = "no setting is near 2^53")]
            Value::Whole(number) => Ok(*number as Self),
            Value::Word(word) => word
                .parse()
                .map_err(|_| Spot::bad(spot.path, "must be a number, as in 0.01")),
            _ => Err(spot.wrong("it must be a number without quotes, as in 0.01")),
        }
    }
}

/// Reads a whole number that is no larger than `most`.
fn whole<T: TryFrom<i128>>(spot: Spot, most: i128) -> Result<T, ConfigError> {
    let number = match &spot.value {
        Value::Whole(number) => *number,
        Value::Word(word) if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()) => {
            // What has more digits is too large as well.
            word.parse().unwrap_or(i128::MAX)
        }
        Value::Word(_) => {
            return Err(Spot::bad(spot.path, "must be a whole number, as in 5"));
        }
        _ => return Err(spot.wrong("it must be a whole number without quotes, as in 5")),
    };
    let out_of_range = format!("must be a whole number from 0 to {most}");
    T::try_from(number).map_err(|_| Spot::bad(spot.path, &out_of_range))
}

impl Setting for u32 {
    fn read(spot: Spot) -> Result<Self, ConfigError> {
        whole(spot, Self::MAX.into())
    }
}

impl Setting for usize {
    fn read(spot: Spot) -> Result<Self, ConfigError> {
        whole(spot, i128::try_from(Self::MAX).unwrap_or(i128::MAX))
    }
}

impl Setting for HandOff {
    fn read(spot: Spot) -> Result<Self, ConfigError> {
        let wanted = "it must be \"off\" or a table with max_passes and max_time";
        let Some(mut fields) = spot.unless_off(wanted)? else {
            return Ok(Self::OFF);
        };
        let (mut passes, mut time) = (Self::default().max_passes(), Self::default().max_time());
        fields.read("max_passes", &mut passes)?;
        fields.read("max_time", &mut time)?;
        fields.finish()?;
        Ok(Self::new(passes, time))
    }
}

impl Setting for Fencing {
    fn read(spot: Spot) -> Result<Self, ConfigError> {
        let Some(mut fields) = spot.unless_off("it must be \"off\" or a table with keep")? else {
            return Ok(Self::OFF);
        };
        let mut keep = None;
        fields.read("keep", &mut keep)?;
        fields.finish()?;
        Ok(keep.map_or_else(Self::default, Self::keep))
    }
}

impl Setting for RestartGuard {
    fn read(spot: Spot) -> Result<Self, ConfigError> {
        let wanted = "it must be \"off\" or a table with max_clock_skew";
        let Some(mut fields) = spot.unless_off(wanted)? else {
            return Ok(Self::OFF);
        };
        let mut skew = None;
        fields.read("max_clock_skew", &mut skew)?;
        fields.finish()?;
        Ok(skew.map_or_else(Self::default, Self::max_clock_skew))
    }
}
