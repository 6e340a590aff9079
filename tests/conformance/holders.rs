//! What every node must tell operators: who holds keys, and which are held; and how it takes a key from its holder.

use std::collections::BTreeSet;

use tower_redlock::OwnerHash;

use crate::*;

async fn look(node: &dyn Node, name: &str) -> KeyReply {
    let mut found = node.holders(key(name).into()).await.unwrap();
    assert_eq!(found.len(), 1);
    found.remove(0)
}

async fn of(node: &dyn Node, name: &str) -> Option<Holding> {
    look(node, name).await.holding
}

async fn lock(node: &dyn Node, name: &str, token: OwnerToken, ttl: Duration) {
    let request = AcquireRequest::new(key(name), token, ttl);
    assert_eq!(node.acquire(request).await, GRANTED);
}

pub(crate) async fn each_key_is_told_with_its_holder(node: &dyn Node) {
    lock(node, "a", labelled(1, "web-1@77"), LONG).await;
    lock(node, "c", token(2), Duration::from_secs(20)).await;
    let found = node.holders(keys(&["a", "b", "c"])).await.unwrap();
    assert!(found.iter().all(|reply| reply.stored_for.is_none()));
    let found: Vec<_> = found.into_iter().map(|reply| reply.holding).collect();
    let [Some(first), None, Some(third)] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert_eq!((&*first.label, &*third.label), ("web-1@77", ""));
    assert_eq!((first.fence, third.fence), (None, None));
    assert_ne!(first.owner, third.owner);
    let remaining = third.remaining.unwrap();
    assert!(remaining <= Duration::from_secs(20) && remaining > Duration::from_secs(10));
    assert!(first.remaining.unwrap() > remaining);
    // It is the hash of the whole text: that of the digits alone is another one.
    lock(node, "d", token(1), LONG).await;
    assert_ne!(of(node, "d").await.unwrap().owner, first.owner);
}

pub(crate) async fn a_holder_is_told_with_its_fencing_token(node: &dyn Node) {
    let got = token_of(node, acquire("k", 1).fenced(fence(HIGH))).await;
    assert_eq!(of(node, "k").await.unwrap().fence, FencingToken::new(got));
    assert!(released(node, "k", 1).await);
    assert_eq!(of(node, "k").await, None);
}

pub(crate) async fn a_stored_result_is_told_by_its_end_alone(node: &dyn Node) {
    let AcquireReply::Promised { fence, now, .. } = recall(node, "k", 1, NUMBER).await else {
        panic!("nobody has it");
    };
    let running = look(node, "k").await;
    assert_eq!(running.holding.unwrap().fence, fence);
    assert_eq!(running.stored_for, None);
    let record = Record::new(fence.unwrap(), "secret".into(), now + 60_000);
    let request = CompleteRequest::new(release("k", 1), Some(record));
    stored(node, request).await;
    let stored = look(node, "k").await;
    assert_eq!(stored.holding, None);
    let rest = stored.stored_for.unwrap();
    let minute = Duration::from_secs(60);
    assert!(rest <= minute && rest > minute / 2, "{rest:?}");
    // Another one brings it to the nodes that lack it.
    adopt(node, "k", 2, NUMBER).await;
    let adopted = look(node, "k").await;
    assert!(adopted.holding.is_some() && adopted.stored_for.is_some());
    let both = node.holders(keys(&["j", "k"])).await.unwrap();
    let free = (
        both[0].holding.as_ref(),
        both[0].stored_for,
        both[0].is_other,
    );
    assert_eq!(free, (None, None, false));
    let owner = |reply: &KeyReply| reply.holding.as_ref().unwrap().owner;
    assert_eq!(owner(&both[1]), owner(&adopted));
}

async fn scanned(node: &dyn Node, prefix: &str) -> Vec<String> {
    let (mut keys, mut cursor) = (BTreeSet::new(), 0);
    loop {
        let request = ScanRequest {
            namespace: Namespace::default(),
            prefix: prefix.to_owned(),
            cursor,
        };
        let reply = node.scan(request).await.unwrap();
        keys.extend(reply.keys.iter().map(ToString::to_string));
        cursor = reply.next;
        if cursor == 0 {
            return keys.into_iter().collect();
        }
    }
}

pub(crate) async fn a_scan_tells_the_locks_and_nothing_else(node: &dyn Node) {
    for name in ["a:1", "a:2", "a*", "b"] {
        token_of(node, acquire(name, 1).fenced(fence(HIGH))).await;
    }
    assert_eq!(scanned(node, "").await, ["a*", "a:1", "a:2", "b"]);
    assert_eq!(scanned(node, "a:").await, ["a:1", "a:2"]);
    // A prefix is no pattern.
    assert_eq!(scanned(node, "a*").await, ["a*"]);
    assert_eq!(scanned(node, "[ab]").await, [""; 0]);
}

pub(crate) async fn all_pages_of_a_scan_are_all_keys(node: &dyn Node) {
    for number in 0..2_500 {
        lock(node, &number.to_string(), token(1), LONG).await;
    }
    assert_eq!(scanned(node, "").await.len(), 2_500);
}

