//! Loans that travel with requests: the header, and which peers may borrow by it.

use std::error::Error;
use std::fmt;

use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response};

use crate::lock_keys::LockKeys;
use crate::manager::{AcquireError, BorrowError, Loan, LockGuard, LockManager, LockScope};
use crate::token::LoanProof;

/// The request header that carries the proof of a loan: `redlock-loan`. See [`loan_header`] and
/// [`RedlockLayer::borrow_from`](super::RedlockLayer::borrow_from).
///
/// A layer takes it off every request, whether it borrows or not, and off every response, so that no handler or proxy
/// behind it passes it on by accident.
pub const LOAN_HEADER: HeaderName = HeaderName::from_static("redlock-loan");

/// The header that makes the called service run under this lock. It is marked as
/// [sensitive](HeaderValue::is_sensitive), so that `Debug` does not show it; send it over encrypted connections, and to
/// peers that you trust.
///
/// # Examples
///
/// ```
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use tower::{Service, ServiceExt};
/// use tower_redlock::LockHandle;
/// use tower_redlock::middleware::loan_header;
///
/// async fn bill<C>(lock: &LockHandle, client: C) -> Result<Response<Bytes>, Box<dyn std::error::Error>>
/// where
///     C: Service<Request<Bytes>, Response = Response<Bytes>, Error: std::error::Error + 'static>,
/// {
///     let loan = lock.lend()?;
///     let mut request = Request::post("http://billing/orders/42").body(Bytes::new())?;
///     let (name, value) = loan_header(&loan);
///     request.headers_mut().insert(name, value);
///     // A response of any status returns the loan, an error or a time-out leaves the lock to expire.
///     Ok(loan.run(client.oneshot(request)).await?)
/// }
/// ```
#[must_use]
pub fn loan_header(loan: &Loan) -> (HeaderName, HeaderValue) {
    let proof = loan.proof().expose();
    // Digits, letters and semicolons only.
    let mut value = HeaderValue::try_from(proof).unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    (LOAN_HEADER, value)
}

// So that no name is made for each request.
static NAME: HeaderName = LOAN_HEADER;

/// Whether a peer may run under the locks whose proofs it shows.
pub(super) type Trusts = dyn Fn(&Parts) -> bool + Send + Sync;

/// Takes the headers of loans off a request, for a layer that borrows and for one that does not. Several headers are an
/// error.
pub(super) fn take(headers: &mut HeaderMap) -> Option<Result<HeaderValue, LoanError>> {
    if !headers.contains_key(&NAME) {
        return None;
    }
    let several = headers.get_all(&NAME).iter().nth(1).is_some();
    let value = headers.remove(&NAME)?;
    Some((!several).then_some(value).ok_or(LoanError::Malformed))
}

/// Takes the headers of loans off a response.
pub(super) fn strip<B>(response: &mut Response<B>) {
    response.headers_mut().remove(&NAME);
}

/// Why a request with the header of a loan does not run under it.
#[derive(Clone, Debug)]
pub(super) enum LoanError {
    /// The layer does not trust the peer.
    Untrusted,
    /// The header cannot be read, or there is more than one.
    Malformed,
    /// The lender does not hold the lock of this request, or not for long enough.
    Ended(BorrowError),
    /// It has or had another borrower.
    Taken(BorrowError),
}

impl fmt::Display for LoanError {
    // The text never repeats what the peer sent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untrusted => f.write_str("loans of this peer are not taken"),
            Self::Malformed => f.write_str("the header of the loan is malformed or repeated"),
            Self::Ended(error) | Self::Taken(error) => error.fmt(f),
        }
    }
}

impl Error for LoanError {}

/// Borrows `keys` by the proof in the header. An error that any acquisition may have is the inner one.
///
/// # Cancel safety
///
/// May be dropped at any point: the loan is returned in the background.
pub(super) async fn borrow(
    locks: &LockManager,
    scope: &LockScope,
    trusts: &Trusts,
    parts: &Parts,
    keys: LockKeys,
    shown: Result<HeaderValue, LoanError>,
) -> Result<Result<LockGuard, AcquireError>, LoanError> {
    // Before the proof is read: untrusted peers do not learn what a well-formed proof is.
    if !trusts(parts) {
        return Err(LoanError::Untrusted);
    }
    let proof = read(&shown?).ok_or(LoanError::Malformed)?;
    match locks.borrow_keys(keys, &proof).await {
        Ok(guard) => {
            // Inner layers share it.
            scope.note(guard.handle());
            Ok(Ok(guard))
        }
        Err(BorrowError::InvalidKey(error)) => Ok(Err(AcquireError::InvalidKey(error))),
        Err(BorrowError::NoQuorum(error)) => Ok(Err(AcquireError::NoQuorum(error))),
        Err(BorrowError::NoEntropy(error)) => Ok(Err(AcquireError::NoEntropy(error))),
        Err(BorrowError::ShuttingDown(error)) => Ok(Err(AcquireError::ShuttingDown(error))),
        Err(error @ (BorrowError::NotOwner | BorrowError::TooLate)) => Err(LoanError::Ended(error)),
        Err(error @ BorrowError::Taken) => Err(LoanError::Taken(error)),
    }
}

fn read(value: &HeaderValue) -> Option<LoanProof> {
    value.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_taken_off_whole() {
        let mut headers = HeaderMap::new();
        assert!(take(&mut headers).is_none());
        headers.append(LOAN_HEADER, HeaderValue::from_static("a"));
        assert!(matches!(take(&mut headers), Some(Ok(value)) if value == "a"));
        headers.append(LOAN_HEADER, HeaderValue::from_static("a"));
        headers.append("Redlock-Loan", HeaderValue::from_static("a"));
        assert!(matches!(
            take(&mut headers),
            Some(Err(LoanError::Malformed))
        ));
        assert!(headers.is_empty());
    }
}
