//! Layers inside layers: one request shares what it holds.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, StatusCode};
use http_body_util::Empty;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_redlock::error::KeyError;
use tower_redlock::key::LockKeys;
use tower_redlock::layer::{KeyExtractor, lock_scope};
use tower_redlock::{Held, LockKey, key};

use super::{KEY, MS, Nodes, keyed, layer, ok, post, text};

/// A key that takes its time, so that requests come to their locks side by side.
struct Slow(&'static str);

impl KeyExtractor for Slow {
    async fn extract(&self, parts: &mut Parts) -> Result<Option<LockKeys>, KeyError> {
        tokio::time::sleep(MS).await;
        LockKeys::new([parts.headers[self.0].to_str().unwrap()]).map(Some)
    }
}

fn with(a: &'static str, b: &'static str) -> Request<Empty<Bytes>> {
    let mut request = post();
    for (name, value) in [("x-a", a), ("x-b", b)] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

#[tokio::test(start_paused = true)]
async fn two_layers_with_one_key_share_one_lease() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let inner = service_fn({
        let (nodes, locks) = (nodes.clone(), locks.clone());
        move |mut request: Request<Empty<Bytes>>| {
            let (nodes, locks) = (nodes.clone(), locks.clone());
            async move {
                let scope = lock_scope(request.extensions_mut());
                let handle = Held::of(request.extensions()).unwrap();
                let mine = locks.acquire_in(&scope, handle.key().clone().into(), 5 * MS);
                let mine = mine.await.unwrap();
                assert_eq!(mine.fence(), handle.fence());
                assert_eq!(nodes.holding(KEY), 5);
                assert!(locks.try_acquire(KEY).await.is_err());
                Ok::<_, Infallible>(ok("ran"))
            }
        }
    });
    let service = ServiceBuilder::new()
        .layer(layer(&locks).max_wait(Duration::from_secs(5)))
        .layer(
            layer(&locks)
                .max_wait(Duration::from_secs(5))
                .hold_until_body(),
        )
        .service(inner);
    let before = nodes.commands();
    let response = service.oneshot(post()).await.unwrap();
    // The outer layer is done with it, the inner one holds it for the body.
    assert_eq!(nodes.holding(KEY), 5);
    assert_eq!(text(response).await, "ran");
    nodes.settle_free().await;
    assert_eq!(nodes.commands() - before, 10, "one acquire and one release");
}

#[tokio::test(start_paused = true)]
async fn a_layer_with_several_keys_locks_all_of_them_and_an_inner_one_shares() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let inner = service_fn({
        let nodes = nodes.clone();
        move |request: Request<Empty<Bytes>>| {
            let held = nodes.keys();
            async move {
                let handle = Held::of(request.extensions()).unwrap();
                // The inner layer shares the lock, which is one on both.
                let both = ["1", "2"].map(|key| LockKey::new(key).unwrap());
                assert_eq!(handle.keys(), both);
                assert_eq!(held, ["lk:1", "lk:2"].repeat(5));
                Ok::<_, Infallible>(ok("ran"))
            }
        }
    });
    let both = key::header("x-a").also(key::header("x-b"));
    let service = ServiceBuilder::new()
        .layer(keyed(&locks, both))
        .layer(keyed(&locks, Slow("x-b")))
        .service(inner);
    let before = nodes.commands();
    let response = service.oneshot(with("1", "2")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(text(response).await, "ran");
    nodes.settle_free().await;
    assert_eq!(nodes.commands() - before, 10, "one acquire and one release");
}

#[tokio::test(start_paused = true)]
async fn layers_in_opposite_orders_do_not_lock_each_other_out_for_long() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let inner = || {
        service_fn(async |_: Request<Empty<Bytes>>| {
            tokio::time::sleep(5 * MS).await;
            Ok::<_, Infallible>(ok("ran"))
        })
    };
    let wait = Duration::from_secs(5);
    let ab = ServiceBuilder::new()
        .layer(keyed(&locks, Slow("x-a")).max_wait(wait))
        .layer(keyed(&locks, Slow("x-b")).max_wait(wait))
        .service(inner());
    let ba = ServiceBuilder::new()
        .layer(keyed(&locks, Slow("x-b")).max_wait(wait))
        .layer(keyed(&locks, Slow("x-a")).max_wait(wait))
        .service(inner());
    let (mut ran, mut refused) = (0, 0);
    let began = tokio::time::Instant::now();
    for _ in 0..50 {
        let (one, two) = tokio::join!(
            ab.clone().oneshot(with("1", "2")),
            ba.clone().oneshot(with("1", "2"))
        );
        for answer in [one.unwrap(), two.unwrap()] {
            match answer.status() {
                StatusCode::OK => ran += 1,
                StatusCode::CONFLICT => refused += 1,
                status => panic!("{status}"),
            }
        }
        nodes.settle_free().await;
    }
    assert!(
        ran >= 50,
        "one of each pair at least: {ran} ran, {refused} were refused"
    );
    assert!(refused > 0, "they never crossed");
    assert!(began.elapsed() < wait, "nobody waited in a circle");
}
