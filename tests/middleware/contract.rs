//! What tower demands of a service: readiness, the ready receiver, clones, errors.

use std::convert::Infallible;
use std::task::Poll;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{Empty, Full};
use tower::BoxError;
use tower::{Service as _, ServiceBuilder, ServiceExt as _, service_fn};
use tower_redlock::layer::RedlockService;
use tower_test::mock::{self, Mock};

use super::{KEY, MS, Nodes, Seen, layer, ok, post, request};

type Inner = Mock<Request<Empty<Bytes>>, Response<Full<Bytes>>>;
type Handle = mock::Handle<Request<Empty<Bytes>>, Response<Full<Bytes>>>;

fn mocked(nodes: &Nodes) -> (mock::Spawn<RedlockService<Inner>>, Handle) {
    mock::spawn_layer(layer(&nodes.manager()))
}

#[tokio::test(start_paused = true)]
async fn readiness_is_the_inner_services() {
    let nodes = Nodes::five();
    let (mut service, mut inner) = mocked(&nodes);
    inner.allow(0);
    assert!(service.poll_ready().is_pending());
    inner.allow(1);
    assert!(service.is_woken());
    assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
    // Asked again before the call, it is still ready.
    assert!(matches!(service.poll_ready(), Poll::Ready(Ok(()))));
    assert_eq!(nodes.commands(), 0, "readiness locks nothing");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_readiness_is_passed_on() {
    let (mut service, mut inner) = mocked(&Nodes::five());
    inner.send_error("out of order");
    let Poll::Ready(Err(error)) = service.poll_ready() else {
        panic!("not an error");
    };
    assert_eq!(error.to_string(), "out of order");
}

/// The mock panics if a clone is called that was not polled ready.
#[tokio::test(start_paused = true)]
async fn the_service_that_was_ready_is_called() {
    for method in [Method::GET, Method::POST] {
        let nodes = Nodes::five();
        let (mut service, mut inner) = mocked(&nodes);
        inner.allow(1);
        assert!(service.poll_ready().is_ready());
        let response = tokio::spawn(service.call(request(method.clone())));
        let (request, respond) = inner.next_request().await.unwrap();
        assert_eq!(*request.method(), method);
        assert_eq!(
            nodes.holding(KEY),
            if method == Method::POST { 5 } else { 0 }
        );
        respond.send_response(ok("paid"));
        assert_eq!(super::text(response.await.unwrap().unwrap()).await, "paid");
        nodes.assert_free();
        // The one left behind was never asked and has nothing reserved.
        assert!(service.poll_ready().is_pending());
    }
}

#[tokio::test(start_paused = true)]
async fn inner_errors_come_through_unchanged() {
    #[derive(Debug, PartialEq)]
    struct Mine(u8);

    let nodes = Nodes::five();
    let seen = Seen::default();
    let inner = service_fn(|request: Request<Empty<Bytes>>| {
        seen.watch(request.extensions());
        let spy = seen.spy(&nodes);
        async move {
            let _spy = spy;
            Err::<Response<Full<Bytes>>, _>(Mine(7))
        }
    });
    let service = ServiceBuilder::new()
        .layer(layer(&nodes.manager()))
        .service(inner);
    assert_eq!(service.oneshot(post()).await.unwrap_err(), Mine(7));
    seen.assert_dropped_under_the_lock();
    nodes.assert_free();
}

/// Where a clone is called that was not ready, `ConcurrencyLimit` panics; where a permit stays behind, the second
/// request waits for ever.
#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_of_one_inside_and_outside() {
    let nodes = Nodes::five();
    let inner = || {
        service_fn(async |_: Request<Empty<Bytes>>| {
            tokio::time::sleep(MS).await;
            Ok::<_, Infallible>(ok("done"))
        })
    };
    let inside = ServiceBuilder::new()
        .layer(layer(&nodes.manager()))
        .concurrency_limit(1)
        .service(inner());
    let outside = ServiceBuilder::new()
        .concurrency_limit(1)
        .layer(layer(&nodes.manager()))
        .service(inner());
    for _ in 0..3 {
        let both = tokio::join!(
            inside.clone().oneshot(post()),
            inside.clone().oneshot(post())
        );
        assert!(both.0.unwrap().status().is_success() && both.1.unwrap().status().is_success());
        let both = tokio::join!(
            outside.clone().oneshot(post()),
            outside.clone().oneshot(post())
        );
        assert!(both.0.unwrap().status().is_success() && both.1.unwrap().status().is_success());
    }
    nodes.assert_free();
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_gives_its_reservation_back() {
    let nodes = Nodes::five();
    let locks = nodes.manager();
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
    let nodes = Nodes::five();
    let mut service = ServiceBuilder::new()
        .layer(layer(&nodes.manager()))
        .service(service_fn(async |_: Request<Empty<Bytes>>| {
            Ok::<_, Infallible>(ok("done"))
        }));
    let future = service.ready().await.unwrap().call(post());
    assert_eq!(
        format!("{future:?}"),
        "ResponseFuture { state: acquiring, .. }"
    );
    let body = future.await.unwrap().into_body();
    assert_eq!(format!("{body:?}"), "LayerBody { state: passed, .. }");
    let layer = layer(&nodes.manager());
    assert_eq!(
        format!("{layer:?}"),
        "RedlockLayer { options: Options { common: Common { methods: Unsafe, max_wait: 0ns, on_no_quorum: Reject, on_disconnect: Cancel, \
         busy_status: 409, .. }, shared: Only([]), max_wait_with: false, holds_until_body: false, .. }, .. }"
    );
    let key = tower_redlock::key::header("a").prefix("b");
    assert_eq!(format!("{key:?}"), "Key [\"b\", the header `a`]");
}
