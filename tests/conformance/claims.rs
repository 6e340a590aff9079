//! What every node must do, whatever it is made of.

use std::future::poll_fn;
use std::task::Poll;

use crate::*;

/// A started node, and ways around it.
pub(crate) trait Bench {
    /// Whether commands take time, so that one can be dropped under way.
    const REMOTE: bool;

    fn node(&self) -> Arc<dyn Node>;

    /// Has it lose all it knows.
    fn forget(&self);

    /// Listens to the releases of a key until the value is dropped.
    fn listen(&self, name: &str) -> Box<dyn Send>;
}

/// A node that is a server of its own: others can write to it, and there is a connection that can be closed.
pub(crate) trait Remote: Bench {
    /// Puts a value that never expires in the place of a lock.
    fn set_forever(&self, name: &str);

    /// Runs a command past the node.
    fn command(&self, words: &[&str]) -> String;

    /// Ends the node's connections.
    fn disconnect(&self);
}

/// Who holds the key, seen by a contender of no importance.
pub(crate) async fn holder(node: &dyn Node, name: &str) -> Option<Holder> {
    match node.acquire(acquire(name, u32::MAX)).await.unwrap() {
        AcquireReply::Held(holder) => Some(holder),
        AcquireReply::Granted { fence: None } => {
            node.release(release(name, u32::MAX)).await.unwrap();
            None
        }
        other => panic!("{other:?}"),
    }
}

/// How much longer the key is held.
pub(crate) async fn left(node: &dyn Node, name: &str) -> Duration {
    let holder = holder(node, name).await;
    let holder = holder.unwrap_or_else(|| panic!("nobody holds `{name}`"));
    holder.remaining.unwrap()
}

pub(crate) async fn extend_one(node: &dyn Node, request: ExtendRequest) -> ExtendReply {
    let mut replies = node.extend(Arc::from([request])).await.unwrap();
    assert_eq!(replies.len(), 1);
    replies.remove(0).unwrap()
}

pub(crate) async fn assert_extend(node: &dyn Node, request: ExtendRequest, reply: ExtendReply) {
    assert_eq!(extend_one(node, request).await, reply);
}

/// Who keeps `request` from being granted.
pub(crate) async fn in_the_way(node: &dyn Node, request: AcquireRequest) -> Holder {
    match node.acquire(request).await.unwrap() {
        AcquireReply::Held(holder) => holder,
        other => panic!("{other:?}"),
    }
}

