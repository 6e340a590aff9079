//! Checks of single settings.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::manager::error::config::ConfigError;

/// The error in the setting `field`, unless `holds`.
pub(super) fn ensure<T: Into<String>>(
    holds: bool,
    field: &str,
    text: impl FnOnce() -> T,
) -> Result<(), ConfigError> {
    if holds {
        return Ok(());
    }
    Err(ConfigError::of(field, text()))
}

pub(super) fn check_range(
    name: &str,
    value: Duration,
    range: RangeInclusive<Duration>,
) -> Result<(), ConfigError> {
    let (least, most) = range.into_inner();
    ensure(value >= least, name, || {
        format!("{name} is {value:?}; it must be at least {least:?}")
    })?;
    ensure(value <= most, name, || {
        format!("{name} is {value:?}; it must be at most {most:?}")
    })
}

pub(super) const MIN_TTL: Duration = Duration::from_millis(10);
pub(super) const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
