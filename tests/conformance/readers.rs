//! What every node must do for readers: owners that have a key together.

use crate::*;

fn shared(name: &str) -> NodeKeys {
    NodeKeys::from(key(name)).shared()
}

/// A request of the reader `owner`.
fn read(name: &str, owner: u32) -> AcquireRequest {
    AcquireRequest::new(shared(name), token(owner), LONG)
}

fn extend_reader(name: &str, owner: u32, refill: bool) -> ExtendRequest {
    ExtendRequest::new(shared(name), token(owner), LONG, refill)
}

fn stop(name: &str, owner: u32) -> ReleaseRequest {
    ReleaseRequest::new(shared(name), token(owner), true)
}

async fn stopped(node: &dyn Node, name: &str, owner: u32) -> bool {
    let reply = node.release(stop(name, owner)).await.unwrap();
    matches!(reply, ReleaseReply::Released { .. })
}

pub(crate) async fn readers_have_a_key_together_and_nobody_beside_them(node: &dyn Node) {
    for owner in [1, 2, 3, 2] {
        assert_eq!(node.acquire(read("k", owner)).await, GRANTED);
    }
    assert_eq!(in_the_way(node, acquire("k", 9)).await.key, Some(0));
    // Nor is one of them the holder of a lock for itself alone.
    in_the_way(node, acquire("k", 1)).await;
    assert!(!released(node, "k", 1).await);
    for owner in [1, 2, 3] {
        assert!(holder(node, "k").await.is_some());
        assert!(stopped(node, "k", owner).await);
        assert!(!stopped(node, "k", owner).await, "once");
    }
    assert_eq!(node.acquire(acquire("k", 9)).await, GRANTED);
    assert_eq!(in_the_way(node, read("k", 1)).await.key, Some(0));
    in_the_way(node, read("k", 9)).await;
    assert!(!stopped(node, "k", 9).await);
    assert!(released(node, "k", 9).await);
}

pub(crate) async fn readers_are_one_holder_to_everybody_else(node: &dyn Node) {
    let short = Duration::from_secs(20);
    let of = |owner, ttl| AcquireRequest::new(shared("k"), labelled(owner, "web-1"), ttl);
    node.acquire(of(1, short)).await.unwrap();
    let one = holder(node, "k").await.unwrap();
    assert!(one.remaining.unwrap() <= short && one.remaining.unwrap() > short / 2);
    node.acquire(of(2, LONG)).await.unwrap();
    let both = holder(node, "k").await.unwrap();
    assert!(both.remaining.unwrap() > LONG / 2, "the last end");
    node.acquire(of(3, short)).await.unwrap();
    let all = holder(node, "k").await.unwrap();
    assert!(all.remaining.unwrap() > LONG / 2, "whoever came last");
    node.acquire(read("other", 3)).await.unwrap();
    let other = holder(node, "other").await.unwrap();
    assert_eq!((one.tag, one.tag), (both.tag, other.tag));
    // An extension of another owner is told the same.
    let extend = ExtendRequest::new(key("k"), token(9), LONG, true);
    let seen = stopped_by(node, extend).await;
    assert_eq!(seen.tag, one.tag);
    let request = ReleaseRequest::new(shared("k"), labelled(2, "web-1"), true);
    node.release(request).await.unwrap();
    let left = left(node, "k").await;
    assert!(left <= short, "the other one's again: {left:?}");
}

pub(crate) async fn each_reader_ends_by_itself_and_only_its_own_end_is_set(node: &dyn Node) {
    let brief = AcquireRequest::new(shared("k"), token(1), Duration::from_millis(300));
    node.acquire(brief).await.unwrap();
    node.acquire(read("k", 2)).await.unwrap();
    assert_extend(node, extend_reader("k", 2, false), ExtendReply::Extended).await;
    // Its end announces itself by nothing.
    sleep(Duration::from_millis(320)).await;
    let late = extend_reader("k", 1, false);
    assert_extend(node, late, ExtendReply::Absent).await;
    assert!(!stopped(node, "k", 1).await);
    assert!(holder(node, "k").await.is_some(), "the second goes on");
    assert!(stopped(node, "k", 2).await);
    // And all by themselves.
    for owner in [3, 4] {
        let brief = AcquireRequest::new(shared("k"), token(owner), Duration::from_millis(300));
        node.acquire(brief).await.unwrap();
    }
    assert!(holder(node, "k").await.is_some());
    sleep(Duration::from_millis(320)).await;
    assert!(holder(node, "k").await.is_none());
}

