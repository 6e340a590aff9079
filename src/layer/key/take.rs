//! The steps of making a key: each takes something from a request.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use percent_encoding::percent_decode;

#[cfg(feature = "axum")]
use super::route;
use crate::key_error::{KeyError, Subject};
use crate::lock_key::KeyParts;

#[derive(Clone)]
pub(super) enum Take {
    Text(Cow<'static, str>),
    When(Arc<dyn Fn(&Parts) -> bool + Send + Sync>),
    Made(Arc<Make>),
    /// The value of a source, unchanged or parsed.
    Value(Source, Option<Read>),
    #[cfg(feature = "axum")]
    MatchedPath,
    #[cfg(feature = "axum")]
    Extracted(Arc<dyn route::Extract>),
}

/// Parses a value and prints it again, and the name of its type.
type Read = (fn(&str) -> Option<String>, &'static str);

type Make = dyn Fn(&Parts) -> Result<Option<Vec<u8>>, KeyError> + Send + Sync;

impl Take {
    /// Adds a part to `key`. Returns false if the request needs no lock.
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
                (Some(value), Some((read, kind))) => {
                    let canonical = str::from_utf8(&value).ok().and_then(read);
                    let unreadable = KeyError::unreadable(source.subject(), kind);
                    key.push(canonical.ok_or(unreadable)?)?;
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
    #[cfg_attr(
        not(feature = "axum"),
        expect(
            clippy::needless_pass_by_ref_mut,
            reason = "axum's extractors change it"
        )
    )]
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
            Self::Path(name) => match route::path_params(request, name, self.subject()).await? {
                Some(values) => {
                    let values = values.into_iter().map(String::into_bytes);
                    only(values.map(Cow::Owned), self.subject()).map(Some)
                }
                None => Ok(None),
            },
        }
    }
}

/// Decodes a name or a value of a form, without replacing invalid UTF-8.
fn form_decode(text: &str) -> Cow<'_, [u8]> {
    if text.contains('+') {
        Cow::Owned(percent_decode(text.replace('+', " ").as_bytes()).collect())
    } else {
        percent_decode(text.as_bytes()).into()
    }
}

/// Returns the only value. Refuses an empty value, because all requests with an empty value would share a key.
fn only<V: AsRef<[u8]>>(
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
