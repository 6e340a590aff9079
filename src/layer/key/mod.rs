//! The keys of the lock that a request needs.
//!
//! | file | what it has |
//! |---|---|
//! | `extractor` | `KeyExtractor`, and the closures that are one |
//! | `source` | where the parts of a key come from: `header`, `query`, `path` and their like |
//! | `combine` | `Key`: a list of steps, and `Also`: several keys |
//! | `take` | what one step takes from a request |
//! | `route` | what axum knows of the route of a request |

mod combine;
mod extractor;
#[cfg(feature = "axum")]
mod route;
mod source;
mod take;

pub use self::combine::{Also, Key, Value};
pub use self::extractor::{IntoKey, KeyExtractor};
#[cfg(feature = "axum")]
pub use self::route::routed;
pub use self::source::{IntoKeyPart, from_fn, header, method, query};
#[cfg(feature = "axum")]
pub use self::source::{from_extractor, matched_path, path};
