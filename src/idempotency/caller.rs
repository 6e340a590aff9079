//! Functions that return the caller of a request, so that no client gets the response to another client's request.
//!
//! [`IdempotencyLayer::new`](crate::IdempotencyLayer::new) takes one of these functions, or any
//! `Fn(&http::request::Parts) -> Option<String>`. The text must be an identity that the client cannot choose.

use std::any::Any;

use http::request::Parts;

/// Takes the caller from the request header `name`. A request is refused if the header is missing, empty, repeated or
/// not UTF-8. Use it only behind a proxy that sets the header on every request, and removes any that the client sent.
pub fn header(name: &'static str) -> impl Fn(&Parts) -> Option<String> + Clone {
    move |parts| {
        let mut values = parts.headers.get_all(name).iter();
        let value = values.next()?;
        // Refuse a repeated header, because a proxy may have added its own after the client's.
        if values.next().is_some() {
            return None;
        }
        let value = std::str::from_utf8(value.as_bytes()).ok()?;
        // HTTP/2 delivers the spaces around a value, which are no part of it.
        Some(value.trim().to_owned())
    }
}

/// Takes the caller from the request extension `T`, which an authentication layer around this layer inserts. A request
/// without `T` is refused.
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
pub fn extension<T: Any + Send + Sync>(
    identify: impl Fn(&T) -> String,
) -> impl Fn(&Parts) -> Option<String> {
    move |parts| parts.extensions.get::<T>().map(&identify)
}

/// Treats all clients of a host as one caller. A client that sends another client's key and payload gets the response
/// to the other client's request.
pub fn nobody() -> impl Fn(&Parts) -> Option<String> + Clone {
    |_| Some(NOBODY.to_owned())
}

// Differs from every caller in a header, because no header can have this value.
const NOBODY: &str = "\0nobody";

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, Request};

    fn parts(headers: &[(&'static str, &'static [u8])]) -> Parts {
        let mut request = Request::new(());
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value).unwrap();
            request.headers_mut().append(*name, value);
        }
        request.into_parts().0
    }

    #[test]
    fn a_header_names_one_caller_or_none() {
        let tenant = |headers| header("x-tenant")(&parts(headers));
        let acme = Some("acme".to_owned());
        assert_eq!(tenant(&[("x-tenant", b"acme")]), acme);
        assert_eq!(tenant(&[("x-tenant", b" acme\t")]), acme);
        assert_eq!(tenant(&[]), None);
        assert_eq!(
            tenant(&[("x-tenant", b"mallory"), ("x-tenant", b"acme")]),
            None
        );
        // Two names that are not UTF-8 must not become one.
        assert_eq!(tenant(&[("x-tenant", b"caf\xE9")]), None);
    }

    #[test]
    fn an_extension_that_is_not_there_is_no_caller() {
        let source = extension(|id: &u64| format!("{id}"));
        let mut parts = parts(&[]);
        assert_eq!(source(&parts), None);
        parts.extensions.insert(7_u64);
        assert_eq!(source(&parts), Some("7".to_owned()));
    }

    #[test]
    fn nobody_is_no_text_that_a_header_may_hold() {
        let text = nobody()(&parts(&[])).unwrap();
        assert!(HeaderValue::from_str(&text).is_err());
    }
}
