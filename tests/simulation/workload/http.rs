//! Requests through both layers, in every order, and handlers that pass refusals on.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use http::header::HOST;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, Request, Response};
use tokio::time::sleep;
use tower::util::{BoxCloneSyncService, MapRequest};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::error::KeyError;
use tower_redlock::idempotency::{Idempotent, caller};
use tower_redlock::layer::{LayerBody, OnDisconnect};
use tower_redlock::{Held, IdempotencyLayer, LockKey, LockManager, RedlockLayer};

use super::calls::{Here, name};
use super::history::{Told, What};
use super::ms;
use super::scene::{Kind, Scene};
use crate::plan::{Asked, Route, Settings};
use tower_redlock_simulated::world::World;

/// The lock that a request needs.
const LOCK: &str = "x-lock";
/// For how long its handler works, in milliseconds.
const WORK: &str = "x-work";
/// The call that it is, for the trace.
const CALL: &str = "x-call";
/// Who sends it.
const CALLER: &str = "x-caller";
/// The run that a response is of.
const RUN: &str = "x-run";
/// For whom it was made.
const FOR: &str = "x-for";
/// How long requests wait for a lock, in milliseconds.
const PATIENCE: u64 = 100;

/// A service without its type.
type Service = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The services of a process.
#[derive(Clone)]
pub(super) struct Services {
    all: Arc<BTreeMap<Route, Service>>,
    left: Left,
}

/// What is left of requests: by call while they run, and by what they are about when they have ended.
#[derive(Clone, Default)]
struct Left(Arc<Mutex<Leftovers>>);

type Leftovers = (BTreeMap<usize, Extensions>, BTreeMap<String, Extensions>);

impl Left {
    /// A request runs.
    fn runs(&self, call: usize, extensions: &Extensions) {
        if let Ok(mut left) = self.0.lock() {
            left.0.insert(call, extensions.clone());
        }
    }

    /// Its client has the response.
    fn ends(&self, call: usize, about: &str) {
        if let Ok(mut left) = self.0.lock()
            && let Some(extensions) = left.0.remove(&call)
        {
            left.1.insert(about.to_owned(), extensions);
        }
    }

    /// What an earlier request about the same had.
    fn of(&self, about: &str) -> Option<Extensions> {
        let left = self.0.lock().ok()?;
        left.1.get(about).cloned()
    }
}

/// The number of a run, given before the handler.
#[derive(Clone, Copy)]
struct Run(u64);

impl Services {
    pub(super) fn new(scene: &Arc<Scene>, locks: &LockManager, settings: &Settings) -> Self {
        let left = Left::default();
        let all = Route::ALL.map(|route| (route, service(scene, locks, settings, (route, &left))));
        let all = Arc::new(all.into());
        Self { all, left }
    }
}

fn service(
    scene: &Arc<Scene>,
    locks: &LockManager,
    settings: &Settings,
    (route, left): (Route, &Left),
) -> Service {
    let handler = handler(scene);
    let once = once(locks, settings);
    match route {
        Route::Lock => locked(locks, handler),
        Route::Once => keyed(&once, handler),
        Route::OnceAgain => keyed(&once, leaving(left, handler)),
        Route::OnceLock => {
            let service = once.with_lock(lock(locks)).layer(widened(handler));
            BoxCloneSyncService::new(service.map_response(|response| response.map(Body::new)))
        }
        Route::LockOnce => {
            let once = once.on_disconnect(OnDisconnect::Cancel);
            locked(locks, keyed(&once, handler))
        }
        // The lock is not directly inside: something has happened before it.
        Route::OnceChargeLock => keyed(&once, acting(scene, false, locked(locks, handler))),
        Route::OnceCalls => keyed(&once, acting(scene, true, locked(locks, handler))),
    }
}

fn lock(locks: &LockManager) -> RedlockLayer {
    let key =
        |parts: &Parts| -> Result<LockKey, KeyError> { LockKey::new(text(&parts.headers, LOCK)) };
    RedlockLayer::new(locks.clone(), key).max_wait(ms(PATIENCE))
}

fn once(locks: &LockManager, settings: &Settings) -> IdempotencyLayer {
    IdempotencyLayer::new(locks.clone(), caller::header(CALLER))
        .retention(ms(settings.retention))
        .max_wait(ms(PATIENCE))
}

/// A service behind the lock layer.
fn locked(locks: &LockManager, inner: Service) -> Service {
    let service = lock(locks).layer(inner);
    BoxCloneSyncService::new(service.map_response(|response| response.map(Body::new)))
}

/// A service behind the idempotency layer.
fn keyed(once: &IdempotencyLayer, inner: Service) -> Service {
    let service = once.layer(widened(inner));
    BoxCloneSyncService::new(service.map_response(|response| response.map(Body::new)))
}

type Widen = fn(Request<LayerBody<Body>>) -> Request<Body>;

