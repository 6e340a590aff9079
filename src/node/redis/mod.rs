//! [`RedisNode`]: a Redis or Valkey server as a node.
//!
//! Any Redis from 6.2 on and any Valkey will do, as long as it is a server of its own: a master, not in cluster
//! mode, with `maxmemory-policy noeviction`. A server that is none of this is *refused*: it is never asked for a
//! lock, its state says what to change, and it is looked at again from time to time.
//!
//! # What is on the server
//!
//! The lock `order:42` in the namespace `lk` is the string key `lk:order:42`; it holds the owner's token and
//! expires by itself. That is the form every Redlock client uses, so a foreign client on the same key excludes us
//! and is excluded (it knows nothing of the restart guard and the counters, though). Beside the locks stand
//! `lk!fence:order:42`, the counter of the lock's holders, which expires; one hash `lk!node`, by which the server is
//! known to remember its locks; and for a minute `lk!dead:..`, an owner whose commands were given up with a
//! connection. Releases are announced on the channel `lk!free:order:42`. The locks of requests with idempotency keys
//! are called `lk!idem:..`, with sidecars `lk!idem!..` and channels `lk!idem!free:..`, and what such a request came to
//! is a hash `lk!idem!record:..`, of the size of its answer.
//!
//! # Rights
//!
//! Which rights a user of the server needs, and what is missing without each: `docs::managed_redis` of the guide, "The
//! rights".
//!
//! # Connections
//!
//! One connection carries all commands of a plain node. A second one is made when somebody waits for a lock for the
//! first time; it carries the subscriptions to releases and nothing else, and is made anew only while somebody waits.
//! On the server they are called `tower-redlock` and `tower-redlock-notices`.
//!
//! A node that [requires replicas](#replicas) has a few connections for commands, and all that belongs to one attempt
//! at a lock goes over one of them. [`state`](Node::state) is then that of the connection that is worst off.
//!
//! # Replicas
//!
//! A plain node has no replica, and is refused with one, for that may take its place and have none of its locks.
//! [`expect_replicas`](RedisNodeBuilder::expect_replicas) says that there may be some. After a failover the node is one
//! that forgot, and so it is after a failback: a server is known by its process and by its last promotion, and looked
//! at again every second (`docs::managed_redis` of the guide, "The identity of a server").
//!
//! A master that dies takes with it what its replicas have not got yet, and the one that takes its place grants the
//! same lock again. [`RedisNode::replicated`] asks for more than the master's word: acquires, renewals and records
//! count only if replicas acknowledge them in time (`WAIT`, for which the user needs the right `+wait`). What that
//! proves, and what it does not, is said at [`RedisNodeBuilder::require`].
//!
//! # Sentinel
//!
//! [`RedisNode::sentinel`] is one node wherever its master is. Each listed Sentinel is asked about twice a second, and
//! a server is this node only while more than half of *those listed* named it a short time ago. Without that the node
//! is down, which its state and one line in the log explain: it grants, extends and records nothing, and takes locks
//! back. It leaves a server that is demoted, at its first `READONLY`, and one that was replaced and does not know it. A
//! failover is to be taken for *a node that forgot its locks*: Sentinel chooses the new master without asking what it
//! has. What holds on both sides of a partition, and for how long, is said at [`RedisNodeBuilder::confirm_within`].
//!
//! # How it fails
//!
//! | what happens | what callers see |
//! |---|---|
//! | no connection | [`Unavailable`](super::NodeErrorKind::Unavailable), at once |
//! | the connection breaks | [`Interrupted`](super::NodeErrorKind::Interrupted); new attempts after 0 to 50 ms, the bound doubling up to 2 s |
//! | the server stops answering | commands wait for their callers' deadline; one that is given up leads to a `PING`, and without an answer in 200 ms the node is down |
//! | a restart, `SCRIPT FLUSH` | the scripts are loaded again; nothing is seen of it |
//! | most Sentinels do not confirm the master | [`Unavailable`](super::NodeErrorKind::Unavailable), but releases work |
//! | the master becomes a replica | [`Rejected`](super::NodeErrorKind::Rejected) once, then the node is refused, or with Sentinel down until there is a master; a second later also if nobody asks |
//! | it is promoted again | down for a moment, then quarantined: it has another's locks |
//! | it is told to evict, or is given a replica that nobody spoke of | refused within a second, until that is mended; then quarantined if it threw anything away |
//! | too few replicas acknowledge | [`NotReplicated`](super::NodeErrorKind::NotReplicated) for acquires, which are released, renewals, and records, told or kept; releases work |
//! | out of memory | acquires are [`Rejected`](super::NodeErrorKind::Rejected); extensions and releases work |
//! | the connection for release notices breaks | waiters are told that they may have missed one and ask again once it is back; commands see nothing of it |
//! | a key of another type | [`Rejected`](super::NodeErrorKind::Rejected) |

mod builder;
mod commands;
mod confirmation;
mod connect;
mod connect_failure;
mod connection;
mod connections;
mod error;
mod extend_parts;
mod info;
mod listener;
mod look;
mod node;
mod question;
mod replicas;
mod replies;
mod script;
mod scripts;
mod seat;
mod sentinel;
mod shared;
mod subscriptions;
mod supervisor;
mod target;
mod url;

pub use self::builder::RedisNodeBuilder;
pub use self::error::NodeUrlError;
pub use self::node::RedisNode;
