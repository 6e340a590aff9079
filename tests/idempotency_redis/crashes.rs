//! A process is killed at every point of a request. What a repeat gets then, by another process, is what the table in
//! the docs of the module `idempotency` says.

use hyper_util::client::legacy::Error;
use tokio::task::JoinHandle;

use crate::branch::{Branch, Part, Point};
use crate::client::{Client, Reply};
use crate::ledger::Ledger;
use crate::*;

const TTL: Duration = Duration::from_millis(800);
/// What a busy machine may take on top of the ttl.
const SLACK: Duration = Duration::from_millis(700);
const KEY: &str = "order-1";

/// What is left after a crash.
struct Site {
    servers: Vec<Server>,
    ledger: Ledger,
    client: Client,
    survivor: Branch,
    crashed: Stopwatch,
}

/// What a repeat gets.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// How often the handler began.
    runs: usize,
    /// Whose answer it is.
    told_by: u64,
    /// Whose effect it tells of.
    ordered_by: u64,
    replayed: bool,
}

/// The request that is under way in the process that stops.
type First = JoinHandle<Result<(Reply, bool), Error>>;

/// Sends the first request to a process that stops at `point`.
async fn stopped(point: Point) -> (Site, Branch, First) {
    let servers = Server::start_many(Kind::Redis, 5);
    bootstrap(&servers, TTL, 0).await;
    let file = servers[0].file("ledger");
    let ledger = Ledger::create(&file);
    let part = |process| Part::new(process, &servers, &file, TTL);
    let survivor = part(2);
    let doomed = Part {
        stops_at: Some(point),
        ..part(1)
    };
    let (mut doomed, survivor) = tokio::join!(Branch::start(&doomed), Branch::start(&survivor));
    let client = Client::new();
    let first = tokio::spawn({
        let (client, address) = (client.clone(), doomed.address);
        async move { client.send(address, KEY).await }
    });
    doomed.stopped().await;
    let site = Site {
        servers,
        ledger,
        client,
        survivor,
        crashed: Stopwatch::start(),
    };
    (site, doomed, first)
}

/// Has a process killed at `point` of the first request.
async fn crash(point: Point) -> Site {
    let (mut site, mut doomed, first) = stopped(point).await;
    if point == Point::AfterRecord {
        let has = |server: &Server| records(server).len() == 1;
        eventually("all have it", || site.servers.iter().all(has)).await;
    }
    doomed.kill().await;
    site.crashed = Stopwatch::start();
    assert!(first.await.unwrap().is_err(), "the client got an answer");
    site
}

impl Site {
    async fn send(&self) -> (Reply, bool) {
        self.client.send(self.survivor.address, KEY).await.unwrap()
    }

    /// What the first repeat gets, in about a ttl, and all others as well. Its order is there once.
    async fn repeat(&self) -> Outcome {
        let (reply, replayed) = self.send().await;
        let took = self.crashed.elapsed();
        assert!(took < TTL + SLACK, "{took:?}");
        assert_eq!(reply.status, 201);
        let outcome = Outcome {
            runs: self.ledger.runs(),
            told_by: reply.number("x-run"),
            ordered_by: reply.number("x-order"),
            replayed,
        };
        assert_eq!(self.send().await, (reply, true));
        assert_eq!(self.ledger.runs(), outcome.runs);
        let order = (KEY.to_owned(), outcome.ordered_by);
        assert_eq!(self.ledger.orders(), [order]);
        outcome
    }
}

/// It runs again, and nothing of the first run is left.
const ANEW: Outcome = Outcome {
    runs: 2,
    told_by: 2,
    ordered_by: 2,
    replayed: false,
};

/// It runs again, and the unique key of the database keeps its effect out.
const AGAIN: Outcome = Outcome {
    ordered_by: 1,
    ..ANEW
};

/// It gets the first answer.
const FIRST: Outcome = Outcome {
    runs: 1,
    told_by: 1,
    ordered_by: 1,
    replayed: true,
};

#[tokio::test]
async fn a_repeat_gets_what_the_table_says() {
    // Nothing has run, and the repeat does.
    let once = Outcome {
        replayed: false,
        ..FIRST
    };
    for (point, effects, outcome) in [
        (Point::BeforeHandler, 0, once),
        (Point::BeforeEffect, 0, ANEW),
        (Point::AfterEffect, 1, AGAIN),
        (Point::BeforeRecord, 1, AGAIN),
        (Point::AfterRecord, 1, FIRST),
    ] {
        let site = crash(point).await;
        assert_eq!(site.ledger.orders().len(), effects, "{point:?}");
        assert_eq!(site.repeat().await, outcome, "{point:?}");
    }
}

#[tokio::test]
async fn with_the_record_on_one_node_that_is_asked_a_repeat_gets_the_first_answer() {
    let mut site = crash(Point::AfterOneNode).await;
    // No quorum is left without it.
    site.servers[3..].iter_mut().for_each(Server::kill);
    assert_eq!(site.repeat().await, FIRST);
    // It was not shown before a quorum had it.
    let have = site.servers[..3].iter().map(records);
    assert!(have.into_iter().all(|records| records.len() == 1));
}

#[tokio::test]
async fn with_the_record_on_one_node_that_is_away_a_repeat_runs_and_its_answer_stays() {
    let mut site = crash(Point::AfterOneNode).await;
    site.servers[0].freeze();
    assert_eq!(site.repeat().await, AGAIN);
    let (second, _) = site.send().await;
    // What the node has was never shown to anybody, and never is, though it is needed for a quorum.
    site.servers[0].thaw();
    site.servers[3..].iter_mut().for_each(Server::kill);
    assert_eq!(answered(&site).await, (second, true));
    assert_eq!(site.ledger.runs(), 2);
}

/// The answer, as soon as a process that takes a node for dead has found that it is not.
async fn answered(site: &Site) -> (Reply, bool) {
    loop {
        let (reply, replayed) = site.send().await;
        if reply.status != 503 {
            return (reply, replayed);
        }
        assert_eq!(reply.problem(), "no-quorum");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn who_stands_still_is_overtaken_and_a_unique_key_keeps_its_effect_out() {
    let (mut site, branch, first) = stopped(Point::ToBeOvertaken).await;
    branch.freeze();
    site.crashed = Stopwatch::start();
    assert_eq!(site.ledger.runs(), 1);
    assert_eq!(site.repeat().await, ANEW);
    let (second, _) = site.send().await;
    branch.thaw();
    // It may have come to an answer by now, which nobody may see.
    let (reply, _) = first.await.unwrap().unwrap();
    assert_eq!(reply.status, 503);
    let problem = reply.problem();
    let told = ["lock-lost", "outcome-unknown"];
    assert!(told.contains(&&*problem), "{problem}");
    assert_eq!(site.send().await, (second, true));
    assert_eq!(site.ledger.orders().len(), 1);
}

#[tokio::test]
async fn a_record_that_comes_when_another_run_has_answered_is_refused() {
    let (mut site, mut branch, first) = stopped(Point::RecordToBeOvertaken).await;
    branch.freeze();
    site.crashed = Stopwatch::start();
    assert_eq!(site.repeat().await, AGAIN);
    let (second, _) = site.send().await;
    branch.thaw();
    let (reply, _) = first.await.unwrap().unwrap();
    reply.assert_outcome_unknown();
    for _ in &site.servers {
        branch.stopped().await;
    }
    assert_eq!(site.send().await, (second, true));
}
