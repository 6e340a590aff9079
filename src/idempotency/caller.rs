//! The caller of a request, so that no client gets the response to another client's request. It is an identity that the
//! client cannot choose, and there is no default: only the program knows the place of that identity.
//!
//! | source | for |
//! |---|---|
//! | [`extension`] | an extension of the request, put there by an authentication layer around this one |
//! | [`header`] | a header that a proxy in front sets, and removes from what clients send |
//! | [`from_fn`] | anything else in the request's head |
//! | [`nobody`] | services without callers, where all clients may see each other's responses |

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;

/// The sender of a request: 1 to 512 bytes, or none in particular.
///
/// `Debug` shows the length alone: an identity may be personal, or a credential.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Caller(Option<Bytes>);

impl Caller {
    pub(crate) const MAX_LEN: usize = 512;

    /// The caller that is identified by these bytes.
    ///
    /// # Errors
    ///
    /// [`CallerError`] if there are none, or more than 512.
    pub fn new(identity: impl AsRef<[u8]>) -> Result<Self, CallerError> {
        match identity.as_ref() {
            [] => Err(CallerError(Fault::Empty)),
            identity if identity.len() > Self::MAX_LEN => Err(CallerError(Fault::TooLong)),
            identity => Ok(Self(Some(Bytes::copy_from_slice(identity)))),
        }
    }

    /// No caller in particular: all such requests share their responses.
    #[must_use]
    pub const fn nobody() -> Self {
        Self(None)
    }

    /// The bytes that identify the caller; `None` for nobody.
    pub(super) fn identity(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.as_ref().map(Bytes::len);
        f.debug_struct("Caller")
            .field("len", &len)
            .finish_non_exhaustive()
    }
}

/// Why a request has no [`Caller`]. Its text never repeats the client's. The response is 403 and not 401, which must
/// name a way to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerError(Fault);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Unknown,
    Repeated,
    Empty,
    TooLong,
}

impl CallerError {
    /// The request does not identify its caller.
    #[must_use]
    pub const fn unknown() -> Self {
        Self(Fault::Unknown)
    }
}

impl fmt::Display for CallerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Fault::Unknown => f.write_str("nothing in the request says who its caller is"),
            Fault::Repeated => f.write_str("the request names its caller more than once"),
            Fault::Empty => f.write_str("the identity of the caller is empty"),
            Fault::TooLong => write!(
                f,
                "the identity of the caller is longer than {} bytes",
                Caller::MAX_LEN
            ),
        }
    }
}

impl Error for CallerError {}

/// Finds the caller of a request.
///
/// The ready-made sources are in [this module](self); implement the trait for a source that is async.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say who the caller of a request is",
    label = "must be a `CallerSource`",
    note = "use one of `tower_redlock::idempotency::caller`, such as `caller::extension(|user: &User| user.id.clone())`",
    note = "wrap a closure: `caller::from_fn(|parts: &Parts| ..)`; if there are no callers, say `caller::nobody()`"
)]
pub trait CallerSource: Send + Sync + 'static {
    /// The caller of the request.
    ///
    /// # Errors
    ///
    /// [`CallerError`] if there is none: 403 `caller-unknown`.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point with the request; nothing is locked yet.
    fn caller(&self, parts: &mut Parts)
    -> impl Future<Output = Result<Caller, CallerError>> + Send;
}

/// The caller that `identify` finds in the request's head, as text or bytes; `None` if there is none.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use tower_redlock::idempotency::caller;
///
/// /// Put into the extensions by the server.
/// #[derive(Clone)]
/// struct Peer { subject: String }
///
/// let source = caller::from_fn(|parts: &Parts| {
///     let peer = parts.extensions.get::<Peer>()?;
///     Some(format!("certificate:{}", peer.subject))
/// });
/// # let _ = source;
/// ```
pub fn from_fn<C: AsRef<[u8]>>(
    identify: impl Fn(&Parts) -> Option<C> + Send + Sync + 'static,
) -> FromHead {
    FromHead::new(move |parts| Caller::new(identify(parts).ok_or(CallerError::unknown())?))
}

/// The caller is the value of the request header `name`; a header that is missing, empty or repeated is refused. Use it
/// only behind a proxy that sets the header on every request and removes the client's own.
pub fn header(name: &'static str) -> FromHead {
    FromHead::new(move |parts| {
        let mut values = parts.headers.get_all(name).iter();
        let value = values.next().ok_or(CallerError::unknown())?;
        // A proxy that adds its line behind the client's own would let the client choose.
        if values.next().is_some() {
            return Err(CallerError(Fault::Repeated));
        }
        Caller::new(value.as_bytes())
    })
}