pub(crate) async fn only_the_last_reader_frees_the_key_and_announces_it(node: &dyn Node) {
    let (receiver, _listening) = listening(node, &key("k")).await;
    for owner in [1, 2, 3] {
        node.acquire(read("k", owner)).await.unwrap();
    }
    for owner in [2, 1] {
        let reply = node.release(stop("k", owner)).await;
        assert_eq!(reply, Ok(ReleaseReply::Released { listeners: 0 }));
    }
    assert_eq!(receiver.notices().released, 0);
    let reply = node.release(stop("k", 3)).await;
    assert_eq!(reply, Ok(ReleaseReply::Released { listeners: 1 }));
    eventually("told", || receiver.notices().released == 1).await;
    node.acquire(read("k", 4)).await.unwrap();
    let quiet = ReleaseRequest {
        announce: false,
        ..stop("k", 4)
    };
    let reply = node.release(quiet).await;
    assert_eq!(reply, Ok(ReleaseReply::Released { listeners: 0 }));
}

pub(crate) async fn a_waiting_writer_stops_new_readers_and_no_others(node: &dyn Node) {
    node.acquire(read("k", 1)).await.unwrap();
    let short = Duration::from_secs(20);
    let hint = |owner| ExtendRequest::new(key("k").writer(), token(owner), short, true);
    assert_extend(node, hint(9), ExtendReply::Refilled).await;
    let holder = in_the_way(node, read("k", 2)).await;
    let left = holder.remaining.unwrap();
    assert!(left <= short, "the end of the hint: {left:?}");
    assert_eq!(holder.key, Some(0));
    // A reader that is there stays, and may come again.
    assert_extend(node, extend_reader("k", 1, true), ExtendReply::Extended).await;
    assert_eq!(node.acquire(read("k", 1)).await, GRANTED);
    // The hint is of no other key, and holds up no writer.
    assert_eq!(node.acquire(read("other", 2)).await, GRANTED);
    assert!(stopped(node, "k", 1).await);
    in_the_way(node, read("k", 2)).await;
    assert_eq!(node.acquire(acquire("k", 9)).await, GRANTED);
    assert!(released(node, "k", 9).await);
    let gone = |owner| node.release(ReleaseRequest::new(key("k").writer(), token(owner), false));
    // Several may wait, and each takes back what is its own. To a reader they are one, and no readers.
    assert_extend(node, hint(8), ExtendReply::Refilled).await;
    gone(9).await.unwrap();
    let other = in_the_way(node, read("k", 2)).await;
    assert_eq!(other.tag, holder.tag);
    assert_extend(node, hint(8), ExtendReply::Extended).await;
    gone(8).await.unwrap();
    assert_eq!(node.acquire(read("k", 2)).await, GRANTED);
    assert_ne!(in_the_way(node, acquire("k", 9)).await.tag, holder.tag);
}

pub(crate) async fn a_reader_comes_back_where_it_is_missing_and_beside_nobody_else(
    node: &dyn Node,
) {
    let of = |owner, refill| extend_one(node, extend_reader("k", owner, refill));
    assert_eq!(of(1, false).await, ExtendReply::Absent);
    assert_eq!(of(1, true).await, ExtendReply::Refilled);
    assert_eq!(of(2, false).await, ExtendReply::Absent, "beside another");
    assert_eq!(of(2, true).await, ExtendReply::Refilled);
    assert_eq!(of(1, false).await, ExtendReply::Extended);
    assert!(stopped(node, "k", 1).await && stopped(node, "k", 2).await);
    node.acquire(acquire("k", 9)).await.unwrap();
    let reply = of(1, true).await;
    assert!(matches!(reply, ExtendReply::Held(_)), "{reply:?}");
    assert!(released(node, "k", 9).await);
}

pub(crate) async fn readers_and_writers_count_on_from_each_other(node: &dyn Node) {
    assert_eq!(pass(node, "k", HIGH).await, HIGH);
    let first = token_of(node, read("k", 1).fenced(fence(LOW))).await;
    let second = token_of(node, read("k", 2).fenced(fence(LOW))).await;
    assert_eq!((first, second), (HIGH + STEP, HIGH + 2 * STEP));
    // Written back from another node, where it was more.
    let of =
        |owner, number: u64| RaiseRequest::new(shared("k"), token(owner), fence(number).unwrap());
    let raised = HIGH + 7 * STEP;
    assert_eq!(node.raise(of(2, raised)).await, Ok(RaiseReply::Raised));
    assert_eq!(
        node.raise(of(3, HIGH + 50 * STEP)).await,
        Ok(RaiseReply::NotOwner)
    );
    let extension = extend_reader("k", 1, false).fenced(fence(raised + STEP));
    assert_extend(node, extension, ExtendReply::Extended).await;
    let lower = extend_reader("k", 1, false).fenced(fence(LOW));
    assert_extend(node, lower, ExtendReply::Extended).await;
    let refill = extend_reader("k", 3, true).fenced(fence(raised));
    assert_extend(node, refill, ExtendReply::Refilled).await;
    for owner in [1, 2, 3] {
        assert!(stopped(node, "k", owner).await);
    }
    assert_eq!(pass(node, "k", LOW).await, raised + 2 * STEP);
    assert_eq!(pass(node, "new", LOW).await, raised + 3 * STEP, "the mark");
}

