//! [`RedlockLayer`]: requests that touch the same resource run one at a time.
//!
//! The layer extracts a lock key from each request, acquires the lock on a majority of the nodes, runs the inner
//! service, and releases the lock. It works around any tower service that speaks `http`; axum is not needed. The inner
//! service must be `Clone`, and its error type is unchanged: the layer refuses a request by a response.
//!
//! GET, HEAD, OPTIONS and TRACE, unless [set otherwise](RedlockLayer::all_methods), and requests for which the
//! extractor returns no key run without a lock and send no command to any node.
//!
//! The guide (`docs::requests`) has the rest: the order of layers, the placement that sees path parameters, waiting and
//! its limits, layers inside layers, several keys, work that outlives its response. `docs::operations` has the
//! responses.

mod admission;
mod held;
pub(crate) mod key;
mod service;
mod settings;

pub use crate::http::body::LayerBody;
pub use crate::http::rejection::{BusyStatus, Rejection, RejectionKind};
pub use crate::http::run_to_end::RunToEndService;
pub use crate::http::settings::{OnDisconnect, OnLost};
pub use crate::http::state::{UnlockedReason, lock_scope};
pub use admission::{HoldUntil, OnNoQuorum, ReleaseMode};
pub use held::Held;
pub use key::{IntoKey, KeyExtractor};
pub use service::{RedlockService, ResponseFuture};
pub use settings::{RedlockLayer, prefer_wait};
