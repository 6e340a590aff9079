//! How the layer that runs a request is told that nothing was done in the run: by a mark that names that very run.

use std::sync::Arc;

use http::{Extensions, Response};

/// One run of one request, and no other.
#[derive(Clone, Debug)]
pub(crate) struct RunId(Arc<()>);

/// In the extensions of a request: the service that is called with it stands directly inside of the layer that runs it.
/// Whoever finds it takes it out, so that nobody further in can.
#[derive(Clone, Debug)]
struct Directly(RunId);

/// In the extensions of a response: nothing was done in this run.
#[derive(Clone, Debug)]
struct Unprocessed(RunId);

impl RunId {
    /// A new run.
    pub(crate) fn new() -> Self {
        Self(Arc::new(()))
    }

    /// Tells the service that is called with a request that it stands directly inside of the layer that runs it.
    pub(crate) fn tell_the_next(&self, request: &mut Extensions) {
        request.insert(Directly(self.clone()));
    }

    /// The run whose layer stands directly around the service that was called with a request.
    pub(crate) fn of_the_layer_around(request: &mut Extensions) -> Option<Self> {
        request.remove().map(|Directly(run)| run)
    }

    /// Says of `answer` that nothing was done in this run.
    pub(crate) fn mark<B>(self, mut answer: Response<B>) -> Response<B> {
        answer.extensions_mut().insert(Unprocessed(self));
        answer
    }

    /// Whether an answer says that nothing was done in this run. What it says of another run, whose answer may have
    /// been kept and passed on, says nothing of this one.
    pub(crate) fn is_unprocessed(&self, answer: &Extensions) -> bool {
        let mark = answer.get::<Unprocessed>();
        mark.is_some_and(|Unprocessed(run)| Arc::ptr_eq(&self.0, &run.0))
    }
}