pub(crate) async fn a_reader_of_a_node_in_quarantine_is_written_and_does_not_count(
    bench: &impl Bench,
) {
    bench.forget();
    let node = &*bench.node();
    let id = quarantine(node, ours(), "first").await;
    let request = || read("k", 1).under(Some(ours()));
    let error = node.acquire(request()).await.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::Quarantined);
    let extension = |refill| extend_reader("k", 2, refill).under(Some(ours()));
    let of = |refill| extend_one(node, extension(refill));
    assert_eq!(of(false).await, ExtendReply::Absent);
    assert_eq!(of(true).await, ExtendReply::Quarantined);
    assert!(promote(node, ours(), &id, 0).await);
    assert_eq!(of(false).await, ExtendReply::Extended);
    assert_eq!(node.acquire(request()).await, GRANTED);
    in_the_way(node, acquire("k", 9).under(Some(ours()))).await;
}

pub(crate) async fn operators_see_readers_and_take_the_key_from_all(node: &dyn Node) {
    for owner in [1, 2] {
        node.acquire(read("k", owner)).await.unwrap();
    }
    node.acquire(read("other", 1)).await.unwrap();
    let look = async || {
        let mut found = node.holders(key("k").into()).await.unwrap();
        found.remove(0).holding
    };
    let seen = look().await.unwrap();
    assert_eq!(seen.label, "shared: unnamed, unnamed");
    assert!(stopped(node, "k", 2).await);
    assert_eq!(look().await.unwrap().owner, seen.owner);
    let take = TakeOverRequest {
        keys: key("k").into(),
        from: seen.owner,
        to: token(9),
        void: LONG,
    };
    let rest = node.take_over(take).await.unwrap().unwrap();
    assert!(rest > LONG / 2);
    stopped_by(node, extend_reader("k", 1, true)).await;
    let freed = node.release(release("k", 9)).await.unwrap();
    assert!(matches!(freed, ReleaseReply::Released { .. }));
    // It comes back for none of them, and other keys stay as they are.
    assert_extend(node, extend_reader("k", 1, true), ExtendReply::Absent).await;
    assert!(stopped(node, "other", 1).await);
    assert_extend(node, extend_reader("other", 1, true), ExtendReply::Refilled).await;
}

pub(crate) async fn a_release_that_was_given_up_keeps_a_reader_out(bench: &impl Remote) {
    use tower_redlock::clock::Moment;

    let node = &*bench.node();
    node.acquire(read("k", 2)).await.unwrap();
    // As if a command of the owner might still run.
    let farewell = stop("k", 1).since(Moment::ORIGIN);
    assert_eq!(node.release(farewell).await, Ok(ReleaseReply::NotOwner));
    assert!(node.acquire(read("k", 1)).await.is_err());
    assert_extend(node, extend_reader("k", 1, true), ExtendReply::Absent).await;
    assert!(stopped(node, "k", 2).await);
    assert!(holder(node, "k").await.is_none());
}

pub(crate) async fn what_is_written_by_hand_is_no_reader(bench: &impl Remote) {
    let node = &*bench.node();
    let head = format!("{}:shared", "0".repeat(40));
    for text in ["", " x", " x y", " x 1", " x 99999999999999999999", "!"] {
        let value = format!("{head}{text}");
        bench.command(&["SET", "lk:k", &value, "PX", "60000"]);
        if text == "!" {
            in_the_way(node, read("k", 1)).await;
        } else {
            assert_eq!(node.acquire(read("k", 1)).await, GRANTED, "{text:?}");
            assert!(stopped(node, "k", 1).await);
            assert!(holder(node, "k").await.is_none(), "{text:?}");
        }
        bench.command(&["DEL", "lk:k"]);
    }
    bench.command(&["HSET", "lk:k", "a", "b"]);
    assert!(node.acquire(read("k", 1)).await.is_err());
    let replies = node.extend([extend_reader("k", 1, true)].into()).await;
    assert!(replies.unwrap().remove(0).is_err());
    assert!(!stopped(node, "k", 1).await);
    assert!(bench.command(&["TYPE", "lk:k"]).contains("hash"));
}

pub(crate) async fn without_memory_readers_go_on_and_no_new_one_comes(bench: &impl Remote) {
    let node = &*bench.node();
    for owner in [1, 2] {
        node.acquire(read("k", owner)).await.unwrap();
    }
    bench.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    bench.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(node.acquire(read("k", 3)).await.is_err());
    assert_extend(node, extend_reader("k", 1, false), ExtendReply::Extended).await;
    assert!(stopped(node, "k", 2).await);
    assert_extend(node, extend_reader("k", 1, false), ExtendReply::Extended).await;
    assert!(stopped(node, "k", 1).await);
    bench.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(holder(node, "k").await.is_none());
}
