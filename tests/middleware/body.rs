//! The lock that lives as long as the response's body: [`hold_until_body`](tower_redlock::RedlockLayer::hold_until_body).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Empty};
use tower::{ServiceBuilder, ServiceExt as _, service_fn};
use tower_redlock::error::RunError;
use tower_redlock::layer::LayerBody;

use super::{KEY, Nodes, Seen, Spy, layer, post};

/// A body of given frames: `Err` fails it, the end of the list ends it if `tells` and hangs it otherwise.
struct Script {
    frames: VecDeque<Result<Frame<Bytes>, &'static str>>,
    /// Whether `is_end_stream` says so as soon as the last frame is out.
    tells: bool,
    hangs: bool,
    _spy: Spy,
}

impl Body for Script {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        match self.frames.pop_front() {
            None if self.hangs => Poll::Pending,
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.tells && self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let data = self.frames.iter().flatten().filter_map(Frame::data_ref);
        SizeHint::with_exact(data.map(|bytes| bytes.len() as u64).sum())
    }
}

struct Case {
    nodes: Nodes,
    seen: Seen,
}

impl Case {
    fn new() -> Self {
        Self {
            nodes: Nodes::five(),
            seen: Seen::default(),
        }
    }

    fn script(
        &self,
        frames: impl IntoIterator<Item = Result<&'static str, &'static str>>,
    ) -> Script {
        let frames = frames
            .into_iter()
            .map(|frame| frame.map(|text| Frame::data(Bytes::from(text))));
        Script {
            frames: frames.collect(),
            tells: false,
            hangs: false,
            _spy: self.seen.spy(&self.nodes),
        }
    }

    /// The response of a handler with this body, under a lock that lasts to the body's end.
    async fn respond<B>(&self, body: B) -> LayerBody<B>
    where
        B: Body + Send + 'static,
    {
        let body = std::sync::Mutex::new(Some(body));
        let inner = service_fn(|request: Request<Empty<Bytes>>| {
            self.seen.watch(request.extensions());
            let body = body.lock().unwrap().take().unwrap();
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        let layer = layer(&self.nodes.manager()).hold_until_body();
        let service = ServiceBuilder::new().layer(layer).service(inner);
        service.oneshot(post()).await.unwrap().into_body()
    }
}

#[tokio::test(start_paused = true)]
async fn the_lock_lasts_until_the_end_of_the_body() {
    let case = Case::new();
    let mut body = case.respond(case.script([Ok("a"), Ok("b")])).await;
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "a"
    );
    assert_eq!(
        body.frame().await.unwrap().unwrap().into_data().unwrap(),
        "b"
    );
    assert_eq!(case.nodes.holding(KEY), 5);
    assert_eq!(case.seen.get(), None);
    assert!(body.frame().await.is_none());
    case.seen.assert_dropped_under_the_lock();
    case.nodes.settle_free().await;
    assert!(
        body.is_end_stream() && body.frame().await.is_none(),
        "and it stays ended"
    );
}

/// A consumer that knows the length does not ask for the end.
#[tokio::test(start_paused = true)]
async fn a_body_that_says_it_has_ended_is_not_waited_for() {
    let case = Case::new();
    let mut script = case.script([Ok("a"), Ok("b")]);
    script.tells = true;
    let mut body = case.respond(script).await;
    body.frame().await.unwrap().unwrap();
    assert_eq!(case.nodes.holding(KEY), 5);
    body.frame().await.unwrap().unwrap();
    case.seen.assert_dropped_under_the_lock();
    case.nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn trailers_are_still_under_the_lock() {
    let case = Case::new();
    let mut script = case.script([Ok("a")]);
    script.tells = true;
    script
        .frames
        .push_back(Ok(Frame::trailers(HeaderMap::new())));
    let mut body = case.respond(script).await;
    body.frame().await.unwrap().unwrap();
    assert_eq!(case.nodes.holding(KEY), 5);
    assert!(body.frame().await.unwrap().unwrap().is_trailers());
    case.nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_fails_releases() {
    let case = Case::new();
    let mut body = case
        .respond(case.script([Ok("a"), Err("disk full"), Ok("never")]))
        .await;
    body.frame().await.unwrap().unwrap();
    assert_eq!(
        body.frame().await.unwrap().unwrap_err().to_string(),
        "disk full"
    );
    case.seen.assert_dropped_under_the_lock();
    case.nodes.settle_free().await;
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_body_dropped_half_way_releases() {
    let case = Case::new();
    let mut body = case.respond(case.script([Ok("a"), Ok("b")])).await;
    body.frame().await.unwrap().unwrap();
    assert_eq!(case.nodes.holding(KEY), 5);
    drop(body);
    case.seen.assert_dropped_under_the_lock();
    case.nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_body_needs_no_lock_and_its_release_is_awaited() {
    let case = Case::new();
    let body = case.respond(Empty::<Bytes>::new()).await;
    case.nodes.assert_free();
    drop(body);
}

#[tokio::test(start_paused = true)]
async fn a_loss_after_the_head_fails_the_body() {
    let case = Case::new();
    let mut script = case.script([Ok("a")]);
    script.hangs = true;
    let mut body = case.respond(script).await;
    body.frame().await.unwrap().unwrap();
    case.nodes.each(|n| n.freeze());
    let error: tower::BoxError = body.frame().await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the lock was lost while the work ran, and the work was dropped: its validity ended without a successful \
         extension; find out how far it came before it runs again"
    );
    assert!(error.is::<RunError>());
    case.seen.assert_dropped_under_the_lock();
    assert!(body.frame().await.is_none());
    case.nodes.each(|n| n.thaw());
    case.nodes.settle_free().await;
}

/// It never pends, so nothing but a look at each frame can stop it.
#[tokio::test(start_paused = true)]
async fn a_body_that_is_always_ready_is_stopped_too() {
    let case = Case::new();
    let mut body = case
        .respond(case.script(std::iter::repeat_n(Ok("a"), 100)))
        .await;
    body.frame().await.unwrap().unwrap();
    case.nodes.each(|n| n.freeze());
    tokio::time::sleep(super::TTL).await;
    assert!(body.frame().await.unwrap().is_err());
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn length_and_end_are_the_inner_bodys() {
    for until_body in [false, true] {
        let nodes = Nodes::five();
        let inner =
            service_fn(async |_: Request<Empty<Bytes>>| Ok::<_, Infallible>(super::ok("hello")));
        let layer = layer(&nodes.manager());
        let layer = match until_body {
            true => layer.hold_until_body(),
            false => layer,
        };
        let service = ServiceBuilder::new().layer(layer).service(inner);
        let mut body = service.oneshot(post()).await.unwrap().into_body();
        assert_eq!(body.size_hint().exact(), Some(5));
        assert!(!body.is_end_stream());
        body.frame().await.unwrap().unwrap();
        assert_eq!(body.size_hint().exact(), Some(0));
        assert!(body.is_end_stream());
    }
}
