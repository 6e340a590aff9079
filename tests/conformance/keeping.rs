//! How long every node keeps what requests came to, and when it keeps nothing.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_redlock::clock::{Clock as _, SystemClock};
use tower_redlock::node::{
    AcquireReply, CompleteReply, CompleteRequest, ExtendReply, Node, NodeErrorKind, RecallRequest,
};

use crate::claims::{Bench, Remote, extend_one, holder, released};
use crate::records::{
    NUMBER, STORED, adopt, ballot, begin, complete, completion, found, granted, outlast, recall,
    record, request,
};
use crate::standing::{
    OURS, THEIRS, assert_shows_both, charter, kind, ours, promote, quarantine, refill_under,
    theirs, voting,
};
use crate::support::PATIENCE;
use crate::support::nodes::{LONG, acquire, key, refill, release, unix_millis};

const BRIEF: Duration = Duration::from_millis(20);
/// Long enough to look meanwhile.
const SPAN: Duration = Duration::from_millis(500);

/// The same with a record that ends `span` from now on.
fn ending(mut request: CompleteRequest, span: Duration) -> CompleteRequest {
    let until = unix_millis() + u64::try_from(span.as_millis()).unwrap();
    request.record.as_mut().unwrap().until = until;
    request
}

pub(crate) async fn a_record_is_kept_until_its_end(bench: &impl Bench) {
    let node = bench.node();
    let mut brief = request(key("k"), 1, NUMBER);
    brief.linger = BRIEF;
    node.recall(brief).await.unwrap();
    let request = ending(completion("k", 1, NUMBER), SPAN);
    assert_eq!(complete(&*node, request).await, STORED);
    assert_eq!(ballot(&*node, "k").await, Some(NUMBER));
    outlast(&*node, SPAN).await;
    assert_eq!(ballot(&*node, "k").await, None);
    // What is over is no obstacle: not to a lower ballot either.
    recall(&*node, "k", 2, 1).await;
    let reply = complete(&*node, completion("k", 2, 7)).await;
    assert_eq!(reply, STORED);
    assert_eq!(ballot(&*node, "k").await, Some(7));
}

pub(crate) async fn a_record_keeps_its_end_whoever_writes_it_again(bench: &impl Bench) {
    let node = bench.node();
    let names = ["as it is", "adopted", "again", "chosen", "anew"];
    let mut requests = Vec::new();
    for name in names {
        begin(&*node, name, 1).await;
        let request = ending(completion(name, 1, NUMBER), SPAN);
        assert_eq!(complete(&*node, request.clone()).await, STORED);
        requests.push(request);
    }
    let end = requests[4].record.clone().unwrap().until;
    for (name, request) in names.into_iter().zip(requests) {
        match name {
            "adopted" | "anew" => {
                // For the sake of who adopts it, the node remembers the key for longer.
                let reply = adopt(&*node, name, 2, 1).await;
                assert_eq!(found(&reply), request.record.as_ref());
                if name == "anew" {
                    let mut request = completion(name, 2, NUMBER + 1);
                    request.record.as_mut().unwrap().until = end;
                    assert_eq!(complete(&*node, request).await, STORED);
                }
            }
            "again" => assert_eq!(complete(&*node, request).await, STORED),
            "chosen" => assert_eq!(complete(&*node, request.chosen()).await, STORED),
            _ => {}
        }
    }
    outlast(&*node, SPAN).await;
    for name in names {
        release_all(&*node, name).await;
        assert_eq!(ballot(&*node, name).await, None, "{name}");
    }
}

async fn release_all(node: &dyn Node, name: &str) {
    for owner in [1, 2] {
        released(node, name, owner).await;
    }
}

pub(crate) async fn the_end_is_that_of_the_record_which_is_there(bench: &impl Bench) {
    let node = bench.node();
    for (name, (first, first_ends), (second, second_ends), told) in [
        ("longer", (7, true), (8, false), Some(8)),
        ("shorter", (7, false), (8, true), None),
        // Who wrote the higher one was told of it.
        ("lower", (8, false), (7, true), Some(8)),
        ("lower and longer", (8, true), (7, false), None),
    ] {
        begin(&*node, name, 1).await;
        for (ballot, ends) in [(first, first_ends), (second, second_ends)] {
            let request = completion(name, 1, ballot).chosen();
            let request = match ends {
                true => ending(request, SPAN),
                false => request,
            };
            assert_eq!(complete(&*node, request).await, STORED, "{name}");
        }
        outlast(&*node, SPAN).await;
        assert_eq!(ballot(&*node, name).await, told, "{name}");
    }
}

