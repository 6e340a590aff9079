//! How long every node keeps what requests came to, and when it keeps nothing.

use std::fmt::Debug;

use crate::*;

const BRIEF: Duration = Duration::from_millis(20);

pub(crate) async fn a_grant_is_remembered_for_as_long_as_was_asked(node: &dyn Node) {
    let briefly = async |name: &str, ttl, linger| {
        let mut request = request(key(name), 1, NUMBER);
        (request.lock.ttl, request.linger) = (ttl, linger);
        granted(node.recall(request).await)
    };
    briefly("both over", BRIEF, BRIEF).await;
    let held = briefly("held", LONG, BRIEF).await;
    let set_again = briefly("set again", BRIEF, BRIEF).await;
    let overtaken = briefly("overtaken", BRIEF, BRIEF).await;
    briefly("another's", BRIEF, BRIEF).await;
    outlast(node, BRIEF).await;
    let mut second = request(key("overtaken"), 2, NUMBER);
    (second.lock.ttl, second.linger) = (BRIEF, BRIEF);
    let higher = granted(node.recall(second).await);
    outlast(node, BRIEF).await;
    for name in ["set again", "overtaken"] {
        assert_extend(node, refill(name, 1), ExtendReply::Refilled).await;
    }
    // It cannot know who came meanwhile.
    unkept(node, completion("both over", 1, NUMBER)).await;
    // Nobody came meanwhile, says the counter.
    for (name, number) in [("held", held), ("set again", set_again)] {
        let reply = complete(node, completion(name, 1, number)).await;
        assert_eq!(reply, STORED, "{name}");
        assert_eq!(ballot(node, name).await, Some(number));
    }
    // Somebody did, however far the first has come with its lock.
    for lower in [overtaken, higher - 1] {
        extend_one(node, refill("overtaken", 1)).await;
        unkept(node, completion("overtaken", 1, lower)).await;
        assert_eq!(holder(node, "overtaken").await, None, "it is given back");
    }
    let chosen = completion("overtaken", 1, overtaken).chosen();
    stored(node, chosen).await;
    let mut second = request(key("another's"), 2, NUMBER);
    second.linger = BRIEF;
    node.recall(second).await.unwrap();
    outlast(node, BRIEF).await;
    unkept(node, completion("another's", 1, NUMBER)).await;
    assert!(released(node, "another's", 2).await, "it is untouched");
}

pub(crate) async fn a_completion_tells_its_listeners(bench: &impl Bench) {
    let node = &*bench.node();
    for count in 0..3_u32 {
        for body in [None, Some(record(NUMBER, "done"))] {
            // A name each time: a server takes note of a closed connection in its own time.
            let name = format!("k{count}{}", body.is_some());
            let listeners: Vec<_> = (0..count).map(|_| bench.listen(&name)).collect();
            let _elsewhere = bench.listen("other");
            begin_unnumbered(node, &name, 1).await;
            let request = CompleteRequest::new(release(&name, 1), body);
            let reply = complete(node, request.clone()).await;
            assert_eq!(reply, CompleteReply::Stored { listeners: count });
            // There is nothing more to give back.
            stored(node, request).await;
            drop(listeners);
        }
    }
    let (receiver, _subscription) = listening(node, &key("k")).await;
    begin_unnumbered(node, "k", 1).await;
    let mut silent = completion("k", 1, NUMBER);
    silent.release = ReleaseRequest::new(key("k"), token(1), false);
    stored(node, silent).await;
    adopt(node, "k", 2, 1).await;
    let told = complete(node, completion("k", 2, NUMBER)).await;
    assert_eq!(told, CompleteReply::Stored { listeners: 1 });
    eventually("told", || receiver.notices().released > 0).await;
    assert_eq!(receiver.notices().released, 1);
}

/// Under our config.
fn under(mut request: RecallRequest) -> RecallRequest {
    request.lock = request.lock.under(Some(ours()));
    request
}

pub(crate) async fn a_node_in_quarantine_keeps_nothing_of_its_own_and_releases(bench: &impl Bench) {
    let node = &*voting(bench, ours()).await;
    let bare = |name| CompleteRequest::new(release(name, 1), None).under(Some(ours()));
    let full = |name| completion(name, 1, NUMBER).under(Some(ours()));
    let refused = async |name: &str, request| {
        let listener = bench.listen(name);
        extend_one(node, refill_under(ours(), name, 1)).await;
        let reply = complete(node, request).await;
        assert_eq!(reply, CompleteReply::Refused, "{name}");
        assert_eq!(holder(node, name).await, None, "{name}: given back");
        drop(listener);
    };
    for looked_at in [false, true] {
        bench.forget();
        let id = match looked_at {
            true => Some(quarantine(node, ours(), "first").await),
            false => None,
        };
        for adopt in [false, true] {
            let request = adopting(adopt, under(request(key("k"), 2, NUMBER)));
            let reply = node.recall(request).await;
            assert_eq!(kind(reply), NodeErrorKind::Quarantined);
            assert_eq!(holder(node, "k").await, None, "nothing is set");
        }
        refused("full", full("full")).await;
        refused("bare", bare("bare")).await;
        // A record that a quorum has is right whatever the node has forgotten.
        let chosen = complete(node, full("chosen").chosen()).await;
        assert_eq!(chosen, STORED);
        if let Some(id) = id {
            assert!(promote(node, ours(), &id, 0).await);
            for (name, kept) in [("full", None), ("bare", None), ("chosen", Some(NUMBER))] {
                assert_eq!(ballot(node, name).await, kept, "{name}");
            }
        }
    }
    let reply = node.recall(under(request(key("k"), 1, NUMBER))).await;
    granted(reply);
    stored(node, full("k")).await;
}

