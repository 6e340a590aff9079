//! [`RedisNode`]: a Redis or Valkey server as a node. A server that does not fit is *refused*: it gets no commands and
//! is checked again from time to time.
//!
//! # Data on the server
//!
//! These keys and channels belong to the lock `order:42` in the namespace `lk`:
//!
//! | name | content |
//! |---|---|
//! | `lk:order:42` | the lock: the owner token, which is 40 hexadecimal digits, then `:` and the [instance](crate::Settings::instance) of its holder; expires with the lease |
//! | `lk:order:42`, shared by readers | forty zeros and `:shared`, then for each reader a blank, its token, a blank and its end in milliseconds since 1970; expires with the last reader |
//! | `lk!writer:order:42` | forty zeros and `:waiting`, then in the same format the writers that wait |
//! | `lk!fence:order:42` | the counter of the lock's fencing tokens; expires |
//! | `lk!node` | the marker, a hash that shows whether the server still has its locks |
//! | `lk!dead:..` | the tombstone of an owner, which voids its late commands; expires after a minute |
//! | `lk!taken:order:42` | a tombstone for all readers of the key, written when an operator takes it |
//! | `lk!free:order:42` | the channel on which releases are announced, each with the milliseconds that its holder had waited |
//! | `lk!permit:order:42:SLOT` | a permit slot, which is a lock with the counter `lk!permit!fence:order:42:SLOT`; all slots share the channel `lk!permit!free:order:42` |
//! | `lk!idem:..`, with `lk!idem!..` | the locks of idempotency keys, with counters and channels |
//! | `lk!idem!record:..` | the last owner of an idempotency key's lock and, if there is one, the stored response |
//!
//! # Connections
//!
//! The commands of callers use one connection on their runtime, or several if replicas are required. Renewals and other
//! work of the manager's thread use another one. On the server both have the name `tower-redlock`. While callers wait,
//! `tower-redlock-notices` carries the subscriptions.

mod access;
#[cfg(test)]
#[cfg(feature = "idempotency")]
#[path = "tests/any_reply.rs"]
mod any_reply;
mod config;
mod connect;
pub(super) mod connection;
mod connections;
mod discovery;
pub(super) mod error;
mod info;
pub(super) mod link;
mod listener;
mod rights;
mod subscriptions;
mod supervisor;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

pub use self::config::RedisNode;
use crate::namespace::{Namespace, NodeKey, NodeKeys};
#[cfg(feature = "idempotency")]
use crate::node::commands::records;
use crate::node::commands::{acquire, extend, holders, raise, release, voting};
use crate::node::redis::connections::BACKGROUND;
use crate::node::redis::discovery::cluster::Cluster;
use crate::node::redis::discovery::confirmation::Address;
use crate::node::redis::discovery::witnesses::{Source, Witnesses};
use crate::node::redis::link::Link;
use crate::node::{
    AcquireReply, AcquireRequest, CheckInReply, CheckInRequest, ExtendReplies, ExtendRequest,
    KeyReply, Node, NodeContext, NodeError, NodeFuture, NodeState, NoticeSender, Notifier,
    PromoteRequest, RaiseReply, RaiseRequest, ReleaseReply, ReleaseRequest, ScanReply, ScanRequest,
    ServerStatus, Subscription, TakeOverRequest,
};
#[cfg(feature = "idempotency")]
use crate::node::{CompleteReply, CompleteRequest, RecallRequest};
use crate::seam;
pub use crate::settings::server::Credentials;

/// A running [`RedisNode`]. Clones share one node.
#[derive(Clone)]
pub struct LiveNode {
    handle: Arc<Owned>,
}

impl Node for LiveNode {
    fn name(&self) -> &str {
        &self.handle.link.name
    }

    #[cfg(feature = "idempotency")]
    fn has_room(&self, bytes: u64) -> bool {
        self.handle.link.memory.has_room(bytes)
    }

