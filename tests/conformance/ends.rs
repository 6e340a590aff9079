//! When what requests came to ends, on every node.

use crate::*;

const BRIEF: Duration = Duration::from_millis(20);
/// Long enough to look meanwhile.
const SPAN: Duration = Duration::from_millis(500);

/// The same with a record that ends `span` from now on.
fn ending(mut request: CompleteRequest, span: Duration) -> CompleteRequest {
    let until = unix_millis() + u64::try_from(span.as_millis()).unwrap();
    request.record.as_mut().unwrap().until = until;
    request
}

pub(crate) async fn a_record_is_kept_until_its_end(node: &dyn Node) {
    let mut brief = request(key("k"), 1, NUMBER);
    brief.linger = BRIEF;
    node.recall(brief).await.unwrap();
    let request = ending(completion("k", 1, NUMBER), SPAN);
    stored(node, request).await;
    assert_eq!(ballot(node, "k").await, Some(NUMBER));
    outlast(node, SPAN).await;
    assert_eq!(ballot(node, "k").await, None);
    // What is over is no obstacle: not to a lower ballot either.
    begin_unnumbered(node, "k", 2).await;
    stored(node, completion("k", 2, 7)).await;
    assert_eq!(ballot(node, "k").await, Some(7));
}

pub(crate) async fn a_record_keeps_its_end_whoever_writes_it_again(node: &dyn Node) {
    let names = ["as it is", "adopted", "again", "chosen", "anew"];
    let mut requests = Vec::new();
    for name in names {
        let number = begin(node, name, 1).await;
        let request = ending(completion(name, 1, number), SPAN);
        stored(node, request.clone()).await;
        requests.push(request);
    }
    let end = requests[4].record.clone().unwrap().until;
    for (name, request) in names.into_iter().zip(requests) {
        match name {
            "adopted" | "anew" => {
                // For the sake of who adopts it, the node remembers the key for longer.
                let reply = adopt(node, name, 2, 1).await;
                assert_eq!(found(&reply), request.record.as_ref());
                if name == "anew" {
                    let mut request = completion(name, 2, number(&reply));
                    request.record.as_mut().unwrap().until = end;
                    stored(node, request).await;
                }
            }
            "again" => assert_eq!(complete(node, request).await, STORED),
            "chosen" => assert_eq!(complete(node, request.chosen()).await, STORED),
            _ => {}
        }
    }
    outlast(node, SPAN).await;
    for name in names {
        release_all(node, name).await;
        assert_eq!(ballot(node, name).await, None, "{name}");
    }
}

pub(crate) async fn a_record_that_has_ended_is_no_obstacle_to_a_lower_ballot(node: &dyn Node) {
    begin_unnumbered(node, "k", 1).await;
    // That of another caller, which ends before this one completes, and which nobody has looked for since.
    let other = ending(completion("k", 2, NUMBER).chosen(), SPAN);
    stored(node, other).await;
    outlast(node, SPAN).await;
    stored(node, completion("k", 1, 7)).await;
    assert_eq!(ballot(node, "k").await, Some(7));
}

pub(crate) async fn a_record_takes_no_room_after_its_end(bench: &impl Remote) {
    let node = &*bench.node();
    let mut brief = request(key("k"), 1, NUMBER);
    brief.linger = BRIEF;
    node.recall(brief).await.unwrap();
    let keys = || bench.command(&["KEYS", "lk!*"]);
    let others: Vec<String> = keys().lines().map(str::to_owned).collect();
    let before = unix_millis();
    let request = ending(completion("k", 1, NUMBER), SPAN);
    let end = request.record.as_ref().unwrap().until;
    stored(node, request).await;
    let mut records = 0;
    for key in keys().lines().filter(|key| key.contains("!record:")) {
        records += 1;
        let left = bench.command(&["PTTL", key]).parse::<i64>().unwrap();
        assert!(
            left > 0 && left.unsigned_abs() <= end - before,
            "{key}: {left} ms"
        );
    }
    assert_eq!(records, 1, "beside {others:?}");
}

async fn release_all(node: &dyn Node, name: &str) {
    for owner in [1, 2] {
        released(node, name, owner).await;
    }
}

pub(crate) async fn the_end_is_that_of_the_record_which_is_there(node: &dyn Node) {
    for (name, (first, first_ends), (second, second_ends), told) in [
        ("longer", (7, true), (8, false), Some(8)),
        ("shorter", (7, false), (8, true), None),
        // Who wrote the higher one was told of it.
        ("lower", (8, false), (7, true), Some(8)),
        ("lower and longer", (8, true), (7, false), None),
    ] {
        begin(node, name, 1).await;
        for (ballot, ends) in [(first, first_ends), (second, second_ends)] {
            let request = completion(name, 1, ballot).chosen();
            let request = match ends {
                true => ending(request, SPAN),
                false => request,
            };
            assert_eq!(complete(node, request).await, STORED, "{name}");
        }
        outlast(node, SPAN).await;
        assert_eq!(ballot(node, name).await, told, "{name}");
    }
}

pub(crate) async fn nothing_is_kept_that_has_ended(node: &dyn Node) {
    for chosen in [false, true] {
        let name = format!("k{chosen}");
        begin_unnumbered(node, &name, 1).await;
        let late = choosing(chosen, ending(completion(&name, 1, NUMBER), Duration::ZERO));
        unkept(node, late).await;
        assert_eq!(holder(node, &name).await, None, "it is given back");
        // Nobody came since, and so another may be kept.
        stored(node, completion(&name, 1, NUMBER)).await;
        // Nor does it take away what is there.
        let late = choosing(
            chosen,
            ending(completion(&name, 1, NUMBER + 1), Duration::ZERO),
        );
        unkept(node, late).await;
        assert_eq!(ballot(node, &name).await, Some(NUMBER));
    }
}

pub(crate) async fn a_grant_tells_what_the_clock_shows(node: &dyn Node) {
    let showed = |reply| match reply {
        AcquireReply::Promised { now, .. } => now,
        other => panic!("{other:?}"),
    };
    let began = unix_millis();
    let first = showed(recall(node, "k", 1, NUMBER).await);
    let request = ending(completion("k", 1, NUMBER), SPAN);
    let end = request.record.as_ref().unwrap().until;
    stored(node, request).await;
    let second = showed(adopt(node, "k", 2, NUMBER).await);
    assert!(began <= first && first <= second && second <= unix_millis());
    assert!(released(node, "k", 2).await);
    outlast(node, SPAN).await;
    // Who is granted it without a record can tell that this one has ended, if another node has it yet.
    let third = showed(recall(node, "k", 3, NUMBER).await);
    assert!(end <= third && third <= unix_millis(), "{end} {third}");
}
