//! Layers inside layers: one request shares what it holds.

use std::convert::Infallible;

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::layer::{UnlockedReason, lock_scope};
use tower_redlock::{Held, key};

use super::{Answer, KEY, MS, Nodes, SECOND, keyed, layer, ok, post, send};

/// The handler must not take the outer lock for the one that the inner layer did not give it.
#[tokio::test(start_paused = true)]
async fn of_two_layers_the_inner_one_decides() {
    let locks = Nodes::five().manager();
    let inner = service_fn(async |request: Request<Empty<Bytes>>| {
        let unlocked = Held::of(request.extensions()).unwrap_err();
        assert_eq!(unlocked, UnlockedReason::NoKey);
        Ok::<_, Infallible>(ok("ran"))
    });
    let keyless = keyed(&locks, key::header("x-order-id").optional());
    let service = layer(&locks).layer(keyless.layer(inner));
    assert_eq!(send(service, post()).await.text, "ran");
}

#[tokio::test(start_paused = true)]
async fn two_layers_with_one_key_share_one_lease() {
    let (nodes, locks) = Nodes::with_manager();
    let inner = service_fn(async |mut request: Request<Empty<Bytes>>| {
        let scope = lock_scope(request.extensions_mut());
        let handle = Held::of(request.extensions()).unwrap();
        let mine = locks.acquire_in(&scope, handle.key().clone().into(), 5 * MS);
        assert_eq!(mine.await.unwrap().fence(), handle.fence());
        assert_eq!(nodes.holding(KEY), 5);
        assert!(locks.try_acquire(KEY).await.is_err());
        Ok::<_, Infallible>(ok("ran"))
    });
    let waits = layer(&locks).max_wait(5 * SECOND);
    let service = waits.layer(waits.clone().hold_until_body().layer(inner));
    let before = nodes.commands();
    let response = service.oneshot(post()).await.unwrap();
    // The outer layer is done with it, the inner one holds it for the body.
    assert_eq!(nodes.holding(KEY), 5);
    assert_eq!(Answer::of(response).await.text, "ran");
    nodes.settle_free().await;
    assert_eq!(nodes.commands() - before, 10, "one acquire and one release");
}
