//! [`RecordPolicy`]: which responses are stored.

use http::StatusCode;
use http::response::Parts;

/// Decides which responses are stored. A response that is not stored frees the key: the next request with it runs.
///
/// A closure `Fn(&http::response::Parts) -> bool` is one. It gets the head of the response before its body is read.
///
/// A stored response is final until its retention ends: a client that repeats a request which failed for a temporary
/// reason gets the failure again, and must choose a new key. Do not store a response only if the request had no effect.
///
/// A response that is marked as one of a run that did nothing is never stored, whatever the policy is: see
/// [the rule](super#what-was-not-processed).
///
/// # Examples
///
/// ```
/// use http::response::Parts;
/// use tower_redlock::idempotency::RecordPolicy;
///
/// fn takes_a_policy(_: impl RecordPolicy) {}
/// // Failures are kept as well, once the handler has begun.
/// takes_a_policy(|response: &Parts| response.status.as_u16() != 503);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not decide which responses are stored",
    label = "must be a `RecordPolicy`",
    note = "a closure or function `Fn(&http::response::Parts) -> bool` is one; annotate its argument: `|response: &Parts| ..`"
)]
pub trait RecordPolicy: Send + Sync + 'static {
    /// Whether the response with this head is stored.
    fn records(&self, response: &Parts) -> bool;
}

impl<F> RecordPolicy for F
where
    F: Fn(&Parts) -> bool + Send + Sync + 'static,
{
    fn records(&self, response: &Parts) -> bool {
        self(response)
    }
}

/// The default: stores every response below 500 except 408, 425 and 429, which ask the client to retry.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DefaultRecordPolicy;

impl RecordPolicy for DefaultRecordPolicy {
    fn records(&self, response: &Parts) -> bool {
        let again = [
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_EARLY,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        response.status.as_u16() < 500 && !again.contains(&response.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;

    #[test]
    fn responses_that_ask_for_a_retry_are_not_stored() {
        let stored = |policy: &dyn RecordPolicy, status: u16| {
            let response = Response::builder().status(status).body(());
            policy.records(&response.unwrap().into_parts().0)
        };
        for status in 100..1000 {
            let expected = status < 500 && ![408, 425, 429].contains(&status);
            assert_eq!(stored(&DefaultRecordPolicy, status), expected, "{status}");
        }
        let teapots = |response: &Parts| response.status == StatusCode::IM_A_TEAPOT;
        assert!(stored(&teapots, 418) && !stored(&teapots, 200));
    }
}
