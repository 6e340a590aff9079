//! Every way in which a request can end, each by itself: afterwards no server holds a key.

use std::time::Duration;

use axum::http::StatusCode;
use http_body_util::BodyExt as _;

use super::Site;
use super::support::stalls::{Stopwatch, undisturbed};

const TTL: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_response_releases_before_it_is_sent() {
    undisturbed(async || {
        let site = Site::open(TTL).await;
        for _ in 0..20 {
            assert_eq!(
                site.status("pay/1").await,
                StatusCode::OK,
                "free again at once"
            );
        }
        site.all_free().await;
    })
    .await;
}

#[tokio::test]
async fn an_error_answer_releases() {
    let site = Site::open(TTL).await;
    assert_eq!(site.status("fail/1").await, StatusCode::BAD_GATEWAY);
    site.all_free().await;
}

#[tokio::test]
async fn a_panic_releases() {
    let site = Site::open(TTL).await;
    assert!(site.send("panic/1").await.is_err(), "the connection breaks");
    site.all_free().await;
    assert_eq!(site.status("pay/1").await, StatusCode::OK);
}

#[tokio::test]
async fn a_client_that_goes_away_releases() {
    let site = Site::open(TTL).await;
    let client = site.client.clone();
    let request = site.request("hang/1");
    let call = tokio::spawn(async move { client.request(request).await });
    site.entered(1).await;
    assert_eq!(site.status("pay/1").await, StatusCode::CONFLICT);
    call.abort();
    site.all_free().await;
}

#[tokio::test]
async fn a_body_dropped_half_way_releases() {
    let site = Site::open(TTL).await;
    let response = site.client.request(site.request("stream/1")).await.unwrap();
    let mut body = response.into_body();
    let frame = body.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "first");
    assert_eq!(
        site.status("pay/1").await,
        StatusCode::CONFLICT,
        "held until the body ends"
    );
    drop(body);
    site.all_free().await;
}

#[tokio::test]
async fn a_shutdown_tells_the_handlers_and_releases() {
    undisturbed(async || {
        let site = Site::open(TTL).await;
        let client = site.client.clone();
        let request = site.request("hang/1");
        let call = tokio::spawn(async move { client.request(request).await });
        site.entered(1).await;
        let report = site.locks.shutdown(Duration::from_millis(50)).await;
        assert_eq!((report.lost, report.held, report.unconfirmed), (1, 0, 0));
        let response = call.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(
            String::from_utf8_lossy(&body).contains("lock-lost"),
            "{body:?}"
        );
        site.all_free().await;
        let (status, body) = site.send("pay/1").await.unwrap();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(
            String::from_utf8_lossy(&body).contains("shutting-down"),
            "{body:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn a_handler_whose_lock_is_lost_is_dropped_and_answered_503() {
    let site = Site::open(Duration::from_millis(600)).await;
    let client = site.client.clone();
    let request = site.request("hang/1");
    let begin = Stopwatch::start();
    let call = tokio::spawn(async move { client.request(request).await });
    site.entered(1).await;
    site.servers.iter().for_each(super::Server::freeze);
    let response = call.await.unwrap().unwrap();
    let took = begin.elapsed();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().get("retry-after").is_none());
    // Validity may have been renewed once before the freeze.
    assert!(took < Duration::from_millis(600 + 200), "{took:?}");
    site.servers.iter().for_each(super::Server::thaw);
    site.all_free().await;
}
