//! [`RunId`]: how the idempotency layer is told that nothing was done in a run, by a mark that names this very run.

use std::sync::Arc;

use http::{Extensions, Response};

/// Identifies one run of one request.
#[derive(Clone, Debug)]
pub(crate) struct RunId(Arc<()>);

/// In the extensions of a response: nothing was done in this run.
#[derive(Clone, Debug)]
struct Unprocessed(RunId);

impl RunId {
    /// A new run.
    pub(crate) fn new() -> Self {
        Self(Arc::new(()))
    }

    /// Marks `response`: nothing was done in this run.
    pub(crate) fn mark<B>(self, mut response: Response<B>) -> Response<B> {
        response.extensions_mut().insert(Unprocessed(self));
        response
    }

    /// Whether a response is marked for this run. A mark for another run, whose response may have been kept and passed
    /// on, does not count.
    pub(crate) fn is_unprocessed(&self, response: &Extensions) -> bool {
        let mark = response.get::<Unprocessed>();
        mark.is_some_and(|Unprocessed(run)| Arc::ptr_eq(&self.0, &run.0))
    }
}
