//! Many requests at once, and servers that die, freeze and return under them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use tower_redlock::LockManager;
use tower_redlock::node::NodeState;

use super::support::eventually;
use super::support::stalls::{Stopwatch, undisturbed};
use super::{KEYS, Site};

const TTL: Duration = Duration::from_secs(10);

/// Waits until the manager is connected to so many nodes.
async fn are_up(site: &Site, count: usize) {
    eventually("so many are up", || {
        let nodes = site.locks.snapshot().nodes;
        let up = nodes.iter().filter(|node| node.state == NodeState::Up);
        up.count() == count
    })
    .await;
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
async fn with_three_servers_down_the_answer_is_503_at_once_and_they_need_only_return() {
    undisturbed(async || {
        // The servers come back empty, and nobody wants to wait for a ttl here.
        let builder = LockManager::builder().ttl(TTL).without_restart_guard();
        let mut site = Site::with(builder).await;
        assert_eq!(site.status("pay/1").await, StatusCode::OK);
        site.servers[..3].iter_mut().for_each(super::Server::kill);
        are_up(&site, 2).await;

        let begin = Stopwatch::start();
        let (status, body) = site.send("pay/1").await.unwrap();
        let took = begin.elapsed();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains("no-quorum"), "{body}");
        assert!(took < site.locks.node_timeout(), "{took:?}");

        site.servers[..3]
            .iter_mut()
            .for_each(super::Server::restart);
        are_up(&site, 5).await;
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
            let status = site.status(&format!("pay/{}", order % KEYS)).await;
            assert_eq!(status, StatusCode::OK);
            slowest = slowest.max(begin.elapsed());
        }
        site.servers[2].thaw();
        assert!(slowest < TTL / 40, "{slowest:?}");
        site.all_free().await;
    })
    .await;
}
