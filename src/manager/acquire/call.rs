//! [`Asking`]: one call for a lock, as it is counted and told.

use std::time::Duration;

use crate::clock::Clock as _;
use crate::manager::acquire::outcome::Prize;
use crate::manager::error::acquire::AcquireError;
use crate::manager::guard::LockGuard;
use crate::manager::shared::Core;
use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
use crate::{metrics, trace};

/// One call for a lock, from the question to its outcome. Dropped before, the caller went away, and that counts too.
pub(in crate::manager) struct Asking<'a> {
    core: &'a Core,
    key: NodeKey,
    began: Moment,
    ended: bool,
    span: trace::AcquireSpan,
}

impl<'a> Asking<'a> {
    pub(in crate::manager) fn new(core: &'a Core, keys: &NodeKeys) -> Self {
        let key = keys.first();
        Self {
            core,
            key: key.clone(),
            began: core.clock.now(),
            ended: false,
            span: trace::AcquireSpan::new(|| key.show(core.redact).into_owned()),
        }
    }

    /// The search for an answer, in a span of its own.
    pub(in crate::manager) fn around<F: Future>(
        &self,
        search: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        self.span.around(search)
    }

    pub(in crate::manager) const fn began(&self) -> Moment {
        self.began
    }

    fn waited(&self) -> Duration {
        self.core.clock.now().since(self.began)
    }

    /// Notes what it came to.
    pub(in crate::manager) fn end(mut self, outcome: &Result<Prize, AcquireError>) {
        self.ended = true;
        match outcome {
            Ok(Prize::Lock(guard)) => {
                let nodes = self.granted(guard);
                self.tell("acquired", &nodes, None);
            }
            Ok(Prize::Adopted(..) | Prize::Record(_)) => self.tell("recalled", "", None),
            Err(error) => self.tell(error.word(), "", Some(error)),
        }
    }

    /// The nodes that granted the lock; nothing if nobody listens.
    fn granted(&self, guard: &LockGuard) -> String {
        let handle = guard.handle();
        let (hold, _) = handle.tenancy();
        hold.belongs_to_caller();
        if !trace::hears_acquire() {
            return String::new();
        }
        let nodes = hold.granted().into_iter();
        let names: Vec<&str> = nodes.map(|node| self.core.name_of(node)).collect();
        names.join(", ")
    }

    fn tell(&self, outcome: &'static str, nodes: &str, error: Option<&AcquireError>) {
        let waited = self.waited();
        metrics::acquired(outcome, waited);
        self.span.end(outcome, nodes);
        if !trace::hears_acquire() {
            return;
        }
        let key = self.key.show(self.core.redact);
        match error {
            Some(error) => trace::acquire(&key, outcome, waited, nodes, error),
            None => trace::acquire(&key, outcome, waited, nodes, &""),
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.tell("cancelled", "", None);
        }
    }
}
