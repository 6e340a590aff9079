//! How much room things take on a server, beside what the docs say of it.

use futures_util::future::join_all;
use tower_redlock::clock::{Clock as _, Moment, SystemClock};
use tower_redlock::node::{
    AcquireRequest, CompleteRequest, Fence, Label, Namespace, Node as _, NodeKey, NoticeReceiver,
    RecallRequest, Record, ReleaseRequest, Subscription,
};
use tower_redlock::{FencingToken, LockKey};

use crate::support::requests::*;
use crate::support::{PATIENCE, nodes};
use crate::*;

const DOCS: &str = include_str!("../../src/docs/errors.md");
const HOUR: Duration = Duration::from_secs(3_600);
/// Of each thing; in the middle between the numbers at which a server's tables grow.
const COUNT: u32 = 3_000;
/// Of processes.
const FEW: u32 = 30;
const BODY: usize = 1_000;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    Lock,
    Counter,
    LongCounter,
    Grant,
    RequestCounter,
    Record,
    Tombstone,
    Subscription,
    Process,
}

/// How the row of each begins in the docs.
#[rustfmt::skip]
const THINGS: [(Thing, &str); 9] = [
    (Thing::Lock, "a lock that is held"),
    (Thing::Counter, "the counter of a key"),
    (Thing::LongCounter, "the counter of a key of 512 bytes"),
    (Thing::Grant, "a request with an idempotency key: the last owner of its lock"),
    (Thing::RequestCounter, "its counter"),
    (Thing::Record, "its stored response, without the bytes of the response itself"),
    (Thing::Tombstone, "the tombstone of an owner"),
    (Thing::Subscription, "a key with waiting callers, for each process"),
    (Thing::Process, "a process, with its three connections"),
];

impl Thing {
    fn key(self, number: u32) -> NodeKey {
        let (namespace, key) = match self {
            Self::Grant | Self::RequestCounter | Self::Record => {
                let key = format!("idempotency:{number:064}");
                (Namespace::default().idempotency(), key)
            }
            Self::LongCounter => (Namespace::default(), format!("{number:0512}")),
            _ => (Namespace::default(), format!("order:{number:08}")),
        };
        namespace.node_key(&LockKey::new(key).unwrap())
    }
}

/// A node that is ready, and by when its connection was not there yet.
struct Bench {
    node: LiveNode,
    before: Moment,
    receiver: NoticeReceiver,
}

impl Bench {
    async fn start(server: &Server) -> Self {
        let before = SystemClock::new().now();
        let node = RedisNode::new(&server.url()).build().unwrap();
        let mut context = context();
        context.node_timeout = PATIENCE;
        node.start(context);
        settled(&node).await.unwrap();
        Self {
            node,
            before,
            receiver: NoticeReceiver::new(1),
        }
    }

    /// Makes one of `thing`; what must be kept for it to last.
    async fn make(&self, thing: Thing, number: u32) -> Option<Subscription> {
        let label = Label::new("orders-7d9f-abc12@1").unwrap();
        let token = nodes::token(number).labelled(&label);
        let (node, key) = (&self.node, thing.key(number));
        let numbered = matches!(
            thing,
            Thing::Counter | Thing::LongCounter | Thing::RequestCounter
        );
        let number = FencingToken::new(1_800_000_000_000_000_000);
        let fence = number.map(|number| Fence::new(number, HOUR));
        let lock = AcquireRequest::new(key.clone(), token, HOUR);
        let lock = lock.fenced(fence.filter(|_| numbered));
        let release = ReleaseRequest::new(key.clone(), token, false);
        match thing {
            Thing::Lock => drop(node.acquire(lock).await.unwrap()),
            Thing::Counter | Thing::LongCounter | Thing::RequestCounter => {
                node.acquire(lock).await.unwrap();
                node.release(release).await.unwrap();
            }
            Thing::Grant => {
                let recall = RecallRequest::new(lock, false, HOUR);
                node.recall(recall).await.unwrap();
                node.release(release).await.unwrap();
            }
            Thing::Record => {
                let recall = RecallRequest::new(lock, false, HOUR);
                node.recall(recall).await.unwrap();
                let record = Record::new(number.unwrap(), vec![b'x'; BODY].into(), nodes::FAR);
                let complete = CompleteRequest::new(release, Some(record));
                node.complete(complete).await.unwrap();
            }
            Thing::Tombstone => drop(node.release(release.since(self.before)).await.unwrap()),
            Thing::Subscription => {
                let notifier = node.notifier().unwrap();
                return Some(notifier.subscribe(&key, self.receiver.sender(0)));
            }
            Thing::Process => {}
        }
        None
    }
}

fn used(server: &Server) -> u64 {
    server.info("used_memory").parse().unwrap()
}

async fn await_channels(server: &Server, count: usize) {
    let channels = || server.run("PUBSUB CHANNELS *").lines().count() == count;
    eventually("all subscribed", channels).await;
}

/// How many bytes one of `thing` takes; of an answer, without its body.
async fn measure(kind: Kind, thing: Thing) -> u64 {
    let server = Server::start(kind, &[]);
    let bench = Bench::start(&server).await;
    // What is there once for all, and the buffers of the connection.
    let warm = join_all((0..100).map(|n| bench.make(thing, COUNT + n))).await;
    let before = used(&server);
    if thing == Thing::Process {
        let mut processes = Vec::new();
        for number in 0..FEW {
            let process = Bench::start(&server).await;
            let waits = process.make(Thing::Subscription, number).await;
            processes.push((process, waits));
        }
        await_channels(&server, processes.len()).await;
        return (used(&server) - before) / u64::from(FEW);
    }
    let kept = join_all((0..COUNT).map(|number| bench.make(thing, number))).await;
    if thing == Thing::Subscription {
        await_channels(&server, kept.len() + warm.len()).await;
    }
    let bytes = (used(&server) - before) / u64::from(COUNT);
    match thing {
        Thing::Record => bytes - u64::try_from(BODY).unwrap(),
        _ => bytes,
    }
}

/// The bytes on Redis and on Valkey that the docs tell in this row.
fn documented(row: &str) -> [u64; 2] {
    let (_, section) = DOCS.split_once("# Room on the nodes").unwrap();
    let rest = section.split_once(&format!("| {row} |"));
    let (_, rest) = rest.unwrap_or_else(|| panic!("the docs have no row `{row}`"));
    let mut cells = rest.lines().next().unwrap().split('|').map(str::trim);
    let mut bytes = || cells.next().unwrap().parse().unwrap();
    [bytes(), bytes()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn things_take_about_as_much_room_as_the_docs_say() {
    let (mut table, mut right) = (String::new(), true);
    for (thing, row) in THINGS {
        let said = documented(row);
        let mut bytes = [0; 2];
        for (bytes, kind) in bytes.iter_mut().zip(Kind::ALL) {
            *bytes = measure(kind, thing).await;
        }
        // Other versions of the servers are a little thriftier, or less so.
        let mut pairs = bytes.iter().zip(said);
        right &= pairs.all(|(bytes, said)| (said / 2..=said * 2).contains(bytes));
        let [redis, valkey] = bytes;
        table += &format!("| {row} | {redis} | {valkey} |\n");
    }
    assert!(right, "measured:\n{table}");
}
