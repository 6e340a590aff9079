//! What every node must do where one of several keys is enough.

use crate::*;

/// The first of the keys that is free, for `owner`.
fn any_of(names: &[&str], owner: u32) -> AcquireRequest {
    AcquireRequest {
        any: true,
        ..AcquireRequest::new(keys(names), token(owner), LONG)
    }
}

/// Which of the keys in `names` was free, of which `request` asks for any.
async fn taken<'a>(
    node: &dyn Node,
    names: &[&'a str],
    request: AcquireRequest,
) -> (&'a str, Option<u64>) {
    match node.acquire(request).await.unwrap() {
        AcquireReply::Slot { index, fence } => (names[index], fence.map(|fence| fence.get())),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn of_any_keys_the_first_that_is_free_is_granted_and_no_other(node: &dyn Node) {
    let names = ["a", "b", "c"];
    node.acquire(acquire("a", 1)).await.unwrap();
    for (owner, free) in [(2, "b"), (3, "c")] {
        let (name, fence) = taken(node, &names, any_of(&names, owner)).await;
        assert_eq!((name, fence), (free, None));
        // The same command once more changes nothing.
        assert_eq!(taken(node, &names, any_of(&names, owner)).await.0, free);
    }
    assert!(released(node, "b", 2).await);
    assert_eq!(taken(node, &names, any_of(&names, 4)).await.0, "b");
    assert!(holder(node, "c").await.is_some());
    // All that an owner may have of them is released at once.
    let all = ReleaseRequest::new(keys(&names), token(3), false);
    node.release(all).await.unwrap();
    assert!(holder(node, "c").await.is_none());
    assert!(holder(node, "a").await.is_some() && holder(node, "b").await.is_some());
}

pub(crate) async fn where_all_of_any_keys_are_held_the_one_that_ends_first_is_told(
    node: &dyn Node,
) {
    let short = Duration::from_secs(20);
    for (name, ttl) in [("a", LONG), ("b", short), ("c", LONG)] {
        let request = AcquireRequest::new(key(name), token(1), ttl);
        node.acquire(request).await.unwrap();
    }
    match node.acquire(any_of(&["a", "b", "c"], 2)).await.unwrap() {
        AcquireReply::Held(holder) => {
            let left = holder.remaining.unwrap();
            assert!(left <= short && left > short / 2, "{left:?}");
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn of_any_keys_the_counter_of_the_granted_one_counts(node: &dyn Node) {
    let fenced = |names: &[&str], owner, fence: Option<Fence>| any_of(names, owner).fenced(fence);
    assert_eq!(pass(node, "b", HIGH).await, HIGH);
    node.acquire(acquire("a", 1)).await.unwrap();
    let got = taken(node, &["a", "b"], fenced(&["a", "b"], 2, fence(LOW))).await;
    assert_eq!(got, ("b", Some(HIGH + STEP)));
    assert!(released(node, "a", 1).await && released(node, "b", 2).await);
    assert_eq!(pass(node, "b", LOW).await, HIGH + 2 * STEP);
}

pub(crate) async fn a_node_in_quarantine_grants_none_of_any_keys(bench: &impl Bench) {
    bench.forget();
    let node = &*bench.node();
    let id = quarantine(node, config("this"), "first").await;
    let request = || any_of(&["a", "b"], 1).under(Some(config("this")));
    assert!(node.acquire(request()).await.is_err());
    assert!(promote(node, config("this"), &id, 0).await);
    assert_eq!(taken(node, &["a", "b"], request()).await.0, "a");
}
