//! How a request with an idempotency key is answered.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderName, TRAILER};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use tower_service::Service;

use super::fingerprint::{Fingerprint, lock_key};
use super::key::IdempotencyKey;
use super::options::ExchangeOptions;
use super::recorded::{IDEMPOTENT_UNRECORDED, OnUnrecorded};
use super::run::Idempotent;
use super::stored_response::{Replay, StoredResponse};
use crate::http::body::{BoxError, LayerBody, Rest, as_u64, into_bytes};
use crate::http::rejection::{Cause, RejectionKind};
use crate::http::run_to_end::Detached;
use crate::http::state::{Refusal, RequestState, RunId, route_of};
use crate::lock_key::LockKey;
use crate::manager::{AcquireError, CompleteError, IdempotentRun, RunGuard};
use crate::{instruments, trace};

type ResponseResult<B, E> = Result<Response<LayerBody<B>>, E>;

/// Responds to a request with an idempotency key. `service` is ready. If it is a lock layer, `lock_inside` is the
/// longest wait for its lock.
pub(super) async fn respond<S, ReqBody, ResBody>(
    service: S,
    options: Arc<ExchangeOptions>,
    lock_inside: Option<Duration>,
    request: Request<ReqBody>,
    key: IdempotencyKey,
) -> ResponseResult<ResBody, S::Error>
where
    S: Service<Request<LayerBody<ReqBody>>, Response = Response<ResBody>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    ReqBody: Body + Send + 'static,
    ReqBody::Data: Send,
    ReqBody::Error: Into<BoxError> + Send,
    ResBody: Body + Send + 'static,
    ResBody::Data: Send,
    ResBody::Error: Into<BoxError> + Send,
{
    let (mut parts, body) = request.into_parts();
    let asked = match read(&options, &parts, body, &key).await {
        Ok(asked) => asked,
        Err(cause) => return Ok(options.common.refuse(cause)),
    };
    let Asked {
        name,
        fingerprint,
        body,
    } = asked;
    let outer = Idempotent::of(&parts.extensions);
    let outer = outer.as_ref().and_then(Idempotent::handle);
    if outer.is_some_and(|outer| options.common.locks.is_run_of(outer, &name)) {
        // Begin no other run, because the request would wait for itself: an outer idempotency layer holds its key.
        let mut service = service;
        let response = service.call(Request::from_parts(parts, body)).await?;
        return Ok(response.map(LayerBody::passed));
    }
    let max_wait = max_wait(&options, &parts);
    let idle = lock_inside.unwrap_or_default();
    let guard = match begin(&options, name.clone(), max_wait, idle).await {
        Ok(Begun::Run(guard)) => guard,
        Ok(Begun::Stored(stored)) => return Ok(replay(&options, &stored, fingerprint)),
        Err(error) => return Ok(options.common.refuse(error)),
    };
    let id = RunId::new();
    let state = RequestState::of(&mut parts.extensions);
    state.called_by = lock_inside.map(|_| id.clone());
    let handle = guard.as_ref().map(RunGuard::handle);
    let run = Idempotent::of_run(
        handle,
        (key, name),
        id.clone(),
        fingerprint,
        Arc::clone(&options),
    );
    run.enter(&mut parts.extensions);
    let request = Request::from_parts(parts, body);
    let Some(guard) = guard else {
        let run = run_without_record(service, request, id, Arc::clone(&options));
        return detached(&options, run).await;
    };
    let execution = Execution {
        id,
        fingerprint,
        guard,
        options: Arc::clone(&options),
    };
    detached(&options, execution.run(service, request)).await
}

enum Begun {
    Run(Option<RunGuard>),
    Stored(Bytes),
}

async fn begin(
    options: &ExchangeOptions,
    name: LockKey,
    max_wait: Duration,
    idle: Duration,
) -> Result<Begun, AcquireError> {
    let locks = &options.common.locks;
    let begun = locks.begin_idempotent_within(name, options.retention, max_wait, idle);
    match begun.await {
        Ok(IdempotentRun::Execute(guard)) => {
            instruments::idempotency("run");
            Ok(Begun::Run(Some(guard)))
        }
        Ok(IdempotentRun::Replay(stored)) => Ok(Begun::Stored(stored)),
        Err(error) if options.common.on_no_quorum.lets_run(&error) => {
            instruments::idempotency("without-record");
            locks.runs_without_record(&error);
            Ok(Begun::Run(None))
        }
        Err(error) => Err(error),
    }
}

/// Runs a request to its end even if its client disconnects, unless the layer cancels such requests.
async fn detached<T: 'static>(
    options: &ExchangeOptions,
    run: impl Future<Output = T> + Send + 'static,
) -> T {
    match options.common.detachments() {
        Some(detachments) => Detached::new(run, detachments).await,
        None => run.await,
    }
}

