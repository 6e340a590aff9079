//! Why a manager did not start.

use std::fmt;

use crate::manager::error::acquire::{NoQuorum, NodeFailure, list};
use crate::settings::error::ConfigError;

/// Why a manager could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting is invalid. Nothing was connected.
    Config(ConfigError),
    /// Nodes reply and cannot serve; each is named with what to change.
    Misconfigured(Vec<NodeFailure>),
    /// Fewer nodes than a quorum replied within the connect time-out.
    NoQuorum(NoQuorum),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Misconfigured(failures) => {
                f.write_str("these nodes cannot serve: ")?;
                list(f, failures)
            }
            Self::NoQuorum(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {}

impl From<ConfigError> for ConnectError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}