pub(crate) async fn nothing_is_kept_that_has_ended(bench: &impl Bench) {
    let node = bench.node();
    for chosen in [false, true] {
        let name = format!("k{chosen}");
        begin(&*node, &name, 1).await;
        let mut late = ending(completion(&name, 1, NUMBER), Duration::ZERO);
        late.chosen = chosen;
        assert_eq!(complete(&*node, late).await, CompleteReply::Refused);
        assert_eq!(holder(&*node, &name).await, None, "it is given back");
        // Nobody came since, and so another may be kept.
        let reply = complete(&*node, completion(&name, 1, NUMBER)).await;
        assert_eq!(reply, STORED);
        // Nor does it take away what is there.
        let mut late = ending(completion(&name, 1, NUMBER + 1), Duration::ZERO);
        late.chosen = chosen;
        assert_eq!(complete(&*node, late).await, CompleteReply::Refused);
        assert_eq!(ballot(&*node, &name).await, Some(NUMBER));
    }
}

pub(crate) async fn a_grant_tells_what_the_clock_shows(bench: &impl Bench) {
    let node = bench.node();
    let showed = |reply| match reply {
        AcquireReply::Promised { now, .. } => now,
        other => panic!("{other:?}"),
    };
    let began = unix_millis();
    let first = showed(recall(&*node, "k", 1, NUMBER).await);
    let request = ending(completion("k", 1, NUMBER), SPAN);
    let end = request.record.as_ref().unwrap().until;
    assert_eq!(complete(&*node, request).await, STORED);
    let second = showed(adopt(&*node, "k", 2, NUMBER).await);
    assert!(began <= first && first <= second && second <= unix_millis());
    assert!(released(&*node, "k", 2).await);
    outlast(&*node, SPAN).await;
    // Who is granted it without a record can tell that this one has ended, if another node has it yet.
    let third = showed(recall(&*node, "k", 3, NUMBER).await);
    assert!(end <= third && third <= unix_millis(), "{end} {third}");
}

pub(crate) async fn a_grant_is_remembered_for_as_long_as_was_asked(bench: &impl Bench) {
    let node = bench.node();
    let briefly = async |name: &str, ttl, linger| {
        let mut request = request(key(name), 1, NUMBER);
        (request.lock.ttl, request.linger) = (ttl, linger);
        granted(node.recall(request).await);
    };
    briefly("both over", BRIEF, BRIEF).await;
    briefly("held", LONG, BRIEF).await;
    briefly("another's", BRIEF, BRIEF).await;
    outlast(&*node, BRIEF).await;
    // It cannot know who came meanwhile.
    let reply = complete(&*node, completion("both over", 1, NUMBER)).await;
    assert_eq!(reply, CompleteReply::Refused);
    // Nobody can have come meanwhile.
    let reply = complete(&*node, completion("held", 1, NUMBER)).await;
    assert_eq!(reply, STORED);
    assert_eq!(ballot(&*node, "held").await, Some(NUMBER));
    let mut second = request(key("another's"), 2, NUMBER);
    second.linger = BRIEF;
    node.recall(second).await.unwrap();
    outlast(&*node, BRIEF).await;
    let reply = complete(&*node, completion("another's", 1, NUMBER)).await;
    assert_eq!(reply, CompleteReply::Refused);
    assert!(released(&*node, "another's", 2).await, "it is untouched");
}

/// Under our charter.
fn under(mut request: RecallRequest) -> RecallRequest {
    request.lock = request.lock.under(Some(ours()));
    request
}

pub(crate) async fn a_node_in_quarantine_keeps_nothing_of_its_own_and_releases(bench: &impl Bench) {
    let node = voting(bench, ours()).await;
    let bare = |name| CompleteRequest::new(release(name, 1), None).under(Some(ours()));
    let full = |name| completion(name, 1, NUMBER).under(Some(ours()));
    let refused = async |name: &str, request| {
        let listener = bench.listen(name);
        extend_one(&*node, refill_under(ours(), name, 1)).await;
        let reply = complete(&*node, request).await;
        assert_eq!(reply, CompleteReply::Refused, "{name}");
        assert_eq!(holder(&*node, name).await, None, "{name}: given back");
        drop(listener);
    };
    for looked_at in [false, true] {
        bench.forget();
        let id = match looked_at {
            true => Some(quarantine(&*node, ours(), "first").await),
            false => None,
        };
        for adopt in [false, true] {
            let mut request = under(request(key("k"), 2, NUMBER));
            request.adopt = adopt;
            let reply = node.recall(request).await;
            assert_eq!(kind(reply), NodeErrorKind::Quarantined);
            assert_eq!(holder(&*node, "k").await, None, "nothing is set");
        }
        refused("full", full("full")).await;
        refused("bare", bare("bare")).await;
        // A record that a quorum has is right whatever the node has forgotten.
        let chosen = complete(&*node, full("chosen").chosen()).await;
        assert_eq!(chosen, STORED);
        if let Some(id) = id {
            assert!(promote(&*node, ours(), &id, 0).await);
            for name in ["full", "bare"] {
                assert_eq!(ballot(&*node, name).await, None, "{name}");
            }
        }
    }
    let reply = node.recall(under(request(key("k"), 1, NUMBER))).await;
    granted(reply);
    assert_eq!(complete(&*node, full("k")).await, STORED);
}