/// The caller is found in the extension `T` of the request, which an authentication layer around this one has put
/// there; `identify` returns its identity. A request without `T` is refused with 403 `caller-unknown`.
///
/// # Examples
///
/// ```
/// use tower_redlock::idempotency::caller;
///
/// #[derive(Clone)]
/// struct Account { id: u64 }
///
/// let source = caller::extension(|account: &Account| account.id.to_string());
/// # let _ = source;
/// ```
pub fn extension<T>(identify: impl Fn(&T) -> String + Send + Sync + 'static) -> FromHead
where
    T: Any + Send + Sync,
{
    from_fn(move |parts| parts.extensions.get::<T>().map(&identify))
}

/// There is no caller: all clients of a host share one scope, and a client that sends the key and the payload of
/// another gets its response.
pub fn nobody() -> FromHead {
    FromHead::new(|_| Ok(Caller::nobody()))
}

/// A source that looks at the head of the request. Made by the functions of this module.
#[derive(Clone)]
#[must_use = "a caller source does nothing until it is given to a layer"]
pub struct FromHead {
    find: Arc<Find>,
}

type Find = dyn Fn(&Parts) -> Result<Caller, CallerError> + Send + Sync;

impl FromHead {
    fn new(find: impl Fn(&Parts) -> Result<Caller, CallerError> + Send + Sync + 'static) -> Self {
        Self {
            find: Arc::new(find),
        }
    }
}

impl CallerSource for FromHead {
    async fn caller(&self, parts: &mut Parts) -> Result<Caller, CallerError> {
        (self.find)(parts)
    }
}

impl fmt::Debug for FromHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromHead").finish_non_exhaustive()
    }
}

pub(super) trait AnyCallerSource: Send + Sync {
    fn find<'a>(&'a self, parts: &'a mut Parts) -> Finding<'a>;
}

type Finding<'a> = Pin<Box<dyn Future<Output = Result<Caller, CallerError>> + Send + 'a>>;

impl<C: CallerSource> AnyCallerSource for C {
    fn find<'a>(&'a self, parts: &'a mut Parts) -> Finding<'a> {
        Box::pin(self.caller(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Request};

    fn parts(headers: &[(&'static str, &'static str)]) -> Parts {
        let mut request = Request::new(());
        for (name, value) in headers {
            let value = HeaderValue::from_static(value);
            request.headers_mut().append(*name, value);
        }
        request.into_parts().0
    }

    async fn found(source: impl CallerSource, mut parts: Parts) -> Result<Caller, Fault> {
        source.caller(&mut parts).await.map_err(|error| error.0)
    }

    #[tokio::test]
    async fn a_header_names_one_caller_or_none() {
        let tenant = |headers| found(header("x-tenant"), parts(headers));
        let acme = Caller::new("acme").unwrap();
        assert_eq!(tenant(&[("x-tenant", "acme")]).await, Ok(acme));
        assert_eq!(tenant(&[]).await, Err(Fault::Unknown));
        assert_eq!(tenant(&[("x-tenant", "")]).await, Err(Fault::Empty));
        let two = tenant(&[("x-tenant", "mallory"), ("x-tenant", "acme")]).await;
        assert_eq!(two, Err(Fault::Repeated));
    }

    #[tokio::test]
    async fn an_extension_that_is_not_there_is_no_caller() {
        let source = extension(|id: &u64| format!("{id}"));
        assert_eq!(found(source.clone(), parts(&[])).await, Err(Fault::Unknown));
        let mut parts = parts(&[]);
        parts.extensions.insert(7_u64);
        assert_eq!(found(source, parts).await, Ok(Caller::new("7").unwrap()));
    }

    #[tokio::test]
    async fn a_closure_may_find_nobody_and_that_is_refused() {
        let source = |text: Option<&'static str>| from_fn(move |_: &Parts| text);
        let seven = Caller::new("7").unwrap();
        assert_eq!(found(source(Some("7")), parts(&[])).await, Ok(seven));
        assert_eq!(found(source(None), parts(&[])).await, Err(Fault::Unknown));
        assert_eq!(found(source(Some("")), parts(&[])).await, Err(Fault::Empty));
        assert_eq!(found(nobody(), parts(&[])).await, Ok(Caller::nobody()));
    }

    #[test]
    fn an_identity_is_bounded_and_not_shown() {
        assert!(Caller::new([b'x'; 512]).is_ok());
        assert_eq!(Caller::new([b'x'; 513]), Err(CallerError(Fault::TooLong)));
        let shown = format!("{:?}", Caller::new("alice").unwrap());
        assert_eq!(shown, "Caller { len: Some(5), .. }");
    }
}
