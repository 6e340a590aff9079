//! The quick way of an acquire beside the general one, which is taken where the marker has no vote.

use std::sync::Arc;

use tower_redlock::node::redis::RedisNode;
use tower_redlock::node::{
    AcquireReply, AcquireRequest, CheckInMode, CheckInReply, CheckInRequest, ClusterConfig, Fence,
    Namespace, Node as _, NodeError, NodeKey, PromoteRequest, RaiseRequest, ReleaseRequest,
};
use tower_redlock::{FencingToken, LockKey};

use crate::support::nodes::{LONG, ready, token, unix_millis};
use crate::support::server::{Kind, Server};

const STEPS: u32 = 1_500;
const HOUR: u64 = 3_600_000_000;

/// Numbers that follow from a seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// What happens to both.
#[derive(Clone, Debug)]
enum Step {
    Acquire(u64, u32, Option<u64>),
    Release(u64, u32),
    Raise(u64, u32, u64),
    Write(&'static str, u64, String),
}

impl Step {
    fn random(dice: &mut Dice, now: u64) -> Self {
        let (key, owner) = (dice.below(3), u32::try_from(dice.below(3)).unwrap());
        // Near each other, as of processes with other clocks, rarely far ahead; with hand-offs in the last digits.
        let micros = now + dice.below(50) + dice.below(30).saturating_sub(28) * 2 * HOUR;
        let number = (micros << 10) + dice.below(6).saturating_sub(2);
        match dice.below(20) {
            0..11 => Self::Acquire(key, owner, (dice.below(10) > 0).then_some(number)),
            11..16 => Self::Release(key, owner),
            16 | 17 => Self::Raise(key, owner, number),
            18 => Self::Write("fence", key, odd(dice, number)),
            _ => match dice.below(9) {
                0 => Self::Write("floor", key, odd(dice, number)),
                1 => Self::Write("hwm", key, odd(dice, number)),
                2..6 => Self::Write("floor", key, number.to_string()),
                _ => Self::Write("hwm", key, number.to_string()),
            },
        }
    }
}

/// What may stand in a counter that others can write to.
pub(crate) fn odd(dice: &mut Dice, number: u64) -> String {
    match dice.below(8) {
        0 => "abc".to_owned(),
        1 => "9223372036854773760".to_owned(),
        2 => "12".to_owned(),
        3 => format!("0{}", number / 10),
        _ => number.to_string(),
    }
}

/// A namespace of the server, in which the node votes.
pub(crate) struct Side<'a> {
    pub(crate) server: &'a Server,
    pub(crate) node: &'a RedisNode,
    pub(crate) namespace: Namespace,
    pub(crate) config: Arc<ClusterConfig>,
}

impl<'a> Side<'a> {
    pub(crate) async fn new(server: &'a Server, node: &'a RedisNode, name: &str) -> Self {
        let namespace = Namespace::new(name).unwrap();
        let config = Arc::new(ClusterConfig::new("nodes a"));
        let fresh = "first".to_owned();
        let asked = CheckInRequest::new(
            namespace.clone(),
            Arc::clone(&config),
            LONG,
            fresh,
            CheckInMode::Normal,
        );
        let CheckInReply::Quarantined { id, .. } = node.check_in(asked).await.unwrap() else {
            panic!("a new server votes");
        };
        let promote = PromoteRequest::new(namespace.clone(), Arc::clone(&config), id, None);
        assert!(node.promote(promote).await.unwrap());
        Self {
            server,
            node,
            namespace,
            config,
        }
    }

    fn key(&self, number: u64) -> NodeKey {
        self.namespace
            .node_key(&LockKey::new(format!("k{number}")).unwrap())
    }

    async fn run(&self, step: &Step) -> String {
        let fence = |number| Fence::new(FencingToken::new(number).unwrap(), LONG);
        match step {
            Step::Acquire(key, owner, number) => {
                let request = AcquireRequest::new(self.key(*key), token(*owner), LONG)
                    .under(Some(Arc::clone(&self.config)))
                    .fenced(number.map(fence));
                told(self.node.acquire(request).await)
            }
            Step::Release(key, owner) => {
                let request = ReleaseRequest::new(self.key(*key), token(*owner), true);
                format!("{:?}", self.node.release(request).await)
            }
            Step::Raise(key, owner, number) => {
                let request = RaiseRequest::new(self.key(*key), token(*owner), fence(*number))
                    .under(Some(Arc::clone(&self.config)));
                format!("{:?}", self.node.raise(request).await)
            }
            Step::Write("fence", key, text) => {
                let counter = self.key(*key).counter();
                self.server.command(&["SET", &counter, text])
            }
            Step::Write(field, _, text) => {
                let marker = self.namespace.marker();
                // A floor comes with a promotion, which the vote does not outlive.
                self.server.command(&["HDEL", &marker, "vote"]);
                self.server.command(&["HSET", &marker, field, text])
            }
        }
    }

