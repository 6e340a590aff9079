//! The extractor: the handler runs under a lock or not at all.

use axum::Router;
use axum::routing::{MethodRouter, any};
use http::Method;
use tower_redlock::layer::OnNoQuorum;
use tower_redlock::node::MemoryNode;
use tower_redlock::{Held, RedlockLayer, key};

use super::{KEY, Nodes, keyed, layer, send, to};

fn strict() -> MethodRouter {
    any(async |lock: Held| {
        assert!(!lock.is_lost());
        lock.key().to_string()
    })
}

fn either() -> MethodRouter {
    any(async |lock: Option<Held>| lock.map_or("unlocked", |_| "locked"))
}

fn app(route: MethodRouter) -> Router {
    Router::new().route("/", route)
}

#[tokio::test(start_paused = true)]
async fn a_handler_has_its_lock_or_is_refused_unless_it_can_do_without() {
    let (nodes, locks) = Nodes::with_manager();
    let anyway = layer(&locks).on_no_quorum(OnNoQuorum::RunUnlocked);
    let optional = keyed(&locks, key::header("x-id").optional());
    let check = async |layer: &RedlockLayer, method, of_strict, of_either| {
        for (route, expected) in [(strict(), of_strict), (either(), (200, of_either))] {
            let request = to(Method::clone(&method), "/");
            let answer = send(app(route.layer(layer.clone())), request).await;
            assert_eq!(answer.told(), expected);
        }
    };
    let misconfigured = (500, "misconfigured");
    check(&anyway, Method::POST, (200, KEY), "locked").await;
    check(&anyway, Method::GET, misconfigured, "unlocked").await;
    check(&optional, Method::POST, misconfigured, "unlocked").await;
    nodes.each(MemoryNode::go_down);
    check(&anyway, Method::POST, (503, "no-quorum"), "unlocked").await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_layer_is_a_problem_of_the_server() {
    for route in [strict(), either()] {
        let answer = send(app(route), super::post()).await;
        assert_eq!(answer.told(), (500, "misconfigured"));
        assert!(answer.is_problem());
        // The log says what, and a client cannot help it.
        assert!(!answer.text.contains("RedlockLayer"), "{}", answer.text);
    }
}
