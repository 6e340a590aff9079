//! The extractor: the handler runs under a lock or not at all.

use axum::Router;
use axum::routing::{MethodRouter, any, post};
use http::Method;
use tower_redlock::layer::OnNoQuorum;
use tower_redlock::node::MemoryNode;
use tower_redlock::{Held, key};

use super::{KEY, MS, Nodes, TTL, keyed, layer, send, sent, to};

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
async fn a_handler_is_told_how_long_its_request_waited() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let layer = layer(&locks).max_wait(2 * TTL);
    let app = app(post(async |lock: Held| format!("{:?}", lock.waited())).route_layer(layer));
    assert_eq!(sent(&app, Method::POST, "/").await.unwrap().text, "0ns");
    let held = locks.try_acquire(KEY).await.unwrap();
    let waiting = sent(&app, Method::POST, "/");
    tokio::time::sleep(1_250 * MS).await;
    held.release().await.unwrap();
    assert_eq!(waiting.await.unwrap().text, "1.25s");
}

#[tokio::test(start_paused = true)]
async fn a_handler_has_its_lock_or_is_refused_unless_it_can_do_without() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    let anyway = layer(&locks).on_no_quorum(OnNoQuorum::RunUnlocked);
    let optional = keyed(&locks, key::header("x-id").optional());
    let misconfigured = (500, "misconfigured");
    let (up, down) = (false, true);
    for (layer, method, of_strict, of_either, nodes_are_down) in [
        (&anyway, Method::POST, (200, KEY), (200, "locked"), up),
        (&anyway, Method::GET, misconfigured, (200, "unlocked"), up),
        (
            &optional,
            Method::POST,
            misconfigured,
            (200, "unlocked"),
            up,
        ),
        (
            &anyway,
            Method::POST,
            (503, "no-quorum"),
            (200, "unlocked"),
            down,
        ),
    ] {
        if nodes_are_down {
            nodes.each(MemoryNode::go_down);
        }
        for (route, expected) in [(strict(), of_strict), (either(), of_either)] {
            let app = app(route.layer(layer.clone()));
            assert_eq!(send(app, to(method.clone(), "/")).await.told(), expected);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_layer_is_a_problem_of_the_server() {
    for route in [strict(), either()] {
        let answer = send(app(route), super::post()).await;
        assert_eq!(answer.told(), (500, "misconfigured"));
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
        // The log says what, and a client cannot help it.
        assert!(!answer.text.contains("RedlockLayer"), "{}", answer.text);
    }
}
