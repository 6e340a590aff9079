//! Which request an event belongs to, for a subscriber with the filter that the guide recommends.

use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use http::Request;
use tower::ServiceExt as _;
use tower_http::trace::{DefaultMakeSpan, TraceLayer};
use tower_redlock::{RedlockLayer, key};
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use super::five;

/// What a terminal would show.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The filter of the guide.
fn recommended() -> Targets {
    let guide = include_str!("../../src/docs/operating.md");
    let (_, rest) = guide.split_once("`RUST_LOG=").unwrap();
    rest.split('`').next().unwrap().parse().unwrap()
}

/// What is written of a request that finds its lock taken, by a service whose span has this level.
async fn written(level: Level) -> String {
    let paper = Paper::default();
    let copy = paper.clone();
    let layer = tracing_subscriber::fmt::layer().with_writer(move || copy.clone());
    let layer = layer.with_ansi(false).with_filter(recommended());
    let _listening = tracing_subscriber::registry().with(layer).set_default();
    let (_nodes, builder) = five();
    let locks = builder.connect().await.unwrap();
    let _guard = locks.acquire("order:42").await.unwrap();
    let order = key::path("order_id").prefix("order");
    let layer = RedlockLayer::new(locks.clone(), order);
    let span = DefaultMakeSpan::new().level(level);
    let app = Router::new()
        .route(
            "/orders/{order_id}/pay",
            post(async || "paid").route_layer(layer),
        )
        .layer(TraceLayer::new_for_http().make_span_with(span));
    let request = Request::post("/orders/42/pay").body(Body::empty());
    let response = app.oneshot(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 409);
    String::from_utf8(paper.0.lock().unwrap().clone()).unwrap()
}

/// The line of `text` that holds `words`.
fn line<'a>(text: &'a str, words: &str) -> &'a str {
    let line = text.lines().find(|line| line.contains(words));
    line.unwrap_or_else(|| panic!("no {words} in {text}"))
}

const REFUSED: &str = "\"contended\" wait";

#[tokio::test(start_paused = true)]
async fn events_name_their_request_where_its_span_is_as_the_guide_says() {
    let guide = include_str!("../../src/docs/operating.md");
    assert!(guide.contains("DefaultMakeSpan::new().level(Level::INFO)"));
    let text = written(Level::INFO).await;
    for (words, target) in [
        ("request rejected", "tower_redlock::layer: request rejected"),
        (REFUSED, "tower_redlock::lock: acquire"),
    ] {
        let line = line(&text, words);
        let request = "request{method=POST uri=/orders/42/pay";
        assert!(line.contains(request) && line.contains(target), "{line}");
    }
    // Why the guide has to say so: by default that span is at debug level.
    let text = written(Level::DEBUG).await;
    assert!(!line(&text, REFUSED).contains("request{"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_event_has_no_empty_fields() {
    let text = written(Level::INFO).await;
    let granted = line(&text, "\"acquired\" wait");
    assert!(granted.contains("nodes=\"n0, n1, n2"), "{granted}");
    assert!(!granted.contains("reason"), "{granted}");
    let (_, event) = line(&text, REFUSED).rsplit_once("acquire ").unwrap();
    // A sentence in quotes.
    assert!(
        event.contains("reason=\"") && !event.contains("nodes="),
        "{event}"
    );
    assert!(recommended().would_enable("tower_redlock::lock", &Level::DEBUG));
    assert_eq!(recommended().default_level(), Some(LevelFilter::INFO));
}
