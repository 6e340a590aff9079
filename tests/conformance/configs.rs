//! What every node must do about processes that agreed on something else.

use crate::*;

pub(crate) async fn an_unguarded_process_keeps_to_its_config(bench: &impl Bench) {
    let bare = || Arc::new(ClusterConfig::new("whatever was forgotten").unguarded());
    let node = &*voting(bench, ours()).await;
    // One that wants no number either may get the lock by a plain `SET`, and only extends by what the node agreed to.
    let fenced = acquire_under(bare(), "k", 1).fenced(fence(7_000));
    let reply = node.acquire(fenced).await;
    assert_shows_both(&reply.unwrap_err(), OURS, "whatever was forgotten");
    let error = extend_refused(node, extend_under(bare(), "k", 1)).await;
    assert_shows_both(&error, OURS, "whatever was forgotten");
    assert_eq!(standing(&check_in(node, bare(), "x").await), "foreign");
    bench.forget();
    // Nobody has told it of anything, so it does what it is asked.
    assert_eq!(node.acquire(acquire_under(bare(), "k", 1)).await, GRANTED);
    for _ in 0..2 {
        assert_eq!(standing(&check_in(node, bare(), "x").await), "voting");
    }
    assert_extend(node, extend_under(bare(), "k", 1), ExtendReply::Extended).await;
    // And from then on it keeps out of what others ask.
    assert_eq!(standing(&check_in(node, ours(), "x").await), "foreign");
    let reply = node.acquire(acquire_under(ours(), "other", 1)).await;
    assert_shows_both(&reply.unwrap_err(), "whatever was forgotten", OURS);
}

/// Without a quarantine, nothing but the config itself tells the node whom to refuse.
pub(crate) async fn a_node_that_changed_its_config_refuses_the_one_before(bench: &impl Bench) {
    let before = Arc::new(ClusterConfig::new("nodes a").unguarded());
    let is_voting = |reply| matches!(reply, CheckInReply::Voting { .. });
    let node = &*bench.node();
    for guarded in [false, true] {
        let numbered = |config: &Arc<ClusterConfig>, number| {
            let name = format!("{guarded} {number}");
            let request = acquire_under(Arc::clone(config), &name, 1);
            request.fenced(fence(HIGH + number * STEP))
        };
        let after = ClusterConfig::new("nodes b");
        let after = Arc::new(if guarded { after } else { after.unguarded() });
        let began = enter(node, Arc::clone(&before), "x", ADOPT).await;
        assert!(is_voting(began));
        // The second is granted by what the node remembers of the first.
        for number in [1, 2] {
            token_of(node, numbered(&before, number)).await;
        }
        let adopted = enter(node, Arc::clone(&after), "x", ADOPT).await;
        assert_eq!(is_voting(adopted), !guarded);
        let reply = node.acquire(numbered(&before, 3)).await;
        assert_shows_both(&reply.unwrap_err(), "nodes b", "nodes a");
        if !guarded {
            token_of(node, numbered(&after, 4)).await;
        }
    }
}

