//! What every node must do with what the requests of idempotency keys came to.

use bytes::Bytes;

use crate::*;

/// As it should be, and nobody listened.
pub(crate) const STORED: CompleteReply = CompleteReply::Stored { listeners: 0 };
/// Some number of about the size that a clock gives, and beyond what a float can tell from its neighbours.
pub(crate) const NUMBER: u64 = 1_800_000_000_000_000_123;

/// A request for the lock of `key`, or its record, that proposes `number`.
pub(crate) fn request(key: NodeKey, owner: u32, number: u64) -> RecallRequest {
    let lock = AcquireRequest::new(key, token(owner), LONG).fenced(fence(number));
    RecallRequest::new(lock, false, LONG)
}

/// The same for the lock in any case, if it `adopts`.
pub(crate) fn adopting(adopts: bool, request: RecallRequest) -> RecallRequest {
    RecallRequest {
        adopt: adopts,
        ..request
    }
}

/// The same for a record that a quorum has, if it is `chosen`.
pub(crate) fn choosing(chosen: bool, request: CompleteRequest) -> CompleteRequest {
    CompleteRequest { chosen, ..request }
}

pub(crate) async fn recall(node: &dyn Node, name: &str, owner: u32, number: u64) -> AcquireReply {
    node.recall(request(key(name), owner, number))
        .await
        .unwrap()
}

/// The same for the lock in any case.
pub(crate) async fn adopt(node: &dyn Node, name: &str, owner: u32, number: u64) -> AcquireReply {
    let request = adopting(true, request(key(name), owner, number));
    node.recall(request).await.unwrap()
}

/// Takes the lock of `name` without a number, so that any ballot will do.
pub(crate) async fn begin_unnumbered(node: &dyn Node, name: &str, owner: u32) {
    let plain = AcquireRequest::new(key(name), token(owner), LONG);
    let reply = node.recall(RecallRequest::new(plain, false, LONG)).await;
    assert!(
        matches!(reply, Ok(AcquireReply::Promised { fence: None, .. })),
        "{reply:?}"
    );
}

/// The number of a lock that was granted.
pub(crate) fn number(reply: &AcquireReply) -> u64 {
    match reply {
        AcquireReply::Promised {
            fence: Some(fence), ..
        } => fence.get(),
        other => panic!("not granted with a number: {other:?}"),
    }
}

/// The number of the lock that was granted, where there is no record.
pub(crate) fn granted(reply: Result<AcquireReply, NodeError>) -> u64 {
    match reply {
        Ok(AcquireReply::Promised {
            fence: Some(fence),
            record: None,
            ..
        }) => fence.get(),
        other => panic!("not granted with a number: {other:?}"),
    }
}

/// The record that was found where the lock was granted.
pub(crate) const fn found(reply: &AcquireReply) -> Option<&Record> {
    match reply {
        AcquireReply::Promised { record, .. } => record.as_ref(),
        _ => None,
    }
}

/// Takes the lock of `name`, which has no record; its number.
pub(crate) async fn begin(node: &dyn Node, name: &str, owner: u32) -> u64 {
    granted(node.recall(request(key(name), owner, NUMBER)).await)
}

pub(crate) fn record(ballot: u64, body: impl Into<Bytes>) -> Record {
    Record::new(FencingToken::new(ballot).unwrap(), body.into(), FAR)
}

/// What `owner` wants kept: a record that tells its ballot.
pub(crate) fn completion(name: &str, owner: u32, ballot: u64) -> CompleteRequest {
    let record = record(ballot, ballot.to_string());
    CompleteRequest::new(release(name, owner), Some(record))
}

pub(crate) async fn complete(node: &dyn Node, request: CompleteRequest) -> CompleteReply {
    node.complete(request).await.unwrap()
}

/// Completes `request` as it should be, and nobody listened.
pub(crate) async fn stored(node: &dyn Node, request: CompleteRequest) {
    assert_eq!(complete(node, request).await, STORED);
}

/// Completes `request`, and nothing is kept of it.
pub(crate) async fn unkept(node: &dyn Node, request: CompleteRequest) {
    assert_eq!(complete(node, request).await, CompleteReply::Refused);
}

