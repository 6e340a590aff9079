//! A server that was found through Sentinels counts only while most of them stand by it.

use std::sync::Mutex;

use tower_redlock::FencingToken;
use tower_redlock::node::{
    CompleteReply, CompleteRequest, Fence, RaiseRequest, RecallRequest, Record,
};

use crate::support::fake::Fake;
use crate::support::nodes::{FAR, is_down, token};
use crate::support::requests::*;
use crate::support::sentinel::says;
use crate::*;

/// For how long the word of the Sentinels counts.
const WITHIN: Duration = Duration::from_secs(1);

const IDS: [&str; 3] = ["a", "b", "c"];

/// What a Sentinel says: the host and the port of the master, and the number of failovers.
type Said = Option<(&'static str, u16, u32)>;

/// Sentinels that say what the test has them say.
struct Watch {
    said: Arc<Mutex<[Said; 3]>>,
    fakes: Vec<Fake>,
}

impl Watch {
    async fn start(said: [Said; 3], ids: [&'static str; 3]) -> Self {
        let said = Arc::new(Mutex::new(said));
        let mut fakes = Vec::new();
        for (index, id) in ids.into_iter().enumerate() {
            let said = Arc::clone(&said);
            let fake = Fake::start(move |words| {
                let now = said.lock().unwrap()[index];
                now.map_or_else(String::new, |(host, port, epoch)| {
                    says(words, id, host, port, epoch)
                })
            });
            fakes.push(fake.await);
        }
        Self { said, fakes }
    }

    fn say(&self, said: [Said; 3]) {
        *self.said.lock().unwrap() = said;
    }

    fn builder(&self) -> RedisNode {
        let urls = self.fakes.iter().map(Fake::url);
        RedisNode::sentinel(urls, "mymaster").confirm_within(WITHIN)
    }
}

fn at(server: &Server) -> Said {
    Some(("127.0.0.1", server.port(), 0))
}

fn is_unavailable<T: std::fmt::Debug>(result: Result<T, NodeError>) -> bool {
    result.unwrap_err().kind() == NodeErrorKind::Unavailable
}

/// Whether nothing that counts can be had of the node, on any of its connections.
async fn counts_for_nothing(node: &LiveNode) {
    for owner in 0..16 {
        assert!(is_unavailable(node.acquire(acquire("other", owner)).await));
        let recall = RecallRequest::new(acquire("other", owner), false, LONG);
        assert!(is_unavailable(node.recall(recall).await));
        let renewed = node.extend(Arc::from([extend("k", owner)])).await;
        assert!(renewed.is_err() || renewed.unwrap().iter().all(Result::is_err));
        let record = Record::new(FencingToken::new(7).unwrap(), "done".into(), FAR);
        let complete = CompleteRequest::new(release("k", owner), Some(record));
        assert!(is_unavailable(node.complete(complete).await));
        let fence = Fence::new(FencingToken::new(9).unwrap(), LONG);
        let raise = RaiseRequest::new(key("k"), token(owner), fence);
        assert!(is_unavailable(node.raise(raise).await));
    }
}

#[tokio::test]
async fn without_most_of_its_sentinels_a_node_counts_for_nothing_and_takes_locks_back() {
    for lanes in [1, 4] {
        let server = Server::start(Kind::Redis, &[]);
        let watch = Watch::start([at(&server); 3], IDS).await;
        let node = ready(watch.builder().connections(lanes)).await;
        for owner in 0..8 {
            let granted = node.acquire(acquire(&format!("k{owner}"), owner)).await;
            assert_eq!(granted, GRANTED);
        }
        watch.say([at(&server), None, None]);
        let reason = down(&node, "most of its Sentinels").await;
        // Of a question that is still under way, or of one before it.
        let silent = ["has not answered since", "did not answer within"];
        let told = silent.iter().map(|words| reason.matches(words).count());
        assert_eq!(told.sum::<usize>(), 2, "{reason}");
        counts_for_nothing(&node).await;
        assert!(is_down(&node));
        for owner in 0..4 {
            let name = format!("k{owner}");
            let released = node.release(release(&name, owner)).await;
            assert_eq!(released, Ok(ReleaseReply::Released { listeners: 0 }));
        }
        for owner in 4..8 {
            let release = release(&format!("k{owner}"), owner);
            let complete = CompleteRequest::new(release, None);
            let freed = node.complete(complete).await;
            assert_eq!(freed, Ok(CompleteReply::Stored { listeners: 0 }));
        }
        // It is the same server, and the same connections.
        watch.say([at(&server), None, at(&server)]);
        settled(&node).await.unwrap();
        node.acquire(acquire("k0", 1)).await.unwrap();
    }
}

#[tokio::test]
async fn a_sentinel_behind_two_addresses_has_one_word() {
    let server = Server::start(Kind::Redis, &[]);
    let said = [at(&server), at(&server), None];
    let watch = Watch::start(said, ["a", "a", "b"]).await;
    let node = start(watch.builder());
    let reason = down(&node, "do not agree").await;
    assert!(reason.contains("the same Sentinel as"), "{reason}");
    watch.say([at(&server); 3]);
    settled(&node).await.unwrap();
}

#[tokio::test]
async fn sentinels_may_know_a_server_by_different_names() {
    let [old, new] = [(); 2].map(|()| Server::start(Kind::Redis, &[]));
    let names = |server: &Server, epoch| {
        let names = ["127.0.0.1", "localhost", "127.0.0.2"];
        names.map(|name| Some((name, server.port(), epoch)))
    };
    // The third cannot be reached by what its Sentinel calls it: the servers listen at 127.0.0.1.
    let watch = Watch::start(names(&old, 0), IDS).await;
    let node = ready(watch.builder()).await;
    watch.say(names(&new, 1));
    let has_moved = || connections(&old).is_empty() && !connections(&new).is_empty();
    eventually("it has left", has_moved).await;
    settled(&node).await.unwrap();
    node.acquire(acquire("k", 1)).await.unwrap();
}

#[test]
fn what_processes_must_have_alike_is_the_list_and_the_time() {
    let agreed = |urls: &[&str], millis| {
        let node = RedisNode::sentinel(urls, "m").confirm_within(Duration::from_millis(millis));
        node.build().unwrap().agreed()
    };
    let ours = agreed(&["redis://:pw@a", "redis://b"], 500);
    assert_eq!(
        ours,
        "master `m` as most of a:6379, b:6379 said within 500ms"
    );
    assert_eq!(ours, agreed(&["redis://B", "redis://u:other@A:6379"], 500));
    assert_ne!(ours, agreed(&["redis://a", "redis://c"], 500));
    assert_ne!(ours, agreed(&["redis://a", "redis://b"], 501));
    let plain = RedisNode::new("redis://a").build().unwrap();
    assert_eq!((plain.agreed(), plain.settle_time()), <_>::default());
    let node = RedisNode::sentinel(["redis://a"], "m").build().unwrap();
    assert_eq!(node.settle_time(), Duration::from_secs(3));
}
