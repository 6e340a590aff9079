//! Shorthands around nodes.

use super::requests::*;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tower_redlock::clock::{Clock as _, SystemClock};
use tower_redlock::node::{
    AcquireRequest, CheckInMode, CheckInReply, CheckInRequest, ClusterConfig, CompleteRequest,
    ExtendRequest, Fence, Namespace, Node, NodeContext, NodeError, NodeKey, NodeState,
    NoticeReceiver, OwnerToken, PromoteRequest, RaiseRequest, RecallRequest, Record,
    ReleaseRequest, ServerRegistry, Subscription,
};
use tower_redlock::node::{LiveNode, RedisNode};
use tower_redlock::{FencingToken, LockKey};

use super::{PATIENCE, eventually};

/// A ttl that no test outlives.
pub const LONG: Duration = Duration::from_secs(600);

pub fn context() -> NodeContext {
    context_with(ServerRegistry::new())
}

pub fn context_with(registry: ServerRegistry) -> NodeContext {
    NodeContext::new(Arc::new(SystemClock::new()), registry)
}

/// The end of a record that no test outlives: the year 2100, in milliseconds since 1970.
pub const FAR: u64 = 4_102_444_800_000;

/// What the clock of this machine shows, in milliseconds since 1970.
pub fn unix_millis() -> u64 {
    SystemClock::new().unix_micros() / 1_000
}

/// A started node at `url`.
pub fn started(url: &str) -> LiveNode {
    let node = RedisNode::new(url).build().unwrap();
    node.start(context());
    node
}

/// A started node at `url` that takes commands.
pub async fn ready(url: &str) -> LiveNode {
    let node = started(url);
    settled(&node).await.unwrap();
    node
}

/// Waits until the node is ready or refused.
pub async fn settled(node: &dyn Node) -> Result<(), NodeError> {
    match timeout(PATIENCE, node.ready()).await {
        Ok(settled) => settled,
        Err(_) => panic!("neither ready nor refused: {node:?}"),
    }
}

/// Why a node at `url` is refused.
pub async fn refusal(node: &dyn Node) -> NodeError {
    let error = settled(node).await.unwrap_err();
    assert_eq!(node.state(), NodeState::Refused(error.clone()));
    error
}

pub fn is_down(node: &dyn Node) -> bool {
    matches!(node.state(), NodeState::Down(_))
}

/// The key `name` in the default namespace.
pub fn key(name: &str) -> NodeKey {
    Namespace::default().node_key(&LockKey::new(name).unwrap())
}

/// The token of the contender `number`.
pub fn token(number: u32) -> OwnerToken {
    let mut entropy = [0; OwnerToken::ENTROPY_LEN];
    entropy[..4].copy_from_slice(&number.to_be_bytes());
    OwnerToken::from_entropy(entropy)
}

pub fn acquire(name: &str, owner: u32) -> AcquireRequest {
    AcquireRequest::new(key(name), token(owner), LONG)
}

pub fn extend(name: &str, owner: u32) -> ExtendRequest {
    ExtendRequest::new(key(name), token(owner), LONG, false)
}

pub fn refill(name: &str, owner: u32) -> ExtendRequest {
    ExtendRequest::new(key(name), token(owner), LONG, true)
}

pub fn release(name: &str, owner: u32) -> ReleaseRequest {
    ReleaseRequest::new(key(name), token(owner), true)
}

/// Listens to the releases of `name` on `node` with a sender of `receiver`.
pub fn subscribe(node: &dyn Node, name: &str, receiver: &NoticeReceiver) -> Subscription {
    let notifier = node.notifier().unwrap();
    notifier.subscribe(&key(name), receiver.sender(0))
}

/// Listens to `key` on `node`, and has the server know it.
pub async fn listening(node: &dyn Node, key: &NodeKey) -> (NoticeReceiver, Subscription) {
    let receiver = NoticeReceiver::new(1);
    let notifier = node.notifier().unwrap();
    let subscription = notifier.subscribe(key, receiver.sender(0));
    eventually("open", || receiver.notices().open == 1).await;
    receiver.forget();
    (receiver, subscription)
}

/// Has a node vote; under what config, and a number to propose there.
pub async fn votes(node: &LiveNode) -> Result<(Arc<ClusterConfig>, Option<Fence>), NodeError> {
    let config = Arc::new(ClusterConfig::new("nodes a"));
    let fence = Some(Fence::new(FencingToken::new(1 << 60).unwrap(), LONG));
    let fresh = "fresh".to_owned();
    let check_in = CheckInRequest::new(
        Namespace::default(),
        Arc::clone(&config),
        LONG,
        fresh,
        CheckInMode::Normal,
    );
    if let CheckInReply::Quarantined { id, .. } = node.check_in(check_in).await? {
        let over = PromoteRequest::new(Namespace::default(), Arc::clone(&config), id, None);
        assert!(node.promote(over).await?);
    }
    Ok((config, fence))
}

/// Does to a node with a held lock `held` all that a manager does.
pub async fn serves(node: &LiveNode) -> Result<(), NodeError> {
    let (config, fence) = votes(node).await?;
    let full = |name, owner| {
        let request = acquire(name, owner).fenced(fence);
        request.under(Some(Arc::clone(&config)))
    };
    node.acquire(full("k", 1)).await?;
    // Again without the counter's being behind the proposal.
    node.acquire(full("k", 1)).await?;
    let higher = Fence::new(FencingToken::new(1 << 61).unwrap(), LONG);
    node.raise(RaiseRequest::new(key("k"), token(1), higher))
        .await?;
    node.acquire(full("held", 1)).await?;
    let renewal = refill("k", 1).fenced(fence);
    let renewal = renewal.under(Some(Arc::clone(&config)));
    node.extend(Arc::from([renewal])).await?.remove(0)?;
    node.release(release("k", 1)).await?;
    node.recall(RecallRequest::new(full("work", 1), false, LONG))
        .await?;
    let record = Record::new(FencingToken::new(1 << 62).unwrap(), "done".into(), FAR);
    node.complete(CompleteRequest::new(release("work", 1), Some(record)))
        .await?;
    Ok(())
}
