//! The runbook of the guide: what it says of keys and markers on real servers. `tests/cli` has its commands.

use tower_redlock::idempotency::IdempotentRun;

use crate::*;

const PAGE: &str = include_str!("../../src/docs/operating.md");
const KEY: &str = "order:42";

fn most(replies: &[String], claim: impl Fn(&str) -> bool) -> bool {
    replies.iter().filter(|reply| claim(reply)).count() >= 3
}

/// The lock of an idempotency key, under the names that the page has for it.
#[tokio::test]
async fn the_lock_of_an_idempotency_key_is_where_the_page_says() {
    let cluster = Cluster::start();
    let locks = cluster.manager().await;
    let run = |line: String| cluster.run(&line);
    let named = |start: &str| {
        let found = PAGE.lines().filter_map(|line| {
            let (name, means) = line.strip_prefix("| `")?.split_once("` | ")?;
            means.starts_with(start).then_some(name)
        });
        let [name] = *found.collect::<Vec<_>>() else {
            panic!("no single row says {start}");
        };
        name.replace("KEY", KEY)
    };
    let begin = async || {
        let begun = locks.begin_idempotent(KEY, LONG, Duration::ZERO);
        begun.await.unwrap()
    };
    let IdempotentRun::Execute(first) = begin().await else {
        panic!("nobody has done it");
    };
    let lock = named("its lock");
    let elsewhere = run(format!("PTTL lk:{KEY}"));
    assert!(elsewhere.iter().all(|left| left == "-2"), "{elsewhere:?}");
    let left = |left: &str| left.parse::<i64>().unwrap() > 0;
    assert!(most(&run(format!("PTTL {lock}")), left));
    let fence = first.fence().to_string();
    let told = run(format!("GET {}", named("its fencing token")));
    assert!(most(&told, |told| told == fence), "{told:?}");
    first.complete("done").await.unwrap();
    let repeat = begin().await;
    assert!(matches!(repeat, IdempotentRun::Replay(_)), "{repeat:?}");
    let record = named("the owner of its last run");
    let has_it = || run(format!("EXISTS {record}")).iter().all(|has| has == "1");
    eventually("all nodes have it", has_it).await;
    run(format!("DEL {record}"));
    let repeat = begin().await;
    assert!(matches!(repeat, IdempotentRun::Execute(_)), "{repeat:?}");
}