async fn abandon(node: &dyn Node, name: &str, owner: u32) -> CompleteReply {
    let request = CompleteRequest::new(release(name, owner), None);
    complete(node, request).await
}

/// The ballot of the record of `name`, or none. Who looks is granted nothing that lasts.
pub(crate) async fn ballot(node: &dyn Node, name: &str) -> Option<u64> {
    let looking = u32::MAX;
    match recall(node, name, looking, 1).await {
        AcquireReply::Recorded(record) => {
            assert_eq!(record.body, record.ballot.to_string(), "one of another");
            Some(record.ballot.get())
        }
        AcquireReply::Promised { record: None, .. } => {
            assert_eq!(abandon(node, name, looking).await, STORED);
            None
        }
        other => panic!("{other:?}"),
    }
}

/// Holds the lock of another key for `span` from now on, and waits until that has ended: whatever was to last no longer
/// and began earlier has ended then too.
pub(crate) async fn outlast(node: &dyn Node, span: Duration) {
    let witness = AcquireRequest::new(key("witness"), token(99), span);
    node.acquire(witness).await.unwrap();
    free(node, "witness").await;
}

/// Waits until nobody holds the lock of `name`.
pub(crate) async fn free(node: &dyn Node, name: &str) {
    let ended = async {
        while holder(node, name).await.is_some() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let ended = tokio::time::timeout(PATIENCE, ended).await;
    assert!(ended.is_ok(), "the lock of `{name}` does not end");
}

pub(crate) async fn what_was_recorded_is_told_to_the_byte(node: &dyn Node) {
    let every = (0..=u8::MAX).collect::<Vec<u8>>();
    let long = every.repeat(4_096);
    assert_eq!(long.len(), 1 << 20);
    for (name, body) in [("empty", vec![]), ("every", every), ("long", long)] {
        let record = record(begin(node, name, 1).await, body);
        let request = CompleteRequest::new(release(name, 1), Some(record.clone()));
        assert_eq!(complete(node, request).await, STORED, "{name}");
        assert_eq!(holder(node, name).await, None, "the lock is given back");
        // It is told as often as anybody asks.
        for owner in [2, 1] {
            let told = recall(node, name, owner, NUMBER).await;
            assert!(told == AcquireReply::Recorded(record.clone()), "{name}");
            assert_eq!(holder(node, name).await, None, "nothing is granted");
        }
    }
}

pub(crate) async fn a_recall_of_what_is_under_way_is_held(node: &dyn Node) {
    begin(node, "k", 1).await;
    let held = holder(node, "k").await.unwrap();
    let is_held = |reply: &AcquireReply| match reply {
        AcquireReply::Held(holder) => holder.tag == held.tag,
        _ => false,
    };
    for reply in [
        recall(node, "k", 2, NUMBER).await,
        adopt(node, "k", 2, NUMBER).await,
    ] {
        assert!(is_held(&reply), "{reply:?}");
    }
    // Who was refused was granted nothing since.
    stored(node, completion("k", 1, NUMBER)).await;
    // While another adopts what there is, who only asks is told of it.
    let reply = adopt(node, "k", 3, NUMBER).await;
    assert!(found(&reply).is_some(), "{reply:?}");
    assert_eq!(ballot(node, "k").await, Some(NUMBER));
    let reply = adopt(node, "k", 2, NUMBER).await;
    assert!(matches!(reply, AcquireReply::Held(_)), "{reply:?}");
    assert!(released(node, "k", 3).await, "nobody else took it");
}

pub(crate) async fn a_record_is_adopted_under_a_higher_number(node: &dyn Node) {
    recall(node, "k", 1, NUMBER).await;
    complete(node, completion("k", 1, NUMBER)).await;
    let step = FencingToken::STEP;
    for (owner, proposal, number) in [
        (2, 1, NUMBER + step),
        (3, NUMBER + 5 * step, NUMBER + 5 * step),
    ] {
        let reply = adopt(node, "k", owner, proposal).await;
        let expected = record(NUMBER, NUMBER.to_string());
        assert_eq!(found(&reply), Some(&expected));
        assert!(
            matches!(reply, AcquireReply::Promised { fence, .. } if fence == FencingToken::new(number)),
            "{reply:?}"
        );
        let left = left(node, "k").await;
        assert!(left > LONG / 2, "{left:?}");
        assert!(released(node, "k", owner).await);
        assert_eq!(ballot(node, "k").await, Some(NUMBER), "it stays");
    }
    // Where there is nothing to adopt it is a grant like any other; without a number too.
    granted(Ok(adopt(node, "new", 1, NUMBER).await));
    let plain = AcquireRequest::new(key("plain"), token(1), LONG);
    for adopt in [true, false] {
        let request = RecallRequest::new(plain.clone(), adopt, LONG);
        let reply = node.recall(request).await;
        let reply = reply.unwrap();
        assert!(found(&reply).is_none());
        assert!(matches!(reply, AcquireReply::Promised { fence: None, .. }));
    }
}

pub(crate) async fn nothing_is_recorded_behind_another_s_back(node: &dyn Node) {
    let brief = Duration::from_millis(20);
    for (name, adopted, gone) in [
        ("a", false, false),
        ("b", false, true),
        ("c", true, false),
        ("d", true, true),
    ] {
        let mut first = request(key(name), 1, NUMBER);
        first.lock.ttl = brief;
        let lower = granted(node.recall(first).await);
        free(node, name).await;
        let second = adopting(adopted, request(key(name), 2, 1));
        let number = granted(node.recall(second).await);
        assert!(number > lower);
        if gone {
            assert!(released(node, name, 2).await);
        }
        // They looked for a record and found none. A ballot is no way around it.
        for ballot in [lower, number + 1] {
            let reply = complete(node, completion(name, 1, ballot)).await;
            assert_eq!(reply, CompleteReply::Refused, "{name}");
        }
        assert_eq!(abandon(node, name, 1).await, STORED, "there is nothing");
        if !gone {
            let left = left(node, name).await;
            assert!(left > LONG / 2, "the other's lock is untouched: {left:?}");
        }
        let reply = complete(node, completion(name, 2, number)).await;
        assert_eq!(reply, STORED, "{name}: nobody came after the other");
        assert_eq!(ballot(node, name).await, Some(number));
    }
}

pub(crate) async fn an_overrun_lock_does_not_matter_while_nobody_came(node: &dyn Node) {
    let mut first = request(key("k"), 1, NUMBER);
    first.lock.ttl = Duration::from_millis(20);
    node.recall(first).await.unwrap();
    free(node, "k").await;
    // For the last time it was refused, and so it was never granted to this one.
    unkept(node, completion("k", 2, NUMBER + 1)).await;
    stored(node, completion("k", 1, NUMBER)).await;
    assert_eq!(ballot(node, "k").await, Some(NUMBER));
}

pub(crate) async fn the_same_completion_twice_does_nothing_more(node: &dyn Node) {
    recall(node, "k", 1, NUMBER).await;
    for _ in 0..2 {
        stored(node, completion("k", 1, NUMBER)).await;
    }
    // Whoever adopts it meanwhile: it is there, after all.
    adopt(node, "k", 2, 1).await;
    stored(node, completion("k", 1, NUMBER)).await;
    assert_eq!(ballot(node, "k").await, Some(NUMBER));
    assert!(released(node, "k", 2).await, "the other's lock stays");
}

pub(crate) async fn of_two_ballots_the_higher_stays(node: &dyn Node) {
    // Neither as texts nor as floats would all of them be in order.
    let pairs = [
        (999, 1_000),
        (9_007_199_254_740_992, 9_007_199_254_740_993),
        (NUMBER, NUMBER + 1),
        (9_999_999_999_999_999, 10_000_000_000_000_000),
    ];
    for (index, (lower, higher)) in pairs.into_iter().enumerate() {
        for chosen in [false, true] {
            let name = format!("{index}{chosen}");
            let request = |ballot| choosing(chosen, completion(&name, 1, ballot));
            // Without a number, which no ballot may be below.
            begin_unnumbered(node, &name, 1).await;
            stored(node, request(lower)).await;
            stored(node, request(higher)).await;
            assert_eq!(ballot(node, &name).await, Some(higher));
            // Who wrote the higher one was told of the lower, if that was chosen; then all is as it should be.
            let reply = complete(node, request(lower)).await;
            let right = if chosen {
                STORED
            } else {
                CompleteReply::Refused
            };
            assert_eq!(reply, right, "{lower} after {higher}");
            assert_eq!(ballot(node, &name).await, Some(higher));
        }
    }
}

pub(crate) async fn nothing_is_recorded_under_a_lower_ballot_than_was_promised(node: &dyn Node) {
    let lower = NUMBER - 1;
    for (name, adopts) in [("new", false), ("adopted", true)] {
        let request = adopting(adopts, request(key(name), 1, NUMBER));
        let promised = granted(node.recall(request).await);
        assert!(promised >= NUMBER);
        let reply = complete(node, completion(name, 1, lower)).await;
        assert_eq!(reply, CompleteReply::Refused, "{name}");
        assert_eq!(holder(node, name).await, None, "the lock is given back");
        // What a quorum has is right whatever was promised.
        let chosen = completion(name, 1, lower).chosen();
        assert_eq!(complete(node, chosen).await, STORED, "{name}");
        assert_eq!(ballot(node, name).await, Some(lower));
        // A record of a higher ballot may replace it, as ever.
        let reply = complete(node, completion(name, 1, promised)).await;
        assert_eq!(reply, STORED, "{name}");
        assert_eq!(ballot(node, name).await, Some(promised));
    }
    // It is the last grant that counts.
    let mut first = request(key("again"), 1, NUMBER + 5 * FencingToken::STEP);
    first.lock.ttl = Duration::from_millis(20);
    let high = granted(node.recall(first).await);
    free(node, "again").await;
    let higher = begin(node, "again", 2).await;
    assert!(higher > high);
    unkept(node, completion("again", 2, high)).await;
    stored(node, completion("again", 2, higher)).await;
}

pub(crate) async fn a_chosen_record_is_kept_whoever_came(node: &dyn Node) {
    // Where nobody ever came, and where another has the lock.
    for name in ["new", "k"] {
        if name == "k" {
            recall(node, name, 2, NUMBER).await;
            unkept(node, completion(name, 1, NUMBER)).await;
        }
        let chosen = completion(name, 1, NUMBER).chosen();
        stored(node, chosen).await;
        assert_eq!(ballot(node, name).await, Some(NUMBER));
    }
    assert!(released(node, "k", 2).await, "the other's lock stays");
    // It takes the place of a lower ballot.
    begin_unnumbered(node, "low", 3).await;
    complete(node, completion("low", 3, 7)).await;
    let last = number(&adopt(node, "low", 4, NUMBER).await);
    let chosen = completion("low", 1, NUMBER).chosen();
    stored(node, chosen).await;
    assert_eq!(ballot(node, "low").await, Some(NUMBER));
    // The other is still the last who was granted the lock.
    stored(node, completion("low", 4, last)).await;
    assert_eq!(ballot(node, "low").await, Some(last));
}

pub(crate) async fn without_a_record_the_key_is_free_again(node: &dyn Node) {
    recall(node, "k", 1, NUMBER).await;
    assert_eq!(abandon(node, "k", 1).await, STORED);
    assert_eq!(holder(node, "k").await, None);
    // The node has forgotten the grant, and what comes late finds neither that nor the lock.
    unkept(node, completion("k", 1, NUMBER)).await;
    let number = begin(node, "k", 2).await;
    // Another's grant is not forgotten.
    assert_eq!(abandon(node, "k", 1).await, STORED);
    assert!(released(node, "k", 2).await);
    stored(node, completion("k", 2, number)).await;
    // Nor ever a record, whoever was granted the lock last.
    let step = FencingToken::STEP;
    assert!(found(&adopt(node, "k", 3, number + step).await).is_some());
    for owner in [2, 3] {
        assert_eq!(abandon(node, "k", owner).await, STORED);
        assert_eq!(ballot(node, "k").await, Some(number));
    }
    assert_eq!(holder(node, "k").await, None);
}
