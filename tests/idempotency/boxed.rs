//! Both layers in fields of a struct, chosen by `if`.

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::Request;
use tower_redlock::idempotency::caller;
use tower_redlock::idempotency::{Idempotent, WithLock};
use tower_redlock::node::MemoryNode;
use tower_redlock::{Held, IdempotencyLayer, RedlockLayer, key};

use super::{manager, nodes, send};

struct Layers {
    once: IdempotencyLayer,
    one_at_a_time: RedlockLayer,
}

fn layers(nodes: &[MemoryNode], by_account: bool) -> Layers {
    let locks = manager(nodes);
    if by_account {
        let account = caller::header("x-account");
        Layers {
            once: IdempotencyLayer::new(locks.clone(), account),
            one_at_a_time: RedlockLayer::new(locks, key::path("account")),
        }
    } else {
        let order = key::header("idempotency-key").prefix("order");
        Layers {
            once: IdempotencyLayer::new(locks.clone(), caller::nobody()),
            one_at_a_time: RedlockLayer::new(locks, order),
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
        let both: WithLock<RedlockLayer> = once.with_lock(one_at_a_time);
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
