//! [`RedlockLayer`]: requests that touch the same resource run one at a time.
//!
//! The layer makes a lock key of each request, acquires the lock on a majority of the nodes, runs the inner
//! service, and gives the lock back. It works around any tower service that speaks `http`; axum is not needed.
//! The inner service's error type is unchanged: what the layer refuses becomes a response. The inner service must
//! be `Clone`, as for every layer that works before it calls.
//!
//! # Where to put it
//!
//! As near to the handler as the key allows. In axum that is around a method:
//! `post(pay).route_layer(layer)`. Then no request that this handler does not answer ever touches a node: not
//! the wrong path (404), and not the wrong method (405). See `key::path` (feature `axum`) for what each placement
//! sees of the route.
//!
//! `Router::route_layer` runs for every method of a matched path, also for those that axum then answers with
//! 405; a layer cannot tell, as axum shows it the same service for both. Say
//! [`.methods([Method::POST])`](RedlockLayer::methods) there, or a wrong method takes the lock for the moment
//! in which it is refused. `Router::layer` runs for unmatched paths too; a key from the route (`key::path`,
//! `key::matched_path`) lets them pass unlocked, and other keys do with `.when(key::routed)`.
//!
//! A layer with a time-out may stand on either side. Inside, it ends the handler, and the lock is released before
//! the answer goes out. Outside, it covers the acquisition and `max_wait` too, but it drops this layer's future:
//! the lock is released in the background, and a client that comes again at once, to another replica, may yet be
//! told 409.
//!
//! # What holds a lock for long
//!
//! The lock is taken when the request's head is there, before the handler reads the body, and with
//! [`HoldUntil::BodyEnd`] it lasts until the response has been passed on. A client that sends or reads slowly holds
//! the lock as long as it likes, up to the manager's `max_hold`. Put a time-out inside, or read the body outside.
//!
//! # Layers inside layers
//!
//! A request shares what it holds: a second layer with the same key, or a handler that asks for it with the request's
//! [`LockScope`](crate::LockScope) by [`acquire_in`](crate::LockManager::acquire_in), has the same lease, which is
//! released when the last of them is done. A handler that asks by [`acquire`](crate::LockManager::acquire) is another
//! to the lock, and if it waits it waits for itself.
//!
//! A request that holds a lock waits only for keys that sort after it; for others it tries once, and is refused if they
//! are held. So routes whose layers take the same locks in opposite orders never wait for each other. Copies of a
//! request that keep its extensions share its locks, too: a hedging layer belongs outside of this one.
//!
//! # Waiting
//!
//! A request that finds its lock held is refused at once, unless [`max_wait`](RedlockLayer::max_wait) lets it wait, or
//! [`max_wait_with`](RedlockLayer::max_wait_with) does for this one: what a client says by `Prefer: wait=2` is read
//! by [`prefer_wait`]. Whatever these say, nobody waits longer than the manager's
//! [`max_wait`](crate::LockManagerBuilder::max_wait), which is 5 s unless set.
//!
//! The requests of one process that wait for one key get it in the order in which they came, and one that does not
//! wait never gets in before them. Between processes no order is promised; see
//! [`LockManager`](crate::LockManager#fairness). A request whose client goes away gives up its place at once.
//!
//! Of one manager, [64](crate::LockManagerBuilder::max_waiters_per_key) requests may wait for one key and
//! [10,000](crate::LockManagerBuilder::max_waiters) in all, besides those that hold their locks. The next is answered
//! with `queue-full`. That is 503 and not the [busy status](RedlockLayer::busy_status), for it tells of load and not
//! of the resource; and no lock is missing because nodes fail, so
//! [`RunUnlocked`](OnNoQuorum::RunUnlocked) does not let it through.
//!
//! When a request is done and others of its process wait, the lock passes to the first of them without asking
//! the nodes: see [`HandOff`](crate::HandOff) for how often, and for what that excludes. The next handler starts at
//! the moment in which the one before is dropped, so work that a handler leaves behind in a task of its own overlaps
//! with it, as after every release.
//!
//! # What passes without a lock
//!
//! GET, HEAD, OPTIONS and TRACE, unless told [otherwise](RedlockLayer::all_methods), and requests for which the
//! extractor says so. They go straight through and no node hears of them.
//!
//! # What the handler sees
//!
//! The request's extensions hold the [`LockHandle`](crate::LockHandle) of the innermost layer, or an
//! [`Unlocked`] that says why there is none. axum handlers take them as `Held`. The handle also tells how long the
//! request [waited](crate::LockHandle::waited). Once the response is out it says that the lock is lost.
//!
//! # Services that call services
//!
//! A handler that calls another service over the same nodes can have it run under its own lock, where that would find
//! the key held otherwise: it [lends](crate::LockHandle::lend) the lock and sends the [header](loan_header) with the
//! call. The other service takes it from those whom it [trusts](RedlockLayer::borrow_from), asks the nodes, and drops
//! the work when the lender's lock ends. The lender does not release what is lent before the answer is there; see
//! [`Loan`](crate::Loan) for when there is none.
//!
//! The header proves to the nodes that its sender knew the lock; whoever reads it can show it as well. It is never in
//! what this crate logs or answers. Let nothing else log it: a layer around this one that traces requests sees it, and
//! [`LOAN_HEADER`] belongs to what such a layer is told to hide.
//!
//! # How it fails
//!
//! | event | answer by default | `type` after `urn:tower-redlock:problem:` |
//! |---|---|---|
//! | no key, or none of use | 400 | `invalid-key` |
//! | held by another | 409, [or as told](RedlockLayer::busy_status), `Retry-After`, `remaining_ms` | `contended` |
//! | still held after [`max_wait`](RedlockLayer::max_wait) | the same | `wait-timeout` |
//! | [as many wait](#waiting) already as may | 503, `Retry-After` | `queue-full` |
//! | too few nodes answer | 503, `Retry-After`; [or it runs unlocked](RedlockLayer::on_no_quorum) | `no-quorum` |
//! | lost while the handler runs | 503, the handler is dropped; [or it goes on](RedlockLayer::on_lost) | `lock-lost` |
//! | the manager shuts down | 503, `Retry-After` | `shutting-down` |
//! | a loan that cannot be read, or several | 400 | `invalid-loan` |
//! | a loan from a sender that is not [trusted](RedlockLayer::borrow_from) | 403 | `loan-refused` |
//! | a loan whose lender does not hold the lock (any more) | 412 | `loan-ended` |
//! | a loan that another copy of the request has or had | 409 | `loan-taken` |
//! | a path parameter is asked for outside of any router | 500 | `misconfigured` |
//!
//! Bodies are `application/problem+json`; [`RedlockLayer::rejection`] replaces them.

mod admission;
mod body;
mod box_key_extractor;
mod busy_status;
mod future;
mod held;
pub(crate) mod key;
mod key_extractor;
mod layer;
mod loan;
mod options;
mod prefer;
mod rejection;
mod rejection_kind;
mod request_state;
mod run_to_end;
mod service;

pub use crate::policy::{OnDisconnect, OnLost};
pub use body::{BodyLockLost, BoxError, ResponseBody};
pub use box_key_extractor::BoxKeyExtractor;
pub use busy_status::{BusyStatus, InvalidBusyStatus};
pub use future::ResponseFuture;
pub use held::{Held, HeldRejection};
pub use key_extractor::{IntoKey, KeyExtractor};
pub use layer::RedlockLayer;
pub use loan::{LOAN_HEADER, loan_header};
pub use options::{HoldUntil, OnNoQuorum, ReleaseMode};
pub use prefer::prefer_wait;
pub use rejection::Rejection;
pub use rejection_kind::RejectionKind;
pub(crate) use request_state::RequestState;
#[cfg(feature = "idempotency")]
pub(crate) use request_state::{LockState, Run};
pub use request_state::{UnlockedReason, lock_scope};
pub use run_to_end::{RunToEndFuture, RunToEndService};
pub use service::RedlockService;
