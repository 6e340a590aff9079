//! A clock of a node that is set forward under two runs of one idempotency key, while commands of the first are late.

use tokio::sync::watch;

use super::*;

const KEEP: Duration = Duration::from_secs(3_600);

/// A clock that can be set forward.
#[derive(Clone, Debug)]
struct Stepped(TokioClock, Arc<AtomicU64>);

impl Stepped {
    fn step(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap();
        self.1.fetch_add(millis, Ordering::SeqCst);
    }

    fn steps(&self) -> Duration {
        Duration::from_millis(self.1.load(Ordering::SeqCst))
    }
}

impl Clock for Stepped {
    fn follows_runtime(&self) -> bool {
        true
    }

    fn now(&self) -> Moment {
        self.0.now() + self.steps()
    }

    fn unix_micros(&self) -> u64 {
        let steps = u64::try_from(self.steps().as_micros()).unwrap();
        self.0.unix_micros() + steps
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Open,
    /// Extensions and completions stand still on their way until it is open.
    Slow,
    Cut,
}

/// A node as one process reaches it.
#[derive(Clone, Debug)]
struct Linked {
    node: MemoryNode,
    link: watch::Sender<Link>,
}

impl Between for Linked {
    type Node = MemoryNode;

    fn node(&self) -> &MemoryNode {
        &self.node
    }

    fn pass<T: Send + 'static>(&self, call: Call, reply: Reply<T>) -> Reply<T> {
        let mut link = self.link.subscribe();
        let is_slow = matches!(call, Call::Extend | Call::Complete | Call::Release);
        Box::pin(async move {
            let state = *link.borrow();
            match state {
                Link::Cut => return Err(NodeError::of(NodeErrorKind::Unavailable, "cut")),
                Link::Slow if is_slow => {}
                _ => return reply.await,
            }
            // What is on its way arrives, whether or not anybody waits for it.
            let arrival = tokio::spawn(async move {
                let opened = link.wait_for(|link| *link == Link::Open).await.is_ok();
                assert!(opened, "the link is never opened");
                reply.await
            });
            arrival.await.unwrap()
        })
    }
}

/// Three nodes, the clock of the first of which is set.
struct Cluster {
    nodes: Vec<MemoryNode>,
    clock: Stepped,
}

impl Cluster {
    fn new() -> Self {
        let nodes = nodes(3);
        let clock = Stepped(TokioClock::new(), Arc::default());
        let context = NodeContext::new(Arc::new(clock.clone()), ServerRegistry::new());
        nodes[0].start(context);
        Self { nodes, clock }
    }

    /// What a process sets up, and its links.
    fn process(&self) -> (Settings, Vec<watch::Sender<Link>>) {
        let nodes = self.nodes.iter().cloned();
        let linked: Vec<_> = nodes
            .map(|node| Linked {
                node,
                link: watch::Sender::new(Link::Open),
            })
            .collect();
        let links = linked.iter().map(|node| node.link.clone()).collect();
        (over(linked.into_iter().map(Wrapped)), links)
    }
}

/// The node has forgotten to whom it granted the lock, and a late extension of the first run has set it again there.
#[tokio::test(start_paused = true)]
async fn a_run_that_was_overtaken_stores_nothing_where_a_clock_was_set_forward() {
    let cluster = Cluster::new();
    let (first, first_links) = cluster.process();
    let first = connected(first.bootstrap(true)).await;
    let second = connected(cluster.process().0).await;
    let third = connected(cluster.process().0).await;
    let begin = async |locks: &LockManager| locks.begin_idempotent("k", KEEP, Duration::ZERO).await;
    // The first run has the first two nodes; when its lock has ended on the first, the next has that and the last.
    first_links[2].send_replace(Link::Cut);
    let overtaken = to_run(begin(&first).await);
    sleep(MS).await;
    first_links[0].send_replace(Link::Slow);
    sleep(TTL + 50 * MS).await;
    let run = to_run(begin(&second).await);
    sleep(200 * MS).await;
    let overtaken = tokio::spawn(overtaken.complete("overtaken"));
    sleep(11_200 * MS).await;
    cluster.clock.step(59 * SECOND);
    first_links[0].send_replace(Link::Open);
    sleep(MS).await;
    overtaken.await.unwrap().unwrap_err();
    // It is on one node.
    let told = begin(&third).await;
    assert!(!matches!(told, Ok(IdempotentRun::Replay(_))), "{told:?}");
    sleep(3_600 * MS).await;
    assert!(!run.handle().is_lost());
    // It is on the third, and the first cannot know who came; whoever comes next brings it to a quorum.
    run.complete("right").await.unwrap_err();
    for _ in 0..2 {
        assert_eq!(replayed(begin(&third).await), "right");
    }
}
