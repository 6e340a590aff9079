//! Where the parts of a key come from.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use percent_encoding::percent_decode;

#[cfg(feature = "axum")]
use super::route;
use super::{Key, Value};
use crate::key_error::{KeyError, Subject};
use crate::lock_key::KeyParts;

/// The value of the request header `name`.
///
/// The value is taken byte for byte. A header that is repeated or empty is refused with 400, because it is not clear
/// which resource is meant.
pub fn header(name: &'static str) -> Key<Value> {
    Key::from_take(Take::Value(Source::Header(name), None))
}

/// The value of the parameter `name` in the request's query, decoded as a form is: `+` is a space, `%2F` a slash.
///
/// A parameter that is repeated or empty is refused with 400, because it is not clear which resource is meant. So is a
/// value that is not UTF-8: axum's `Query` replaces invalid bytes, and would see one value where there are several
/// keys.
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

/// What one step of making a key takes from a request. `false` says that the request needs no lock.
#[derive(Clone)]
pub(super) enum Take {
    Text(Cow<'static, str>),
    /// Nothing; it decides whether the request needs a lock.
    When(Arc<dyn Fn(&Parts) -> bool + Send + Sync>),
    Made(Arc<dyn Fn(&Parts) -> Result<Option<Vec<u8>>, KeyError> + Send + Sync>),
    /// A value, as it is or as it is read.
    Value(Source, Option<fn(&str) -> Option<String>>),
    #[cfg(feature = "axum")]
    MatchedPath,
    #[cfg(feature = "axum")]
    Extracted(Arc<dyn route::Extract>),
}

impl Take {
    pub(super) async fn take(
        &self,
        request: &mut Parts,
        key: &mut KeyParts,
    ) -> Result<bool, KeyError> {
        match self {
            Self::Text(text) => key.push(text.as_bytes())?,
            Self::When(condition) => return Ok(condition(request)),
            Self::Made(make) => match make(request)? {
                Some(part) => key.push(part)?,
                None => return Ok(false),
            },
            Self::Value(source, read) => match (source.value(request).await?, read) {
                (None, _) => return Ok(false),
                (Some(value), None) => key.push(value)?,
                (Some(value), Some(read)) => {
                    let canonical = str::from_utf8(&value).ok().and_then(read);
                    key.push(canonical.ok_or(source.malformed(UNREADABLE))?)?;
                }
            },
            #[cfg(feature = "axum")]
            Self::MatchedPath => return route::push_matched_path(request, key).await,
            #[cfg(feature = "axum")]
            Self::Extracted(extractor) => return extractor.push(request, key).await,
        }
        Ok(true)
    }
}

impl fmt::Debug for Take {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::When(_) => f.write_str("when(..)"),
            Self::Made(_) => f.write_str("from_fn(..)"),
            Self::Value(source, _) => write!(f, "{}", source.subject()),
            #[cfg(feature = "axum")]
            Self::MatchedPath => f.write_str("matched_path()"),
            #[cfg(feature = "axum")]
            Self::Extracted(_) => f.write_str("from_extractor(..)"),
        }
    }
}

/// A value that a client sent, by its name.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Header(&'static str),
    Query(&'static str),
    #[cfg(feature = "axum")]
    Path(&'static str),
}

impl Source {
    const fn subject(self) -> Subject {
        match self {
            Self::Header(name) => Subject::Named("header", name),
            Self::Query(name) => Subject::Named("query parameter", name),
            #[cfg(feature = "axum")]
            Self::Path(name) => Subject::Named("path parameter", name),
        }
    }

    const fn malformed(self, why: &'static str) -> KeyError {
        KeyError::malformed_in(self.subject(), why)
    }

    /// The value; `None` if the request needs no lock.
    async fn value(self, request: &mut Parts) -> Result<Option<Cow<'_, [u8]>>, KeyError> {
        match self {
            Self::Header(name) => {
                let values = request.headers.get_all(name).iter();
                let values = values.map(|value| Cow::Borrowed(value.as_bytes()));
                only(values, self.subject()).map(Some)
            }
            Self::Query(name) => {
                let pairs = request.uri.query().unwrap_or_default().split('&');
                let values = pairs
                    .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                    .filter(|(key, _)| *form_decode(key) == *name.as_bytes())
                    .map(|(_, value)| form_decode(value));
                let value = only(values, self.subject())?;
                match str::from_utf8(&value) {
                    Ok(_) => Ok(Some(value)),
                    Err(_) => Err(self.malformed("is not UTF-8")),
                }
            }
            #[cfg(feature = "axum")]
            Self::Path(name) => {
                let value = route::path_param(request, name, self.subject()).await?;
                Ok(value.map(|value| Cow::Owned(value.into_bytes())))
            }
        }
    }
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

/// The only value, which must not be empty: all requests with an empty one would share a key.
pub(super) fn only<V: AsRef<[u8]>>(
    mut values: impl Iterator<Item = V>,
    subject: Subject,
) -> Result<V, KeyError> {
    let value = values
        .next()
        .ok_or_else(|| KeyError::missing_from(subject))?;
    if values.next().is_some() {
        return Err(KeyError::malformed_in(subject, "is repeated"));
    }
    if value.as_ref().is_empty() {
        return Err(KeyError::malformed_in(subject, "is empty"));
    }
    Ok(value)
}

/// Decodes a name or value of a form, byte for byte: invalid UTF-8 is not replaced.
fn form_decode(text: &str) -> Cow<'_, [u8]> {
    if text.contains('+') {
        Cow::Owned(percent_decode(text.replace('+', " ").as_bytes()).collect())
    } else {
        percent_decode(text.as_bytes()).into()
    }
}

/// The text of the error for a value that does not parse.
const UNREADABLE: &str = "cannot be read as what it should be";
