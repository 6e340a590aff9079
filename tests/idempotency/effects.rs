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
use tower::util::BoxCloneSyncService;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::Locked;
use tower_redlock::error::KeyError;
use tower_redlock::extract::{AsLockKeys, LockedRejection};
use tower_redlock::idempotency::Idempotent;
use tower_redlock::key::LockKeys;
use tower_redlock::layer::{LayerBody, OnDisconnect, Rejection};
use tower_redlock::node::MemoryNode;
use tower_redlock::{LockKey, LockManager, RedlockLayer};

use super::{Reply, layer, manager, nodes, send};

/// What customers were charged: the effect that is to happen once.
#[derive(Clone, Default)]
struct Charges(Arc<AtomicU32>);

impl Charges {
    fn charge(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

fn lock(nodes: &[MemoryNode]) -> RedlockLayer {
    RedlockLayer::new(manager(nodes), |_: &Parts| LockKey::new("account:7"))
}

/// An account as an argument of a handler.
struct Account(u64);

impl<S: Send + Sync> FromRequestParts<S> for Account {
    type Rejection = PathRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PathRejection> {
        let Path(account) = Path::from_request_parts(parts, state).await?;
        Ok(Self(account))
    }
}

impl AsLockKeys for Account {
    fn to_lock_keys(&self) -> Result<LockKeys, KeyError> {
        Ok(LockKey::join(["account", &self.0.to_string()])?.into())
    }
}

fn pay(key: &str) -> Request {
    let request = Request::post("/accounts/7/payments").header("idempotency-key", key);
    request.body(Body::empty()).unwrap()
}

fn at<S: Clone + Send + Sync + 'static>(route: MethodRouter<S>) -> Router<S> {
    Router::new().route("/accounts/{account}/payments", route)
}

/// Sends a request and two repeats while the account is busy, and one more when it is free.
async fn four_times(app: &Router, nodes: &[MemoryNode]) -> Vec<Reply> {
    let other = manager(nodes).try_acquire("account:7").await.unwrap();
    let mut replies = Vec::new();
    for _ in 0..3 {
        replies.push(send(app, pay("a")).await);
    }
    other.release().await.unwrap();
    replies.push(send(app, pay("a")).await);
    replies
}

/// An effect came before the refusal, so that the refusal is the answer for good.
async fn assert_charged_once(app: &Router, nodes: &[MemoryNode], charges: &Charges) {
    let replies = four_times(app, nodes).await;
    assert_eq!(charges.count(), 1, "{replies:?}");
    assert_eq!(replies[0].problem().0, 409);
    for repeat in &replies[1..] {
        assert!(repeat.is_replayed(), "{repeat:?}");
        assert_eq!(repeat.body, replies[0].body);
    }
}

type Inner = BoxCloneSyncService<Request, Response, Infallible>;

/// An inner service that a handler calls, as it is called by itself.
fn inner(nodes: &[MemoryNode]) -> Inner {
    let done =
        service_fn(async |_: Request| Ok::<_, Infallible>(Body::from("done").into_response()));
    let locked = lock(nodes).layer(done);
    BoxCloneSyncService::new(locked.map_response(answer_of))
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
fn charges_then_calls(charges: &Charges, handed: Handed, service: Inner) -> Router {
    let charges = charges.clone();
    at(post(move |request: Request| {
        charges.charge();
        let mut sent = pay("inner");
        match handed {
            Handed::ARequestOfItsOwn => {}
            Handed::ItsRequest => sent = request,
            Handed::CopiesOfItsExtensions => *sent.extensions_mut() = request.extensions().clone(),
        }
        async move { service.oneshot(sent).await }
    }))
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_a_handler_passes_on_is_its_answer() {
    for handed in HANDED {
        let (charges, nodes) = (Charges::default(), nodes());
        let app = charges_then_calls(&charges, handed, inner(&nodes)).route_layer(layer(&nodes));
        assert_charged_once(&app, &nodes, &charges).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_behind_a_layer_that_charges_is_kept() {
    let (charges, nodes) = (Charges::default(), nodes());
    let charging = from_fn({
        let charges = charges.clone();
        move |request: Request, next: Next| {
            charges.charge();
            next.run(request)
        }
    });
    let app = at(post(async || "done"))
        .route_layer(lock(&nodes))
        .route_layer(charging)
        .route_layer(layer(&nodes));
    assert_charged_once(&app, &nodes, &charges).await;
}

/// One that does not even wait, as it is made of a closure.
#[tokio::test(start_paused = true)]
async fn so_is_one_behind_a_service_that_charges_as_it_is_called() {
    let (charges, nodes) = (Charges::default(), nodes());
    let charging = tower::util::MapRequestLayer::new({
        let charges = charges.clone();
        move |request: http::Request<LayerBody<Body>>| {
            charges.charge();
            request
        }
    });
    let app = at(post(async || "done")).route_layer((layer(&nodes), charging, lock(&nodes)));
    assert_charged_once(&app, &nodes, &charges).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_extracted_half_way_is_no_proof() {
    let (charges, nodes) = (Charges::default(), nodes());
    let handler = {
        let charges = charges.clone();
        async move |mut parts: Parts, locks: State<LockManager>| {
            charges.charge();
            let locked = Locked::<Account>::from_request_parts(&mut parts, &locks.0).await?;
            Ok::<_, LockedRejection<PathRejection>>(format!("account {}", locked.0))
        }
    };
    let app = at(post(handler))
        .route_layer(layer(&nodes))
        .with_state(manager(&nodes));
    assert_charged_once(&app, &nodes, &charges).await;
}

/// Which says by its own answer that nothing was done, so that one is charged when the account is free.
async fn assert_charged_in_the_end(app: &Router, nodes: &[MemoryNode], charges: &Charges) {
    let replies = four_times(app, nodes).await;
    for refused in &replies[..3] {
        assert_eq!(refused.problem().0, 409);
        assert!(!refused.is_replayed(), "{refused:?}");
    }
    assert_eq!((replies[3].status.as_u16(), charges.count()), (200, 1));
    assert!(send(app, pay("a")).await.is_replayed());
    assert_eq!(charges.count(), 1);
}

fn charging(charges: &Charges) -> MethodRouter {
    let charges = charges.clone();
    post(async move || {
        charges.charge();
        "charged"
    })
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_lock_directly_inside_is_no_answer() {
    let (charges, nodes) = (Charges::default(), nodes());
    let both = layer(&nodes).with_lock(lock(&nodes));
    let app = at(charging(&charges).route_layer(both));
    assert_charged_in_the_end(&app, &nodes, &charges).await;
    let (charges, nodes) = (Charges::default(), super::nodes());
    let to_the_end = lock(&nodes).on_disconnect(OnDisconnect::RunToEnd);
    let app = at(charging(&charges).route_layer(layer(&nodes).with_lock(to_the_end)));
    assert_charged_in_the_end(&app, &nodes, &charges).await;
}

#[tokio::test(start_paused = true)]
async fn nor_is_one_of_the_lock_outside() {
    let (charges, nodes) = (Charges::default(), nodes());
    let app = at(charging(&charges))
        .route_layer(layer(&nodes))
        .route_layer(lock(&nodes));
    assert_charged_in_the_end(&app, &nodes, &charges).await;
}

/// The lock that stands directly inside lets the request in, so what another refuses further in is the handler's.
#[tokio::test(start_paused = true)]
async fn behind_the_lock_directly_inside_no_other_is_believed() {
    for handed in HANDED {
        let (charges, nodes) = (Charges::default(), nodes());
        let another = RedlockLayer::new(manager(&nodes), |_: &Parts| LockKey::new("door"));
        let app = charges_then_calls(&charges, handed, inner(&nodes));
        let app = app.route_layer(layer(&nodes).with_lock(another));
        assert_charged_once(&app, &nodes, &charges).await;
    }
}

/// A clone of the very service that stands directly inside, called by its own handler for the account.
#[tokio::test(start_paused = true)]
async fn not_even_a_clone_of_the_same_one() {
    for handed in HANDED {
        let (charges, nodes) = (Charges::default(), nodes());
        let itself = Arc::new(OnceLock::<Inner>::new());
        let handler = charges_then_calls(&charges, handed, {
            let itself = Arc::clone(&itself);
            BoxCloneSyncService::new(service_fn(move |request: Request| {
                let (mut parts, body) = request.into_parts();
                parts.headers.insert("x-account", HeaderValue::from(7));
                let clone = itself.get().unwrap().clone();
                clone.oneshot(Request::from_parts(parts, body))
            }))
        });
        let by_header = |parts: &Parts| match parts.headers.get("x-account") {
            Some(_) => LockKey::new("account:7"),
            None => LockKey::new("door"),
        };
        let by_header = RedlockLayer::new(manager(&nodes), by_header);
        let clone = by_header.layer(handler.clone());
        let service = layer(&nodes).with_lock(by_header).layer(handler);
        let clone = tower::ServiceExt::<Request>::map_response(clone, answer_of);
        assert!(itself.set(BoxCloneSyncService::new(clone)).is_ok());
        assert_charged_once(&at(post_service(service)), &nodes, &charges).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_locks_late_says_that_it_did_nothing() {
    let (charges, nodes) = (Charges::default(), nodes());
    let handler = {
        let charges = charges.clone();
        async move |run: Idempotent, locks: State<LockManager>| {
            let busy = |error| {
                let answer = Rejection::from(error).to_response().map(Body::from);
                run.not_processed(answer)
            };
            let _guard = locks.try_acquire("account:7").await.map_err(busy)?;
            charges.charge();
            Ok::<_, Response>("charged")
        }
    };
    let app = at(post(handler))
        .route_layer(layer(&nodes))
        .with_state(manager(&nodes));
    assert_charged_in_the_end(&app, &nodes, &charges).await;
}

type Found = Result<Locked<Account>, LockedRejection<PathRejection>>;

#[tokio::test(start_paused = true)]
async fn so_does_one_that_could_not_have_its_argument() {
    let (charges, nodes) = (Charges::default(), nodes());
    let handler = {
        let charges = charges.clone();
        async move |run: Idempotent, found: Found| {
            let _locked = found.map_err(|busy| run.not_processed(busy.into_response()))?;
            charges.charge();
            Ok::<_, Response>("charged")
        }
    };
    let app = at(post(handler))
        .route_layer(layer(&nodes))
        .with_state(manager(&nodes));
    assert_charged_in_the_end(&app, &nodes, &charges).await;
}

/// Who says nothing is taken at the word of its answer, in which nobody hears that nothing was done.
#[tokio::test(start_paused = true)]
async fn an_argument_that_is_refused_without_a_word_is_an_answer() {
    let nodes = nodes();
    let handler = post(async |_: Locked<Account>| "charged");
    let app = at(handler)
        .route_layer(layer(&nodes))
        .with_state(manager(&nodes));
    let replies = four_times(&app, &nodes).await;
    assert_eq!(replies[0].problem(), (409, "wait-timeout".into()));
    assert!(replies[1..].iter().all(Reply::is_replayed), "{replies:?}");
}

/// Neither a run that was kept from before nor an answer that was is one of this run.
#[tokio::test(start_paused = true)]
async fn what_is_said_of_one_run_is_not_said_of_another() {
    for keeps_the_run in [true, false] {
        let (charges, nodes) = (Charges::default(), nodes());
        let first = Arc::new(Mutex::new(None::<(Idempotent, Extensions)>));
        let handler = post({
            let (charges, first) = (charges.clone(), Arc::clone(&first));
            async move |run: Idempotent| {
                let mut first = first.lock().unwrap();
                let Some((other, said)) = &*first else {
                    let answer = run.not_processed(StatusCode::CONFLICT.into_response());
                    *first = Some((run, answer.extensions().clone()));
                    return answer;
                };
                charges.charge();
                let mut answer = StatusCode::CONFLICT.into_response();
                if keeps_the_run {
                    answer = other.not_processed(answer);
                } else {
                    *answer.extensions_mut() = said.clone();
                }
                answer
            }
        });
        let app = at(handler).route_layer(layer(&nodes));
        assert!(!send(&app, pay("a")).await.is_replayed());
        for key in ["a", "b"] {
            assert!(!send(&app, pay(key)).await.is_replayed());
            assert!(send(&app, pay(key)).await.is_replayed());
        }
        assert_eq!(charges.count(), 2);
    }
}

/// What a request was told of its run may be copied to another, and outlive the run.
#[tokio::test(start_paused = true)]
async fn a_run_that_has_ended_lets_nobody_past_the_layer() {
    let (charges, nodes) = (Charges::default(), nodes());
    let first = Arc::new(OnceLock::<Extensions>::new());
    let handler = post({
        let (charges, first) = (charges.clone(), Arc::clone(&first));
        async move |mut extensions: Extensions| {
            assert!(Idempotent::of(&extensions).is_some());
            charges.charge();
            // The router would put the route of the other request in front of it, which makes another key.
            extensions.remove::<MatchedPath>();
            let _ = first.set(extensions);
            "charged"
        }
    });
    let app = at(handler).layer(layer(&nodes));
    assert_eq!(send(&app, pay("a")).await.body, "charged");
    let mut again = pay("a");
    *again.extensions_mut() = first.get().unwrap().clone();
    let again = send(&app, again).await;
    assert_eq!(charges.count(), 1);
    assert!(again.is_replayed(), "{again:?}");
}
