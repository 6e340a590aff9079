//! Nodes that say that they do not vote yet, and refuse what would end that, leave it unanswered, or take their time.

use std::future::pending;

use super::*;

/// How long a manager waits for its nodes.
const CONNECT: Duration = Duration::from_secs(5);
/// How much longer nodes are awaited that need not wait.
const MOMENT: Duration = Duration::from_millis(2_500);
/// The longest wait of a node that forgot, what is waited for after it, and as much again.
const BOUND: Duration = Duration::from_secs(40);

/// How a node takes what would end its quarantine.
#[derive(Clone, Copy, Debug)]
enum Promotion {
    Refused,
    Silent,
    /// It and all check-ins take so long.
    Slow(Duration),
}

/// A node that does all else at once.
#[derive(Debug)]
struct Stuck {
    node: MemoryNode,
    promotion: Promotion,
    /// How many promotions and check-ins it was sent.
    asked: Arc<AtomicUsize>,
}

impl Between for Stuck {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        if matches!(call, Call::Promote | Call::CheckIn) {
            self.asked.fetch_add(1, Ordering::SeqCst);
        }
        match (call, self.promotion) {
            (Call::Promote, Promotion::Refused) => {
                let error = NodeError::of(NodeErrorKind::Rejected, "no permission to promote");
                Box::pin(async move { Err(error) })
            }
            (Call::Promote, Promotion::Silent) => Box::pin(pending()),
            (Call::Promote | Call::CheckIn, Promotion::Slow(time)) => Box::pin(async move {
                sleep(time).await;
                reply.await
            }),
            _ => reply,
        }
    }
}

fn manager(nodes: &[MemoryNode], promotion: Promotion) -> Settings {
    counted(nodes, promotion, &Arc::default())
}

/// The same, and how often its nodes are asked about their votes.
fn counted(nodes: &[MemoryNode], promotion: Promotion, asked: &Arc<AtomicUsize>) -> Settings {
    let stuck = nodes.iter().map(|node| {
        Wrapped(Stuck {
            node: node.clone(),
            promotion,
            asked: Arc::clone(asked),
        })
    });
    over(stuck).connect_timeout(CONNECT)
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
    let refused = manager(&nodes(3), Promotion::Refused);
    assert_refused(refused, limit, "no permission").await;
    assert_refused(manager(&nodes(3), Promotion::Silent), limit, "n0").await;
    // The longest lease that they may have forgotten comes first.
    let refused = manager(&forgetful().await, Promotion::Refused);
    assert_refused(refused, 2 * TTL + limit, "no permission").await;
}

#[tokio::test(start_paused = true)]
async fn nodes_that_refuse_to_be_promoted_are_asked_five_times_a_second() {
    let (nodes, asked) = (nodes(3), Arc::default());
    let locks = lazy(counted(&nodes, Promotion::Refused, &asked));
    sleep(10 * SECOND).await;
    let asked = asked.load(Ordering::SeqCst);
    // Each is sent both, and another check-in for each of the others.
    assert!((240..=720).contains(&asked), "{asked}");
    drop(locks);
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_ends_where_nodes_refuse_to_be_promoted() {
    let nodes = nodes(3);
    let locks = lazy(manager(&nodes, Promotion::Refused));
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
        let slow = manager(&nodes, Promotion::Slow(40 * MS));
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
