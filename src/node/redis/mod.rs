//! [`RedisNode`]: a Redis or Valkey server as a node. The guide says which servers can be one, which rights they need,
//! and how a server is identified (`docs::nodes`). A server that does not fit is *refused*: it gets no commands, and is
//! checked again from time to time.
//!
//! # Data on the server
//!
//! For the lock `order:42` in the namespace `lk`:
//!
//! | name | content |
//! |---|---|
//! | `lk:order:42` | the lock: the owner's token; expires with the lease |
//! | `lk!fence:order:42` | the counter of the lock's fencing tokens; expires |
//! | `lk!node` | the marker, a hash that shows whether the server still has its locks |
//! | `lk!dead:..` | a tombstone, for a minute: commands of this owner that were given up with a connection have no effect |
//! | `lk!free:order:42` | the channel on which releases are announced |
//! | `lk!idem:..`, with `lk!idem!..` | the locks of idempotency keys, with counters, tombstones and channels |
//! | `lk!idem!record:..` | the last owner of an idempotency key's lock and, once there is one, the stored response |
//!
//! # Connections
//!
//! A plain node sends all commands over one connection, called `tower-redlock` on the server. A second one,
//! `tower-redlock-notices`, carries the subscriptions to releases while a caller waits. A node that requires replicas
//! has several for commands; all commands of one owner go over the same one.
//!
//! # Failures
//!
//! | cause | effect |
//! |---|---|
//! | no connection | [`Unavailable`] at once |
//! | the connection breaks | [`Interrupted`]; new attempts after 0 to 50 ms, the bound doubling up to 2 s |
//! | the server does not reply | commands wait for their callers' deadlines; after one that is given up a `PING` is sent, and without a reply in 200 ms, or the node time-out if that is longer, the node is down |
//! | a restart, `SCRIPT FLUSH` | the scripts are loaded again, unnoticed by callers |
//! | most Sentinels do not confirm the master | [`Unavailable`], except for releases |
//! | the master becomes a replica | [`Rejected`] once, or noticed within a second; then the node is refused, or with Sentinel down until there is a master |
//! | it is promoted again | down for a moment, then quarantined |
//! | it is told to evict | refused within a second until that is mended; then quarantined if it evicted a key |
//! | it gets its first replica | said once in the log: from then on each script reads the server's identity |
//! | too few replicas acknowledge | [`NotReplicated`] for acquires, extensions and records; releases work |
//! | out of memory | acquires are [`Rejected`]; extensions and releases work |
//! | a key of another type | [`WrongType`] |
//!
//! [`Unavailable`]: super::NodeErrorKind::Unavailable
//! [`Interrupted`]: super::NodeErrorKind::Interrupted
//! [`Rejected`]: super::NodeErrorKind::Rejected
//! [`WrongType`]: super::NodeErrorKind::WrongType
//! [`NotReplicated`]: super::NodeErrorKind::NotReplicated

#[cfg(test)]
#[cfg(feature = "idempotency")]
#[path = "tests/any_reply.rs"]
mod any_reply;
mod builder;
mod connect;
pub(super) mod connection;
mod connections;
mod credentials;
mod discovery;
pub(super) mod error;
mod info;
mod listener;
mod look;
mod node;
pub(super) mod replicas;
pub(super) mod shared;
mod subscriptions;
mod supervisor;
mod transport;

pub use self::builder::RedisNodeBuilder;
pub use self::node::RedisNode;
pub use crate::settings::server::Credentials;