/// A service that takes what the idempotency layer hands it.
fn widened(inner: Service) -> MapRequest<Service, Widen> {
    MapRequest::new(inner, |request| request.map(Body::new))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

fn number(headers: &HeaderMap, name: &str) -> u64 {
    text(headers, name).parse().unwrap_or(0)
}

/// What a request is about: the same for all its repeats.
fn work_of(scene: &Scene, parts: &Parts) -> String {
    let settings = scene.settings(World::current());
    let (headers, path) = (&parts.headers, parts.uri.path());
    let (host, caller) = (text(headers, HOST.as_str()), text(headers, CALLER));
    let key = text(headers, "idempotency-key");
    format!("{}{path}/{host}/{caller}/{key}", settings.namespace)
}

/// Signs a response as that of a run.
fn signed(mut response: Response<Body>, run: u64, work: &str) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(RUN, HeaderValue::from(run));
    if let Ok(work) = HeaderValue::from_str(work) {
        headers.insert(FOR, work);
    }
    response
}

/// Notes the idempotency key that a request has, if it has one.
fn runs(scene: &Scene, parts: &Parts) {
    let (process, call) = (World::current(), number(&parts.headers, CALL) as usize);
    if let Some(run) = Idempotent::of(&parts.extensions) {
        scene.granted(process, call, run.handle().unwrap(), Kind::Work);
    }
}

/// Does its work under whatever locks it has.
fn handler(scene: &Arc<Scene>) -> Service {
    let scene = Arc::clone(scene);
    BoxCloneSyncService::new(service_fn(move |request: Request<Body>| {
        let scene = Arc::clone(&scene);
        async move {
            let (parts, _) = request.into_parts();
            let (process, call) = (World::current(), number(&parts.headers, CALL) as usize);
            if let Ok(held) = Held::of(&parts.extensions) {
                scene.granted(process, call, &held, Kind::Lock);
            }
            runs(&scene, &parts);
            let work = work_of(&scene, &parts);
            let run = match parts.extensions.get::<Run>() {
                Some(Run(run)) => *run,
                None => scene.run(process, &work),
            };
            sleep(ms(number(&parts.headers, WORK))).await;
            Ok(signed(Response::new(Body::from("done")), run, &work))
        }
    }))
}

/// Keeps what the request has, as a task that outlives it does.
fn leaving(left: &Left, inner: Service) -> Service {
    let left = left.clone();
    BoxCloneSyncService::new(service_fn(move |request: Request<Body>| {
        let call = number(request.headers(), CALL) as usize;
        left.runs(call, request.extensions());
        inner.clone().oneshot(request)
    }))
}

/// Has an effect, and passes the request on; or `calls` the service by a request of its own, and passes its response on.
fn acting(scene: &Arc<Scene>, calls: bool, inner: Service) -> Service {
    let scene = Arc::clone(scene);
    BoxCloneSyncService::new(service_fn(move |request: Request<Body>| {
        let (scene, inner) = (Arc::clone(&scene), inner.clone());
        async move {
            let (parts, body) = request.into_parts();
            runs(&scene, &parts);
            let work = work_of(&scene, &parts);
            let run = scene.run(World::current(), &work);
            let mut passed = match calls {
                true => {
                    let mut own = Request::new(Body::empty());
                    *own.method_mut() = http::Method::POST;
                    *own.headers_mut() = parts.headers.clone();
                    own
                }
                false => Request::from_parts(parts, body),
            };
            passed.extensions_mut().insert(Run(run));
            Ok(signed(inner.oneshot(passed).await?, run, &work))
        }
    }))
}

/// The request for what is asked.
fn request_of(asked: &Asked, call: usize) -> Request<Body> {
    let request = Request::post(asked.route.path())
        .header(HOST, format!("host{}.example", asked.host))
        .header("idempotency-key", format!("key-{}", asked.once))
        .header(CALLER, format!("caller-{}", asked.caller))
        .header(LOCK, name(asked.key).as_str())
        .header(WORK, asked.work.to_string())
        .header(CALL, call.to_string())
        .body(Body::from("the same"));
    request.unwrap_or_else(|error| panic!("a request that is none: {error}"))
}

/// Sends a request, and notes what its client gets.
pub(super) async fn request(here: &Here, asked: &Asked) {
    let Here {
        scene,
        process,
        call,
        shop,
    } = here;
    let Services { all, left } = &shop.services;
    let (mut parts, body) = request_of(asked, *call).into_parts();
    let about = work_of(scene, &parts);
    if let Some(extensions) = left.of(&about).filter(|_| asked.route == Route::OnceAgain) {
        parts.extensions = extensions;
    }
    here.record(format_args!("requests {about}"));
    let service = all[&asked.route].clone();
    let Ok(response) = service.oneshot(Request::from_parts(parts, body)).await;
    let (status, headers) = (response.status().as_u16(), response.headers());
    let run = headers.get(RUN).map(|_| number(headers, RUN));
    let replayed = headers.contains_key("idempotent-replayed");
    let text = format!("gets {status}, run {run:?}, replayed {replayed}");
    if status == 200 {
        left.ends(*call, &about);
    }
    // What the layer does not store is no last word. Nor is what a layer outside of it says.
    let is_stored = status < 500 && ![408, 425, 429].contains(&status);
    if asked.route == Route::Lock || !is_stored || run.is_none() && !replayed {
        return here.record(text);
    }
    let told = Told {
        process: *process,
        call: *call,
        run,
        addressee: self::text(headers, FOR).to_owned(),
        replayed,
    };
    let saw = What::Saw {
        work: about,
        told,
        retention: scene.settings(*process).retention,
    };
    here.tell(text, saw);
}
