//! The steps of making a key that need axum.

use std::any::Any;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, RawPathParamsRejection};
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams};
use axum::response::IntoResponse;
use axum::routing::any;
use http::request::Parts;
use http::{Request, StatusCode};
use tower_service::Service as _;

use crate::key_error::{KeyError, Subject};
use crate::lock_key::KeyParts;

/// Makes a part of a key from what the extractor `E` finds.
pub(super) struct Extracted<E, F> {
    make: F,
    extractor: PhantomData<fn() -> E>,
}

impl<E, F> Extracted<E, F> {
    pub(super) const fn new(make: F) -> Self {
        let extractor = PhantomData;
        Self { make, extractor }
    }
}

pub(super) trait Extract: Send + Sync {
    fn push<'a>(&'a self, request: &'a mut Parts, key: &'a mut KeyParts) -> Pushing<'a>;
}

type Pushing<'a> = Pin<Box<dyn Future<Output = Result<bool, KeyError>> + Send + 'a>>;

impl<E, F> Extract for Extracted<E, F>
where
    E: FromRequestParts<()> + Send + 'static,
    F: Fn(E) -> String + Send + Sync + 'static,
{
    fn push<'a>(&'a self, request: &'a mut Parts, key: &'a mut KeyParts) -> Pushing<'a> {
        Box::pin(async move {
            let found = E::from_request_parts(request, &()).await;
            // Consume the refusal before the next `await`, because it need not be `Send`.
            let of_path = match found.map_err(fails_as_path) {
                Ok(found) => {
                    key.push((self.make)(found))?;
                    return Ok(true);
                }
                Err(None) => return Err(KeyError::malformed("its extractor refuses the request")),
                Err(Some(of_path)) => of_path,
            };
            match params(request, Subject::Text("what an extractor finds")).await {
                Err(error) if error.is_misplaced() => Err(error),
                // No route matched, and the request goes to the router's fallback.
                _ if of_path && !is_led_to(request).await => Ok(false),
                _ => Err(KeyError::misplaced(Subject::Key)),
            }
        })
    }
}

/// `None` if the refusal is the client's mistake. Otherwise says whether axum's `Path` has failed.
fn fails_as_path<R: IntoResponse + 'static>(refusal: R) -> Option<bool> {
    let of_path = (&refusal as &dyn Any).is::<PathRejection>();
    let fails = refusal.into_response().status().is_server_error();
    fails.then_some(of_path)
}

/// Whether a route of an axum router matched the request. With `.when(key::routed)`, a layer that was added by
/// `Router::layer` takes no lock for unmatched paths.
#[must_use]
pub fn routed(parts: &Parts) -> bool {
    parts.extensions.get::<MatchedPath>().is_some()
}

/// Whether a route or a nested service matched the request.
async fn is_led_to(parts: &Parts) -> bool {
    routed(parts) || is_in_nested_service(parts).await
}

/// Whether the request is below a `nest_service`. axum keeps this private, so a router must find it out.
async fn is_in_nested_service(parts: &Parts) -> bool {
    static ASKED: LazyLock<Router> = LazyLock::new(|| {
        let goes_on = async |path: MatchedPath| match path.as_str() {
            "/" => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        };
        Router::new().route("/", any(goes_on))
    });
    let mut request = Request::new(Body::empty());
    *request.extensions_mut() = parts.extensions.clone();
    let Ok(response) = ASKED.clone().call(request).await;
    response.status() == StatusCode::OK
}

/// The values of the path parameter `name`, at least one; `None` if the request needs no lock.
pub(super) async fn path_params(
    request: &mut Parts,
    name: &str,
    subject: Subject,
) -> Result<Option<Vec<String>>, KeyError> {
    let params = params(request, subject).await?;
    let values = params.iter().filter(|(param, _)| *param == name);
    let values: Vec<String> = values.map(|(_, value)| value.to_owned()).collect();
    match values.is_empty() {
        false => Ok(Some(values)),
        // No request for this route or service can ever have the parameter.
        true if is_led_to(request).await => Err(KeyError::not_in_route(subject)),
        // No route matched, and the request goes to the router's fallback.
        true => Ok(None),
    }
}

pub(super) async fn push_matched_path(
    request: &mut Parts,
    key: &mut KeyParts,
) -> Result<bool, KeyError> {
    if let Some(path) = request.extensions.get::<MatchedPath>() {
        key.push(path.as_str())?;
        return Ok(true);
    }
    // Inside a router, this is its fallback. Outside of all routers, the layer is in the wrong place.
    match params(request, Subject::Text("the matched path")).await {
        Err(error) if error.is_misplaced() => Err(error),
        _ => Ok(false),
    }
}

async fn params(request: &mut Parts, subject: Subject) -> Result<RawPathParams, KeyError> {
    RawPathParams::from_request_parts(request, &())
        .await
        .map_err(|rejection| match rejection {
            RawPathParamsRejection::MissingPathParams(_) => KeyError::misplaced(subject),
            _ => KeyError::malformed("a path parameter is not UTF-8"),
        })
}
