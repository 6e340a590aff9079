//! Where lock keys come from, and how they are combined.

mod also;
mod combine;
mod source;
mod value;

pub use self::also::Also;
pub use self::combine::{
    And, FromFn, IntoKeyPart, Method, Optional, Prefix, When, from_fn, method,
};
pub use self::source::{Collected, Key, KeySource};
pub use self::value::{Header, KeyValue, Parsed, Query, header, query};
#[cfg(feature = "axum")]
pub(crate) use self::value::{UNREADABLE, only};
