//! Both layers in fields of a struct, chosen by `if`.

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::Request;
use tower_redlock::idempotency::caller::{self, BoxCallerSource};
use tower_redlock::idempotency::{Idempotent, WithLock};
use tower_redlock::middleware::BoxKeyExtractor;
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::{Held, IdempotencyLayer, RedlockLayer, key};

use super::{Shop, manager, nodes, request, send};

struct Layers {
    once: IdempotencyLayer<BoxCallerSource>,
    one_at_a_time: RedlockLayer<BoxKeyExtractor>,
}

fn layers(nodes: &[MemoryNode], by_account: bool) -> Layers {
    let locks = manager(nodes);
    if by_account {
        let account = caller::header("x-account");
        Layers {
            once: IdempotencyLayer::new(locks.clone(), account).boxed(),
            one_at_a_time: RedlockLayer::new(locks, key::path("account")).boxed(),
        }
    } else {
        let order = key::header("idempotency-key").prefix("order");
        Layers {
            once: IdempotencyLayer::new(locks.clone(), caller::nobody()).boxed(),
            one_at_a_time: RedlockLayer::new(locks, order).boxed(),
        }
    }
}

async fn pay(lock: Held, run: Idempotent) -> String {
    format!("{} by {}", lock.key(), run.key())
}

#[tokio::test(start_paused = true)]
async fn a_route_has_the_layers_that_an_if_has_chosen() {
    for (by_account, expected) in [(true, "7 by a"), (false, "order:a by a")] {
        let nodes = nodes();
        let Layers {
            once,
            one_at_a_time,
        } = layers(&nodes, by_account);
        let both: WithLock<BoxCallerSource, RedlockLayer<BoxKeyExtractor>> =
            once.with_lock(one_at_a_time);
        let app = Router::new().route("/accounts/{account}", post(pay).route_layer(both));
        let pay = |account: Option<&str>| {
            let request = Request::post("/accounts/7").header("idempotency-key", "a");
            let request = account.into_iter().fold(request, |request, account| {
                request.header("x-account", account)
            });
            request.body(Body::empty()).unwrap()
        };
        assert_eq!(send(&app, pay(Some("acme"))).await.body, expected);
        let again = send(&app, pay(Some("acme"))).await;
        assert!(again.is_replayed() && again.body == expected);
        let unknown = send(&app, pay(None)).await;
        assert_eq!(unknown.status, if by_account { 403 } else { 200 });
    }
}

#[test]
fn a_boxed_layer_allocates_once_more_per_request() {
    const REQUESTS: u64 = 200;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    let _inside = runtime.enter();
    let nodes = nodes();
    let count = |app: &Router| {
        let send = || drop(runtime.block_on(send(app, request("a", "tea"))));
        // The first request runs, and the others get its response.
        (0..REQUESTS).for_each(|_| send());
        let counted = allocation_counter::measure(|| (0..REQUESTS).for_each(|_| send()));
        counted.count_total
    };
    let plain = count(&Shop::new().open(super::layer(&nodes)));
    let boxed = count(&Shop::new().open(super::layer(&nodes).boxed()));
    // What the manager does in the background now and then is the tenth part.
    assert!(
        boxed <= plain + REQUESTS + REQUESTS / 10,
        "{boxed} and {plain} allocations in {REQUESTS} requests"
    );
}
