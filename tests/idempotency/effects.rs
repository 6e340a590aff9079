//! Which answers say that nothing was done, and are believed. Each test counts effects, not answers.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, MatchedPath, Path, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, post, post_service};
use http::request::Parts;
use http::{Extensions, HeaderValue, StatusCode};
use tower::util::{BoxCloneSyncService, MapRequestLayer};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::error::KeyError;
use tower_redlock::extract::{AsLockKeys, LockedRejection};
use tower_redlock::idempotency::Idempotent;
use tower_redlock::key::LockKeys;
use tower_redlock::layer::{LayerBody, OnDisconnect, Rejection};
use tower_redlock::node::MemoryNode;
use tower_redlock::{IdempotencyLayer, LockKey, LockManager, Locked, RedlockLayer};

use super::{Reply, manager, nodes, send};

/// Nodes, and how often customers were charged: the effect that is to happen once.
#[derive(Clone)]
struct Scene {
    nodes: Vec<MemoryNode>,
    charges: Arc<AtomicU32>,
}

impl Scene {
    fn new() -> Self {
        Self {
            nodes: nodes(),
            charges: Arc::default(),
        }
    }

    fn charge(&self) {
        self.charges.fetch_add(1, Ordering::SeqCst);
    }

    fn charges(&self) -> u32 {
        self.charges.load(Ordering::SeqCst)
    }

    fn layer(&self) -> IdempotencyLayer {
        super::layer(&self.nodes)
    }

    /// The lock on the account.
    fn lock(&self) -> RedlockLayer {
        let account = |_: &Parts| LockKey::new("account:7");
        RedlockLayer::new(manager(&self.nodes), account)
    }

    /// A route behind the layer.
    fn app(&self, route: MethodRouter<LockManager>) -> Router {
        let app = at(route).route_layer(self.layer());
        app.with_state(manager(&self.nodes))
    }

    /// A handler that charges and does nothing else.
    fn charging(&self) -> MethodRouter {
        let scene = self.clone();
        post(async move || {
            scene.charge();
            "charged"
        })
    }

    /// Sends a request and two repeats while the account is busy, and one more when it is free.
    async fn four_times(&self, app: &Router) -> Vec<Reply> {
        let other = manager(&self.nodes).try_acquire("account:7").await.unwrap();
        let mut replies = Vec::new();
        for _ in 0..3 {
            replies.push(send(app, pay("a")).await);
        }
        other.release().await.unwrap();
        replies.push(send(app, pay("a")).await);
        replies
    }

    /// An effect came before the refusal, so that the refusal is the answer for good.
    async fn assert_charges_once(&self, app: &Router) {
        let replies = self.four_times(app).await;
        assert_eq!(self.charges(), 1, "{replies:?}");
        assert_eq!(replies[0].status, 409);
        for repeat in &replies[1..] {
            repeat.assert_replays(&replies[0].body);
        }
    }

    /// The refusal says by itself that nothing was done, so that one is charged when the account is free.
    async fn assert_charges_in_the_end(&self, app: &Router) {
        let replies = self.four_times(app).await;
        for refused in &replies[..3] {
            assert_eq!(refused.status, 409);
            assert!(!refused.is_replayed(), "{refused:?}");
        }
        assert_eq!((replies[3].status.as_u16(), self.charges()), (200, 1));
        assert!(send(app, pay("a")).await.is_replayed());
        assert_eq!(self.charges(), 1);
    }
}

/// An account as an argument of a handler.
#[derive(serde::Deserialize)]
struct Account(u64);

impl AsLockKeys for Account {
    fn to_lock_keys(&self) -> Result<LockKeys, KeyError> {
        Ok(LockKey::join(["account", &self.0.to_string()])?.into())
    }
}

type OfAccount = Locked<Path<Account>>;

fn pay(key: &str) -> Request {
    let request = Request::post("/accounts/7/payments").header("idempotency-key", key);
    request.body(Body::empty()).unwrap()
}

fn at<S: Clone + Send + Sync + 'static>(route: MethodRouter<S>) -> Router<S> {
    Router::new().route("/accounts/{account}/payments", route)
}

type Inner = BoxCloneSyncService<Request, Response, Infallible>;