    fn start(&self, context: NodeContext) {
        let link = Arc::clone(&self.handle.link);
        if link.begin() {
            let background = context.background.clone();
            let background = background.unwrap_or_else(Handle::current);
            link.target.rotation.begin(Handle::current());
            if let Some(replicas) = &link.replicas {
                replicas.begin(&context);
            }
            seam::spawn(listener::listen(Arc::clone(&link)));
            if let Some(witnesses) = link.target.way.witnesses() {
                witnesses.begin(&context);
                ask_witnesses(&link, witnesses, &background);
            }
            for index in 0..link.connections.count() {
                let link = Arc::clone(&link);
                let work = supervisor::supervise(link, index, context.clone());
                match index {
                    BACKGROUND => seam::spawn_in_background(&background, work),
                    _ => seam::spawn(work),
                };
            }
        }
    }

    fn state(&self) -> NodeState {
        self.handle.link.connections.state()
    }

    fn server(&self) -> Option<ServerStatus> {
        let link = &self.handle.link;
        let connection = link.connections.connection(BACKGROUND).ok()?;
        let address = &connection.signals().address;
        Some(
            connection
                .info()
                .status(address, link.skew.ahead(), link.memory.is_full()),
        )
    }

    fn ready(&self) -> NodeFuture<Result<(), NodeError>> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move { handle.link.ready().await })
    }

    fn acquire(&self, mut request: AcquireRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        handle.link.place(&mut request.keys);
        Box::pin(async move { acquire::on_redis::acquire(&handle.link, &request).await })
    }

    fn extend(&self, mut requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies> {
        let handle = Arc::clone(&self.handle);
        if handle.link.target.tag.is_some() {
            for request in Arc::make_mut(&mut requests) {
                handle.link.place(&mut request.keys);
            }
        }
        Box::pin(async move { extend::on_redis::extend(&handle.link, &requests).await })
    }

    fn release(&self, mut request: ReleaseRequest) -> NodeFuture<Result<ReleaseReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        handle.link.place(&mut request.keys);
        Box::pin(async move { release::on_redis::release(&handle.link, &request).await })
    }

    fn raise(&self, mut request: RaiseRequest) -> NodeFuture<Result<RaiseReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        handle.link.place(&mut request.keys);
        Box::pin(async move { raise::on_redis::raise(&handle.link, &request).await })
    }

    #[cfg(feature = "idempotency")]
    fn recall(&self, mut request: RecallRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        handle.link.place(&mut request.lock.keys);
        Box::pin(async move { records::on_redis::recall(&handle.link, &request).await })
    }

    #[cfg(feature = "idempotency")]
    fn complete(
        &self,
        mut request: CompleteRequest,
    ) -> NodeFuture<Result<CompleteReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        handle.link.place(&mut request.release.keys);
        Box::pin(async move { records::on_redis::complete(&handle.link, &request).await })
    }

    fn check_in(&self, mut request: CheckInRequest) -> NodeFuture<Result<CheckInReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        handle.link.place_namespace(&mut request.namespace);
        Box::pin(async move { voting::on_redis::check_in(&handle.link, &request).await })
    }

    fn promote(&self, mut request: PromoteRequest) -> NodeFuture<Result<bool, NodeError>> {
        let handle = Arc::clone(&self.handle);
        handle.link.place_namespace(&mut request.namespace);
        Box::pin(async move { voting::on_redis::promote(&handle.link, &request).await })
    }

    fn holders(&self, mut keys: NodeKeys) -> NodeFuture<Result<Vec<KeyReply>, NodeError>> {
        let handle = Arc::clone(&self.handle);
        handle.link.place(&mut keys);
        Box::pin(async move { holders::on_redis::holders(&handle.link, &keys).await })
    }

    fn scan(&self, mut request: ScanRequest) -> NodeFuture<Result<ScanReply, NodeError>> {
        let handle = Arc::clone(&self.handle);
        handle.link.place_namespace(&mut request.namespace);
        Box::pin(async move { holders::on_redis::scan(&handle.link, &request).await })
    }

    fn take_over(
        &self,
        mut request: TakeOverRequest,
    ) -> NodeFuture<Result<Option<Duration>, NodeError>> {
        let handle = Arc::clone(&self.handle);
        handle.link.place(&mut request.keys);
        Box::pin(async move { holders::on_redis::take_over(&handle.link, &request).await })
    }

    fn settle_time(&self) -> Duration {
        let witnesses = self.handle.link.target.way.witnesses();
        witnesses.map_or(Duration::ZERO, |witnesses| witnesses.reach.within)
    }

    fn agreed(&self) -> String {
        let link = &self.handle.link;
        let witnesses = link.target.way.witnesses();
        let confirmed = witnesses.map(Witnesses::agreed).into_iter();
        let durable = link.is_durable.then(|| "durable".to_owned());
        Vec::from_iter(confirmed.chain(durable)).join(", ")
    }

    fn close(&self) -> NodeFuture<()> {
        let handle = Arc::clone(&self.handle);
        Box::pin(async move {
            handle.link.stop();
            handle.link.connections.ended().await;
        })
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        Some(Arc::new(self.clone()))
    }
}