async fn run_without_record<S, ReqBody, ResBody>(
    mut service: S,
    request: Request<LayerBody<ReqBody>>,
    id: RunId,
    options: Arc<ExchangeOptions>,
) -> ResponseResult<ResBody, S::Error>
where
    S: Service<Request<LayerBody<ReqBody>>, Response = Response<ResBody>>,
    ResBody: Body,
{
    let response = service.call(request).await?;
    let (mut head, body) = response.into_parts();
    if !id.is_unprocessed(&head.extensions) && (options.record_if)(&head) {
        mark_unrecorded(&mut head.headers);
    }
    Ok(Response::from_parts(head, LayerBody::passed(body)))
}

fn mark_unrecorded(headers: &mut HeaderMap) {
    headers.insert(IDEMPOTENT_UNRECORDED, HeaderValue::from_static("true"));
}

struct Asked<B> {
    name: LockKey,
    fingerprint: Fingerprint,
    body: LayerBody<B>,
}

async fn read<B>(
    options: &ExchangeOptions,
    parts: &Parts,
    body: B,
    key: &IdempotencyKey,
) -> Result<Asked<B>, Cause>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    options.common.may_begin()?;
    let caller = (options.caller)(parts).filter(|caller| !caller.is_empty());
    let caller = caller.ok_or(RejectionKind::CallerUnknown)?;
    let buffers = &options.buffers;
    let (limit, announced) = (
        options.max_request_body.min(buffers.most),
        body.size_hint().lower(),
    );
    // Reserve no room for the announced length, because a client can announce any length.
    if announced <= as_u64(limit) && announced > as_u64(buffers.free()) {
        return Err(RejectionKind::BuffersFull.into());
    }
    let (mut room, mut is_full) = (None, false);
    let fits = |bytes| {
        is_full = !buffers.grow(&mut room, bytes);
        !is_full
    };
    let (bytes, trailers) = match collect_up_to(body, limit, fits).await {
        Collected::All { bytes, trailers } => (bytes, trailers),
        Collected::TooLarge { .. } if is_full => return Err(RejectionKind::BuffersFull.into()),
        Collected::TooLarge { .. } => return Err(RejectionKind::BodyTooLarge.into()),
        Collected::Failed { .. } => return Err(RejectionKind::BodyUnreadable.into()),
    };
    Ok(Asked {
        name: lock_key(parts, route_of(parts), &caller, key)?,
        fingerprint: Fingerprint::new(parts, &bytes),
        body: LayerBody::buffered(bytes, trailers, room),
    })
}

/// How long a request waits for another request with its key. A request that holds a lock does not wait, because the
/// other request may wait for that lock.
fn max_wait(options: &ExchangeOptions, parts: &Parts) -> Duration {
    match RequestState::get(&parts.extensions) {
        Some(state) if state.holds_lock() => Duration::ZERO,
        _ => options.common.max_wait,
    }
}

fn replay<B>(
    options: &ExchangeOptions,
    stored: &Bytes,
    fingerprint: Fingerprint,
) -> Response<LayerBody<B>> {
    match Replay::find(stored, fingerprint) {
        Ok(mut replay) => {
            instruments::idempotency("replayed");
            let trailers = replay.trailers.take();
            let announced = trailers.as_ref().and_then(names_of);
            let response = replay.into_response();
            let mut response = response.map(|body| LayerBody::whole(body, trailers));
            if let Some(names) = announced {
                // HTTP/1.1 sends only trailers that are announced.
                response.headers_mut().insert(TRAILER, names);
            }
            response
        }
        Err(cause) => options.common.refuse(cause),
    }
}

fn names_of(trailers: &HeaderMap) -> Option<HeaderValue> {
    let names: Vec<&str> = trailers.keys().map(HeaderName::as_str).collect();
    let names = HeaderValue::from_str(&names.join(", ")).ok()?;
    (!names.is_empty()).then_some(names)
}

struct Execution {
    id: RunId,
    fingerprint: Fingerprint,
    guard: RunGuard,
    options: Arc<ExchangeOptions>,
}

impl Execution {
    async fn run<S, ReqBody, ResBody>(
        self,
        mut service: S,
        request: Request<LayerBody<ReqBody>>,
    ) -> ResponseResult<ResBody, S::Error>
    where
        S: Service<Request<LayerBody<ReqBody>>, Response = Response<ResBody>>,
        ResBody: Body,
        ResBody::Error: Into<BoxError>,
    {
        let connects = request.method() == Method::CONNECT;
        let lock = self.guard.handle();
        let result = match lock.lost().or_done(service.call(request)).await {
            Ok(result) => result,
            Err(reason) => return Ok(self.options.common.refuse(reason)),
        };
        let response = match result {
            Ok(response) => response,
            Err(error) => {
                // Ignore an error, because the manager retries this in the background.
                let _ = self.guard.abandon().await;
                return Err(error);
            }
        };
        let (head, body) = response.into_parts();
        let is_unprocessed = self.id.is_unprocessed(&head.extensions);
        if is_unprocessed || !(self.options.record_if)(&head) {
            let _ = self.guard.abandon().await;
            return Ok(Response::from_parts(head, LayerBody::passed(body)));
        }
        if let Some(Refusal(kind)) = head.extensions.get() {
            trace::refusal_kept(kind);
        }
        let limit = self.options.max_response_body;
        let (replay, body) = if opens_a_tunnel(head.status, connects) || streams(&head.headers) {
            (None, LayerBody::passed(body))
        } else {
            // Watch the lock, because it can also be lost while the body is read.
            match lock
                .lost()
                .or_done(collect_up_to(body, limit, |_| true))
                .await
            {
                Ok(collected) => (replay_of(&head, &collected), collected.again()),
                Err(reason) => return Ok(self.options.common.refuse(reason)),
            }
        };
        let options = Arc::clone(&self.options);
        let mut response = Response::from_parts(head, body);
        if self.store(replay).await.is_err() {
            match options.on_unrecorded {
                OnUnrecorded::Refuse => {
                    return Ok(options.common.refuse(RejectionKind::OutcomeUnknown));
                }
                OnUnrecorded::Respond => {
                    instruments::idempotency("unrecorded");
                    mark_unrecorded(response.headers_mut());
                }
            }
        }
        Ok(response)
    }