pub(crate) async fn a_record_on_a_node_in_quarantine_is_not_told(bench: &impl Bench) {
    let node = voting(bench, ours()).await;
    node.recall(under(request(key("k"), 1, NUMBER)))
        .await
        .unwrap();
    // Without a charter nobody asks whether the node may vote.
    bench.forget();
    complete(&*node, completion("k", 1, NUMBER).chosen()).await;
    let id = quarantine(&*node, ours(), "first").await;
    for adopt in [false, true] {
        let mut request = under(request(key("k"), 2, NUMBER));
        request.adopt = adopt;
        let reply = node.recall(request).await;
        assert_eq!(kind(reply), NodeErrorKind::Quarantined);
    }
    assert!(promote(&*node, ours(), &id, 0).await);
    let reply = node.recall(under(request(key("k"), 2, NUMBER))).await;
    let told = record(NUMBER, NUMBER.to_string());
    assert_eq!(reply, Ok(AcquireReply::Recorded(told)));
}

pub(crate) async fn records_keep_out_of_another_charter(bench: &impl Bench) {
    let node = voting(bench, ours()).await;
    for name in ["k", "done"] {
        let reply = node.recall(under(request(key(name), 1, NUMBER))).await;
        granted(reply);
    }
    complete(&*node, completion("done", 1, NUMBER).under(Some(ours()))).await;
    for (name, owner) in [("k", 1), ("done", 2), ("free", 2)] {
        for adopt in [false, true] {
            let mut request = request(key(name), owner, NUMBER);
            request.lock = request.lock.under(Some(theirs()));
            request.adopt = adopt;
            let error = node.recall(request).await.unwrap_err();
            assert_shows_both(&error, OURS, THEIRS);
        }
        for chosen in [false, true] {
            let mut request = completion(name, owner, NUMBER + 1).under(Some(theirs()));
            request.chosen = chosen;
            let error = node.complete(request).await.unwrap_err();
            assert_shows_both(&error, OURS, THEIRS);
        }
        let bare = CompleteRequest::new(release(name, owner), None).under(Some(theirs()));
        let error = node.complete(bare).await.unwrap_err();
        assert_shows_both(&error, OURS, THEIRS);
    }
    assert_eq!(ballot(&*node, "done").await, Some(NUMBER));
    assert_eq!(ballot(&*node, "free").await, None);
    // The lock is still there and its grant not forgotten.
    assert!(released(&*node, "k", 1).await);
    let reply = complete(&*node, completion("k", 1, NUMBER).under(Some(ours()))).await;
    assert_eq!(reply, STORED);
}

pub(crate) async fn a_recall_for_longer_than_the_node_was_told_is_refused(bench: &impl Bench) {
    let node = voting(bench, charter(OURS, LONG / 2)).await;
    let reply = node.recall(under(request(key("k"), 1, NUMBER))).await;
    assert_eq!(kind(reply), NodeErrorKind::Quarantined);
    assert_eq!(holder(&*node, "k").await, None, "nothing is set");
    let reply = complete(&*node, completion("k", 1, NUMBER)).await;
    assert_eq!(reply, CompleteReply::Refused, "nor remembered");
    // What there is to tell needs no lease.
    complete(&*node, completion("k", 1, NUMBER).chosen()).await;
    let reply = node.recall(under(request(key("k"), 1, NUMBER))).await;
    let told = record(NUMBER, NUMBER.to_string());
    assert_eq!(reply, Ok(AcquireReply::Recorded(told)));
}

pub(crate) async fn a_recall_that_comes_late_is_void(bench: &impl Remote) {
    let node = bench.node();
    let bare = CompleteRequest::new(release("bare", 1), None);
    let full = completion("full", 1, NUMBER);
    for (name, mut request) in [("bare", bare), ("full", full)] {
        let since = SystemClock::new().now();
        begin(&*node, name, 1).await;
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
        for adopt in [false, true] {
            for late in [name, "another"] {
                let mut request = self::request(key(late), 1, NUMBER);
                request.adopt = adopt;
                match node.recall(request).await {
                    Err(error) => assert_eq!(error.kind(), NodeErrorKind::Rejected),
                    Ok(reply) => {
                        let told = record(NUMBER, NUMBER.to_string());
                        assert_eq!(reply, AcquireReply::Recorded(told));
                        assert!(!adopt && late == "full");
                    }
                }
                let extended = extend_one(&*node, refill(late, 1)).await;
                assert_eq!(extended, ExtendReply::Absent, "{late}");
                assert_eq!(holder(&*node, late).await, None, "{late}");
            }
        }
        // It was not granted, and so it is not the last to whom that happened.
        let reply = complete(&*node, completion("another", 1, NUMBER)).await;
        assert_eq!(reply, CompleteReply::Refused);
        assert_eq!(ballot(&*node, "another").await, None);
        // The tombstone is one token's.
        begin(&*node, "others", 2).await;
        assert!(released(&*node, "others", 2).await);
        bench.forget();
    }
}

