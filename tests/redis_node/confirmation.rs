//! A server that was found through Sentinels counts only while most of them stand by it.

use crate::support::requests::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower_redlock::FencingToken;
use tower_redlock::node::{
    AcquireReply, CompleteReply, CompleteRequest, Fence, Node, NodeError, NodeErrorKind, NodeState,
    RaiseRequest, RecallRequest, Record, ReleaseReply,
};
use tower_redlock::node::{LiveNode, RedisNode};

use crate::support::eventually;
use crate::support::fake::Fake;
use crate::support::nodes::{
    FAR, LONG, acquire, context, extend, is_down, key, refusal, release, settled, token,
};
use crate::support::sentinel::says;
use crate::support::server::{Kind, Server, free_port};

/// For how long the word of the Sentinels counts.
const WITHIN: Duration = Duration::from_secs(1);

/// What a Sentinel says: the host and the port of the master, and the number of failovers.
type Said = Option<(&'static str, u16, u32)>;

/// Sentinels that say what the test has them say.
struct Watch {
    said: Arc<Mutex<Vec<Said>>>,
    fakes: Vec<Fake>,
}

impl Watch {
    async fn start(said: &[Said]) -> Self {
        let ids: Vec<String> = (0..said.len()).map(|index| format!("s{index}")).collect();
        Self::start_as(said, &ids).await
    }

    async fn start_as(said: &[Said], ids: &[String]) -> Self {
        let said = Arc::new(Mutex::new(said.to_vec()));
        let mut fakes = Vec::new();
        for (index, id) in ids.iter().enumerate() {
            let (said, id) = (Arc::clone(&said), id.clone());
            let fake = Fake::start(move |words| {
                let now = said.lock().unwrap()[index];
                now.map_or_else(String::new, |(host, port, epoch)| {
                    says(words, &id, host, port, epoch)
                })
            });
            fakes.push(fake.await);
        }
        Self { said, fakes }
    }

    fn say(&self, said: &[Said]) {
        *self.said.lock().unwrap() = said.to_vec();
    }

    fn builder(&self) -> RedisNode {
        let urls = self.fakes.iter().map(Fake::url);
        RedisNode::sentinel(urls, "mymaster").confirm_within(WITHIN)
    }

    fn started(&self) -> LiveNode {
        start(self.builder())
    }
}

fn start(builder: RedisNode) -> LiveNode {
    let node = builder.build().unwrap();
    node.start(context());
    node
}

fn at(server: &Server) -> Said {
    Some(("127.0.0.1", server.port(), 0))
}

/// Why the node is down, once it is for a reason with these words.
async fn down(node: &LiveNode, words: &str) -> String {
    let mut text = String::new();
    eventually(words, || {
        if let NodeState::Down(reason) = node.state() {
            text = reason.to_string();
        }
        text.contains(words)
    })
    .await;
    text
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
        let watch = Watch::start(&[at(&server); 3]).await;
        let node = start(watch.builder().connections(lanes));
        settled(&node).await.unwrap();
        for owner in 0..8 {
            let granted = node.acquire(acquire(&format!("k{owner}"), owner)).await;
            assert_eq!(granted, Ok(AcquireReply::Granted { fence: None }));
        }
        watch.say(&[at(&server), None, None]);
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
        watch.say(&[at(&server), None, at(&server)]);
        settled(&node).await.unwrap();
        node.acquire(acquire("k0", 1)).await.unwrap();
    }
}

#[tokio::test]
async fn most_are_most_of_those_that_are_listed() {
    let server = Server::start(Kind::Redis, &[]);
    let watch = Watch::start(&[at(&server), at(&server)]).await;
    let gone = || format!("redis://127.0.0.1:{}", free_port());
    let mut urls: Vec<String> = watch.fakes.iter().map(Fake::url).collect();
    urls.push(gone());
    let three = RedisNode::sentinel(&urls, "mymaster");
    settled(&start(three)).await.unwrap();
    urls.push(gone());
    let four = start(RedisNode::sentinel(&urls, "mymaster"));
    let reason = down(&four, "do not agree").await;
    assert!(reason.contains("says 127.0.0.1"), "{reason}");
}

#[tokio::test]
async fn a_sentinel_behind_two_addresses_has_one_word() {
    let server = Server::start(Kind::Redis, &[]);
    let ids = ["a", "a", "b"].map(str::to_owned);
    let watch = Watch::start_as(&[at(&server), at(&server), None], &ids).await;
    let node = watch.started();
    let reason = down(&node, "do not agree").await;
    assert!(reason.contains("the same Sentinel as"), "{reason}");
    watch.say(&[at(&server); 3]);
    settled(&node).await.unwrap();
}

#[tokio::test]
async fn sentinels_may_know_a_server_by_different_names() {
    let (old, new) = (
        Server::start(Kind::Redis, &[]),
        Server::start(Kind::Redis, &[]),
    );
    let names = |server: &Server, epoch| {
        let names = ["127.0.0.1", "localhost", "127.0.0.2"];
        names.map(|name| Some((name, server.port(), epoch)))
    };
    // The third cannot be reached by what its Sentinel calls it: the servers listen at 127.0.0.1.
    let watch = Watch::start(&names(&old, 0)).await;
    let node = watch.started();
    settled(&node).await.unwrap();
    watch.say(&names(&new, 1));
    let ours = |server: &Server| {
        let list = server.run("CLIENT LIST");
        list.contains("name=tower-redlock ")
    };
    eventually("has left", || !ours(&old) && ours(&new)).await;
    settled(&node).await.unwrap();
    node.acquire(acquire("k", 1)).await.unwrap();
}

#[tokio::test]
async fn sentinels_that_do_not_agree_confirm_nobody() {
    let (old, new) = (
        Server::start(Kind::Redis, &[]),
        Server::start(Kind::Redis, &[]),
    );
    let moved = Some(("127.0.0.1", new.port(), 1));
    let watch = Watch::start(&[at(&old), moved, None]).await;
    let node = watch.started();
    down(&node, "do not agree").await;
    watch.say(&[at(&old), moved, at(&old)]);
    settled(&node).await.unwrap();
    node.acquire(acquire("k", 1)).await.unwrap();
    assert_eq!(old.command(&["EXISTS", key("k").as_str()]), "1");
}

#[tokio::test]
async fn too_few_that_know_the_master_say_so() {
    let server = Server::start(Kind::Redis, &[]);
    let watch = Watch::start(&[at(&server)]).await;
    // Servers, and no Sentinels.
    let others = [
        Server::start(Kind::Redis, &[]),
        Server::start(Kind::Redis, &[]),
    ];
    let urls = [watch.fakes[0].url(), others[0].url(), others[1].url()];
    let node = start(RedisNode::sentinel(urls, "mymaster"));
    let error = refusal(&node).await;
    assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
    assert!(error.to_string().contains("too few of its Sent"), "{error}");
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
