//! What every node must do where its counters are older than the others' tokens, or are none, or leave no room.

use crate::*;

pub(crate) async fn a_promotion_s_floor_counts_for_keys_with_lower_counters(bench: &impl Bench) {
    const FLOOR: u64 = HIGH + 123;
    let node = &*voting(bench, ours()).await;
    let names = ["first", "raised", "extended", "refilled", "ahead", "last"];
    for name in names {
        let request = acquire_under(ours(), name, 1).fenced(fence(5 * STEP));
        token_of(node, request).await;
    }
    let granted = async |config, name, expected| {
        assert!(released(node, name, 1).await);
        let request = acquire_under(config, name, 1).fenced(fence(1));
        assert_eq!(token_of(node, request).await, expected, "{name}");
    };
    // A node that is taken over is asked as if it had old data: it has all of its counters.
    for (config, floor) in [(theirs(), FLOOR), (ours(), 7 * STEP)] {
        let entered = enter(node, Arc::clone(&config), "x", ADOPT).await;
        let CheckInReply::Quarantined { id, .. } = entered else {
            panic!("{entered:?}");
        };
        assert!(promote(node, config, &id, floor).await);
        if floor == FLOOR {
            granted(theirs(), "first", FLOOR + STEP).await;
            // Also where the proposal is of a clock that is far ahead, and so above the floor.
            assert!(released(node, "ahead", 1).await);
            let ahead = fence(proposal_ahead(Duration::from_secs(24 * 3_600)));
            let request = acquire_under(theirs(), "ahead", 1).fenced(ahead);
            assert_eq!(token_of(node, request).await, FLOOR + STEP);
            // Whatever is written to them afterwards, as of holders from before.
            let six = fence(6 * STEP);
            let raise = RaiseRequest::new(key("raised"), token(1), six.unwrap());
            node.raise(raise).await.unwrap();
            let extend = extend_under(theirs(), "extended", 1).fenced(six);
            assert_extend(node, extend, ExtendReply::Extended).await;
            assert!(released(node, "refilled", 1).await);
            let refill = refill_under(theirs(), "refilled", 1).fenced(six);
            assert_extend(node, refill, ExtendReply::Refilled).await;
            for name in ["raised", "extended", "refilled"] {
                granted(theirs(), name, FLOOR + STEP).await;
            }
        }
    }
    granted(ours(), "last", FLOOR + STEP).await;
}

/// The lock that it has may be one that it had before it lost others that came after.
pub(crate) async fn a_node_in_quarantine_raises_nothing(bench: &impl Bench) {
    let node = &*voting(bench, ours()).await;
    bench.forget();
    let id = quarantine(node, ours(), "first").await;
    extend_one(node, refill_under(ours(), "k", 1)).await;
    assert!(holder(node, "k").await.is_some(), "it is there");
    let raise = async || {
        let fence = fence(HIGH).unwrap();
        let request = RaiseRequest::new(key("k"), token(1), fence).under(Some(ours()));
        node.raise(request).await.map_err(|error| error.kind())
    };
    assert_eq!(raise().await, Err(NodeErrorKind::Quarantined));
    assert!(promote(node, ours(), &id, 0).await);
    assert_eq!(raise().await, Ok(RaiseReply::Raised));
    let foreign = RaiseRequest::new(key("k"), token(1), fence(HIGH).unwrap());
    let foreign = node.raise(foreign.under(Some(theirs()))).await;
    assert_eq!(foreign.unwrap_err().kind(), NodeErrorKind::Foreign);
}

