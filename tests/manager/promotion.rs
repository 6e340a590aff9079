//! Nodes that say that they do not vote yet, and refuse what would end that, leave it unanswered, or take their time.

use super::*;

/// How long a manager waits for its nodes, if it is not told otherwise.
const CONNECT: Duration = Duration::from_secs(5);
/// How much longer nodes are awaited that need not wait.
const MOMENT: Duration = Duration::from_millis(2_500);
/// The longest wait of a node that forgot, what is waited for after it, and as much again.
const BOUND: Duration = Duration::from_secs(40);

/// A builder over nodes where this comes of what would end their quarantine. If that takes time, so do check-ins.
fn manager(nodes: &[MemoryNode], promotion: Fate) -> Settings {
    Odd::over(nodes, move |_, call| match (call, &promotion) {
        (Call::Promote, _) | (Call::CheckIn, Fate::Takes(..)) => promotion.clone(),
        _ => Fate::Usual,
    })
}

fn refused() -> Fate {
    let error = NodeError::of(NodeErrorKind::Rejected, "no permission to promote");
    Fate::Fails(error)
}

/// Three nodes that have voted, and have forgotten what for.
async fn forgetful() -> Vec<MemoryNode> {
    let nodes = nodes(3);
    drop(connected(over(nodes.clone()).bootstrap(true)).await);
    nodes.iter().for_each(MemoryNode::forget);
    nodes
}

/// Asserts that `connect` ends within `limit`, and says why.
async fn assert_refused(builder: Settings, limit: Duration, reason: &str) {
    let began = Instant::now();
    let error = timeout(BOUND, builder.connect()).await;
    let error = error.expect("it waits without end").unwrap_err();
    assert!(matches!(error, ConnectError::NoQuorum(_)), "{error:?}");
    assert!(error.to_string().contains(reason), "{error}");
    assert!(began.elapsed() <= limit, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn connect_ends_where_nodes_are_not_promoted() {
    let limit = CONNECT + MOMENT;
    let mute = manager(&nodes(3), Fate::Silent);
    assert_refused(mute, limit, "n0").await;
    let refusing = manager(&nodes(3), refused());
    assert_refused(refusing, limit, "no permission").await;
    // The longest lease that they may have forgotten comes first.
    let refusing = manager(&forgetful().await, refused());
    assert_refused(refusing, 2 * TTL + limit, "no permission").await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_refuse_to_be_promoted_are_asked_five_times_a_second() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let locks = lazy(Odd::over(&nodes(3), move |_, call| {
        let is_of_votes = matches!(call, Call::Promote | Call::CheckIn);
        count.fetch_add(usize::from(is_of_votes), Ordering::SeqCst);
        match call {
            Call::Promote => refused(),
            _ => Fate::Usual,
        }
    }));
    sleep(10 * SECOND).await;
    let asked = asked.load(Ordering::SeqCst);
    // Each is sent both, and another check-in for each of the others.
    assert!((240..=720).contains(&asked), "{asked}");
    drop(locks);
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_ends_where_nodes_refuse_to_be_promoted() {
    let nodes = nodes(3);
    let locks = lazy(manager(&nodes, refused()));
    sleep(MS).await;
    let began = Instant::now();
    let error = timeout(BOUND, locks.bootstrap()).await;
    let error = error.expect("it waits without end").unwrap_err();
    assert!(error.to_string().contains("no permission"), "{error}");
    assert!(began.elapsed() <= CONNECT + MOMENT, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn connect_waits_a_moment_for_new_nodes_that_are_about_to_vote() {
    for nodes in [nodes(3), forgetful().await] {
        let slow = manager(&nodes, Fate::Takes(40 * MS, Duration::ZERO));
        connected(slow.connect_timeout(100 * MS)).await;
    }
}

/// Each time there is a quorum that is about to vote.
#[tokio::test(start_paused = true)]
async fn nodes_are_taken_over_though_one_of_them_goes_away_for_a_moment_again_and_again() {
    let nodes = nodes(3);
    drop(connected(over(nodes.clone()).bootstrap(true)).await);
    let other = lazy(over(nodes[..2].to_vec()).max_ttl(3 * TTL));
    let node = nodes[1].clone();
    let blips = tokio::spawn(async move {
        loop {
            sleep(7 * SECOND).await;
            node.go_down();
            sleep(1_200 * MS).await;
            node.come_up();
        }
    });
    other.adopt_nodes(None).await.unwrap();
    blips.abort();
}
