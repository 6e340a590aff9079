//! What every node must do with fencing tokens.

use std::time::{Instant, SystemTime};

use fastrand::Rng;
use tower_redlock::key::LockKeys;

use crate::*;

pub(crate) const STEP: u64 = FencingToken::STEP;
/// A proposal that is lower than every counter.
pub(crate) const LOW: u64 = 1;
/// Some number of about the size that a clock gives.
pub(crate) const HIGH: u64 = 1_800_000_000_000_000_000;

pub(crate) fn fence(number: u64) -> Option<Fence> {
    fence_for(number, LONG)
}

fn fence_for(number: u64, keep: Duration) -> Option<Fence> {
    Some(Fence::new(FencingToken::new(number).unwrap(), keep))
}

/// Takes a free lock, proposing a number; returns what it got.
pub(crate) async fn token_of(node: &dyn Node, request: AcquireRequest) -> u64 {
    match node.acquire(request).await.unwrap() {
        AcquireReply::Granted { fence: Some(fence) } => fence.get(),
        other => panic!("not granted with a number: {other:?}"),
    }
}

/// Takes the free lock `name`, proposing a number, and releases it; returns what it got.
pub(crate) async fn pass(node: &dyn Node, name: &str, proposal: u64) -> u64 {
    let got = token_of(node, acquire(name, 9).fenced(fence(proposal))).await;
    assert!(released(node, name, 9).await);
    got
}

/// Sets the counter of `name`, which has no counter yet, to a value that is not below the high-water mark.
pub(crate) async fn set_counter(node: &dyn Node, name: &str, value: u64) {
    let request = refill(name, 9).fenced(fence(value));
    assert_extend(node, request, ExtendReply::Refilled).await;
    assert!(released(node, name, 9).await);
}

pub(crate) async fn a_grant_counts_one_step_up_or_to_the_proposal(node: &dyn Node) {
    assert_eq!(pass(node, "k", HIGH).await, HIGH, "the proposal");
    assert_eq!(pass(node, "k", LOW).await, HIGH + STEP, "below");
    let same = HIGH + STEP;
    assert_eq!(pass(node, "k", same).await, HIGH + 2 * STEP, "as high");
    let close = HIGH + 3 * STEP - 1;
    assert_eq!(pass(node, "k", close).await, HIGH + 3 * STEP, "too close");
    let exact = HIGH + 4 * STEP;
    assert_eq!(pass(node, "k", exact).await, exact, "one step");
    let above = HIGH + 9 * STEP + 5;
    assert_eq!(pass(node, "k", above).await, above, "more than a step");
}

pub(crate) async fn a_refused_acquire_counts_nothing(node: &dyn Node) {
    token_of(node, acquire("k", 1).fenced(fence(HIGH))).await;
    let refused = acquire("k", 2).fenced(fence(HIGH + 50 * STEP));
    in_the_way(node, refused).await;
    assert!(released(node, "k", 1).await);
    assert_eq!(pass(node, "k", LOW).await, HIGH + STEP);
    assert_eq!(pass(node, "new", LOW).await, HIGH + 2 * STEP, "the mark");
}

pub(crate) async fn a_missing_counter_counts_as_the_highest_there_ever_was(node: &dyn Node) {
    assert_eq!(pass(node, "first", LOW).await, STEP, "of nothing");
    assert_eq!(pass(node, "high", HIGH).await, HIGH);
    assert_eq!(pass(node, "new", LOW).await, HIGH + STEP);
    assert_eq!(pass(node, "first", LOW).await, 2 * STEP, "it has its own");
    assert_eq!(pass(node, "newer", LOW).await, HIGH + 2 * STEP);
}

