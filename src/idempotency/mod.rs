//! Stored responses: a repeated request gets the first response, and does not run again.
//!
//! A client that gets no response cannot tell whether its order was placed. It sends the order again with the same
//! `Idempotency-Key` ([a draft of the IETF][draft]), and an [`IdempotencyLayer`] returns the response to the first
//! request. The layer sends one command to the nodes before the handler, which acquires the lock of the key or finds
//! the response, and one after it, which stores the response and releases the lock. In between the lock is renewed; if
//! the process dies, the key is free after a ttl.
//!
//! **The handler may run twice.** All clients get the same response [while the nodes keep it](#records), but a
//! process may die, or lose the lock, after the effect and before the response was stored; then a repeat runs. No layer
//! can exclude that. The database can, in one of three ways:
//!
//! * *A unique key*: the transaction inserts a row under the customer and [`Idempotent::key`], and a second run finds
//!   the row and builds its response from it.
//! * *The fencing token*: the transaction begins by registering [`Idempotent::fence`], and refuses a run whose token
//!   is lower than the stored one. That stops a run which was overtaken; it does not give a second run the result of
//!   the first.
//! * *An outbox*: an effect elsewhere, such as a call to a payment provider, is a row that the same transaction
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
//! /// Put into the request's extensions by the layer that checks credentials.
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
//! * *Inside authentication.* The [caller] must be known, and a 401 must not be stored for a day. The same applies to
//!   every layer that refuses requests for a reason outside the request, such as rate limits.
//! * *Inside routing*: `route_layer`, or `layer` on a `Router` that has the routes. There the route is part of
//!   [what a key belongs to](#what-a-key-belongs-to). Around a whole router, the layer knows paths only.
//! * *Behind one host name*, unless [`any_host`](IdempotencyLayer::any_host) is set: a repeat under another name or
//!   port of the service runs again.
//! * *Directly outside a [`RedlockLayer`](crate::RedlockLayer)*: [`with_lock`](IdempotencyLayer::with_lock). Then a
//!   repeat needs no lock, a handler that continues after its client has disconnected keeps the lock, and a response
//!   409 because another request holds the lock is [not stored](#what-was-not-processed). In the other order, the lock
//!   is outside the task of [`OnDisconnect::RunToEnd`](crate::layer::OnDisconnect::RunToEnd), and is released while the handler runs: set
//!   [`OnDisconnect::Cancel`](crate::layer::OnDisconnect::Cancel) there. Neither order can deadlock, not even if replicas differ in it, because a request
//!   that holds a lock does not wait for another with its key.
//! * *A time-out outside* responds to the client, and the handler runs to its end; a repeat gets its response. *A
//!   time-out inside* ends the handler, and its response 408 or 504 is not stored; a repeat runs. Statements that the
//!   handler had sent to a database by then may still take effect.
//! * *Inside compression*, so that no response is stored that was compressed for one client and is sent to another. The
//!   same applies to everything that belongs to one request and not to the order: headers of CORS, rate limits, request
//!   ids.
//! * A limit of body sizes *outside* shows here as a body that cannot be read, 400; the layer's own
//!   [limit](IdempotencyLayer::max_request_body) has 413. `CONNECT`, and with it WebSockets over HTTP/2, is not a safe
//!   method: set the [methods](IdempotencyLayer::methods) where a router has such routes.
//!
//! # What a key belongs to
//!
//! A key belongs to a method, host, route and [caller]. The same key sent to another host or route, by another method
//! or by another caller is another request, and none of them gets the response to another.
//!
//! The *host* is the authority of the request's URI, which HTTP/2 and 3 call `:authority`, or else `Host`; it is empty
//! where there is neither. Upper and lower case are one host, and the ports 80 and 443 are as good as none: a request
//! of HTTP/1 has no scheme, so a host is one by `http` and by `https`. A trailing dot makes another. Where there are
//! several names that differ (the URI's and the header's, or two lines of the header), all of them together are a host
//! of their own, so that no request reaches the keys of another tenant.
//!
//! A client that repeats its request under another name of the same service **runs it again**. Where that happens,
//! because of a second domain, of a proxy that sometimes sends a name of its own, or because clients address each
//! replica directly, set [`any_host`](IdempotencyLayer::any_host). Where a proxy always sends its own name, and the
//! client's elsewhere (`X-Forwarded-Host`), the host does not distinguish tenants: make the tenant a part of the
//! [caller].
//!
//! *Services* that use the same nodes under the same [namespace](crate::LockManagerBuilder::namespace) share their
//! keys. If a gateway in front of them removes the prefix that distinguishes them, so that the same route on the same
//! host is two services', give each a namespace of its own.
//!
//! # What a request gets
//!
//! | the nodes have | the request gets |
//! |---|---|
//! | nothing | it runs |
//! | a response, and the request is the [same](FingerprintHeaders) | that response, with `Idempotent-Replayed: true` |
//! | a response, and the request is another | 422 `idempotency-key-reused` |
//! | a record that it is done, and its response was too long, broke off, or is a stream | 409 `not-replayable` |
//! | a lock, because it runs | 409 `request-in-progress`, or it [waits](IdempotencyLayer::max_wait) and gets the response, or 409 `wait-timeout` |
//! | a response on fewer nodes than a quorum | the layer stores it on a quorum; then that response |
//! | no reply from a quorum | 503 `no-quorum`: it does not run |
//!
//! | the run | its client gets | a repeat |
//! |---|---|---|
//! | returns a response | the response, once a quorum has it | gets the response |
//! | returns a response that the [policy](RecordPolicy) does not store: 5xx, 408, 425, 429 | the response | runs |
//! | returns a response marked as [not processed](#what-was-not-processed) | the response | runs |
//! | returns a response, and too few nodes store it | as set by [`OnUnrecorded`] | gets it if a node that replies has it, or else runs |
//! | loses its lock | 503 `lock-lost`, and the handler is dropped; or [it continues](crate::layer::OnLost) | runs |
//! | loses its client | nothing; as set by [`OnDisconnect`](crate::layer::OnDisconnect) | gets the response, or runs |
//! | fails with an error or panics | the error | runs |
//!
//! [`Rejection`](crate::layer::Rejection) lists all refusals, and what a client should do for each. Two of them leave the outcome
//! open: `outcome-unknown` and `lock-lost`.
//!
//! * [`OnUnrecorded::Refuse`], the default, gives the client no response that might not last: the response to its
//!   repeat is the only one that any client gets. [`OnUnrecorded::Respond`] gives it the response with a warning
//!   header; a repeat may run, and get another one.
//! * [`OnDisconnect::RunToEnd`](crate::layer::OnDisconnect::RunToEnd), the default, is for clients that lose patience: the run continues in a task of its
//!   own. [`OnDisconnect::Cancel`](crate::layer::OnDisconnect::Cancel) is for handlers that may be dropped anywhere.
//!
//! # What was not processed
//!
//! A request that finds a lock held gets 409, and should be sent again. If that response were stored, repeats would get
//! it for a day; if it were not, and something had been done before the lock was requested, repeats would do that
//! again. So the rule, for everything in this crate, is that the response of a run is stored as the policy decides
//! unless it is marked, *for this very run*, as one of a run that did nothing. Two may set the mark:
//!
//! * **The lock layer directly inside**, put there by [`IdempotencyLayer::with_lock`]. It refuses before it calls the
//!   inner service, and no layer in between might have done something: the compiler checks that.
//! * **The owner of the run's [`Idempotent`]**, a handler or a layer in between, by [`Idempotent::not_processed`]. The
//!   layer trusts it.
//!
//! No other response has the mark, whatever its text says. These refusals may all come after an effect, and the layer
//! cannot tell:
//!
//! | a refusal | may come |
//! |---|---|
//! | of a `RedlockLayer` further in, or in a `route_layer` of its own | behind a layer that has charged the customer |
//! | of a service with a lock that the handler calls | from a handler that has charged the customer |
//! | of the extractor `Locked` | half-way through a handler, where `parts.extract()` is the same call as for an argument |
//! | made by [`Rejection::to_response`](crate::layer::Rejection::to_response) | from anywhere |
//! | of an idempotency layer further in, with other callers | behind a layer that has charged the customer |
//!
//! They are stored if the policy stores their status, which it does with the 409 of a held lock, and the log has a
//! warning then. A handler that needs a `Locked` before it does anything takes it as a `Result`, and sets the mark:
//!
//! ```
//! # #[cfg(feature = "axum")] mod example {
//! use axum::extract::rejection::PathRejection;
//! use axum::response::{IntoResponse, Response};
//! # use axum::extract::{FromRequestParts, Path};
//! # use http::request::Parts;
//! use tower_redlock::extract::LockedRejection;
//! use tower_redlock::Locked;
//! use tower_redlock::idempotency::Idempotent;
//! # use tower_redlock::extract::AsLockKeys;
//! # use tower_redlock::error::KeyError;
//! # use tower_redlock::key::LockKeys;
//! # use tower_redlock::LockKey;
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
//! The [policy](RecordPolicy) sees only the response and not the effects: after a 503 that it does not store, a repeat
//! runs, whether the 503 is a handler's or an inner layer's.
//!
//! # Records
//!
//! A record is status, [headers](RecordedHeaders), body and trailers of a response, and the
//! [fingerprint](FingerprintHeaders) of the request: a hash, never the request. Bodies are stored up to
//! [1 MiB](IdempotencyLayer::max_response_body), in the memory of every node, for
//! [24 hours](IdempotencyLayer::retention). A million responses of 1 kB take 1.5 GB on each node (a table in
//! `docs::operations` of the guide has the rest); a node that may not evict (and none may) refuses writes when it is
//! full. The key on the nodes is a hash of method, host, route, caller and the client's key; responses are not
//! encrypted, so every reader of the nodes can read them.
//!
//! The end of a record is fixed when it is first written, and [goes with it](crate::LockManager::begin_idempotent) to
//! every node that gets it later: a repeat neither gets it for longer, nor runs earlier, than the retention and the
//! differences of the clocks of nodes and processes.
//!
//! A response goes out once a quorum has it. The other nodes get it in the background, for a minute; a node that comes
//! back later gets it with the next request for it. So, of *N* nodes with a quorum of *q*:
//!
//! * *Once all nodes have it*, it survives that any *N - q* of them lose their data: 2 of 5. Every quorum then has a
//!   node with the record.
//! * *While only a quorum has it*, a single loss may be one too many: then a repeat may reach a quorum without the
//!   record, and runs. That is for the moment between the response and the copies, or for as long as nodes are down.
//! * [`mask_losses(f)`](crate::LockManagerBuilder::mask_losses) makes it survive *f* losses from the first moment on.
//! * *An append-only file* (`appendonly yes`) makes restarts harmless, except for the last second of a machine that
//!   loses power; `appendfsync always` covers that, too. Some servers read it with the rights of the default user,
//!   which must have them also if it is off (`docs::managed_redis` of the guide).
//!
//! The restart guard does not help here: it waits for locks to end, which takes seconds, and records last for a day. A
//! deployment that needs more than the two of five has its unique key in the database.
//!
//! # What a retry gets after a crash
//!
//! A process that is killed while a request runs leaves a lock behind, which ends by itself within one ttl. The next
//! request with the key, in any process, then gets:
//!
//! | the process ended | a retry | a second effect is excluded by |
//! |---|---|---|
//! | with the lock, before the handler | runs, within a ttl | there was none |
//! | in the handler, before its effect | runs again, within a ttl | there was none |
//! | in the handler, after its effect | **runs again**, within a ttl | a unique key in the database |
//! | after the handler, before a node had the record | **runs again**, within a ttl | a unique key in the database |
//! | with the record on fewer nodes than a quorum | gets the first response, which is stored on a quorum before; or, if none of those nodes is among the first that reply, **runs again**, within a ttl | a unique key in the database |
//! | with the record on a quorum, before its client had the response | gets the first response, at once | it does not run |
//! | not at all, but stood still for longer than a ttl, in the handler before its effect | **runs again**, within a ttl; the client of the first run gets `lock-lost` or `outcome-unknown` | a unique key, or the fencing token, in the transaction of the effect |
//! | not at all, but stood still for longer than a ttl, between its effect and the record | **runs again**, within a ttl; the nodes refuse the record of the first run, whose client gets `outcome-unknown` | a unique key in the database |
//!
//! In every case: once one client got a response, every other gets the same until the record ends, unless more nodes
//! lost it than [above](#records). A retry that runs again may have another result than the lost one, which then no
//! client has seen.
//!
//! So the effects of a handler should be safe to repeat. Where it writes to a database:
//!
//! * *A unique key*: the row of the effect has a column for the idempotency key (and the caller), with a unique index.
//!   The handler inserts it with `ON CONFLICT DO NOTHING`, in the same transaction as everything else that it does
//!   there, then reads the row that is there, and builds its response from it. This excludes every second effect.
//! * *The [fencing token](Idempotent::fence)*: the database stores the highest token of each key and refuses lower ones
//!   in the same transaction. This excludes a run that stood still and was overtaken. It does **not** exclude a retry
//!   after a crash, whose token is the greater one.
//!
//! Effects elsewhere, such as a call of a payment provider, need a key of their own that the other side stores; the
//! idempotency key, with the caller, is one.
//!
//! [draft]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/

pub mod caller;
mod collect;
mod exchange;
mod fingerprint;
mod idempotent;
mod key;
mod recorded;
mod scope;
mod service;
mod settings;
mod stored_response;

pub use fingerprint::FingerprintHeaders;
pub use idempotent::Idempotent;
pub use key::{IDEMPOTENCY_KEY, IdempotencyKey, IdempotencyKeyError};
pub use recorded::{
    DefaultRecordPolicy, IDEMPOTENT_REPLAYED, IDEMPOTENT_UNRECORDED, RecordPolicy, RecordedHeaders,
};
pub use service::{IdempotencyService, ResponseFuture, WithLock};
pub use settings::{IdempotencyLayer, OnUnrecorded};

#[cfg(test)]
mod tests;
