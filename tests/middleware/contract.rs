//! What tower demands of a service: readiness, the ready receiver, clones, errors.

use std::convert::Infallible;
use std::task::Poll;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{Empty, Full};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt as _, service_fn};
use tower_redlock::key;
use tower_redlock::layer::{OnDisconnect, RedlockService};
use tower_test::mock::{self, Mock};

use super::{Answer, KEY, Nodes, Scene, layer, ok, post, to};

type Inner = Mock<Request<Empty<Bytes>>, Response<Full<Bytes>>>;
type Handle = mock::Handle<Request<Empty<Bytes>>, Response<Full<Bytes>>>;

fn mocked(nodes: &Nodes) -> (mock::Spawn<RedlockService<Inner>>, Handle) {
    mock::spawn_layer(layer(&nodes.manager()))
}

/// Asks a layer's service whether it is ready, when the inner one is, is not, and never will be.
fn asks_the_inner_service<R, L>(layer: &L)
where
    L: Layer<Mock<R, Response<Full<Bytes>>>> + Clone,
    L::Service: Service<Request<Empty<Bytes>>, Error = BoxError>,
{
    let (mut service, mut inner) = mock::spawn_layer(layer.clone());
    inner.allow(0);
    assert!(service.poll_ready().is_pending());
    inner.allow(1);
    assert!(service.is_woken());
    // Asked again before the call, it is still ready.
    for _ in 0..2 {
        assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
    }
    let (mut service, mut inner) = mock::spawn_layer(layer.clone());
    inner.send_error("out of order");
    let Poll::Ready(Err(error)) = service.poll_ready() else {
        panic!("not an error");
    };
    assert_eq!(error.to_string(), "out of order");
}

#[tokio::test(start_paused = true)]
async fn readiness_is_the_inner_services() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
    asks_the_inner_service::<Request<Empty<Bytes>>, _>(&layer(&locks));
    asks_the_inner_service::<Request<Empty<Bytes>>, _>(
        &layer(&locks).on_disconnect(OnDisconnect::RunToEnd),
    );
    #[cfg(feature = "idempotency")]
    {
        use tower_redlock::layer::LayerBody;

        let caller = |_: &http::request::Parts| Some(String::new());
        let layer = tower_redlock::IdempotencyLayer::new(locks, caller);
        asks_the_inner_service::<Request<LayerBody<Empty<Bytes>>>, _>(&layer);
    }
    assert_eq!(nodes.commands(), 0, "readiness locks nothing");
}

/// The mock panics if a clone is called that was not polled ready.
#[tokio::test(start_paused = true)]
async fn the_service_that_was_ready_is_called() {
    for (method, holding) in [(Method::GET, 0), (Method::POST, 5)] {
        let nodes = Nodes::five();
        let (mut service, mut inner) = mocked(&nodes);
        inner.allow(1);
        assert!(service.poll_ready().is_ready());
        let response = tokio::spawn(service.call(to(method.clone(), "/")));
        let (request, respond) = inner.next_request().await.unwrap();
        assert_eq!(*request.method(), method);
        assert_eq!(nodes.holding(KEY), holding);
        respond.send_response(ok("paid"));
        let answer = Answer::of(response.await.unwrap().unwrap()).await;
        assert_eq!(answer.text, "paid");
        nodes.assert_free();
        // The one left behind was never asked and has nothing reserved.
        assert!(service.poll_ready().is_pending());
    }
}

#[tokio::test(start_paused = true)]
async fn inner_errors_come_through_unchanged() {
    #[derive(Debug, PartialEq)]
    struct Mine(u8);

    let scene = Scene::new();
    let inner = service_fn(|request: Request<Empty<Bytes>>| {
        let spy = scene.spy(request.extensions());
        async move {
            let _spy = spy;
            Err::<Response<Full<Bytes>>, _>(Mine(7))
        }
    });
    let service = scene.layer().layer(inner);
    assert_eq!(service.oneshot(post()).await.unwrap_err(), Mine(7));
    scene.assert_dropped_under_the_lock();
    scene.nodes.assert_free();
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_gives_its_reservation_back() {
    let locks = Nodes::five().manager();
    let _held = locks.try_acquire(KEY).await.unwrap();
    let inner = service_fn(async |_: Request<Empty<Bytes>>| Ok::<_, BoxError>(ok("never")));
    let mut service = ServiceBuilder::new()
        .layer(layer(&locks))
        .concurrency_limit(1)
        .service(inner);
    for _ in 0..3 {
        let response = service.ready().await.unwrap().call(post()).await.unwrap();
        assert_eq!(response.status(), 409);
    }
}

#[tokio::test(start_paused = true)]
async fn debug_says_what_a_thing_is_and_no_more() {
    let layer = layer(&Nodes::five().manager());
    let inner = service_fn(async |_: Request<Empty<Bytes>>| Ok::<_, Infallible>(ok("done")));
    let future = layer.layer(inner).call(post());
    let shown = format!("{future:?}");
    assert_eq!(shown, "ResponseFuture { state: acquiring, .. }");
    let body = future.await.unwrap().into_body();
    assert_eq!(format!("{body:?}"), "LayerBody { state: passed, .. }");
    assert_eq!(
        format!("{layer:?}"),
        "RedlockLayer { options: Options { common: Common { methods: Unsafe, max_wait: 0ns, on_no_quorum: Reject, on_disconnect: Cancel, \
         busy_status: 409, .. }, shared: Only([]), max_wait_with: false, holds_until_body: false, .. }, .. }"
    );
    let service = format!("{:?}", layer.layer("inner"));
    assert!(
        service.starts_with("RedlockService { inner: \"inner\", options: Options { "),
        "{service}"
    );
    let key = key::header("a").prefix("b");
    assert_eq!(format!("{key:?}"), "Key [\"b\", the header `a`]");
}
