//! [`RecordPolicy`]: which answers are kept.

use http::StatusCode;
use http::response::Parts;

/// Says which answers are kept. One that is not kept frees the key: the next request with it runs.
///
/// A closure `Fn(&http::response::Parts) -> bool` is one. It sees the head of the answer before its body is read.
///
/// An answer that is kept is final for as long as records are: a client that repeats a request which failed for a
/// passing reason gets the failure again, and must choose a new key. One that is not kept had better be for a request
/// that had no effect.
///
/// What says of its run that nothing was done in it is never kept, whatever the policy says: see
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
/// takes_a_policy(|answer: &Parts| answer.status.as_u16() != 503);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which answers are kept",
    label = "must be a `RecordPolicy`",
    note = "a closure or function `Fn(&http::response::Parts) -> bool` is one; annotate its argument: `|answer: &Parts| ..`"
)]
pub trait RecordPolicy: Send + Sync + 'static {
    /// Whether the answer that begins like this is kept.
    fn records(&self, answer: &Parts) -> bool;
}

impl<F> RecordPolicy for F
where
    F: Fn(&Parts) -> bool + Send + Sync + 'static,
{
    fn records(&self, answer: &Parts) -> bool {
        self(answer)
    }
}

/// Keeps what a layer keeps unless told otherwise: every answer below 500, but 408, 425 and 429, which ask the client
/// to come again.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct DefaultRecordPolicy;

impl RecordPolicy for DefaultRecordPolicy {
    fn records(&self, answer: &Parts) -> bool {
        let again = [
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_EARLY,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        answer.status.as_u16() < 500 && !again.contains(&answer.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;

    #[test]
    fn answers_that_ask_for_a_retry_are_not_kept() {
        let kept = |policy: &dyn RecordPolicy, status: u16| {
            let answer = Response::builder().status(status).body(());
            policy.records(&answer.unwrap().into_parts().0)
        };
        for status in 100..1000 {
            let expected = status < 500 && ![408, 425, 429].contains(&status);
            assert_eq!(kept(&DefaultRecordPolicy, status), expected, "{status}");
        }
        let teapots = |answer: &Parts| answer.status == StatusCode::IM_A_TEAPOT;
        assert!(kept(&teapots, 418) && !kept(&teapots, 200));
    }
}
