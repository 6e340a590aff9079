//! [`AcquireCall`]: one call for a lock, for metrics, events and its span.

use std::fmt::Display;

use crate::clock::Clock as _;
use crate::manager::acquire::outcome::Acquired;
use crate::manager::error::acquire::AcquireError;
use crate::manager::guard::LockGuard;
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
use crate::{instruments, trace};

/// One call for a lock, from its start to its result. Dropped before [`end`](Self::end), it counts as cancelled.
pub(crate) struct AcquireCall<'a> {
    shared: &'a Shared,
    key: NodeKey,
    pub(crate) began: Moment,
    ended: bool,
    span: trace::AcquireSpan,
}

impl<'a> AcquireCall<'a> {
    pub(crate) fn new(shared: &'a Shared, keys: &NodeKeys) -> Self {
        let key = keys.first();
        Self {
            shared,
            key: key.clone(),
            began: shared.clock.now(),
            ended: false,
            span: trace::AcquireSpan::new(|| key.show(shared.redact).into_owned()),
        }
    }

    /// `work`, in the span of the call.
    pub(crate) fn around<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        self.span.around(work)
    }

    /// Reports the result.
    pub(crate) fn end(mut self, outcome: &Result<Acquired, AcquireError>) {
        self.ended = true;
        match outcome {
            Ok(Acquired::Lock(guard)) => {
                let nodes = self.granted(guard);
                self.report("acquired", &nodes, None);
            }
            Ok(Acquired::Adopted(..) | Acquired::Record(_)) => self.report("replayed", "", None),
            Err(error) => self.report(error.word(), "", Some(error)),
        }
        match outcome {
            Ok(_) => self.shared.quorum_answered(),
            // Each node that disagrees was told of, as an error.
            Err(AcquireError::NoQuorum(error)) if error.is_disagreement() => {}
            Err(error @ (AcquireError::NoQuorum(_) | AcquireError::TooSlow(_))) => {
                self.shared.quorum_missed(error);
            }
            Err(_) => {}
        }
    }

    /// The nodes that granted the lock; empty if no subscriber takes events of this kind.
    fn granted(&self, guard: &LockGuard) -> String {
        let handle = guard.handle();
        let held = &handle.tenancy().lease;
        held.belongs_to_caller();
        if !trace::hears_acquire() {
            return String::new();
        }
        let nodes = held.granted().into_iter();
        let names: Vec<&str> = nodes.map(|node| self.shared.name_of(node)).collect();
        names.join(", ")
    }

    fn report(&self, outcome: &'static str, nodes: &str, error: Option<&AcquireError>) {
        let waited = self.shared.clock.now().since(self.began);
        instruments::acquired(outcome, waited);
        self.span.end(outcome, nodes);
        if !trace::hears_acquire() {
            return;
        }
        let key = self.key.show(self.shared.redact);
        let nodes = Some(nodes).filter(|nodes| !nodes.is_empty());
        let reason = error.map(|error| error as &dyn Display);
        trace::acquire(&key, outcome, waited, nodes, reason);
    }
}

impl Drop for AcquireCall<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.report("cancelled", "", None);
        }
    }
}
