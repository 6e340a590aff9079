//! `Settings`: settings from TOML, JSON and the environment, and what is said of those that make no sense.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[cfg(feature = "redis")]
#[path = "../support/mod.rs"]
mod support;

mod environment;
mod refused;
#[cfg(feature = "redis")]
mod refused_nodes;
#[cfg(feature = "redis")]
mod secrets;
mod sources;

use tower_redlock::Settings;
use tower_redlock::error::ConfigError;

/// All that was said, but passwords.
fn told(settings: &Settings) -> String {
    format!("{settings:?}")
}

/// The same text as JSON.
fn json(toml: &str) -> String {
    serde_json::to_string(&toml::from_str::<toml::Value>(toml).unwrap()).unwrap()
}

/// Reads settings and checks them, and says what is wrong with it.
fn refusal(toml: &str) -> String {
    match toml::from_str::<Settings>(toml) {
        Ok(settings) => settings.check().expect_err(toml).to_string(),
        Err(error) => error.message().to_owned(),
    }
}

/// Settings of nothing but variables.
fn of_variables<K: Into<String>, V: Into<String>>(
    prefix: &str,
    variables: impl IntoIterator<Item = (K, V)>,
) -> Result<Settings, ConfigError> {
    Settings::default().with_vars(prefix, variables)
}

/// The same for variables with the prefix `APP`, of which only the rest of the name is given.
fn refused_variables(variables: &[(&str, &str)]) -> ConfigError {
    let named = variables.iter();
    let named = named.map(|(name, value)| (format!("APP_{name}"), (*value).to_owned()));
    of_variables("APP", named)
        .and_then(|settings| settings.check())
        .expect_err("nonsense was taken")
}