impl LiveNode {
    pub(super) fn of(link: Link) -> Self {
        Self {
            handle: Arc::new(Owned {
                link: Arc::new(link),
            }),
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.handle.link.target.address
    }

    pub(crate) fn rules(&self, namespace: &Namespace, reads_only: bool) -> Vec<(String, String)> {
        rights::rules(&self.handle.link, namespace, reads_only)
    }
}

fn ask_witnesses(link: &Arc<Link>, witnesses: &Witnesses, background: &Handle) {
    match &witnesses.source {
        Source::Sentinels(sentinels) => {
            for index in 0..sentinels.listed.len() {
                seam::spawn_in_background(background, ask_sentinel(Arc::clone(link), index));
            }
        }
        // The first node of a cluster asks for all its nodes.
        Source::Cluster(cluster, slot) if cluster.is_first(*slot) => {
            let ask = ask_cluster(Arc::clone(link), Arc::clone(cluster), background.clone());
            seam::spawn_in_background(background, ask);
        }
        Source::Cluster(..) => {}
    }
}

async fn ask_sentinel(link: Arc<Link>, index: usize) {
    if let Some(witnesses) = link.target.way.witnesses() {
        let limit = witnesses.reach.limit(link.connect_timeout);
        let ask = witnesses.ask_sentinel(index, limit, |text| link.clean(text));
        link.until_closing(ask).await;
    }
}

async fn ask_cluster(link: Arc<Link>, cluster: Arc<Cluster>, background: Handle) {
    let find = async {
        // Wait for credentials, because a refusal for lack of them would count as an answer.
        while link.credentials().await.is_err() {
            sleep(cluster.reach.pause()).await;
        }
        loop {
            let address = cluster.next_to_ask().await;
            let ask = ask_server(Arc::clone(&link), Arc::clone(&cluster), address);
            seam::spawn_in_background(&background, ask);
        }
    };
    link.until_closing(find).await;
}

async fn ask_server(link: Arc<Link>, cluster: Arc<Cluster>, address: Address) {
    let limit = cluster.reach.limit(link.connect_timeout);
    let ask = cluster.ask_on(&address, limit, |text| link.clean(text));
    link.until_closing(ask).await;
}

impl Notifier for LiveNode {
    fn subscribe(&self, key: &NodeKey, sender: NoticeSender) -> Subscription {
        let mut keys = NodeKeys::from(key.clone());
        self.handle.link.place(&mut keys);
        self.handle
            .link
            .subscriptions
            .subscribe(keys.first(), sender)
    }
}

impl fmt::Debug for LiveNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the client, which contains the credentials.
        f.debug_struct("RedisNode")
            .field("name", &self.handle.link.name)
            .field("state", &self.handle.link.connections.state())
            .finish_non_exhaustive()
    }
}

/// Shared by the clones of a node and its commands. Supervisors hold only the [`Link`], so that they end when the last
/// handle is dropped.
struct Owned {
    link: Arc<Link>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.link.stop();
    }
}