    /// Stores the response. If it cannot be replayed, or if there is no room for it, stores only that the request has
    /// run.
    async fn store(self, replay: Option<Replay>) -> Result<(), CompleteError> {
        let fingerprint = self.fingerprint;
        let encoded = |replay| {
            StoredResponse {
                fingerprint,
                replay,
            }
            .encode()
        };
        if replay.is_some() {
            let response = encoded(replay);
            if let Some(room) = self.guard.room(response.len()).await {
                return self.guard.store(response, room).await;
            }
        }
        self.guard.complete(encoded(None)).await
    }
}

/// Whether a response switches the connection to another protocol, which a replay cannot do.
fn opens_a_tunnel(status: StatusCode, connects: bool) -> bool {
    status.is_informational() || (connects && status.is_success())
}

fn streams(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| {
        let kind = kind.get(..EVENT_STREAM.len());
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case(EVENT_STREAM))
    })
}

fn replay_of<B>(head: &http::response::Parts, body: &Collected<B>) -> Option<Replay> {
    let Collected::All { bytes, trailers } = body else {
        return None;
    };
    let (status, headers, trailers) = (head.status, &head.headers, trailers.as_ref());
    Some(Replay::new(status, headers, bytes.clone(), trailers))
}

const EVENT_STREAM: &[u8] = b"text/event-stream";

enum Collected<B> {
    All {
        bytes: Bytes,
        trailers: Option<HeaderMap>,
    },
    TooLarge {
        read: [Bytes; 2],
        rest: Pin<Box<B>>,
    },
    Failed {
        read: Bytes,
        error: BoxError,
    },
}

impl<B> Collected<B> {
    fn again(self) -> LayerBody<B> {
        match self {
            Self::All { bytes, trailers } => LayerBody::whole(bytes, trailers),
            Self::TooLarge { read, rest } => LayerBody::read(read, Rest::Body(rest)),
            Self::Failed { read, error } => {
                LayerBody::read([read, Bytes::new()], Rest::Error(error))
            }
        }
    }
}

/// Reads `body` to its end, unless it has more than `limit` bytes or a chunk does not fit. A body whose size hint is
/// too long is not read at all.
async fn collect_up_to<B>(
    body: B,
    limit: usize,
    mut fits: impl FnMut(usize) -> bool,
) -> Collected<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    // In a box, so that the rest can be passed on after a poll even if `B` is not `Unpin`.
    let mut rest = Box::pin(body);
    if rest.size_hint().lower() > as_u64(limit) {
        let read = Default::default();
        return Collected::TooLarge { read, rest };
    }
    let mut joined = Joined::default();
    let mut trailers = None;
    while let Some(frame) = poll_fn(|cx| rest.as_mut().poll_frame(cx)).await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                let (read, error) = (joined.finish(), error.into());
                return Collected::Failed { read, error };
            }
        };
        match frame.into_data() {
            Ok(data)
                if data.remaining() > limit.saturating_sub(joined.len)
                    || !fits(data.remaining()) =>
            {
                let read = [joined.finish(), into_bytes(data)];
                return Collected::TooLarge { read, rest };
            }
            Ok(data) => joined.push(into_bytes(data)),
            Err(frame) => {
                trailers = frame.into_trailers().ok();
                break;
            }
        }
    }
    let bytes = joined.finish();
    Collected::All { bytes, trailers }
}

#[derive(Default)]
struct Joined {
    first: Bytes,
    all: BytesMut,
    len: usize,
}

impl Joined {
    fn push(&mut self, chunk: Bytes) {
        self.len = self.len.saturating_add(chunk.len());
        if self.first.is_empty() && self.all.is_empty() {
            self.first = chunk;
            return;
        }
        self.all
            .reserve(self.first.len().saturating_add(chunk.len()));
        self.all.put(std::mem::take(&mut self.first));
        self.all.put(chunk);
    }

    fn finish(self) -> Bytes {
        if self.all.is_empty() {
            self.first
        } else {
            self.all.freeze()
        }
    }
}

#[cfg(test)]
mod tests;