/// An inner service that a handler calls, as it is called by itself.
fn inner(lock: &RedlockLayer) -> Inner {
    let done =
        service_fn(async |_: Request| Ok::<_, Infallible>(Body::from("done").into_response()));
    BoxCloneSyncService::new(lock.layer(done).map_response(answer_of))
}

/// What a lock layer answers, as a router has it.
fn answer_of(response: http::Response<LayerBody<Body>>) -> Response {
    response.map(Body::new)
}

/// What a handler hands to the service that it calls.
#[derive(Clone, Copy, Debug)]
enum Handed {
    ARequestOfItsOwn,
    ItsRequest,
    CopiesOfItsExtensions,
}

const HANDED: [Handed; 3] = [
    Handed::ARequestOfItsOwn,
    Handed::ItsRequest,
    Handed::CopiesOfItsExtensions,
];

/// A handler that charges, and then calls a service that needs a lock.
fn charges_then_calls(scene: &Scene, handed: Handed, service: Inner) -> MethodRouter {
    let scene = scene.clone();
    post(move |request: Request| {
        scene.charge();
        let mut sent = pay("inner");
        match handed {
            Handed::ARequestOfItsOwn => {}
            Handed::ItsRequest => sent = request,
            Handed::CopiesOfItsExtensions => *sent.extensions_mut() = request.extensions().clone(),
        }
        async move { service.oneshot(sent).await }
    })
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_a_handler_passes_on_is_its_answer() {
    for handed in HANDED {
        let scene = Scene::new();
        let route = charges_then_calls(&scene, handed, inner(&scene.lock()));
        let app = at(route).route_layer(scene.layer());
        scene.assert_charges_once(&app).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_behind_a_layer_that_charges_is_kept() {
    let scene = Scene::new();
    let charged = scene.clone();
    let charging = from_fn(move |request: Request, next: Next| {
        charged.charge();
        next.run(request)
    });
    let app = at(post(async || "done"))
        .route_layer(scene.lock())
        .route_layer(charging)
        .route_layer(scene.layer());
    scene.assert_charges_once(&app).await;
    // So is one behind a service that charges as it is called, and that does not even wait.
    let scene = Scene::new();
    let charged = scene.clone();
    let charging = MapRequestLayer::new(move |request: http::Request<LayerBody<Body>>| {
        charged.charge();
        request
    });
    let layers = (scene.layer(), charging, scene.lock());
    let app = at(post(async || "done")).route_layer(layers);
    scene.assert_charges_once(&app).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_extracted_half_way_is_no_proof() {
    let scene = Scene::new();
    let charged = scene.clone();
    let app = scene.app(post(
        async move |mut parts: Parts, locks: State<LockManager>| {
            charged.charge();
            let locked = OfAccount::from_request_parts(&mut parts, &locks.0).await;
            locked.map(|locked| format!("account {}", locked.0.0))
        },
    ));
    scene.assert_charges_once(&app).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_lock_directly_inside_or_outside_is_no_answer() {
    for place in ["inside", "inside, to the end", "outside"] {
        let scene = Scene::new();
        let (layer, lock) = (scene.layer(), scene.lock());
        let charging = scene.charging();
        let app = at(match place {
            "inside" => charging.route_layer(layer.with_lock(lock)),
            "outside" => charging.route_layer(layer).route_layer(lock),
            _ => {
                let to_the_end = lock.on_disconnect(OnDisconnect::RunToEnd);
                charging.route_layer(layer.with_lock(to_the_end))
            }
        });
        scene.assert_charges_in_the_end(&app).await;
    }
}

/// The lock that stands directly inside lets the request in, so what is refused further in is the handler's: also by a
/// clone of the very service, called by its own handler for the account.
#[tokio::test(start_paused = true)]
async fn behind_the_lock_directly_inside_not_even_its_clone_is_believed() {
    for handed in HANDED {
        let scene = Scene::new();
        let itself = Arc::new(OnceLock::<Inner>::new());
        let called = Arc::clone(&itself);
        let call = service_fn(move |request: Request| {
            let (mut parts, body) = request.into_parts();
            parts.headers.insert("x-account", HeaderValue::from(7));
            let clone = called.get().unwrap().clone();
            clone.oneshot(Request::from_parts(parts, body))
        });
        let handler = at(charges_then_calls(
            &scene,
            handed,
            BoxCloneSyncService::new(call),
        ));
        let by_header = |parts: &Parts| match parts.headers.get("x-account") {
            Some(_) => LockKey::new("account:7"),
            None => LockKey::new("door"),
        };
        let by_header = RedlockLayer::new(manager(&scene.nodes), by_header);
        let clone = by_header.layer(handler.clone());
        let service = scene.layer().with_lock(by_header).layer(handler);
        let clone = tower::ServiceExt::<Request>::map_response(clone, answer_of);
        assert!(itself.set(BoxCloneSyncService::new(clone)).is_ok());
        scene.assert_charges_once(&at(post_service(service))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_locks_late_says_that_it_did_nothing() {
    let scene = Scene::new();
    let charged = scene.clone();
    let app = scene.app(post(
        async move |run: Idempotent, locks: State<LockManager>| {
            let busy = |error| run.not_processed(Rejection::from(error).into_response());
            let _guard = locks.try_acquire("account:7").await.map_err(busy)?;
            charged.charge();
            Ok::<_, Response>("charged")
        },
    ));
    scene.assert_charges_in_the_end(&app).await;
}

type Found = Result<OfAccount, LockedRejection<PathRejection>>;

#[tokio::test(start_paused = true)]
async fn so_does_one_that_could_not_have_its_argument() {
    let scene = Scene::new();
    let charged = scene.clone();
    let app = scene.app(post(async move |run: Idempotent, found: Found| {
        let _locked = found.map_err(|busy| run.not_processed(busy.into_response()))?;
        charged.charge();
        Ok::<_, Response>("charged")
    }));
    scene.assert_charges_in_the_end(&app).await;
}

/// Who says nothing is taken at the word of its answer, in which nobody hears that nothing was done.
#[tokio::test(start_paused = true)]
async fn an_argument_that_is_refused_without_a_word_is_an_answer() {
    let scene = Scene::new();
    let app = scene.app(post(async |_: OfAccount| "charged"));
    let replies = scene.four_times(&app).await;
    replies[0].assert_problem(409, "wait-timeout");
    assert!(replies[1..].iter().all(Reply::is_replayed), "{replies:?}");
}

/// Neither a run that was kept from before nor an answer that was is one of this run.
#[tokio::test(start_paused = true)]
async fn what_is_said_of_one_run_is_not_said_of_another() {
    for keeps_the_run in [true, false] {
        let scene = Scene::new();
        let charged = scene.clone();
        let first = Arc::new(Mutex::new(None::<(Idempotent, Extensions)>));
        let app = scene.app(post(async move |run: Idempotent| {
            let mut first = first.lock().unwrap();
            let Some((other, said)) = &*first else {
                let answer = run.not_processed(StatusCode::CONFLICT.into_response());
                *first = Some((run, answer.extensions().clone()));
                return answer;
            };
            charged.charge();
            let mut answer = StatusCode::CONFLICT.into_response();
            if keeps_the_run {
                answer = other.not_processed(answer);
            } else {
                *answer.extensions_mut() = said.clone();
            }
            answer
        }));
        assert!(!send(&app, pay("a")).await.is_replayed());
        for key in ["a", "b"] {
            assert!(!send(&app, pay(key)).await.is_replayed());
            assert!(send(&app, pay(key)).await.is_replayed());
        }
        assert_eq!(scene.charges(), 2);
    }
}

/// What a request was told of its run may be copied to another, and outlive the run.
#[tokio::test(start_paused = true)]
async fn a_run_that_has_ended_lets_nobody_past_the_layer() {
    let scene = Scene::new();
    let first = Arc::new(OnceLock::<Extensions>::new());
    let (charged, kept) = (scene.clone(), Arc::clone(&first));
    let handler = post(async move |mut extensions: Extensions| {
        assert!(Idempotent::of(&extensions).is_some());
        charged.charge();
        // The router would put the route of the other request in front of it, which makes another key.
        extensions.remove::<MatchedPath>();
        let _ = kept.set(extensions);
        "charged"
    });
    let app = at(handler).layer(scene.layer());
    assert_eq!(send(&app, pay("a")).await.body, "charged");
    let mut again = pay("a");
    *again.extensions_mut() = first.get().unwrap().clone();
    let again = send(&app, again).await;
    assert_eq!(scene.charges(), 1);
    assert!(again.is_replayed(), "{again:?}");
}