pub(crate) async fn a_promotion_to_where_no_number_is_left_is_refused(bench: &impl Bench) {
    const FLOOR: u64 = HIGH + 123;
    let last = i64::MAX.cast_unsigned() - 2 * STEP;
    bench.forget();
    let node = &*bench.node();
    let id = quarantine(node, ours(), "first").await;
    let floor = FencingToken::new(last + 1);
    let request = PromoteRequest::new(Namespace::default(), ours(), id.clone(), floor);
    assert_unmarked(&node.promote(request).await.unwrap_err());
    assert_eq!(quarantine(node, ours(), "second").await, id);
    // Written through it comes to that all the same; and nobody is told of such a mark.
    let spoil = async |name| {
        let request = refill_under(ours(), name, 1).fenced(fence(last + 1));
        extend_one(node, request).await
    };
    assert_eq!(spoil("k").await, ExtendReply::Quarantined);
    assert_eq!(quarantine(node, ours(), "third").await, id);
    assert!(promote(node, ours(), &id, FLOOR).await);
    let request = acquire_under(ours(), "new", 1).fenced(fence(1));
    assert_eq!(token_of(node, request).await, FLOOR + STEP);
    assert_eq!(spoil("other").await, ExtendReply::Refilled);
    let request = CheckInRequest::new(
        Namespace::default(),
        ours(),
        LONG,
        "x".to_owned(),
        CheckInMode::Normal,
    );
    assert_unmarked(&node.check_in(request).await.unwrap_err());
}

/// The highest number that there is, and the highest from which anybody counts on.
const TOP: u64 = i64::MAX.cast_unsigned();
const LAST: u64 = TOP - 2 * STEP;

pub(crate) async fn where_no_number_is_left_nothing_is_granted(node: &dyn Node) {
    assert_eq!(pass(node, "k", LAST + 1).await, STEP, "it is far ahead");
    node.acquire(acquire("held", 1)).await.unwrap();
    set_counter(node, "k", LAST).await;
    assert_eq!(
        pass(node, "k", LOW).await,
        LAST + STEP,
        "it can be handed on"
    );
    for name in ["k", "new"] {
        let reply = node.acquire(acquire(name, 1).fenced(fence(LOW))).await;
        assert_unmarked(&reply.unwrap_err());
        assert_eq!(holder(node, name).await, None, "nothing is set");
    }
    // Who holds a lock goes on, and nothing is set anew.
    let extend = [extend("held", 1), refill("new", 1)].map(|one| one.fenced(fence(STEP)));
    let replies = node.extend(Arc::from(extend)).await.unwrap();
    assert_eq!(replies[0], Ok(ExtendReply::Extended));
    assert_unmarked(replies[1].as_ref().unwrap_err());
    assert_eq!(holder(node, "new").await, None, "nothing is set");
    let request = RaiseRequest::new(key("held"), token(1), fence(STEP).unwrap());
    assert_unmarked(&node.raise(request).await.unwrap_err());
    let unnumbered = GRANTED;
    assert_eq!(node.acquire(acquire("k", 1)).await, unnumbered);
}

/// Says that the marker is to be removed.
#[track_caller]
pub(crate) fn assert_unmarked(error: &NodeError) {
    let text = error.to_string();
    assert_eq!(error.kind(), NodeErrorKind::Rejected, "{text}");
    assert!(text.contains("delete that key"), "{text}");
}

/// What others may write where a number is expected.
const NONSENSE: [&str; 17] = [
    "abc",
    "",
    "0",
    "-5",
    "1.5",
    "1e3",
    "0x10",
    "007",
    "+7",
    " 7",
    "7 ",
    "7\n",
    "nan",
    "9223372036854775807",
    "9223372036854773760",
    "18446744073709551616",
    "99999999999999999999999999999999",
];

/// Asserts that nothing stays on the node for ever but the marker, and what is no key of ours.
#[track_caller]
fn assert_all_expire(bench: &impl Remote, claim: &str) {
    for name in bench.command(&["KEYS", "*"]).lines() {
        let left: i64 = bench.command(&["PTTL", name]).parse().unwrap();
        assert!(left >= 0 || name == "lk!node", "{claim}: {name} stays");
    }
}

