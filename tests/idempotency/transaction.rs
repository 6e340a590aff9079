//! The response in the transaction that has the effect: one effect and one response, also where the nodes know of none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tower_redlock::IdempotencyLayer;
use tower_redlock::idempotency::{Idempotent, caller};

use super::{Reply, at, manager, nodes, request, send};

/// A table with the column `id`, which is unique, and the response beside it. Its rows are its effects.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<HashMap<String, Bytes>>>);

impl Table {
    /// One transaction.
    fn order(&self, run: &Idempotent, body: &Bytes) -> Response<Bytes> {
        let mut rows = self.0.lock().unwrap();
        if let Some(stored) = rows.get(run.id()) {
            return run.decode(stored.clone());
        }
        let response = Response::builder().status(StatusCode::CREATED);
        let response = response
            .header("x-order", rows.len() + 1)
            .header("set-cookie", "a=b");
        let response = response.body(body.clone()).unwrap();
        rows.insert(run.id().to_owned(), run.encode(&response));
        response
    }

    fn effects(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// A service that keeps its orders here.
    fn open(&self, layer: IdempotencyLayer) -> Router {
        let table = self.clone();
        let order = post(async move |run: Idempotent, body: Bytes| {
            table.order(&run, &body).map(Body::from)
        });
        at(order, layer)
    }
}

fn layer() -> IdempotencyLayer {
    IdempotencyLayer::new(manager(&nodes()), caller::header("x-customer"))
}

fn of(customer: &str, key: &str, body: &'static str) -> Request<Body> {
    let mut request = request(key, body);
    let customer = customer.parse().unwrap();
    request.headers_mut().insert("x-customer", customer);
    request
}

/// Nodes that have lost what the layer stored, as after a crash between the commit and that.
async fn send_after_loss(table: &Table, request: Request<Body>) -> Reply {
    send(&table.open(layer()), request).await
}

#[tokio::test(start_paused = true)]
async fn a_second_run_gets_the_first_response_out_of_the_table() {
    let table = Table::default();
    let order = || of("ann", "a", "three eggs");
    // The cookie belongs to the first exchange.
    for (replayed, cookie) in [(false, Some("a=b")), (true, None), (true, None)] {
        let reply = send_after_loss(&table, order()).await;
        assert_eq!(
            (reply.status, reply.is_replayed()),
            (StatusCode::CREATED, replayed)
        );
        assert_eq!(
            (&*reply.body, reply.header("x-order")),
            ("three eggs", Some("1"))
        );
        assert_eq!(reply.header("set-cookie"), cookie);
    }
    assert_eq!(table.effects(), 1);
    // From there on the nodes have it, too.
    let app = table.open(layer());
    let out_of_table = send(&app, order()).await;
    table.0.lock().unwrap().clear();
    assert_eq!(send(&app, order()).await, out_of_table);
    assert_eq!(table.effects(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_caller_has_ids_of_its_own() {
    let table = Table::default();
    for (customer, key) in [("ann", "a"), ("bob", "a"), ("ann", "b")] {
        send_after_loss(&table, of(customer, key, "eggs")).await;
    }
    let mut other = of("ann", "a", "eggs");
    *other.uri_mut() = "/orders/2".parse().unwrap();
    // The route is the same.
    assert_eq!(send_after_loss(&table, other).await.status, 422);
    assert_eq!(table.effects(), 3);
    for id in table.0.lock().unwrap().keys() {
        let hash = id.strip_prefix("idempotency:").unwrap();
        assert!(hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_response_to_this_request_is_refused_and_not_stored() {
    let table = Table::default();
    let first = send_after_loss(&table, of("ann", "a", "eggs")).await;
    let app = table.open(layer());
    let other = send(&app, of("ann", "a", "milk")).await;
    other.assert_problem(422, "idempotency-key-reused");
    // Had the refusal been stored, this would be told that it is the other.
    let again = send(&app, of("ann", "a", "eggs")).await;
    assert_eq!((again.status, again.body), (first.status, first.body));
    for row in table.0.lock().unwrap().values_mut() {
        *row = row.slice(1..);
    }
    for _ in 0..2 {
        let damaged = send_after_loss(&table, of("ann", "a", "eggs")).await;
        damaged.assert_problem(503, "record-unreadable");
    }
    assert_eq!(table.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_too_long_is_only_noted() {
    let table = Table::default();
    let send_short = async || {
        let app = table.open(layer().max_response_body(4));
        send(&app, of("ann", "a", "three eggs")).await
    };
    assert_eq!(send_short().await.body, "three eggs");
    send_short().await.assert_problem(409, "not-replayable");
    assert_eq!(table.effects(), 1);
}
