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

#[tokio::test(start_paused = true)]
async fn the_lock_lasts_until_the_end_of_the_body_whatever_that_is() {
    let trailers = || Ok(Frame::trailers(HeaderMap::new()));
    for (end, frames, tells, last) in [
        ("it ends", vec![data("b")], false, "nothing"),
        // A consumer that knows the length does not ask for the end.
        ("it says that it ends", vec![data("b")], true, "data"),
        (
            "it has trailers",
            vec![data("b"), trailers()],
            true,
            "trailers",
        ),
        (
            "it fails",
            vec![data("b"), Err("disk full"), data("never")],
            false,
            "disk full",
        ),
        (
            "it is dropped",
            vec![data("b"), data("c")],
            false,
            "dropped",
        ),
    ] {
        let scene = Scene::new();
        let mut body = Some(begun(&scene, frames, tells, false).await);
        loop {
            assert_eq!(scene.nodes.holding(KEY), 5, "{end}");
            let frame = body.as_mut().unwrap().frame().await;
            let came = match frame {
                None => "nothing".to_owned(),
                Some(Err(error)) => error.to_string(),
                Some(Ok(frame)) if frame.is_trailers() => "trailers".to_owned(),
                Some(Ok(_)) if last == "dropped" => {
                    body = None;
                    "dropped".to_owned()
                }
                Some(Ok(_)) => "data".to_owned(),
            };
            if came == last {
                break;
            }
            assert_eq!((came.as_str(), scene.dropped()), ("data", None), "{end}");
        }
        scene.assert_dropped_under_the_lock();
        scene.nodes.settle_free().await;
        if let Some(mut body) = body {
            let stays = body.is_end_stream() && body.frame().await.is_none();
            assert!(stays, "{end}, and stays ended");
        }
    }
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