/// Who keeps `request` from being done.
pub(crate) async fn stopped_by(node: &dyn Node, request: ExtendRequest) -> Holder {
    match extend_one(node, request).await {
        ExtendReply::Held(holder) => holder,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn released(node: &dyn Node, name: &str, owner: u32) -> bool {
    let reply = node.release(release(name, owner)).await.unwrap();
    matches!(reply, ReleaseReply::Released { .. })
}

pub(crate) async fn a_free_key_is_granted_and_a_held_one_refused_with_its_rest(node: &dyn Node) {
    for (name, ttl) in [("k", Duration::from_secs(20)), ("l", LONG)] {
        let request = AcquireRequest::new(key(name), token(1), ttl);
        assert_eq!(node.acquire(request).await, GRANTED);
        let remaining = in_the_way(node, acquire(name, 2)).await.remaining.unwrap();
        assert!(remaining <= ttl && remaining > ttl / 2, "{remaining:?}");
    }
}

pub(crate) async fn a_refusal_of_several_tells_which_of_them_is_held(node: &dyn Node) {
    let together = |owner| AcquireRequest::new(keys(&["a", "b", "c"]), token(owner), LONG);
    for (place, name) in ["a", "b", "c"].into_iter().enumerate() {
        node.acquire(acquire(name, 1)).await.unwrap();
        let held = in_the_way(node, together(2)).await;
        assert_eq!(held.key, Some(place));
        assert_eq!(holder(node, name).await.unwrap().key, Some(0));
        assert!(released(node, name, 1).await);
    }
    let granted = node.acquire(together(2)).await.unwrap();
    assert!(matches!(granted, AcquireReply::Granted { .. }));
}

pub(crate) async fn a_tag_tells_holders_apart(node: &dyn Node) {
    for (name, owner) in [("a", 1), ("b", 1), ("c", 2)] {
        node.acquire(acquire(name, owner)).await.unwrap();
    }
    let tag = async |name| holder(node, name).await.unwrap().tag;
    assert_eq!(tag("a").await, tag("b").await);
    assert_ne!(tag("a").await, tag("c").await);
    let seen = stopped_by(node, extend("a", 3)).await;
    assert_eq!(seen.tag, tag("a").await, "extend and acquire agree");
}

/// The token of the contender `number`, in a process that is called `label`.
pub(crate) fn labelled(number: u32, label: &str) -> OwnerToken {
    token(number).labelled(&Label::new(label).unwrap())
}

pub(crate) async fn a_label_is_a_part_of_the_owner(node: &dyn Node) {
    let of = |token| AcquireRequest::new(key("k"), token, LONG);
    node.acquire(of(labelled(1, "web-1"))).await.unwrap();
    for other in [token(1), labelled(1, "web-2"), labelled(1, "web-11")] {
        in_the_way(node, of(other)).await;
        let extend = ExtendRequest::new(key("k"), other, LONG, true);
        stopped_by(node, extend).await;
        let release = ReleaseRequest::new(key("k"), other, true);
        assert_eq!(node.release(release).await, Ok(ReleaseReply::NotOwner));
    }
    let extend = ExtendRequest::new(key("k"), labelled(1, "web-1"), LONG, false);
    assert_extend(node, extend, ExtendReply::Extended).await;
    let release = ReleaseRequest::new(key("k"), labelled(1, "web-1"), true);
    let released = node.release(release).await.unwrap();
    assert!(matches!(released, ReleaseReply::Released { .. }));
    assert!(holder(node, "k").await.is_none());
}

pub(crate) async fn a_lock_ends_with_its_ttl(node: &dyn Node) {
    let request = AcquireRequest::new(key("k"), token(1), Duration::from_millis(300));
    node.acquire(request).await.unwrap();
    in_the_way(node, acquire("k", 2)).await;
    free(node, "k").await;
}

pub(crate) async fn only_the_owner_releases(node: &dyn Node) {
    node.acquire(acquire("k", 1)).await.unwrap();
    assert!(!released(node, "k", 2).await);
    assert!(holder(node, "k").await.is_some());
    assert!(released(node, "k", 1).await);
    assert!(holder(node, "k").await.is_none());
    assert!(!released(node, "k", 1).await, "there is nothing left");
}

pub(crate) async fn a_release_tells_its_listeners(bench: &impl Bench) {
    let node = &*bench.node();
    for count in 0..3_u32 {
        // A name each time: a server takes note of a closed connection in its own time.
        let name = format!("k{count}");
        let listeners: Vec<_> = (0..count).map(|_| bench.listen(&name)).collect();
        let _elsewhere = bench.listen("other");
        node.acquire(acquire(&name, 1)).await.unwrap();
        let reply = node.release(release(&name, 1)).await.unwrap();
        let heard = u32::try_from(listeners.len()).unwrap();
        assert_eq!(reply, ReleaseReply::Released { listeners: heard });
    }
}

async fn lock_and_release(node: &dyn Node, name: &str, announce: bool) -> ReleaseReply {
    node.acquire(acquire(name, 1)).await.unwrap();
    let request = ReleaseRequest::new(key(name), token(1), announce);
    node.release(request).await.unwrap()
}

pub(crate) async fn a_listener_hears_of_a_release(node: &dyn Node) {
    let (receiver, _subscription) = listening(node, &key("k")).await;
    let elsewhere = listening(node, &key("other")).await;
    let reply = lock_and_release(node, "k", true).await;
    assert_eq!(reply, ReleaseReply::Released { listeners: 1 });
    eventually("told", || receiver.notices().released == 1).await;
    let notices = receiver.notices();
    assert_eq!((notices.open, notices.least_open), (1, 1));
    assert_eq!(notices.waited, Duration::ZERO);
    // How long the holder had waited comes with it.
    let waited = Duration::from_millis(1_500);
    node.acquire(acquire("k", 1)).await.unwrap();
    let release = ReleaseRequest::new(key("k"), token(1), true);
    node.release(ReleaseRequest { waited, ..release })
        .await
        .unwrap();
    eventually("told", || receiver.notices().waited == waited).await;
    assert_eq!(elsewhere.0.notices().released, 0, "another key");
}

pub(crate) async fn a_release_that_is_not_announced_tells_nobody(node: &dyn Node) {
    let (receiver, _subscription) = listening(node, &key("k")).await;
    let (after, _after) = listening(node, &key("after")).await;
    let reply = lock_and_release(node, "k", false).await;
    assert_eq!(reply, ReleaseReply::Released { listeners: 0 });
    // Notices of one node keep their order, so this one would come second.
    lock_and_release(node, "after", true).await;
    eventually("told", || after.notices().released == 1).await;
    assert_eq!(receiver.notices().released, 0);
    assert!(holder(node, "k").await.is_none(), "it is free all the same");
}

pub(crate) async fn of_two_listeners_to_one_key_each_hears_until_it_leaves(node: &dyn Node) {
    let (first, leaving) = listening(node, &key("k")).await;
    let (second, staying) = listening(node, &key("k")).await;
    lock_and_release(node, "k", true).await;
    eventually("both are told", || {
        (first.notices().released, second.notices().released) == (1, 1)
    })
    .await;
    first.forget();
    second.forget();
    drop(leaving);
    lock_and_release(node, "k", true).await;
    eventually("the other is told", || second.notices().released == 1).await;
    assert_eq!(first.notices().released, 0, "it has left");
    drop(staying);
    // Nobody is left, on the server neither; that may take a moment.
    let begin = Instant::now();
    while lock_and_release(node, "k", true).await != (ReleaseReply::Released { listeners: 0 }) {
        assert!(begin.elapsed() < PATIENCE, "somebody still listens");
    }
    second.forget();
    let (last, _last) = listening(node, &key("k")).await;
    lock_and_release(node, "k", true).await;
    eventually("who came last is told", || last.notices().released == 1).await;
    assert_eq!(second.notices().released, 0, "it has left, too");
}

pub(crate) async fn an_own_lock_is_granted_again_or_extended_for_a_full_ttl(node: &dyn Node) {
    let short = Duration::from_secs(5);
    for name in ["again", "extended"] {
        let request = AcquireRequest::new(key(name), token(1), short);
        assert_eq!(node.acquire(request).await, GRANTED);
        match name {
            "again" => assert_eq!(node.acquire(acquire(name, 1)).await, GRANTED),
            _ => assert_extend(node, extend(name, 1), ExtendReply::Extended).await,
        }
        let remaining = left(node, name).await;
        assert!(remaining > short, "{name}: {remaining:?}");
    }
}

pub(crate) async fn an_absent_lock_is_left_absent_unless_refilled(node: &dyn Node) {
    assert_extend(node, extend("k", 1), ExtendReply::Absent).await;
    assert!(holder(node, "k").await.is_none());
    assert_extend(node, refill("k", 1), ExtendReply::Refilled).await;
    let remaining = left(node, "k").await;
    assert!(remaining <= LONG && remaining > LONG / 2, "{remaining:?}");
    assert!(released(node, "k", 1).await);
}

pub(crate) async fn anothers_lock_is_neither_extended_nor_refilled(node: &dyn Node) {
    let ttl = Duration::from_secs(20);
    let request = AcquireRequest::new(key("k"), token(1), ttl);
    node.acquire(request).await.unwrap();
    for request in [extend("k", 2), refill("k", 2)] {
        let held = stopped_by(node, request).await;
        assert!(held.remaining.unwrap() <= ttl);
    }
    assert!(released(node, "k", 1).await);
}

pub(crate) async fn a_batch_is_answered_in_order(node: &dyn Node) {
    let name = |number: u32| format!("k{number}");
    // Every third lock is ours, every third another's, every third absent; of these every second is refilled.
    for number in 0..250 {
        if number % 3 < 2 {
            let owner = 1 + number % 3;
            node.acquire(acquire(&name(number), owner)).await.unwrap();
        }
    }
    let requests: Vec<_> = (0..250)
        .map(|number| match number % 2 {
            0 => refill(&name(number), 1),
            _ => extend(&name(number), 1),
        })
        .collect();
    let replies = node.extend(requests.into()).await.unwrap();
    assert_eq!(replies.len(), 250);
    for (number, reply) in (0..250).zip(replies) {
        let reply = reply.unwrap();
        let right = match (number % 3, number % 2) {
            (0, _) => reply == ExtendReply::Extended,
            (1, _) => matches!(reply, ExtendReply::Held(_)),
            (_, 0) => reply == ExtendReply::Refilled,
            _ => reply == ExtendReply::Absent,
        };
        assert!(right, "lock {number}: {reply:?}");
    }
    assert_eq!(node.extend(Arc::from([])).await, Ok(vec![]));
}

pub(crate) async fn a_foreign_key_without_expiry_has_no_remaining_time(bench: &impl Remote) {
    let node = &*bench.node();
    bench.set_forever("k");
    assert_eq!(holder(node, "k").await.unwrap().remaining, None);
    let held = stopped_by(node, refill("k", 1)).await;
    assert_eq!(held.remaining, None);
}

pub(crate) async fn a_dropped_acquire_and_a_release_leave_no_key<B: Bench>(bench: &B) {
    let node = &*bench.node();
    let mut unsent = 0;
    for round in 0..400_u32 {
        let attempt = node.acquire(acquire("k", round));
        // From "polled once" to "long answered".
        let limit = Duration::from_micros(u64::from(round * 37 % 700));
        let dropped = tokio::select! {
            biased;
            _ = attempt => false,
            () = async {
                for _ in 0..round % 7 {
                    tokio::task::yield_now().await;
                }
                if round % 3 > 0 {
                    sleep(limit).await;
                }
            } => true,
        };
        let set = released(node, "k", round).await;
        unsent += u32::from(dropped && !set);
        assert_eq!(holder(node, "k").await, None, "round {round}");
    }
    if B::REMOTE {
        assert!(unsent > 0);
    }
}

pub(crate) async fn an_acquire_that_is_dropped_once_executed_leaves_no_key(bench: &impl Remote) {
    let node = &*bench.node();
    let name = key("k");
    let mut dropped = 0;
    for round in 0..100 {
        let mut attempt = node.acquire(acquire("k", round));
        // Sent; and its reply is read by nobody, for it is not polled again. It is seldom there at once.
        let polled = poll_fn(|cx| Poll::Ready(attempt.as_mut().poll(cx))).await;
        dropped += u32::from(polled.is_pending());
        let is_set = || bench.command(&["EXISTS", name.as_str()]) == "1";
        eventually("executed", is_set).await;
        drop(attempt);
        assert!(released(node, "k", round).await, "round {round}");
        assert_eq!(holder(node, "k").await, None, "round {round}");
    }
    assert!(dropped > 0, "no reply was on its way");
}

pub(crate) async fn nothing_happens_before_the_first_poll(node: &dyn Node) {
    let attempt = node.acquire(acquire("k", 1));
    assert_eq!(holder(node, "k").await, None);
    assert_eq!(attempt.await, GRANTED);
}

pub(crate) async fn a_closed_node_says_so(bench: &impl Remote) {
    use tower_redlock::node::{NodeErrorKind, NodeState};

    let node = &*bench.node();
    node.acquire(acquire("k", 1)).await.unwrap();
    node.close().await;
    node.close().await;
    eventually("closed", || node.state() == NodeState::Closed).await;
    let closed = NodeErrorKind::Closed;
    assert_eq!(kind(node.ready().await), closed);
    assert_eq!(kind(node.acquire(acquire("k", 1)).await), closed);
    assert_eq!(kind(node.release(release("k", 1)).await), closed);
    let extended = node.extend(Arc::from([extend("k", 1)])).await;
    assert_eq!(kind(extended), closed);
}

/// The holder counts on them until it is told, and then releases them.
pub(crate) async fn an_extension_that_lost_one_of_its_keys_leaves_the_others(node: &dyn Node) {
    let both = AcquireRequest::new(keys(&["a", "b"]), token(1), LONG);
    assert_eq!(node.acquire(both).await, GRANTED);
    assert!(released(node, "b", 1).await);
    assert_eq!(node.acquire(acquire("b", 2)).await, GRANTED);
    let request = ExtendRequest::new(keys(&["a", "b"]), token(1), LONG, true);
    stopped_by(node, request).await;
    assert!(holder(node, "a").await.is_some());
    let release = ReleaseRequest::new(keys(&["a", "b"]), token(1), true);
    let reply = node.release(release).await.unwrap();
    assert!(matches!(reply, ReleaseReply::Released { .. }), "{reply:?}");
    assert_eq!(node.acquire(acquire("a", 2)).await, GRANTED);
    assert!(released(node, "b", 2).await, "it is left to its owner");
}