pub(crate) async fn a_counter_is_kept_for_as_long_as_was_asked(bench: &impl Bench) {
    let keep = Duration::from_millis(30);
    let brief = fence_for(STEP, keep);
    let node = &*bench.node();
    loop {
        let began = Instant::now();
        for name in ["brief", "extended", "raised", "untouched", "held"] {
            token_of(node, acquire(name, 1).fenced(brief)).await;
        }
        // What raises the counter keeps it, whatever it was before.
        let request = extend("extended", 1).fenced(fence(20 * STEP));
        extend_one(node, request).await;
        // An extend that need not raise it does not.
        let same = extend("untouched", 1).fenced(fence(4 * STEP));
        assert_extend(node, same, ExtendReply::Extended).await;
        raise(node, key("raised").into(), 1, 1_000 * STEP).await;
        // Else it may have come too late, on a busy machine.
        if began.elapsed() < keep {
            break;
        }
        bench.forget();
    }
    assert_eq!(pass(node, "high", HIGH).await, HIGH);
    sleep(Duration::from_millis(60)).await;
    // But it writes one that is gone again, as high as any may have come.
    let again = extend("held", 1).fenced(fence(5 * STEP));
    assert_extend(node, again, ExtendReply::Extended).await;
    for name in ["brief", "extended", "raised", "untouched", "held"] {
        assert!(released(node, name, 1).await);
    }
    assert_eq!(pass(node, "extended", LOW).await, 21 * STEP);
    assert_eq!(pass(node, "raised", LOW).await, 1_001 * STEP);
    assert_eq!(pass(node, "brief", LOW).await, HIGH + STEP, "it is gone");
    let untouched = pass(node, "untouched", LOW).await;
    assert_eq!(untouched, HIGH + 2 * STEP, "it is gone, too");
    assert_eq!(pass(node, "held", LOW).await, HIGH + STEP, "it has its own");
}

pub(crate) async fn a_counter_may_be_kept_for_ever(node: &dyn Node) {
    let forever = |number| fence_for(number, Duration::MAX);
    let granted = token_of(node, acquire("k", 1).fenced(forever(HIGH))).await;
    assert_eq!(granted, HIGH);
    for up in [0, STEP] {
        let request = extend("k", 1).fenced(forever(HIGH + up));
        assert_extend(node, request, ExtendReply::Extended).await;
    }
    let fence = forever(HIGH + 2 * STEP).unwrap();
    let request = RaiseRequest::new(key("k"), token(1), fence);
    assert_eq!(node.raise(request).await, Ok(RaiseReply::Raised));
    assert!(released(node, "k", 1).await);
    assert_eq!(pass(node, "k", LOW).await, HIGH + 3 * STEP);
}

/// What a clock that is `ahead` would propose now.
pub(crate) fn proposal_ahead(ahead: Duration) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = (now.unwrap() + ahead).as_micros();
    u64::try_from(micros).unwrap() * STEP
}

pub(crate) async fn a_proposal_of_a_clock_that_is_far_ahead_is_not_looked_at(node: &dyn Node) {
    let minutes = |minutes: u64| proposal_ahead(Duration::from_secs(60 * minutes));
    assert_eq!(pass(node, "k", minutes(70)).await, STEP);
    assert_eq!(pass(node, "k", i64::MAX.cast_unsigned()).await, 2 * STEP);
    let tolerated = minutes(50);
    assert_eq!(pass(node, "k", tolerated).await, tolerated);
    // What is not far ahead of a number that was given is not far ahead.
    assert_eq!(pass(node, "k", minutes(115)).await, tolerated + STEP);
    let next = minutes(100);
    assert_eq!(pass(node, "k", next).await, next);
}

pub(crate) async fn raise(node: &dyn Node, keys: NodeKeys, owner: u32, to: u64) -> RaiseReply {
    let request = RaiseRequest::new(keys, token(owner), fence(to).unwrap());
    node.raise(request).await.unwrap()
}

pub(crate) async fn a_raise_counts_up_and_never_down_where_the_lock_is_owned(node: &dyn Node) {
    token_of(node, acquire("k", 1).fenced(fence(HIGH))).await;
    for to in [HIGH + 7 * STEP, HIGH - 1] {
        let raised = raise(node, key("k").into(), 1, to).await;
        assert_eq!(raised, RaiseReply::Raised, "it is at least at {to}");
    }
    assert!(released(node, "k", 1).await);
    assert_eq!(pass(node, "new", LOW).await, HIGH + 8 * STEP, "the mark");
    assert_eq!(pass(node, "k", LOW).await, HIGH + 8 * STEP);
}

