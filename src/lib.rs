//! A distributed request lock for tower and axum.

pub mod clock;
pub mod key;
pub mod lease;
mod moment;
pub mod namespace;
pub mod node;
mod protocol;
pub mod token;

pub use key::{KeyError, LockKey};
pub use moment::Moment;
