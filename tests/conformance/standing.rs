//! What every node must do about its right to vote, and about owners that are gone.

use std::fmt::Debug;

use crate::*;

pub(crate) const GRANTED: Result<AcquireReply, NodeError> =
    Ok(AcquireReply::Granted { fence: None });
pub(crate) const OURS: &str = "nodes a, b, c";
pub(crate) const THEIRS: &str = "nodes c, d, e";

/// Has a node taken over from processes with another config.
pub(crate) const ADOPT: CheckInMode = CheckInMode::Adopt {
    former: Duration::ZERO,
};

pub(crate) fn config(text: &str) -> Arc<ClusterConfig> {
    Arc::new(ClusterConfig::new(text))
}

pub(crate) fn ours() -> Arc<ClusterConfig> {
    config(OURS)
}

pub(crate) fn theirs() -> Arc<ClusterConfig> {
    config(THEIRS)
}

pub(crate) async fn check_in(
    node: &dyn Node,
    config: Arc<ClusterConfig>,
    fresh: &str,
) -> CheckInReply {
    enter(node, config, fresh, CheckInMode::Normal).await
}

pub(crate) async fn enter(
    node: &dyn Node,
    config: Arc<ClusterConfig>,
    fresh: &str,
    entry: CheckInMode,
) -> CheckInReply {
    let fresh = fresh.to_owned();
    let request = CheckInRequest::new(Namespace::default(), config, LONG, fresh, entry);
    node.check_in(request).await.unwrap()
}

pub(crate) fn standing(reply: &CheckInReply) -> &'static str {
    match reply {
        CheckInReply::Voting { .. } => "voting",
        CheckInReply::Quarantined { .. } => "quarantined",
        CheckInReply::Foreign { .. } => "foreign",
    }
}

pub(crate) async fn promote(
    node: &dyn Node,
    config: Arc<ClusterConfig>,
    quarantine: &str,
    floor: u64,
) -> bool {
    let floor = FencingToken::new(floor);
    let request = PromoteRequest::new(Namespace::default(), config, quarantine.to_owned(), floor);
    node.promote(request).await.unwrap()
}

/// What the quarantine is called that a check-in finds or begins.
pub(crate) async fn quarantine(node: &dyn Node, config: Arc<ClusterConfig>, fresh: &str) -> String {
    match check_in(node, config, fresh).await {
        CheckInReply::Quarantined { id, .. } => id,
        other => panic!("not in quarantine: {other:?}"),
    }
}

/// Has a node that has forgotten everything vote under `config`.
pub(crate) async fn voting(bench: &impl Bench, config: Arc<ClusterConfig>) -> Arc<dyn Node> {
    bench.forget();
    let node = bench.node();
    let id = quarantine(&*node, Arc::clone(&config), "first").await;
    assert!(promote(&*node, config, &id, 0).await);
    node
}

pub(crate) fn acquire_under(config: Arc<ClusterConfig>, name: &str, owner: u32) -> AcquireRequest {
    acquire(name, owner).under(Some(config))
}

pub(crate) fn extend_under(config: Arc<ClusterConfig>, name: &str, owner: u32) -> ExtendRequest {
    extend(name, owner).under(Some(config))
}

pub(crate) fn refill_under(config: Arc<ClusterConfig>, name: &str, owner: u32) -> ExtendRequest {
    refill(name, owner).under(Some(config))
}

pub(crate) fn kind<T: Debug>(result: Result<T, NodeError>) -> NodeErrorKind {
    result.unwrap_err().kind()
}

pub(crate) async fn a_quarantine_keeps_its_name_until_it_is_over(bench: &impl Bench) {
    bench.forget();
    let node = &*bench.node();
    let id = quarantine(node, ours(), "first").await;
    assert!(id.ends_with("first"), "{id}");
    assert_eq!(quarantine(node, ours(), "second").await, id);
    let wrong = id.replace("first", "second");
    assert!(!promote(node, ours(), &wrong, 0).await);
    assert!(!promote(node, ours(), "", 0).await);
    assert!(!promote(node, theirs(), &id, 0).await);
    assert_eq!(quarantine(node, ours(), "third").await, id);
    let reply = node.acquire(acquire_under(ours(), "k", 1)).await;
    assert_eq!(kind(reply), NodeErrorKind::Quarantined);
    assert_eq!(holder(node, "k").await, None, "nothing is set");

    assert!(promote(node, ours(), &id, 0).await);
    assert!(!promote(node, ours(), &id, 0).await, "it is over");
    let standing = check_in(node, ours(), "fourth").await;
    let votes = CheckInReply::Voting { high_water: None };
    assert_eq!(standing, votes);
    assert_eq!(node.acquire(acquire_under(ours(), "k", 1)).await, GRANTED);
}

pub(crate) async fn a_promotion_raises_the_mark_and_never_lowers_it(bench: &impl Bench) {
    const FLOOR: u64 = 1_800_000_000_000_000_123;
    let node = &*bench.node();
    for written in [FLOOR - 5_000, FLOOR + 5_000] {
        bench.forget();
        let id = quarantine(node, ours(), "first").await;
        let request = refill_under(ours(), "written", 1).fenced(fence(written));
        assert_extend(node, request, ExtendReply::Quarantined).await;
        assert!(promote(node, ours(), &id, FLOOR).await);
        let mark = FLOOR.max(written);
        let CheckInReply::Voting { high_water } = check_in(node, ours(), "x").await else {
            panic!("promoted");
        };
        assert_eq!(high_water, FencingToken::new(mark));
        let request = acquire_under(ours(), "new", 1).fenced(fence(1));
        assert_eq!(token_of(node, request).await, mark + STEP);
    }
}