pub(crate) async fn a_raise_for_a_lock_that_is_not_owned_does_nothing(node: &dyn Node) {
    assert_eq!(pass(node, "free", HIGH).await, HIGH);
    token_of(node, acquire("taken", 2).fenced(fence(HIGH + 10 * STEP))).await;
    token_of(node, acquire("ours", 1).fenced(fence(HIGH + 20 * STEP))).await;
    for others in ["free", "taken"] {
        let reply = raise(node, key(others).into(), 1, HIGH + 90 * STEP).await;
        assert_eq!(reply, RaiseReply::NotOwner, "{others}");
        let reply = raise(node, keys(&["ours", others]), 1, HIGH + 90 * STEP).await;
        assert_eq!(reply, RaiseReply::NotOwner, "ours and {others}");
    }
    assert!(released(node, "taken", 2).await && released(node, "ours", 1).await);
    assert_eq!(pass(node, "free", LOW).await, HIGH + STEP);
    assert_eq!(pass(node, "taken", LOW).await, HIGH + 11 * STEP);
    assert_eq!(pass(node, "ours", LOW).await, HIGH + 21 * STEP);
    assert_eq!(pass(node, "new", LOW).await, HIGH + 22 * STEP, "the mark");
}

/// Several keys of the default namespace.
pub(crate) fn keys(names: &[&str]) -> NodeKeys {
    let names = names.iter().map(|name| LockKey::new(*name).unwrap());
    let keys = LockKeys::new(names).unwrap();
    Namespace::default().node_keys(&keys).unwrap()
}

pub(crate) async fn several_keys_get_one_token(node: &dyn Node) {
    let owner: OwnerToken = token(1);
    let together = |proposal| {
        AcquireRequest::new(keys(&["a", "b", "new"]), owner, LONG).fenced(fence(proposal))
    };
    set_counter(node, "a", HIGH).await;
    set_counter(node, "b", HIGH + 10 * STEP).await;
    // The key without a counter counts as the highest, which is that of `b`.
    let got = token_of(node, together(HIGH + 2 * STEP)).await;
    assert_eq!(got, HIGH + 11 * STEP);
    let request = ReleaseRequest::new(keys(&["a", "b", "new"]), owner, false);
    node.release(request.clone()).await.unwrap();
    for name in ["a", "b", "new"] {
        assert_eq!(pass(node, name, LOW).await, HIGH + 12 * STEP, "{name}");
    }
    // The mark is of no interest to keys that have counters, however high it is.
    assert_eq!(
        pass(node, "other", HIGH + 90 * STEP).await,
        HIGH + 90 * STEP
    );
    assert_eq!(pass(node, "b", LOW).await, HIGH + 13 * STEP);
    assert_eq!(token_of(node, together(LOW)).await, HIGH + 14 * STEP);
    let raised = raise(node, keys(&["a", "b", "new"]), 1, HIGH + 20 * STEP).await;
    assert_eq!(raised, RaiseReply::Raised);
    node.release(request).await.unwrap();
    for name in ["a", "b", "new"] {
        assert_eq!(pass(node, name, LOW).await, HIGH + 21 * STEP, "{name}");
    }
}

pub(crate) async fn an_extend_raises_lower_counters(node: &dyn Node) {
    let extended = async |name: &str, owner, to| {
        let request = extend(name, owner).fenced(fence(to));
        extend_one(node, request).await
    };
    token_of(node, acquire("k", 1).fenced(fence(HIGH))).await;
    assert_eq!(
        extended("k", 1, HIGH + 5 * STEP).await,
        ExtendReply::Extended
    );
    assert_eq!(extended("k", 1, HIGH).await, ExtendReply::Extended);
    let refused = extended("k", 2, HIGH + 90 * STEP).await;
    assert!(matches!(refused, ExtendReply::Held(_)), "{refused:?}");
    let absent = extended("absent", 1, HIGH + 90 * STEP).await;
    assert_eq!(absent, ExtendReply::Absent);
    assert!(released(node, "k", 1).await);
    assert_eq!(pass(node, "new", LOW).await, HIGH + 6 * STEP, "the mark");
    assert_eq!(pass(node, "k", LOW).await, HIGH + 6 * STEP);
}