    fn content(&self) -> Vec<String> {
        let mut content: Vec<String> = (0..3)
            .flat_map(|number| {
                let key = self.key(number);
                [key.as_str().to_owned(), key.counter()]
            })
            .map(|name| self.server.command(&["GET", &name]))
            .collect();
        let marker = self.namespace.marker();
        content.push(self.server.command(&["HMGET", &marker, "hwm", "floor"]));
        content
    }
}

/// A reply without the time that is left.
fn told(reply: Result<AcquireReply, NodeError>) -> String {
    match reply {
        Ok(AcquireReply::Held(holder)) => format!("held: {:?}, {:?}", holder.tag, holder.key),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn the_quick_way_decides_as_the_general_one() {
    let server = Server::start(Kind::Redis, &[]);
    let node = ready(&server.url()).await;
    let (quick, general) = (
        Side::new(&server, &node, "quick").await,
        Side::new(&server, &node, "general").await,
    );
    let mut dice = Dice(0x77777);
    let mut acquires = 0;
    for number in 0..STEPS {
        let step = Step::random(&mut dice, unix_millis() * 1_000);
        if matches!(step, Step::Acquire(..)) {
            acquires += 1;
            server.command(&["HDEL", &general.namespace.marker(), "vote"]);
        }
        assert_eq!(
            quick.run(&step).await,
            general.run(&step).await,
            "{number}: {step:?}"
        );
        assert_eq!(quick.content(), general.content(), "{number}: {step:?}");
    }
    // Only the general way asks for several keys at once, and so does a raise.
    let stats = server.run("INFO commandstats");
    let (_, calls) = stats.split_once("cmdstat_mget:calls=").unwrap();
    let calls: u32 = calls.split(',').next().unwrap().parse().unwrap();
    assert!(
        calls < acquires * 3 / 2 + STEPS / 10,
        "{acquires} acquires, {calls} in the general way or raises"
    );
}

/// A waiter is told who has the key and for how long, also where a new key would be refused.
#[tokio::test]
async fn a_key_that_is_held_is_said_to_be_held_by_a_server_that_takes_no_more_keys() {
    let server = Server::start(Kind::Redis, &[]);
    let node = ready(&server.url()).await;
    let side = Side::new(&server, &node, "full").await;
    let number = (unix_millis() * 1_000) << 10;
    let acquire = |owner| Step::Acquire(1, owner, Some(number));
    // The second finds the vote, which the first leaves.
    for step in [acquire(1), Step::Release(1, 1), acquire(1)] {
        side.run(&step).await;
    }
    let held = side.run(&acquire(2)).await;
    assert!(held.starts_with("held"), "{held}");
    // And by the plain `SET`.
    let bare = AcquireRequest::new(side.key(1), token(2), LONG);
    assert_eq!(told(node.acquire(bare.clone()).await), held);
    for (full, empty) in [
        ("maxmemory 1", "maxmemory 0"),
        ("min-replicas-to-write 1", "min-replicas-to-write 0"),
    ] {
        server.run(&format!("CONFIG SET {full}"));
        assert_eq!(side.run(&acquire(2)).await, held, "{full}");
        assert_eq!(told(node.acquire(bare.clone()).await), held, "{full}");
        server.run(&format!("CONFIG SET {empty}"));
    }
}

/// Anybody may write to the marker.
#[tokio::test]
async fn a_marker_that_says_nonsense_of_tombstones_stops_no_acquire() {
    let server = Server::start(Kind::Redis, &[]);
    let node = ready(&server.url()).await;
    let side = Side::new(&server, &node, "odd").await;
    let marker = side.namespace.marker();
    server.command(&["HSET", &marker, "dead", "yes"]);
    let number = (unix_millis() * 1_000) << 10;
    let granted = side.run(&Step::Acquire(1, 1, Some(number))).await;
    assert!(granted.contains("Granted"), "{granted}");
    assert_eq!(server.command(&["HEXISTS", &marker, "vote"]), "1");
    assert_eq!(server.command(&["HEXISTS", &marker, "dead"]), "0");
}