pub(crate) async fn what_writes_another_format_is_refused_with_both(bench: &impl Bench) {
    let mut newer = (*ours()).clone();
    newer.text = "format 3; whatever that means".to_owned();
    newer.digest = "2".repeat(40);
    let node = &*voting(bench, Arc::new(newer)).await;
    let reply = node.acquire(acquire_under(ours(), "k", 1)).await;
    assert_shows_both(&reply.unwrap_err(), "format 3", "format 2");
    let error = extend_refused(node, refill_under(ours(), "k", 1)).await;
    assert_shows_both(&error, "format 3", "format 2");
    match check_in(node, ours(), "x").await {
        CheckInReply::Foreign { config, .. } => assert!(config.starts_with("format 3"), "{config}"),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn a_format_that_says_nothing_else_is_refused_too(bench: &impl Remote) {
    let node = &*bench.node();
    bench.command(&["HSET", "lk!node", "format", "9"]);
    match check_in(node, ours(), "x").await {
        CheckInReply::Foreign { config, .. } => assert_eq!(config, "format 9"),
        other => panic!("{other:?}"),
    }
    let reply = node.acquire(acquire_under(ours(), "k", 1)).await;
    assert_eq!(kind(reply), NodeErrorKind::Quarantined);
}

pub(crate) async fn a_node_that_is_taken_over_tells_how_long_quarantines_lasted_before(
    bench: &impl Bench,
) {
    let node = &*bench.node();
    let entered = async |text: &str, length, mode| {
        let request = CheckInRequest::new(
            Namespace::default(),
            config(text),
            length,
            format!("of {text}"),
            mode,
        );
        match node.check_in(request).await.unwrap() {
            CheckInReply::Quarantined {
                id,
                former,
                accepted,
                ..
            } => (id, former, accepted),
            other => panic!("{other:?}"),
        }
    };
    let stated = |former| CheckInMode::Adopt { former };
    // A node that had no list, also if it has accepted this one by then.
    for mode in [ADOPT, CheckInMode::Normal, ADOPT] {
        let (_, former, _) = entered("one", LONG, mode).await;
        assert_eq!(former, Duration::ZERO, "{mode:?}");
    }
    let (id, ..) = entered("one", LONG, ADOPT).await;
    assert!(promote(node, config("one"), &id, 0).await);
    let (first, former, accepted) = entered("two", LONG / 4, ADOPT).await;
    assert_eq!((former, accepted), (LONG, false));
    // Of all that were replaced since it voted last, and as long as an operator says, if that is longer.
    let (second, former, _) = entered("three", LONG / 4, ADOPT).await;
    assert_eq!(former, LONG);
    assert_ne!(first, second, "a quarantine is that of one list");
    let (id, former, _) = entered("three", LONG / 4, stated(2 * LONG)).await;
    assert_eq!((&id, former), (&second, 2 * LONG));
    let (_, former, _) = entered("three", LONG / 4, CheckInMode::Normal).await;
    assert_eq!(former, 2 * LONG, "whoever asks");
    // That was waited for when it votes; and one that votes for us is not taken over once more.
    assert!(promote(node, config("three"), &id, 0).await);
    let votes = CheckInReply::Voting { high_water: None };
    let mode = stated(3 * LONG);
    assert_eq!(enter(node, config("three"), "x", mode).await, votes);
    let (_, former, _) = entered("one", LONG, ADOPT).await;
    assert_eq!(former, LONG / 4);
}

pub(crate) async fn a_node_under_another_config_refuses_and_shows_both(bench: &impl Bench) {
    let node = &*voting(bench, ours()).await;
    let held = AcquireRequest::new(key("k"), token(1), LONG / 2);
    assert_eq!(node.acquire(held.under(Some(ours()))).await, GRANTED);
    for (name, owner) in [("free", 2), ("k", 1)] {
        let reply = node.acquire(acquire_under(theirs(), name, owner)).await;
        assert_shows_both(&reply.unwrap_err(), OURS, THEIRS);
        for request in [extend_under, refill_under] {
            let error = extend_refused(node, request(theirs(), name, owner)).await;
            assert_shows_both(&error, OURS, THEIRS);
        }
    }
    let left = left(node, "k").await;
    assert!(left <= LONG / 2, "not extended: {left:?}");
    assert_eq!(holder(node, "free").await, None, "nothing is set");
    let foreign = CheckInReply::Foreign {
        config: ours().text.clone(),
        digest: ours().digest.clone(),
    };
    assert_eq!(check_in(node, theirs(), "x").await, foreign);
    // Nothing has changed.
    assert_eq!(
        node.acquire(acquire_under(ours(), "mine", 1)).await,
        GRANTED
    );
    // Until its members are changed, for which it is quarantined.
    assert_eq!(
        standing(&enter(node, theirs(), "adopted", ADOPT).await),
        "quarantined"
    );
    for name in ["k", "new"] {
        let reply = node.acquire(acquire_under(ours(), name, 1)).await;
        assert_shows_both(&reply.unwrap_err(), THEIRS, OURS);
    }
    let id = quarantine(node, theirs(), "later").await;
    assert!(promote(node, theirs(), &id, 0).await);
    let free = acquire_under(theirs(), "free", 2);
    assert_eq!(node.acquire(free).await, GRANTED);
}
