//! [`RedisNode`]: a Redis or Valkey server as a node.
//!
//! It must be Redis 6.2 or later, or any Valkey: a master of its own, not in cluster mode, with `maxmemory-policy
//! noeviction`. Any other server is *refused*: it gets no commands, the [state](super::Node::state) of the node says
//! what to change, and the server is checked again from time to time. The rights that the user needs, and what does not
//! work without each: `docs::nodes` of the guide, "The rights".
//!
//! # Data on the server
//!
//! For the lock `order:42` in the namespace `lk`:
//!
//! | name | content |
//! |---|---|
//! | `lk:order:42` | the lock: the owner's token; expires with the lease. Other Redlock clients use the same form, so they exclude us and we exclude them; but they know nothing of the restart guard and of fencing tokens |
//! | `lk!fence:order:42` | the counter of the lock's fencing tokens; expires |
//! | `lk!node` | the marker, a hash that shows whether the server still has its locks. Who changes it by hand deletes it as a whole: its field `vote` stands for what was found in the others |
//! | `lk!dead:..` | a tombstone, for a minute: commands of this owner that were given up with a connection have no effect |
//! | `lk!free:order:42` | the channel on which releases are announced |
//! | `lk!idem:..`, with `lk!idem!..` | the locks of idempotency keys, with counters, tombstones and channels like those of other locks |
//! | `lk!idem!record:..` | the last owner of an idempotency key's lock and, once there is one, the stored response, in one text of about its size |
//!
//! # Connections
//!
//! A plain node sends all commands over one connection, called `tower-redlock` on the server. A second one,
//! `tower-redlock-notices`, carries the subscriptions to releases; it is made when a caller first waits for a lock, and
//! made again only while one waits. A node that [requires replicas](#replicas) has several connections for commands;
//! all commands of one acquire round go over the same one, and the state of the node is that of its worst connection.
//!
//! # Replicas
//!
//! A replica may take its master's place without having its locks. So a failover, or a failback, counts as a loss of
//! data: a server is identified by its process and its last promotion, which are checked every second, and by each
//! script once a check has seen a replica. Where replicas are [expected](RedisNodeBuilder::expect_replicas) or
//! [required](RedisNodeBuilder::require), or the server is found through Sentinel, each script checks from the
//! beginning (`docs::nodes` of the guide, "The identity of a server").
//!
//! A master that dies takes with it what its replicas do not have yet, and its successor grants the same lock again.
//! With [`RedisNode::replicated`] acquires, renewals and records count only if replicas acknowledge them in time
//! (`WAIT`, which needs the right `+wait`). What that proves: [`RedisNodeBuilder::require`].
//!
//! # Sentinel
//!
//! [`RedisNode::sentinel`] is one node, wherever its master is. Each listed Sentinel is asked about twice a second, and
//! a server is the node only while more than half of *those listed* named it a short time ago. Otherwise the node is
//! down, with the reason in its state and in the log: it only releases. The node leaves a server that is demoted at the
//! first `READONLY`, and one that was replaced without knowing it. A failover counts as a *loss of data*, because
//! Sentinel does not look at the data when it chooses a master. Both sides of a partition:
//! [`RedisNodeBuilder::confirm_within`].
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
//! | it is promoted again | down for a moment, then quarantined: it has another server's data |
//! | it is told to evict | refused within a second until that is mended; then quarantined if it evicted anything |
//! | it gets its first replica | noticed within a second, and said once in the log: from then on each script reads the server's identity |
//! | too few replicas acknowledge | [`NotReplicated`] for acquires (the key is released), renewals and records (stored or returned); releases work |
//! | out of memory | acquires are [`Rejected`]; renewals and releases work |
//! | the connection for notices breaks | waiters learn that they may have missed one, and try again once it is back; commands are not affected |
//! | a key of another type | [`WrongType`] |
//!
//! [`Unavailable`]: super::NodeErrorKind::Unavailable
//! [`Interrupted`]: super::NodeErrorKind::Interrupted
//! [`Rejected`]: super::NodeErrorKind::Rejected
//! [`WrongType`]: super::NodeErrorKind::WrongType
//! [`NotReplicated`]: super::NodeErrorKind::NotReplicated

#[cfg(test)]
mod any_reply;
mod builder;
mod commands;
mod connect;
mod connection;
mod connections;
mod credentials;
mod discovery;
mod error;
mod info;
mod listener;
mod look;
mod node;
mod replicas;
mod replies;
mod script;
mod scripts;
mod shared;
mod subscriptions;
mod supervisor;
mod transport;

pub use self::builder::RedisNodeBuilder;
pub use self::node::RedisNode;
pub use crate::settings::credentials::Credentials;
