//! The part of a process that serves requests.

use std::future::pending;
use std::path::Path;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tower_redlock::idempotency::Idempotent;
use tower_redlock::node::RedisNode;

use crate::branch::{Part, Point, Said};
use crate::dice::{chance, millis};
use crate::gate::Gate;
use crate::ledger::Ledger;
use crate::support::role::{orders, role, say};
use crate::*;

/// Longer than a busy machine takes to stop a process.
pub(crate) const MOMENT: Duration = Duration::from_millis(500);

/// Tells the parent that the process has come to where it is to be killed.
pub(crate) fn here() {
    say(&Said::Here);
}

/// Nothing, unless this process was started to serve.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plays_its_part() {
    let Some(part) = role::<Part>() else {
        return;
    };
    let app = app(&part, manager(&part).await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    say(&Said::Serves(listener.local_addr().unwrap()));
    let mut orders = orders();
    tokio::select! {
        served = axum::serve(listener, app) => served.unwrap(),
        // The parent has ended, or is done.
        _ = orders.next_line() => {}
    }
}

async fn manager(part: &Part) -> LockManager {
    let nodes = part.servers.iter().enumerate().map(|(index, url)| {
        let node = RedisNode::new(url).build().unwrap();
        Gate::new(node, part.stops_at, index == 0)
    });
    let builder = builder(part.ttl).mask_losses(part.masked);
    connected(builder.nodes(nodes)).await
}

#[derive(Clone)]
struct Shop {
    part: Part,
    ledger: Ledger,
}

impl Shop {
    /// Stops for good if it is to stop here.
    async fn at(&self, point: Point) {
        if self.part.stops_at == Some(point) {
            here();
            pending::<()>().await;
        }
    }
}

fn app(part: &Part, locks: LockManager) -> Router {
    let shop = Shop {
        part: part.clone(),
        ledger: Ledger::open(Path::new(&part.database)),
    };
    let layer = IdempotencyLayer::new(locks, caller::nobody()).max_wait(MAX_WAIT);
    Router::new()
        .route("/orders", post(order))
        .layer(from_fn_with_state(shop.clone(), inside))
        .layer(layer)
        .layer(from_fn_with_state(shop.clone(), outside))
        .with_state(shop)
}

/// Between the layer and the handler.
async fn inside(State(shop): State<Shop>, request: Request, next: Next) -> Response {
    shop.at(Point::BeforeHandler).await;
    next.run(request).await
}

/// Between the layer and the client.
async fn outside(State(shop): State<Shop>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    shop.at(Point::AfterRecord).await;
    response
}

/// Takes an order. The answer differs with each run, so that it is seen whose it is.
async fn order(State(shop): State<Shop>, idempotent: Idempotent, body: String) -> Response {
    let (key, process) = (idempotent.key().as_str(), shop.part.process);
    let run = shop.ledger.begin(key).await;
    shop.at(Point::BeforeEffect).await;
    if shop.part.stops_at == Some(Point::ToBeOvertaken) {
        here();
        // The parent stops the process meanwhile.
        sleep(MOMENT).await;
    }
    work(shop.part.most_work).await;
    let ordered = shop.ledger.order(key, run).await;
    shop.at(Point::AfterEffect).await;
    work(shop.part.most_work).await;
    let headers = [("x-run", run.to_string()), ("x-order", ordered.to_string())];
    let text =
        format!("{body}: ordered by run {ordered}, told by run {run} of process {process}\n");
    (StatusCode::CREATED, headers, text.repeat(20)).into_response()
}

/// Half of what a handler does, which is over at once every now and then.
async fn work(most: u64) {
    let most = if chance(1, 4) { 0 } else { most / 2 };
    sleep(millis(0..=most)).await;
}