pub(crate) async fn what_is_no_record_is_left_alone(bench: &impl Remote) {
    let node = bench.node();
    for (number, with_number) in [(1, true), (2, false)] {
        let name = format!("k{number}");
        let list = key(&name).record();
        bench.command(&["RPUSH", &list, "item"]);
        for adopt in [false, true] {
            let mut request = request(key(&name), 1, NUMBER);
            request.adopt = adopt;
            if !with_number {
                request.lock.fence = None;
            }
            let error = node.recall(request).await.unwrap_err();
            assert_eq!(error.kind(), NodeErrorKind::Rejected);
            assert!(error.to_string().contains("not a lock"), "{error}");
            assert_eq!(holder(&*node, &name).await, None, "nothing is set");
        }
        for request in [
            completion(&name, 1, NUMBER),
            completion(&name, 1, NUMBER).chosen(),
            CompleteRequest::new(release(&name, 1), None),
        ] {
            let _listener = bench.listen(&name);
            node.acquire(acquire(&name, 1)).await.unwrap();
            let error = node.complete(request).await.unwrap_err();
            assert_eq!(error.kind(), NodeErrorKind::Rejected);
            assert!(error.to_string().contains("not a lock"), "{error}");
            assert_eq!(holder(&*node, &name).await, None, "it is given back");
        }
        assert_eq!(bench.command(&["LLEN", &list]), "1");
    }
}

pub(crate) async fn where_there_is_no_lock_nothing_is_recalled(bench: &impl Remote) {
    let node = bench.node();
    let lock = key("k");
    bench.command(&["RPUSH", lock.as_str(), "item"]);
    for (adopt, numbered) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut request = request(lock.clone(), 1, NUMBER);
        request.adopt = adopt;
        if !numbered {
            request.lock.fence = None;
        }
        let error = node.recall(request).await.unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Rejected);
        assert!(error.to_string().contains("not a lock"), "{error}");
    }
    // It was granted to nobody, and what is there is not ours.
    let reply = complete(&*node, completion("k", 1, NUMBER)).await;
    assert_eq!(reply, CompleteReply::Refused);
    let chosen = completion("k", 1, NUMBER).chosen();
    assert_eq!(complete(&*node, chosen).await, STORED);
    assert_eq!(bench.command(&["LLEN", lock.as_str()]), "1");
    bench.command(&["DEL", lock.as_str()]);
    assert_eq!(ballot(&*node, "k").await, Some(NUMBER));
}

pub(crate) async fn without_memory_nothing_is_kept_and_the_lock_is_given_back(bench: &impl Remote) {
    let node = bench.node();
    for name in ["k", "bare", "done"] {
        begin(&*node, name, 1).await;
    }
    complete(&*node, completion("done", 1, NUMBER)).await;
    let listener = bench.listen("k");
    bench.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for name in ["new", "k"] {
        let owner = if name == "k" { 1 } else { 2 };
        let error = node
            .recall(request(key(name), owner, NUMBER))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), NodeErrorKind::Rejected);
        assert!(error.to_string().contains("maxmemory"), "{error}");
    }
    let error = node.complete(completion("k", 1, NUMBER)).await.unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::Rejected);
    assert!(error.to_string().contains("maxmemory"), "{error}");
    let exists = |name: &str| bench.command(&["EXISTS", key(name).as_str()]);
    assert_eq!(exists("k"), "0", "it is given back");
    assert_eq!(exists("new"), "0");
    // To give it up, or to tell what is there, needs no memory.
    let bare = CompleteRequest::new(release("bare", 1), None);
    assert_eq!(complete(&*node, bare).await, STORED);
    assert_eq!(exists("bare"), "0");
    assert_eq!(ballot(&*node, "done").await, Some(NUMBER));
    bench.command(&["CONFIG", "SET", "maxmemory", "0"]);
    drop(listener);
    // It is still the last to whom it was granted, and may try again.
    let reply = complete(&*node, completion("k", 1, NUMBER)).await;
    assert_eq!(reply, STORED);
    assert_eq!(ballot(&*node, "k").await, Some(NUMBER));
}