pub(crate) async fn a_record_on_a_node_in_quarantine_is_not_told(bench: &impl Bench) {
    let node = &*voting(bench, ours()).await;
    node.recall(under(request(key("k"), 1, NUMBER)))
        .await
        .unwrap();
    // Without a config nobody asks whether the node may vote.
    bench.forget();
    complete(node, completion("k", 1, NUMBER).chosen()).await;
    let id = quarantine(node, ours(), "first").await;
    for adopt in [false, true] {
        let request = adopting(adopt, under(request(key("k"), 2, NUMBER)));
        let reply = node.recall(request).await;
        assert_eq!(kind(reply), NodeErrorKind::Quarantined);
    }
    assert!(promote(node, ours(), &id, 0).await);
    let reply = node.recall(under(request(key("k"), 2, NUMBER))).await;
    let told = record(NUMBER, NUMBER.to_string());
    assert_eq!(reply, Ok(AcquireReply::Recorded(told)));
}

pub(crate) async fn records_stay_within_their_config(bench: &impl Bench) {
    let node = &*voting(bench, ours()).await;
    let begun = async |name| granted(node.recall(under(request(key(name), 1, NUMBER))).await);
    let (number, done) = (begun("k").await, begun("done").await);
    complete(node, completion("done", 1, done).under(Some(ours()))).await;
    for (name, owner) in [("k", 1), ("done", 2), ("free", 2)] {
        for adopt in [false, true] {
            let mut request = adopting(adopt, request(key(name), owner, NUMBER));
            request.lock = request.lock.under(Some(theirs()));
            let error = node.recall(request).await.unwrap_err();
            assert_shows_both(&error, OURS, THEIRS);
        }
        for chosen in [false, true] {
            let request = choosing(
                chosen,
                completion(name, owner, done + 1).under(Some(theirs())),
            );
            let error = node.complete(request).await.unwrap_err();
            assert_shows_both(&error, OURS, THEIRS);
        }
        let bare = CompleteRequest::new(release(name, owner), None).under(Some(theirs()));
        let error = node.complete(bare).await.unwrap_err();
        assert_shows_both(&error, OURS, THEIRS);
    }
    assert_eq!(ballot(node, "done").await, Some(done));
    assert_eq!(ballot(node, "free").await, None);
    // The lock is still there and its grant not forgotten.
    assert!(released(node, "k", 1).await);
    stored(node, completion("k", 1, number).under(Some(ours()))).await;
}

pub(crate) async fn a_recall_that_comes_late_is_void(bench: &impl Remote) {
    let node = &*bench.node();
    let bare = CompleteRequest::new(release("bare", 1), None);
    let full = completion("full", 1, NUMBER);
    for (name, mut request) in [("bare", bare), ("full", full)] {
        let since = SystemClock::new().now();
        begin(node, name, 1).await;
        request.release = request.release.since(since);
        bench.disconnect();
        let start = Instant::now();
        // The old connection is dead, so what is answered went out on a new one.
        let reply = loop {
            match node.complete(request.clone()).await {
                Ok(reply) => break reply,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
            sleep(Duration::from_millis(1)).await;
        };
        assert_eq!(reply, STORED);
        renews_again(node).await;
        for adopt in [false, true] {
            for late in [name, "another"] {
                let request = adopting(adopt, self::request(key(late), 1, NUMBER));
                match node.recall(request).await {
                    Err(error) => assert_eq!(error.kind(), NodeErrorKind::Rejected),
                    Ok(reply) => {
                        let told = record(NUMBER, NUMBER.to_string());
                        assert_eq!(reply, AcquireReply::Recorded(told));
                        assert!(!adopt && late == "full");
                    }
                }
                let extended = extend_one(node, refill(late, 1)).await;
                assert_eq!(extended, ExtendReply::Absent, "{late}");
                assert_eq!(holder(node, late).await, None, "{late}");
            }
        }
        // It was not granted, and so it is not the last to whom that happened.
        unkept(node, completion("another", 1, NUMBER)).await;
        assert_eq!(ballot(node, "another").await, None);
        // The tombstone is one token's.
        begin(node, "others", 2).await;
        assert!(released(node, "others", 2).await);
        bench.forget();
    }
}

/// Every kind of request for the lock of `name`, or its record.
fn recalls(name: &str) -> [RecallRequest; 4] {
    let kinds = [(false, true), (true, true), (false, false), (true, false)];
    kinds.map(|(adopt, numbered)| {
        let mut request = adopting(adopt, request(key(name), 1, NUMBER));
        request.lock.fence = request.lock.fence.filter(|_| numbered);
        request
    })
}

#[track_caller]
fn assert_no_lock<T: Debug>(result: Result<T, NodeError>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::WrongType);
    assert!(error.to_string().contains("not a lock"), "{error}");
}

