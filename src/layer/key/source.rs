//! Where the parts of a key come from.

use std::sync::Arc;

#[cfg(feature = "axum")]
use axum::extract::FromRequestParts;
use http::request::Parts;

use super::combine::{Key, Value};
#[cfg(feature = "axum")]
use super::route;
use super::take::{Source, Take};
use crate::key_error::KeyError;

/// The value of the request header `name`, byte for byte. A header that is repeated or empty is refused with 400.
pub fn header(name: &'static str) -> Key<Value> {
    Key::from_take(Take::Value(Source::Header(name), None))
}

/// The value of the parameter `name` in the request's query, decoded as a form is. A parameter that is repeated, empty
/// or not UTF-8 is refused with 400.
pub fn query(name: &'static str) -> Key<Value> {
    Key::from_take(Take::Value(Source::Query(name), None))
}

/// The request's method.
pub fn method() -> Key {
    from_fn(|parts| parts.method.as_str().to_owned())
}

/// One part, made by a function of the request's head: see [`IntoKeyPart`].
///
/// # Examples
///
/// ```
/// use tower_redlock::key;
///
/// let host = key::from_fn(|parts| parts.uri.host().map(str::to_owned)).prefix("host");
/// # let _ = host;
/// ```
pub fn from_fn<R: IntoKeyPart>(make: impl Fn(&Parts) -> R + Send + Sync + 'static) -> Key {
    Key::from_take(Take::Made(Arc::new(move |parts| make(parts).into_part())))
}

#[cfg(feature = "axum")]
/// The path parameter `name`, percent-decoded: `42` of `/orders/42/pay` on the route `/orders/{order_id}/pay`. The key
/// is the text and not the parsed value; [`parse`](Key::parse) makes one key of all spellings.
///
/// On a route without the parameter, as when the name is misspelt, every request is refused with 500 `misconfigured`,
/// unless the key is [`optional`](Key::optional). A value that is not UTF-8 is refused with 400.
///
/// The router finds the parameters, so the layer must be inside it: `docs::requests` has a table of the placements.
/// Around the router every request is refused with 500. In a `fallback_service` all run unlocked. In or around a
/// [nested service](axum::Router::nest_service) the parameters are those of its path. With `Router::layer`,
/// `.when(key::routed)` keeps 404s from locking.
pub fn path(name: &'static str) -> Key<Value> {
    Key::from_take(Take::Value(Source::Path(name), None))
}

#[cfg(feature = "axum")]
/// The path of the route as the program wrote it, such as `/orders/{order_id}/pay`, with that of the routers around it.
/// It is known where [`path`] is, except below a [`nest_service`](axum::Router::nest_service), where requests run
/// unlocked.
pub fn matched_path() -> Key {
    Key::from_take(Take::MatchedPath)
}

#[cfg(feature = "axum")]
/// A part of the key from an axum extractor, of the same type as in the handler. `make` turns it into text; two values
/// that are one resource must become one text. The extractor must need no state, and gets the request's head alone.
///
/// If it refuses the request, the response is `400 invalid-key`, or `500 misconfigured` where its own response would
/// have been a server error. With `Router::layer`, unmatched paths run unlocked if axum's own `Path` fails on them; for
/// other extractors add `.when(key::routed)`.
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
    let extractor: route::Extracted<E, _> = route::Extracted::new(make);
    Key::from_take(Take::Extracted(Arc::new(extractor)))
}

/// A type that the closure of [`from_fn`] may return: text or bytes, or an `Option` (`None`: no lock) or a `Result` of
/// them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a part of a lock key",
    note = "return a `String`, `&'static str` or `Vec<u8>`, or an `Option` or `Result<_, KeyError>` of one"
)]
pub trait IntoKeyPart: Send {
    /// The part; `None` if the request needs no lock.
    ///
    /// # Errors
    ///
    /// The [`KeyError`] of a `Result`.
    fn into_part(self) -> Result<Option<Vec<u8>>, KeyError>;
}

impl IntoKeyPart for Vec<u8> {
    fn into_part(self) -> Result<Option<Vec<u8>>, KeyError> {
        Ok(Some(self))
    }
}

impl IntoKeyPart for String {
    fn into_part(self) -> Result<Option<Vec<u8>>, KeyError> {
        Ok(Some(self.into_bytes()))
    }
}

impl IntoKeyPart for &'static str {
    fn into_part(self) -> Result<Option<Vec<u8>>, KeyError> {
        Ok(Some(self.into()))
    }
}

impl<P: IntoKeyPart> IntoKeyPart for Option<P> {
    fn into_part(self) -> Result<Option<Vec<u8>>, KeyError> {
        self.map_or(Ok(None), P::into_part)
    }
}

impl<P: IntoKeyPart> IntoKeyPart for Result<P, KeyError> {
    fn into_part(self) -> Result<Option<Vec<u8>>, KeyError> {
        self.and_then(P::into_part)
    }
}
