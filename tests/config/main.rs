//! `LockConfig`: settings from TOML, JSON and the environment, and what is said of those that make no sense.
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

use tower_redlock::LockConfig;
use tower_redlock::error::ConfigError;

/// Reads a configuration and makes a builder of it, and says what is wrong with it.
fn refusal(toml: &str) -> String {
    match toml::from_str::<LockConfig>(toml) {
        Ok(config) => config.builder().expect_err(toml).to_string(),
        Err(error) => error.message().to_owned(),
    }
}

/// The same for variables with the prefix `APP`, of which only the rest of the name is given.
fn refused_variables(variables: &[(&str, &str)]) -> ConfigError {
    let named = variables.iter();
    let named = named.map(|(name, value)| (format!("APP_{name}"), (*value).to_owned()));
    LockConfig::from_vars("APP", named)
        .and_then(|config| config.builder())
        .expect_err("nonsense was taken")
}
