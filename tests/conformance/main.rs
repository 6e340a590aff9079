//! One suite of claims about the `Node` port, run over every kind of node: real servers, started for each claim.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[path = "../support/mod.rs"]
mod support;

mod claims;

use std::sync::Arc;

use claims::{Bench, Remote};
use support::PATIENCE;
use support::nodes;
use support::server::{Kind, Server};
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::node::redis::RedisNode;
use tower_redlock::node::{Ears, Node, Notifier};

/// A node on a server of its own.
struct Real {
    server: Server,
    node: RedisNode,
    // Only there to acknowledge.
    _replica: Option<Server>,
}

impl Real {
    async fn start(kind: Kind) -> Self {
        let server = Server::start(kind, &[]);
        let node = nodes::ready(&server.url()).await;
        Self {
            server,
            node,
            _replica: None,
        }
    }

    /// The same with a replica that must acknowledge.
    async fn replicated(kind: Kind) -> Self {
        let server = Server::start(kind, &[]);
        let replica = Server::replica_of(&server, &[]);
        let builder = RedisNode::replicated(&server.url());
        let node = builder.within(PATIENCE).build().unwrap();
        let mut context = nodes::context();
        context.node_timeout = 2 * PATIENCE;
        node.start(context);
        nodes::settled(&node).await.unwrap();
        Self {
            server,
            node,
            _replica: Some(replica),
        }
    }
}

impl Bench for Real {
    const REMOTE: bool = true;

    fn node(&self) -> Arc<dyn Node> {
        Arc::new(self.node.clone())
    }

    fn listen(&self, name: &str) -> Box<dyn Send> {
        Box::new(self.server.subscribe(&nodes::key(name).channel()))
    }
}

impl Remote for Real {
    fn set_forever(&self, name: &str) {
        self.server
            .command(&["SET", nodes::key(name).as_str(), "foreign"]);
    }
}

impl Bench for MemoryNode {
    const REMOTE: bool = false;

    fn node(&self) -> Arc<dyn Node> {
        Arc::new(self.clone())
    }

    fn listen(&self, name: &str) -> Box<dyn Send> {
        Box::new(Notifier::subscribe(
            self,
            &nodes::key(name),
            Ears::new(1).ear(0),
        ))
    }
}

/// A started node in this process.
fn memory() -> MemoryNode {
    let node = MemoryNode::new("memory");
    node.start(nodes::context());
    node
}

/// Makes a module of tests, one per claim, each over a fresh bench.
macro_rules! hold {
    ($module:ident, $bench:expr, [$($claim:ident,)*]) => {
        mod $module {
            use super::*;

            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $claim() {
                    claims::$claim(&$bench).await;
                }
            )*
        }
    };
}

macro_rules! all_claims {
    ($($module:ident: $bench:expr;)*) => {
        $(
            hold!($module, $bench, [
                a_free_key_is_granted,
                a_held_key_is_refused_and_tells_how_long,
                a_tag_tells_holders_apart,
                the_same_token_is_granted_again_for_a_full_ttl,
                a_lock_ends_with_its_ttl,
                only_the_owner_releases,
                a_release_tells_its_listeners,
                a_listener_hears_of_a_release_and_how_many_listen,
                a_release_that_is_not_announced_tells_nobody,
                of_two_listeners_to_one_key_each_hears_until_it_leaves,
                an_own_lock_is_extended,
                an_absent_lock_is_left_absent_unless_refilled,
                anothers_lock_is_neither_extended_nor_refilled,
                a_batch_is_answered_in_order,
                keys_do_not_touch_each_other,
                a_dropped_acquire_and_a_release_leave_no_key,
                nothing_happens_before_the_first_poll,
            ]);
        )*
    };
}

/// What only a server can show.
macro_rules! remote_claims {
    ($($module:ident: $bench:expr;)*) => {
        $(
            hold!($module, $bench, [
                a_foreign_key_without_expiry_has_no_remaining_time,
                a_closed_node_says_so,
            ]);
        )*
    };
}

all_claims! {
    memory: memory();
    redis: Real::start(Kind::Redis).await;
    valkey: Real::start(Kind::Valkey).await;
    replicated: Real::replicated(Kind::Redis).await;
}

remote_claims! {
    remote_redis: Real::start(Kind::Redis).await;
    remote_valkey: Real::start(Kind::Valkey).await;
}
