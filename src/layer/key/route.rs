//! Keys from the route that axum has matched.

use std::any::Any;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, RawPathParamsRejection};
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams};
use axum::response::IntoResponse;
use axum::routing::any;
use http::request::Parts;
use http::{Request, StatusCode};
use tower_service::Service as _;

use super::source::{Source, Take, only};
use super::{Key, Value};
use crate::key_error::{KeyError, Subject};
use crate::lock_key::KeyParts;

/// The path parameter `name`, percent-decoded: `42` of `/orders/42/pay` on the route `/orders/{order_id}/pay`.
///
/// On a route or a nested service without the parameter, as when the name is misspelt, every request is refused with
/// 500 `misconfigured`, and the log has an error with the route, once; unless the key is [`optional`](Key::optional). A
/// value that is not UTF-8 is refused with 400.
///
/// The key is the text and not the parsed value: `42` and `042` are two keys and one `Path<u64>`. With
/// [`parse`](Key::parse) they are one: `key::path("order_id").parse::<u64>()`.
///
/// # A note on placement
///
/// The router finds the parameters, so the layer must be inside it:
///
/// | placement | parameters | unmatched paths (404) | wrong methods (405) |
/// |---|---|---|---|
/// | `post(pay).route_layer(layer)` | yes | do not reach the layer | do not reach the layer |
/// | `any(f).layer(layer)` | yes | do not reach the layer | there are none |
/// | `any(f).route_layer(layer)` | axum panics as the route is made, for `any` is a fallback to it | | |
/// | `Router::route_layer(layer)` | yes | do not reach the layer | reach it: use `.methods([..])` |
/// | `Router::layer(layer)` | yes | run unlocked, without a command to a node | reach it: use `.methods([..])` |
/// | inside a router that is [nested](axum::Router::nest) | also those of the outer path | as above | as above |
/// | in or around a [nested service](axum::Router::nest_service) | those of its path | 500 `misconfigured`, unless the path has the parameter | reach it |
/// | in a `fallback_service` | none: all run unlocked | the same | the same |
/// | around the router, as a service | none: 500 `misconfigured` | the same | the same |
///
/// A fallback of a nested router gets the parameters of the outer path. If the key has only these, `Router::layer` on
/// either router locks for its 404s; `.when(key::routed)` avoids that. So it does where the 404s of a router that is
/// nested as a service would be answered 500.
///
/// The last row is a mistake of the program and is refused: requests that run unlocked would hide it.
pub fn path(name: &'static str) -> Key<Value> {
    Key::from_take(Take::Value(Source::Path(name), None))
}

/// The path of the route as the program wrote it, such as `/orders/{order_id}/pay`, with that of the routers
/// around it. Where it is known, and where not, is as with [`path`], but for services: below the path of a
/// [`nest_service`](axum::Router::nest_service), and in a `fallback_service`, nothing has matched, and requests
/// run unlocked. Use [`path`] or a closure there.
pub fn matched_path() -> Key {
    Key::from_take(Take::MatchedPath)
}

/// A part of the key from an axum extractor, of the same type as in the handler.
///
/// `make` turns it into text; two values that are one resource must become one text. The extractor must need no state,
/// and gets the request's head alone. If it refuses the request, the response is `400 invalid-key`, or
/// `500 misconfigured` where its own response would have been a server error, as with path parameters outside a router,
/// a route that has others, or a missing `Extension`.
///
/// With [`Router::layer`](axum::Router::layer), a request that no route matched runs unlocked if axum's own `Path`
/// fails on it, as with [`path`]. Any other extractor runs for those, too; `.when(key::routed)` avoids that.
///
/// # Examples
///
/// ```
/// use axum::extract::Path;
/// use tower_redlock::key;
///
/// let order = key::from_extractor::<Path<u64>>(|Path(id)| id.to_string()).prefix("order");
/// # let _ = order;
/// ```
pub fn from_extractor<E>(make: impl Fn(E) -> String + Send + Sync + 'static) -> Key
where
    E: FromRequestParts<()> + Send + 'static,
{
    Key::from_take(Take::Extracted(Arc::new(Extracted {
        make,
        extractor: PhantomData::<fn() -> E>,
    })))
}

/// Source of [`from_extractor`].
struct Extracted<E, F> {
    make: F,
    extractor: PhantomData<fn() -> E>,
}

/// [`Extracted`] of any type.
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
            // Dropped before the next `await`: a refusal need not be `Send`.
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
                // The router's own fallback: there is no route that could have the parameters.
                _ if of_path && !is_led_to(request).await => Ok(false),
                _ => Err(KeyError::misplaced(Subject::Key)),
            }
        })
    }
}

/// Whether axum's `Path` has failed; `None` if the refusal is not a server error but the client's mistake.
fn fails_as_path<R: IntoResponse + 'static>(refusal: R) -> Option<bool> {
    let of_path = (&refusal as &dyn Any).is::<PathRejection>();
    let fails = refusal.into_response().status().is_server_error();
    fails.then_some(of_path)
}

/// Whether a route of an axum router matched the request. With `.when(key::routed)` a layer on a whole router
/// (`Router::layer`) does not lock for its 404s.
#[must_use]
pub fn routed(parts: &Parts) -> bool {
    parts.extensions.get::<MatchedPath>().is_some()
}

/// Whether a path of the program leads to the request: that of a route, or of a nested service.
async fn is_led_to(parts: &Parts) -> bool {
    routed(parts) || is_in_nested_service(parts).await
}

/// Whether the request is below the path of a [`nest_service`](axum::Router::nest_service).
///
/// axum tells this to nobody but its own routers: the path that one of them matches inside goes on from that of the
/// service. So a router is asked.
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

/// The path parameter `name`; `None` if the request needs no lock.
pub(super) async fn path_param(
    request: &mut Parts,
    name: &str,
    subject: Subject,
) -> Result<Option<String>, KeyError> {
    let params = params(request, subject).await?;
    let values = params.iter().filter(|(param, _)| *param == name);
    match only(values.map(|(_, value)| value), subject) {
        Ok(value) => Ok(Some(value.to_owned())),
        Err(error) if error.is_missing() => match is_led_to(request).await {
            // No request for this route or service ever has it.
            true => Err(KeyError::not_in_route(subject)),
            // The router's own fallback: there is no route that could have the parameter.
            false => Ok(None),
        },
        Err(error) => Err(error),
    }
}

/// Adds the path of the route; `false` if the request needs no lock.
pub(super) async fn push_matched_path(
    request: &mut Parts,
    key: &mut KeyParts,
) -> Result<bool, KeyError> {
    if let Some(path) = request.extensions.get::<MatchedPath>() {
        key.push(path.as_str())?;
        return Ok(true);
    }
    // Inside a router, so it is the fallback; outside of any, it is a mistake.
    match params(request, Subject::Text("the matched path")).await {
        Err(error) if error.is_misplaced() => Err(error),
        _ => Ok(false),
    }
}

/// The path parameters. axum adds them, even an empty list, to every request that goes through a router.
async fn params(request: &mut Parts, subject: Subject) -> Result<RawPathParams, KeyError> {
    RawPathParams::from_request_parts(request, &())
        .await
        .map_err(|rejection| match rejection {
            RawPathParamsRejection::MissingPathParams(_) => KeyError::misplaced(subject),
            _ => KeyError::malformed("a path parameter is not UTF-8"),
        })
}