#[track_caller]
fn assert_full<T: Debug>(result: Result<T, NodeError>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::Full);
    assert!(error.to_string().contains("maxmemory"), "{error}");
}

pub(crate) async fn what_is_no_record_is_left_alone(bench: &impl Remote) {
    let node = &*bench.node();
    let list = key("k").record().concat();
    bench.command(&["RPUSH", &list, "item"]);
    for request in recalls("k") {
        assert_no_lock(node.recall(request).await);
        assert_eq!(holder(node, "k").await, None, "nothing is set");
    }
    for request in [
        completion("k", 1, NUMBER),
        completion("k", 1, NUMBER).chosen(),
        CompleteRequest::new(release("k", 1), None),
    ] {
        let _listener = bench.listen("k");
        node.acquire(acquire("k", 1)).await.unwrap();
        assert_no_lock(node.complete(request).await);
        assert_eq!(holder(node, "k").await, None, "it is given back");
    }
    assert_eq!(bench.command(&["LLEN", &list]), "1");
    // Times that no server can set as an expiry.
    for (name, text) in [
        ("late", "o 1 9223372036854775807 "),
        ("long", "o 1 1 2 9223372036854775807 body"),
    ] {
        let record = key(name).record().concat();
        bench.command(&["SET", &record, text]);
        assert_no_lock(node.recall(request(key(name), 1, NUMBER)).await);
        assert_eq!(holder(node, name).await, None, "nothing is set");
        node.acquire(acquire(name, 1)).await.unwrap();
        assert_no_lock(node.complete(completion(name, 1, NUMBER).chosen()).await);
        assert_eq!(holder(node, name).await, None, "it is given back");
        assert_eq!(bench.command(&["GET", &record]).trim_end(), text.trim_end());
    }
}

pub(crate) async fn where_there_is_no_lock_nothing_is_recalled(bench: &impl Remote) {
    let node = &*bench.node();
    let lock = key("k");
    bench.command(&["RPUSH", lock.as_str(), "item"]);
    for request in recalls("k") {
        assert_no_lock(node.recall(request).await);
    }
    // It was granted to nobody, and what is there is not ours.
    unkept(node, completion("k", 1, NUMBER)).await;
    stored(node, completion("k", 1, NUMBER).chosen()).await;
    assert_eq!(bench.command(&["LLEN", lock.as_str()]), "1");
    bench.command(&["DEL", lock.as_str()]);
    assert_eq!(ballot(node, "k").await, Some(NUMBER));
}

pub(crate) async fn without_memory_nothing_is_kept_and_the_lock_is_given_back(bench: &impl Remote) {
    let node = &*bench.node();
    for name in ["k", "bare", "done"] {
        begin_unnumbered(node, name, 1).await;
    }
    complete(node, completion("done", 1, NUMBER)).await;
    let listener = bench.listen("k");
    bench.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for name in ["new", "k"] {
        let owner = if name == "k" { 1 } else { 2 };
        assert_full(node.recall(request(key(name), owner, NUMBER)).await);
    }
    assert_full(node.complete(completion("k", 1, NUMBER)).await);
    let exists = |name: &str| bench.command(&["EXISTS", key(name).as_str()]);
    assert_eq!(exists("k"), "0", "it is given back");
    assert_eq!(exists("new"), "0");
    // To give it up, or to tell what is there, needs no memory.
    let bare = CompleteRequest::new(release("bare", 1), None);
    stored(node, bare).await;
    assert_eq!(exists("bare"), "0");
    assert_eq!(ballot(node, "done").await, Some(NUMBER));
    bench.command(&["CONFIG", "SET", "maxmemory", "0"]);
    drop(listener);
    // It is still the last to whom it was granted, and may try again.
    stored(node, completion("k", 1, NUMBER)).await;
    assert_eq!(ballot(node, "k").await, Some(NUMBER));
}

pub(crate) async fn what_was_granted_before_a_promotion_is_not_kept_after_it(bench: &impl Remote) {
    let node = &*voting(bench, ours()).await;
    let mut request = request(key("k"), 1, NUMBER);
    request.lock = request.lock.under(Some(ours()));
    granted(node.recall(request).await);
    // It comes back with just this, while another was granted a higher number elsewhere.
    bench.command(&["HDEL", "lk!node", "identity", "vote"]);
    let id = quarantine(node, ours(), "second").await;
    assert!(promote(node, ours(), &id, NUMBER + 100_000).await);
    unkept(node, completion("k", 1, NUMBER).under(Some(ours()))).await;
}
