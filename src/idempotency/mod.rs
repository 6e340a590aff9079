//! Answers that are kept: a request that is sent again gets the first answer, and does not run again.
//!
//! A client that gets no answer cannot tell whether its order was placed. It sends the order again with the same
//! `Idempotency-Key` ([a draft of the IETF][draft]), and an [`IdempotencyLayer`] sees to it that it is
//! told what the first came to. The layer asks the nodes once before the handler, which takes the lock of the key or
//! finds the answer, and once after it, which keeps the answer and gives the lock back. Meanwhile the lock is renewed;
//! if the process dies, the key is free after a ttl.
//!
//! **The handler may run twice.** All clients get the same response [while the nodes keep it](#records), but a
//! process may die, or lose the lock, after the effect and before the answer was kept; then a repeat runs. No layer can
//! exclude that. The database can, in one of three ways:
//!
//! * *A unique key*: the transaction inserts a row under the customer and [`Idempotent::key`], and a second run finds
//!   it and answers from it.
//! * *The fencing number*: the transaction begins by registering [`Idempotent::fence`], and refuses a run whose number
//!   is lower than the one that it has. That stops a run which was overtaken; it does not tell a second run what the
//!   first has done.
//! * *An outbox*: what is done elsewhere, such as a call to a payment provider, is a row that the same transaction
//!   inserts, and is sent from there, with a key that stays the same.
//!
//! `examples/idempotent_payment` does the first two in one transaction.
//!
//! # Examples
//!
//! ```
//! # #[cfg(feature = "axum")] mod example {
//! use axum::{Router, routing::post};
//! use tower_redlock::idempotency::{Idempotent, caller};
//! use tower_redlock::{IdempotencyLayer, LockManager};
//!
//! /// Put into the request's extensions by what checks credentials.
//! #[derive(Clone)]
//! struct Customer { id: String }
//!
//! async fn order(run: Idempotent) -> String {
//!     format!("placed under {}, by run {}\n", run.key(), run.fence())
//! }
//!
//! fn app(locks: &LockManager) -> Router {
//!     let once = IdempotencyLayer::new(locks.clone(), caller::extension(|c: &Customer| c.id.clone()));
//!     Router::new().route("/orders", post(order).route_layer(once))
//!     // And around it the layer that checks credentials.
//! }
//! # }
//! ```
//!
//! # Where to put it
//!
//! * *Inside of authentication.* The [caller] must be known, and an answer of 401 is not one to keep for a day.
//!   The same goes for everything else that refuses requests for what they are not to blame for, such as limits.
//! * *Inside of routing*: `route_layer`, or `layer` on a `Router` that has the routes. There the route is part of the
//!   [scope](Scope). Put around a whole router from outside, the layer knows paths only.
//! * *Behind one name.* The host is part of the scope too: a client that repeats its request by another name or port of
//!   the service runs it again, unless the layer is told [`any_host`](IdempotencyLayer::any_host).
//! * *Directly outside of a [`RedlockLayer`](crate::RedlockLayer)*: [`with_lock`](IdempotencyLayer::with_lock). Then a
//!   repeat needs no lock, a handler that runs on after its client has gone keeps it, and an answer 409 because another
//!   holds the lock is [not kept](#what-was-not-processed). The other way round, the lock is outside of what
//!   [`OnDisconnect::RunToEnd`] saves, and is given back while the handler runs: choose [`OnDisconnect::Cancel`] there.
//!   Neither order can block, not even if replicas differ in it, because a request that holds a lock does not wait for
//!   another with its key.
//! * *A time-out outside* answers the client, and the handler runs to its end; a repeat gets its answer. *A time-out
//!   inside* ends the handler, and its answer 408 or 504 is not kept; a repeat runs. What the handler had sent to a
//!   database by then may happen yet.
//! * *Inside of compression*, so that what is kept was not compressed for one client and is sent to another. The same
//!   goes for all that belongs to one request and not to the order: headers of CORS, rate limits, request ids.
//! * A limit of body sizes *outside* shows here as a body that cannot be read, 400; the layer's own
//!   [limit](IdempotencyLayer::max_request_body) is told apart as 413. `CONNECT`, and with it WebSockets over HTTP/2,
//!   is no safe method: choose the [methods](IdempotencyLayer::methods) where a router has such routes.
//!
//! # What a request gets
//!
//! | what the nodes know of the key | the request gets |
//! |---|---|
//! | nothing | it runs |
//! | an answer, and the request is the [same](FingerprintHeaders) | that answer, with `Idempotent-Replayed: true` |
//! | an answer, and the request is another | 422 `idempotency-key-reused` |
//! | that it is done, but the answer was too long, broke off, or is a stream | 409 `not-replayable` |
//! | that it runs | 409 `request-in-progress`, or it [waits](IdempotencyLayer::max_wait) and gets the answer, or 409 `wait-timeout` |
//! | an answer on so few nodes that it may not count | they bring it to a quorum; then that answer |
//! | too few nodes say anything | 503 `no-quorum`: it does not run |
//!
//! | the run | its client gets | a repeat |
//! |---|---|---|
//! | answers | the answer, once a quorum has it | gets the answer |
//! | answers what the [policy](RecordPolicy) does not keep: 5xx, 408, 425, 429 | the answer | runs |
//! | answers what says that [nothing was done](#what-was-not-processed) | the answer | runs |
//! | answers, and too few nodes keep it | as [`OnUnrecorded`] says | gets it if it meets a node that has it, or else runs |
//! | loses its lock | 503 `lock-lost`, and the handler is dropped; or [it goes on](OnLost) | runs |
//! | loses its client | nothing; as [`OnDisconnect`] says | gets the answer, or runs |
//! | fails with an error or panics | that | runs |
//!
//! [`IdempotencyRejection`] lists all refusals, and what a client should make of each. Two answers leave open what
//! happened: `outcome-unknown` and `lock-lost`.
//!
//! * [`OnUnrecorded::Refuse`], the default, tells the client nothing that might not hold: whatever it is told when it
//!   asks again is all that anybody is ever told. [`OnUnrecorded::Answer`] lets it have the answer with a warning
//!   header; a repeat may run, and be told something else.
//! * [`OnDisconnect::RunToEnd`], the default, is for clients that lose patience: the run goes on in a task of its own.
//!   [`OnDisconnect::Cancel`] is for handlers that may be dropped anywhere.
//!
//! # What was not processed
//!
//! A request that finds a lock held is answered 409, and had better be sent again. If that answer were kept, repeats
//! would be told for a day that the lock is held; if it were not, and something had been done before the lock was asked
//! for, repeats would do that again. So the rule, for everything in this crate, is that an answer to a run is kept as
//! the policy says unless one of two says *of this very run* that nothing was done in it:
//!
//! * **The lock layer directly inside**, put there by [`IdempotencyLayer::with_lock`]. It refuses before it calls
//!   anybody, and nobody stands in between who might have done something: the compiler sees to that.
//! * **Whoever has the run's [`Idempotent`]**, a handler or a layer in between, by
//!   [`Idempotent::not_processed`]. That is taken on trust.
//!
//! Nothing else says so, whatever stands in its text. These may all come after an effect, and nobody can tell:
//!
//! | a refusal | may come |
//! |---|---|
//! | of a `RedlockLayer` further in, or in a `route_layer` of its own | behind a layer that has charged the customer |
//! | of a service with a lock that the handler calls | from a handler that has charged the customer |
//! | of the extractor `Locked` | half-way through a handler, where `parts.extract()` is the same call as for an argument |
//! | made by [`Rejection::to_response`](crate::middleware::Rejection::to_response) | from anywhere |
//! | of an idempotency layer further in, with other callers | behind a layer that has charged the customer |
//!
//! They are kept if the policy keeps their status, which it does with the 409 of a lock that is held, and the log has a
//! warning then. A handler that takes a `Locked` before it does anything takes it as a `Result`, and says so:
//!
//! ```
//! # #[cfg(feature = "axum")] mod example {
//! use axum::extract::rejection::PathRejection;
//! use axum::response::{IntoResponse, Response};
//! # use axum::extract::{FromRequestParts, Path};
//! # use http::request::Parts;
//! use tower_redlock::extract::{Locked, LockedRejection};
//! use tower_redlock::idempotency::Idempotent;
//! # use tower_redlock::extract::AsLockKeys;
//! # use tower_redlock::{KeyError, LockKey, LockKeys};
//! #
//! # struct OrderId(u64);
//! #
//! # impl<S: Send + Sync> FromRequestParts<S> for OrderId {
//! #     type Rejection = PathRejection;
//! #     async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PathRejection> {
//! #         Ok(Self(Path::from_request_parts(parts, state).await?.0))
//! #     }
//! # }
//! #
//! # impl AsLockKeys for OrderId {
//! #     fn as_lock_keys(&self) -> Result<LockKeys, KeyError> {
//! #         Ok(LockKey::join(["order", &self.0.to_string()])?.into())
//! #     }
//! # }
//!
//! type Order = Result<Locked<OrderId>, LockedRejection<PathRejection>>;
//!
//! async fn pay(run: Idempotent, order: Order) -> Result<String, Response> {
//!     let order = order.map_err(|refused| run.not_processed(refused.into_response()))?;
//!     Ok(format!("order {} is paid under {}", order.0, run.key()))
//! }
//! # }
//! ```
//!
//! The [policy](RecordPolicy) looks at the answer alone and does not ask what was done: after a 503 that it does not
//! keep, a repeat runs, whether that is a handler's or an inner layer's.
//!
//! # Records
//!
//! A record is status, [headers](RecordedHeaders), body and trailers of an answer, and the [fingerprint](Fingerprint)
//! of the request: a hash, never the request. Bodies are kept up to [1 MiB](IdempotencyLayer::max_response_body), in the
//! memory of every node, for [24 hours](IdempotencyLayer::retention). A million answers of 1 kB take 1.5 GB on each
//! node (a table in `docs::operations` of the guide has the rest); a node that may not evict (and none may) refuses
//! writes when it is full. The key on the nodes is a hash of method, host, route, caller and the client's key;
//! answers are kept as they are, so who can read the nodes can read them.
//!
//! When a record ends is decided when it is first written, and [goes with it](crate::LockManager::begin_idempotent)
//! to every node that is given it later: a repeat is neither told it for longer, nor does it run earlier, than the
//! retention and what the clocks of nodes and processes differ.
//!
//! An answer goes out once a quorum has it. The rest of the nodes is given it in the background, for a minute; one that
//! comes back later is given it when somebody asks for it. So, of *N* nodes with a quorum of *q*:
//!
//! * *Once all have it*, it survives that any *N - q* of them lose what they had: 2 of 5. Whoever asks a quorum then
//!   asks one that has it.
//! * *While only a quorum has it*, a single loss may be one too many: then a repeat may meet a quorum that knows
//!   nothing, and runs. That is for the moment between the answer and the copies, or for as long as nodes are down.
//! * [`mask_losses(f)`](crate::LockManagerBuilder::mask_losses) makes it survive *f* losses from the first moment on.
//! * *An append-only file* (`appendonly yes`) makes restarts harmless, but for the last second of a machine that loses
//!   power; `appendfsync always` for that, too.
//!
//! The restart guard does not help here: it waits for locks to end, which takes seconds, and records are kept for a
//! day. A deployment that needs more than the two of five has its unique key in the database.
//!
//! # What a retry gets after a crash
//!
//! A process that is killed while a request runs leaves a lock behind, which ends by itself within one ttl. What the
//! next request with the key gets then, from any process:
//!
//! | the process ended | a retry | a second effect is excluded by |
//! |---|---|---|
//! | with the lock, before the handler | runs, within a ttl | there was none |
//! | in the handler, before its effect | runs again, within a ttl | there was none |
//! | in the handler, after its effect | **runs again**, within a ttl | a unique key in the database |
//! | after the handler, before a node had the record | **runs again**, within a ttl | a unique key in the database |
//! | with the record on fewer nodes than a quorum | gets the first answer, which is brought to a quorum before; or, if none of those nodes is among the first that answer, **runs again**, within a ttl | a unique key in the database |
//! | with the record on a quorum, before its client had the answer | gets the first answer, at once | it does not run |
//! | not at all, but stood still for longer than a ttl, in the handler before its effect | **runs again**, within a ttl; the first run is told that its lock is lost, or that the outcome is unknown | a unique key, or the fencing number, in the transaction of the effect |
//! | not at all, but stood still for longer than a ttl, between its effect and the record | **runs again**, within a ttl; the nodes refuse the record of the first run, whose client is told that the outcome is unknown | a unique key in the database |
//!
//! Whichever it is: once one client was given an answer, every other is given the same until the record ends, unless
//! more nodes lost it than [above](#records). A retry
//! that runs again may well come to another answer than the one that was lost, which then nobody has seen.
//!
//! So what a handler does should be safe to do twice. Where it writes to a database:
//!
//! * *A unique key*: the row of the effect has a column for the idempotency key (and the caller), with a unique index.
//!   The handler inserts it with `ON CONFLICT DO NOTHING`, in the same transaction as everything else that it does
//!   there, then reads the row that is there, and answers from that. This excludes every second effect.
//! * *The [fencing number](Idempotent::fence)*: the database keeps the highest number of each key and refuses lower
//!   ones in the same transaction. This excludes a run that stood still and was overtaken. It does **not** exclude a
//!   retry after a crash, whose number is the greater one.
//!
//! Effects elsewhere, such as a call of a payment provider, need a key of their own that the other side knows by; the
//! idempotency key, with the caller, is one.
//!
//! [draft]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/

mod authority;
mod body;
pub mod caller;
mod exchange;
mod fingerprint;
#[cfg(test)]
mod fuzz;
mod hashing;
mod headers;
mod idempotent;
mod key;
mod layer;
mod options;
mod record_policy;
mod rejection;
mod rejection_kind;
mod route;
mod scope;
mod service;
mod stored_response;
mod with_lock;

pub use crate::policy::{OnDisconnect, OnLost};
pub use body::{RequestBody, ResponseBody};
pub use fingerprint::FingerprintHeaders;
pub use headers::{IDEMPOTENT_REPLAYED, IDEMPOTENT_UNRECORDED, RecordedHeaders};
pub use idempotent::Idempotent;
pub use key::{IDEMPOTENCY_KEY, IdempotencyKey, IdempotencyKeyError};
pub use layer::IdempotencyLayer;
pub use options::OnUnrecorded;
pub use record_policy::{DefaultRecordPolicy, RecordPolicy};
pub use rejection::IdempotencyRejection;
pub use rejection_kind::IdempotencyRejectionKind;
pub use service::{IdempotencyService, ResponseFuture};
pub use with_lock::WithLock;