pub(crate) fn assert_shows_both(error: &NodeError, known: &str, ours: &str) {
    assert_eq!(error.kind(), NodeErrorKind::Foreign);
    let text = error.to_string();
    assert!(text.contains(known) && text.contains(ours), "{text}");
}

/// The refusal of one lock or of the whole batch.
pub(crate) async fn extend_refused(node: &dyn Node, request: ExtendRequest) -> NodeError {
    match node.extend(Arc::from([request])).await {
        Ok(mut answers) => answers.remove(0).unwrap_err(),
        Err(error) => error,
    }
}

pub(crate) async fn a_node_that_forgets_again_is_back_in_quarantine(bench: &impl Bench) {
    let node = &*voting(bench, ours()).await;
    assert_eq!(node.acquire(acquire_under(ours(), "k", 1)).await, GRANTED);
    bench.forget();
    let reply = node.acquire(acquire_under(ours(), "k", 2)).await;
    assert_eq!(kind(reply), NodeErrorKind::Quarantined);
    assert_eq!(holder(node, "k").await, None, "nothing is set");
    let first = quarantine(node, ours(), "again").await;
    bench.forget();
    let second = quarantine(node, ours(), "once more").await;
    assert!(
        !promote(node, ours(), &first, 0).await,
        "it forgot meanwhile"
    );
    assert!(promote(node, ours(), &second, 0).await);
    assert_eq!(node.acquire(acquire_under(ours(), "k", 2)).await, GRANTED);
}

pub(crate) async fn a_node_in_quarantine_is_written_and_does_not_count(bench: &impl Bench) {
    bench.forget();
    let node = &*bench.node();
    let id = quarantine(node, ours(), "first").await;
    assert_extend(node, extend_under(ours(), "k", 1), ExtendReply::Absent).await;
    assert_extend(node, refill_under(ours(), "k", 1), ExtendReply::Quarantined).await;
    let left = left(node, "k").await;
    assert!(left > LONG / 2, "{left:?}");
    assert_extend(node, extend_under(ours(), "k", 1), ExtendReply::Quarantined).await;
    stopped_by(node, refill_under(ours(), "k", 2)).await;
    assert!(promote(node, ours(), &id, 0).await);
    assert_extend(node, extend_under(ours(), "k", 1), ExtendReply::Extended).await;
    in_the_way(node, acquire_under(ours(), "k", 2)).await;
}

pub(crate) async fn a_node_in_quarantine_releases(bench: &impl Bench) {
    bench.forget();
    let node = &*bench.node();
    quarantine(node, ours(), "first").await;
    extend_one(node, refill_under(ours(), "k", 1)).await;
    assert!(!released(node, "k", 2).await);
    assert!(released(node, "k", 1).await);
    assert_eq!(holder(node, "k").await, None);
}

pub(crate) async fn a_release_on_the_same_connection_is_no_farewell(node: &dyn Node) {
    let since = SystemClock::new().now();
    assert_eq!(node.acquire(acquire("k", 1)).await, GRANTED);
    let reply = node.release(release("k", 1).since(since)).await;
    assert_eq!(reply, Ok(ReleaseReply::Released { listeners: 0 }));
    assert_eq!(node.acquire(acquire("k", 1)).await, GRANTED);
}

/// Waits until the connection of renewals is there again, too.
pub(crate) async fn renews_again(node: &dyn Node) {
    let begin = Instant::now();
    while let Err(error) = node.extend(Arc::from([extend("nobody", 9)])).await {
        assert!(begin.elapsed() < PATIENCE, "{error}");
        sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) async fn what_comes_late_on_an_old_connection_is_void(bench: &impl Remote) {
    let node = &*voting(bench, ours()).await;
    let fenced = |name, owner| acquire_under(ours(), name, owner).fenced(fence(HIGH));
    let since = SystemClock::new().now();
    // The second and third of these are acquired in the quick way, and a fourth could be.
    for (name, owner) in [("i", 7), ("j", 8), ("k", 1)] {
        token_of(node, fenced(name, owner)).await;
    }
    bench.disconnect();
    let begin = Instant::now();
    // The old connection is dead, so what is answered went out on a new one.
    let reply = loop {
        match node.release(release("k", 1).since(since)).await {
            Ok(reply) => break reply,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(reply, ReleaseReply::Released { listeners: 0 });
    renews_again(node).await;
    for name in ["k", "another"] {
        let late = node.acquire(fenced(name, 1)).await;
        assert_eq!(kind(late), NodeErrorKind::Rejected, "{name}");
        let late = extend_one(node, refill(name, 1)).await;
        assert_eq!(late, ExtendReply::Absent, "{name}");
        assert_eq!(holder(node, name).await, None, "{name}");
    }
    // Another owner gets it.
    token_of(node, fenced("k", 2)).await;
}