pub(crate) async fn a_counter_that_is_no_number_is_written_over(bench: &impl Remote) {
    let node = &*bench.node();
    let mut mark = pass(node, "high", HIGH).await;
    let spoil = |name: &str, nonsense: &str| {
        let counter = key(name).counter().concat();
        bench.command(&["DEL", &counter]);
        match nonsense {
            "list" => bench.command(&["RPUSH", &counter, "7"]),
            "hash" => bench.command(&["HSET", &counter, "hwm", "7"]),
            text => bench.command(&["SET", &counter, text]),
        };
    };
    for nonsense in NONSENSE.iter().chain(&["list", "hash"]) {
        let claim = format!("{nonsense:?}");
        spoil("k", nonsense);
        assert_eq!(pass(node, "k", LOW).await, mark + STEP, "{claim}");
        assert_eq!(pass(node, "k", LOW).await, mark + 2 * STEP, "{claim}");
        // In the company of a sound one.
        spoil("k", nonsense);
        let together = AcquireRequest::new(keys(&["a", "k"]), token(1), LONG);
        let got = token_of(node, together.fenced(fence(LOW))).await;
        assert_eq!(got, mark + 3 * STEP, "{claim}");
        assert_all_expire(bench, &claim);
        spoil("k", nonsense);
        let raised = raise(node, keys(&["a", "k"]), 1, mark + 4 * STEP).await;
        assert_eq!(raised, RaiseReply::Raised, "{claim}");
        assert_all_expire(bench, &claim);
        for (name, request, expected) in [
            ("k", extend("k", 1), ExtendReply::Extended),
            ("new", refill("new", 1), ExtendReply::Refilled),
        ] {
            spoil(name, nonsense);
            let request = request.fenced(fence(mark + 4 * STEP));
            assert_eq!(extend_one(node, request).await, expected, "{claim}");
            assert_all_expire(bench, &claim);
        }
        for name in ["a", "k", "new"] {
            assert!(released(node, name, 1).await, "{claim}");
        }
        // Nor do requests with idempotency keys trip over it.
        spoil("k", nonsense);
        mark = granted(node.recall(request(key("k"), 1, LOW)).await);
        assert_eq!(mark % STEP, HIGH % STEP, "{claim}");
        let kept = node.complete(completion("k", 1, mark)).await;
        assert_eq!(kept, Ok(STORED), "{claim}");
        assert_all_expire(bench, &claim);
        bench.command(&["DEL", &key("k").record().concat()]);
    }
}

pub(crate) async fn a_mark_that_is_no_number_refuses(bench: &impl Remote) {
    let node = &*bench.node();
    let marker = Namespace::default().marker().concat();
    for (field, nonsense) in NONSENSE.iter().flat_map(|n| [("hwm", n), ("floor", n)]) {
        let claim = format!("{field} {nonsense:?}");
        let before = pass(node, "counted", HIGH).await;
        node.acquire(acquire("held", 1)).await.unwrap();
        bench.command(&["HSET", &marker, field, nonsense]);
        let keys_before = bench.command(&["KEYS", "*"]);
        for name in ["counted", "new"] {
            let numbered = acquire(name, 1).fenced(fence(LOW));
            assert_unmarked(&node.acquire(numbered).await.unwrap_err());
            let recall = node.recall(request(key(name), 1, LOW)).await;
            assert_unmarked(&recall.unwrap_err());
            let refill = Arc::from([refill(name, 1).fenced(fence(HIGH))]);
            let refilled = node.extend(refill).await.unwrap();
            assert_unmarked(refilled[0].as_ref().unwrap_err());
        }
        let raised = RaiseRequest::new(key("held"), token(1), fence(HIGH).unwrap());
        assert_unmarked(&node.raise(raised).await.unwrap_err());
        assert_eq!(bench.command(&["KEYS", "*"]), keys_before, "{claim}");
        let extended = extend_one(node, extend("held", 1).fenced(fence(HIGH))).await;
        assert_eq!(extended, ExtendReply::Extended, "{claim}: it goes on");
        assert_all_expire(bench, &claim);
        assert!(released(node, "held", 1).await);
        // As the error says.
        bench.command(&["DEL", &marker]);
        assert_eq!(pass(node, "counted", LOW).await, before + STEP, "{claim}");
        bench.forget();
    }
}