pub(crate) async fn a_refill_writes_the_counter(node: &dyn Node) {
    let refilled = async |name: &str, to| {
        let request: ExtendRequest = refill(name, 1).fenced(fence(to));
        assert_extend(node, request, ExtendReply::Refilled).await;
        assert!(released(node, name, 1).await);
    };
    refilled("k", HIGH - 50 * STEP).await;
    assert_eq!(pass(node, "high", HIGH).await, HIGH);
    assert_eq!(pass(node, "k", LOW).await, HIGH - 49 * STEP);
    refilled("k", HIGH - 90 * STEP).await;
    let never_down = pass(node, "k", LOW).await;
    assert_eq!(never_down, HIGH - 48 * STEP);
    refilled("k", HIGH + 9 * STEP).await;
    assert_eq!(pass(node, "new", LOW).await, HIGH + 10 * STEP, "the mark");
}

pub(crate) async fn a_late_grant_leaves_no_token_below_the_mark(node: &dyn Node) {
    assert_eq!(pass(node, "high", HIGH).await, HIGH);
    // Their counters have expired since, whatever they were; what was sent long before arrives only now.
    let request = refill("refilled", 1).fenced(fence(HIGH - 50 * STEP));
    assert_extend(node, request, ExtendReply::Refilled).await;
    node.acquire(acquire("raised", 1)).await.unwrap();
    let reply = raise(node, key("raised").into(), 1, HIGH - 50 * STEP).await;
    assert_eq!(reply, RaiseReply::Raised);
    for (name, steps) in [("refilled", 1), ("raised", 1), ("refilled", 2)] {
        released(node, name, 1).await;
        assert_eq!(pass(node, name, LOW).await, HIGH + steps * STEP, "{name}");
    }
}

pub(crate) async fn no_digit_is_lost(node: &dyn Node) {
    let mut dice = Rng::with_seed(0x5EED);
    let counters = (0..300_u32).map(|case| match case % 3 {
        // Where one has a digit more than the other.
        0 => 1_000_000_000_000_000_000 - 1_500 + dice.u64(..3_000),
        _ => HIGH - dice.u64(..100_000_000_000_000_000),
    });
    let mut counters: Vec<u64> = counters.collect();
    // None of them is set below the mark.
    counters.sort_unstable();
    for (case, counter) in counters.iter().enumerate() {
        set_counter(node, &format!("k{case}"), *counter).await;
    }
    for (case, counter) in counters.into_iter().enumerate() {
        let name = format!("k{case}");
        // Most differ in the last digits only, which is what a floating point number would lose.
        let near = |dice: &mut Rng| counter - 1_500 + dice.u64(..4_000);
        let (raised, proposal) = (near(&mut dice), near(&mut dice));
        let far = HIGH - dice.u64(..900_000_000_000_000_000);
        let proposal = if case % 5 == 0 { far } else { proposal };
        let claim = format!("case {case}: {counter}, {raised}, {proposal}");

        let got = token_of(node, acquire(&name, 1).fenced(fence(proposal))).await;
        let wanted = proposal.max(counter + STEP);
        assert_eq!(got, wanted, "{claim}");
        let owner = raise(node, key(&name).into(), 1, raised).await;
        assert_eq!(owner, RaiseReply::Raised);
        let request = extend(&name, 1).fenced(fence(proposal + 700));
        assert_extend(node, request, ExtendReply::Extended).await;
        node.release(release(&name, 1)).await.unwrap();
        let wanted = wanted.max(raised).max(proposal + 700) + STEP;
        assert_eq!(pass(node, &name, LOW).await, wanted, "{claim}");
    }
}

pub(crate) async fn nothing_is_counted_unless_asked(node: &dyn Node) {
    let unnumbered = GRANTED;
    assert_eq!(node.acquire(acquire("k", 1)).await, unnumbered);
    assert!(released(node, "k", 1).await);
    assert_eq!(pass(node, "k", LOW).await, STEP, "of nothing");
    assert_eq!(node.acquire(acquire("k", 1)).await, unnumbered);
    let replies = node.extend(Arc::from([extend("k", 1), refill("new", 1)]));
    let replies = replies.await.unwrap();
    assert_eq!(
        replies,
        [Ok(ExtendReply::Extended), Ok(ExtendReply::Refilled)]
    );
    assert!(released(node, "k", 1).await && released(node, "new", 1).await);
    assert_eq!(pass(node, "k", LOW).await, 2 * STEP);
    assert_eq!(pass(node, "new", LOW).await, 3 * STEP, "the mark");
}