fn takeover(from: OwnerHash, to: OwnerToken) -> TakeOverRequest {
    TakeOverRequest {
        keys: key("k").into(),
        from,
        to,
        void: LONG,
    }
}

pub(crate) async fn a_key_is_taken_from_the_owner_that_was_seen_and_from_no_other(node: &dyn Node) {
    let operator = token(9).labelled(&Label::new("operator").unwrap());
    lock(node, "k", token(1), LONG).await;
    let seen = of(node, "k").await.unwrap().owner;
    assert!(released(node, "k", 1).await);
    assert_eq!(node.take_over(takeover(seen, operator)).await, Ok(None));
    assert_eq!(of(node, "k").await, None);
    lock(node, "k", token(2), LONG).await;
    assert_eq!(node.take_over(takeover(seen, operator)).await, Ok(None));
    let other = of(node, "k").await.unwrap();
    assert_ne!(other.owner, seen);
    let rest = node.take_over(takeover(other.owner, operator)).await;
    let rest = rest.unwrap().unwrap();
    assert!(rest <= LONG && rest > LONG / 2, "{rest:?}");
    let holding = of(node, "k").await.unwrap();
    assert_eq!(holding.label, "operator");
    let remaining = holding.remaining.unwrap();
    assert!(remaining > LONG / 2 && remaining <= rest + Duration::from_secs(1));
}

pub(crate) async fn an_owner_whose_key_was_taken_sets_it_no_more(bench: &impl Bench) {
    let node = &*bench.node();
    let _listener = bench.listen("k");
    let (owner, operator) = (labelled(1, "web-1"), token(9));
    lock(node, "k", owner, LONG).await;
    let seen = of(node, "k").await.unwrap().owner;
    node.take_over(takeover(seen, operator))
        .await
        .unwrap()
        .unwrap();
    let refill = || ExtendRequest::new(key("k"), owner, LONG, true);
    stopped_by(node, refill()).await;
    let release = ReleaseRequest::new(key("k"), operator, true);
    let released = node.release(release).await.unwrap();
    assert_eq!(released, ReleaseReply::Released { listeners: 1 });
    // It would set the key again otherwise, as after a restart of the node.
    assert_extend(node, refill(), ExtendReply::Absent).await;
    assert_eq!(of(node, "k").await, None);
    lock(node, "k", token(2), LONG).await;
}

/// The tombstone is one for all of an owner's commands, wherever its lock is.
pub(crate) async fn an_owner_is_buried_whatever_kind_of_lock_was_taken(bench: &impl Bench) {
    let (node, root) = (&*bench.node(), Namespace::default());
    for (number, place) in [root.permits(), root.idempotency()].iter().enumerate() {
        let key = place.node_key(&LockKey::new("k").unwrap());
        let owner = token(u32::try_from(number).unwrap());
        let request = AcquireRequest::new(key.clone(), owner, LONG);
        node.acquire(request).await.unwrap();
        let seen = node.holders(key.clone().into()).await.unwrap().remove(0);
        let takeover = TakeOverRequest {
            keys: key.clone().into(),
            ..takeover(seen.holding.unwrap().owner, token(9))
        };
        node.take_over(takeover).await.unwrap().unwrap();
        let release = ReleaseRequest::new(key.clone(), token(9), true);
        node.release(release).await.unwrap();
        let refill = ExtendRequest::new(key, owner, LONG, true);
        assert_extend(node, refill, ExtendReply::Absent).await;
    }
}

pub(crate) async fn a_look_changes_nothing(bench: &impl Bench) {
    const LOOK: CheckInMode = CheckInMode::Look;
    bench.forget();
    let node = &*bench.node();
    assert_eq!(
        standing(&enter(node, ours(), "look", LOOK).await),
        "quarantined"
    );
    // Nobody has agreed with the node on anything yet, so that another list is no foreign one.
    assert_eq!(
        standing(&enter(node, theirs(), "look", LOOK).await),
        "quarantined"
    );
    let id = quarantine(node, ours(), "first").await;
    let looked = enter(node, ours(), "look", LOOK).await;
    let CheckInReply::Quarantined { id: seen, .. } = looked else {
        panic!("{looked:?}");
    };
    assert_eq!(seen, id);
    assert_eq!(
        standing(&enter(node, theirs(), "look", LOOK).await),
        "foreign"
    );
    let node = &*voting(bench, ours()).await;
    assert_eq!(standing(&enter(node, ours(), "look", LOOK).await), "voting");
    bench.forget();
    enter(node, ours(), "look", LOOK).await;
    let adopted = enter(node, theirs(), "x", ADOPT).await;
    // Under a list that it had agreed to, quarantines would have lasted for longer.
    let CheckInReply::Quarantined { former, .. } = adopted else {
        panic!("{adopted:?}");
    };
    assert!(former <= Duration::from_millis(1), "{former:?}");
    assert_eq!(
        standing(&check_in(node, theirs(), "y").await),
        "quarantined"
    );
}
