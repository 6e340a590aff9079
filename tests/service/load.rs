//! Many requests at once, and servers that die, freeze and return under them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use tower_redlock::LockManager;
use tower_redlock::node::NodeState;

use super::support::eventually;
use super::support::stalls::{Stopwatch, undisturbed};
use super::{KEYS, Site};

const TTL: Duration = Duration::from_secs(10);

/// Statuses, those of failures with what the body says, and how often each was answered.
type Answers = BTreeMap<(u16, String), usize>;

/// Requests for all orders in turn from `clients` at once, until told to stop.
fn load(
    site: &Arc<Site>,
    clients: usize,
    stop: &Arc<AtomicBool>,
) -> Vec<tokio::task::JoinHandle<Answers>> {
    (0..clients)
        .map(|client| {
            let (site, stop) = (Arc::clone(site), Arc::clone(stop));
            tokio::spawn(async move {
                let mut answers = Answers::new();
                let mut order = client;
                while !stop.load(Ordering::SeqCst) {
                    let (status, body) = site.send(&format!("pay/{}", order % KEYS)).await.unwrap();
                    let says = match status.is_server_error() {
                        true => String::from_utf8_lossy(&body).into_owned(),
                        false => String::new(),
                    };
                    *answers.entry((status.as_u16(), says)).or_default() += 1;
                    order += 1;
                }
                answers
            })
        })
        .collect()
}

async fn gather(load: Vec<tokio::task::JoinHandle<Answers>>) -> Answers {
    let mut sum = Answers::new();
    for client in load {
        for (status, times) in client.await.unwrap() {
            *sum.entry(status).or_default() += times;
        }
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_requests_for_one_key_run_one_at_a_time() {
    // A node time-out that hundreds of requests on a busy machine do not reach: this is not about answers in time.
    let builder = LockManager::builder().ttl(TTL).node_timeout(TTL / 5);
    let site = Arc::new(Site::with(builder).await);
    let mut won = 0;
    // Several races: a free key must not stay without a winner.
    for _ in 0..5 {
        let race: Vec<_> = (0..200_usize)
            .map(|n| {
                let site = Arc::clone(&site);
                // All spellings of one order are one lock.
                let path = ["pay/1", "pay/01", "pay/+1", "pay/001"][n % 4];
                tokio::spawn(async move { site.status(path).await })
            })
            .collect();
        let mut winners = 0;
        for request in race {
            match request.await.unwrap() {
                StatusCode::OK => winners += 1,
                status => assert_eq!(status, StatusCode::CONFLICT),
            }
        }
        assert!(winners > 0, "nobody got a free lock");
        won += winners;
    }
    assert_eq!(site.desk.most_inside.load(Ordering::SeqCst), 1);
    assert_eq!(site.desk.entered.load(Ordering::SeqCst), won);
    site.all_free().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_two_of_five_servers_under_load_loses_nothing() {
    // Not about answers in time: a busy machine must not fail it.
    let builder = LockManager::builder().ttl(TTL).node_timeout(TTL / 5);
    let mut site = Site::with(builder).await;
    let (first, second) = (site.servers.pop().unwrap(), site.servers.pop().unwrap());
    let mut doomed = [first, second];
    let site = Arc::new(site);
    let stop = Arc::new(AtomicBool::new(false));
    let clients = load(&site, 8, &stop);

    let visits = |more: u32| {
        let target = site.desk.entered.load(Ordering::SeqCst) + more;
        let desk = Arc::clone(&site.desk);
        async move {
            eventually("requests go on", || {
                desk.entered.load(Ordering::SeqCst) >= target
            })
            .await;
        }
    };
    visits(50).await;
    doomed.iter_mut().for_each(super::Server::kill);
    visits(200).await;
    doomed.iter_mut().for_each(super::Server::restart);
    eventually("the manager uses them again", || {
        let nodes = site.locks.snapshot().nodes;
        nodes.iter().all(|node| node.state == NodeState::Up)
    })
    .await;
    visits(50).await;
    stop.store(true, Ordering::SeqCst);
    let answers = gather(clients).await;

    assert_eq!(site.desk.most_inside.load(Ordering::SeqCst), 1);
    let unexpected: Vec<_> = answers
        .keys()
        .filter(|(status, _)| ![200, 409].contains(status))
        .collect();
    assert!(unexpected.is_empty(), "{answers:?}");
    site.all_free().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_three_servers_down_the_answer_is_503_at_once_and_they_need_only_return() {
    undisturbed(async || {
        // The servers come back empty, and nobody wants to wait for a ttl here.
        let builder = LockManager::builder().ttl(TTL).without_restart_guard();
        let mut site = Site::with(builder).await;
        assert_eq!(site.status("pay/1").await, StatusCode::OK);
        site.servers[..3].iter_mut().for_each(super::Server::kill);
        eventually("the loss is noticed", || {
            let nodes = site.locks.snapshot().nodes;
            nodes
                .iter()
                .filter(|node| node.state == NodeState::Up)
                .count()
                == 2
        })
        .await;

        let begin = Stopwatch::start();
        let (status, body) = site.send("pay/1").await.unwrap();
        let took = begin.elapsed();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(
            String::from_utf8_lossy(&body).contains("no-quorum"),
            "{body:?}"
        );
        assert!(took < site.locks.node_timeout(), "{took:?}");

        site.servers[..3]
            .iter_mut()
            .for_each(super::Server::restart);
        eventually("they are back", || {
            let nodes = site.locks.snapshot().nodes;
            nodes.iter().all(|node| node.state == NodeState::Up)
        })
        .await;
        assert_eq!(site.status("pay/1").await, StatusCode::OK);
        site.all_free().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_frozen_server_slows_no_request_to_the_node_timeout() {
    undisturbed(async || {
        let site = Site::open(TTL).await;
        site.servers[2].freeze();
        let mut slowest = Duration::ZERO;
        for order in 0..40 {
            let begin = Stopwatch::start();
            assert_eq!(
                site.status(&format!("pay/{}", order % KEYS)).await,
                StatusCode::OK
            );
            slowest = slowest.max(begin.elapsed());
        }
        site.servers[2].thaw();
        assert!(slowest < TTL / 40, "{slowest:?}");
        site.all_free().await;
    })
    .await;
}
