//! The lock that lives as long as the response's body: [`hold_until_body`](tower_redlock::RedlockLayer::hold_until_body).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Empty};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::error::RunError;
use tower_redlock::layer::LayerBody;

use super::{KEY, Nodes, Scene, Spy, layer, ok, post};

/// A body of given frames: `Err` fails it, the end of the list ends it, or hangs it.
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
}

/// The response of a handler with this body, under a lock that lasts to the body's end.
async fn respond<B: Body + Send + 'static>(scene: &Scene, body: B) -> LayerBody<B> {
    let body = Mutex::new(Some(body));
    let inner = service_fn(|request: Request<Empty<Bytes>>| {
        scene.watch(request.extensions());
        let body = body.lock().unwrap().take().unwrap();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let service = scene.layer().hold_until_body().layer(inner);
    service.oneshot(post()).await.unwrap().into_body()
}

/// A body that begins with a frame, which is read, and has these after it.
async fn begun(
    scene: &Scene,
    rest: impl IntoIterator<Item = Result<Frame<Bytes>, &'static str>>,
    tells: bool,
    hangs: bool,
) -> LayerBody<Script> {
    let frames = [data("a")].into_iter().chain(rest).collect();
    let _spy = Spy(scene.clone());
    let script = Script {
        frames,
        tells,
        hangs,
        _spy,
    };
    let mut body = respond(scene, script).await;
    let first = body.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "a");
    assert_eq!((scene.nodes.holding(KEY), scene.dropped()), (5, None));
    body
}

fn data(text: &'static str) -> Result<Frame<Bytes>, &'static str> {
    Ok(Frame::data(Bytes::from(text)))
}

/// What a consumer reads next.
async fn next(body: &mut LayerBody<Script>) -> String {
    match body.frame().await {
        None => "nothing".to_owned(),
        Some(Err(error)) => error.to_string(),
        Some(Ok(frame)) => match frame.into_data() {
            Ok(data) => String::from_utf8(data.to_vec()).unwrap(),
            Err(_) => "trailers".to_owned(),
        },
    }
}

#[tokio::test(start_paused = true)]
async fn the_lock_lasts_until_the_last_frame_whatever_that_is() {
    let trailers = || Ok(Frame::trailers(HeaderMap::new()));
    for (frames, tells, reads) in [
        (vec![data("b")], false, &["b", "nothing"] as &[&str]),
        // A consumer that knows the length does not ask for the end.
        (vec![data("b")], true, &["b"]),
        (vec![data("b"), trailers()], true, &["b", "trailers"]),
        (
            vec![data("b"), Err("disk full"), data("c")],
            false,
            &["b", "disk full"],
        ),
    ] {
        let scene = Scene::new();
        let mut body = begun(&scene, frames, tells, false).await;
        for read in reads {
            let held = (scene.nodes.holding(KEY), scene.dropped());
            assert_eq!(held, (5, None), "{reads:?}");
            assert_eq!(next(&mut body).await, *read);
        }
        scene.assert_dropped_under_the_lock();
        scene.nodes.settle_free().await;
        assert!(body.is_end_stream(), "{reads:?}");
        assert_eq!(next(&mut body).await, "nothing", "and it stays ended");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_dropped_half_way_releases() {
    let scene = Scene::new();
    drop(begun(&scene, [data("b"), data("c")], false, false).await);
    scene.assert_dropped_under_the_lock();
    scene.nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_body_needs_no_lock_and_its_release_is_awaited() {
    let scene = Scene::new();
    let _body = respond(&scene, Empty::<Bytes>::new()).await;
    scene.nodes.assert_free();
}

#[tokio::test(start_paused = true)]
async fn a_loss_after_the_head_fails_the_body() {
    let scene = Scene::new();
    let mut body = begun(&scene, [], false, true).await;
    scene.nodes.each(|n| n.freeze());
    let error: tower::BoxError = body.frame().await.unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the lock was lost while the work ran, and the work was dropped: its validity ended without a successful \
         extension; find out how far it came before it runs again"
    );
    assert!(error.is::<RunError>());
    scene.assert_dropped_under_the_lock();
    assert!(body.frame().await.is_none());
    scene.nodes.each(|n| n.thaw());
    scene.nodes.settle_free().await;
}

#[tokio::test(start_paused = true)]
async fn length_and_end_are_the_inner_bodys() {
    let layer = layer(&Nodes::five().manager());
    for layer in [layer.clone(), layer.hold_until_body()] {
        let inner = service_fn(async |_: Request<Empty<Bytes>>| Ok::<_, Infallible>(ok("hello")));
        let mut body = layer
            .layer(inner)
            .oneshot(post())
            .await
            .unwrap()
            .into_body();
        assert_eq!(
            (body.size_hint().exact(), body.is_end_stream()),
            (Some(5), false)
        );
        body.frame().await.unwrap().unwrap();
        assert_eq!(
            (body.size_hint().exact(), body.is_end_stream()),
            (Some(0), true)
        );
    }
}
