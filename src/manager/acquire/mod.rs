//! Acquires locks. A call first queues in this process, and then asks the nodes in rounds.
//!
//! ```text
//!   call ──► turn ──► contender ──► round ──► nodes
//!    ▲                 │  │ wait (between two rounds)
//!    └── Acquired ◄────┘
//! ```

pub(crate) mod call;
pub(crate) mod contender;
mod hint;
pub(crate) mod pace;
mod turn;
pub(crate) mod wait;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock as _;
use crate::lock_key::LockKeys;
use crate::manager::acquire::call::{Acquired, Call};
use crate::manager::acquire::contender::Contender;
use crate::manager::acquire::turn::Wakeup;
use crate::manager::acquire::wait::Wait;
use crate::manager::error::AcquireError;
use crate::manager::guard::LockGuard;
use crate::manager::shared::Shared;
use crate::manager::want::Want;
#[cfg(feature = "idempotency")]
use crate::manager::want::recall::Granted;
use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
use crate::protocol::renewal::Terms;
use crate::{instruments, trace};

pub(crate) async fn acquire(
    shared: &Arc<Shared>,
    terms: Terms,
    (names, want): (LockKeys, &Want),
    limit: Duration,
) -> Result<LockGuard, AcquireError> {
    let keys = want.node_keys(&shared.set.namespace, &names)?;
    match acquire_for(shared, terms, (keys, want.clone()), limit).await? {
        Acquired::Lock(guard) => Ok(guard),
        // These are results of runs. Calls for runs use `acquire_for`, so they do not come here.
        #[cfg(feature = "idempotency")]
        Acquired::Run(guard, _) => Ok(guard),
        #[cfg(feature = "idempotency")]
        Acquired::Found(_) => Err(AcquireError::Contended { remaining: None }),
    }
}

pub(crate) async fn acquire_for(
    shared: &Arc<Shared>,
    terms: Terms,
    (keys, want): (NodeKeys, Want),
    limit: Duration,
) -> Result<Acquired, AcquireError> {
    let report = AcquireCall::new(shared, &keys);
    let call = Call {
        shared,
        terms,
        keys,
        want,
        wait: Wait::new(report.began, limit),
        caller: trace::Caller::current(),
    };
    tokio::select! {
        biased;
        () = shared.set.all_asked() => {}
        // Do not wait during a shutdown, because the call is refused anyway.
        () = shared.registry.closing.given() => {}
    }
    let outcome = report.around(call.queue_and_contend()).await;
    report.end(&outcome);
    outcome
}

impl Call<'_> {
    async fn queue_and_contend(self) -> Result<Acquired, AcquireError> {
        let mut queued = false;
        if self.want.is_shared()
            && self.is_free_here()
            && let Some(joined) = self.join()
        {
            return Ok(joined);
        }
        let turn = if self.keys.are_several() {
            Some(self.turn_of_all(|| queued = true).await?)
        } else if self.want.is_permit() && self.is_free_here() {
            None
        } else {
            match self.turn(&mut queued).await? {
                Wakeup::Turn(turn) => match self.join() {
                    Some(joined) => return Ok(joined),
                    None => Some(turn),
                },
                // Unreachable, because `turn` does not return a lapse: it queues again.
                Wakeup::Lapsed => return Err(self.busy()),
                Wakeup::Lock(guard) if !self.want.fits(guard.slot()) => None,
                Wakeup::Lock(guard) => return Ok(self.handed_on(guard)),
            }
        };
        // Boxed to keep the futures of waiting callers small. Most callers of a busy key wait, and only one contends.
        Box::pin(Contender::new(self, turn, queued).contend()).await
    }
}

/// Reports one call to logs and metrics. If it is dropped before [`end`](Self::end), it counts as cancelled.
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
            began: shared.set.clock.now(),
            ended: false,
            span: trace::AcquireSpan::new(|| key.show().into_owned()),
        }
    }

    pub(crate) fn around<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        self.span.around(work)
    }

    pub(crate) fn end(mut self, outcome: &Result<Acquired, AcquireError>) {
        self.ended = true;
        match outcome {
            Ok(Acquired::Lock(guard)) => self.report("acquired", &self.granted(guard), None),
            #[cfg(feature = "idempotency")]
            Ok(Acquired::Run(guard, Granted { record: None, .. })) => {
                self.report("acquired", &self.granted(guard), None);
            }
            #[cfg(feature = "idempotency")]
            Ok(_) => self.report("replayed", "", None),
            Err(error) => self.report(error.word(), "", Some(error)),
        }
        match outcome {
            Ok(_) => self.shared.set.quorum_answered(),
            // Not logged here, because the log has an error for each node that disagrees.
            Err(AcquireError::NoQuorum(error)) if error.disagreed => {}
            Err(error @ (AcquireError::NoQuorum(_) | AcquireError::TooSlow { .. })) => {
                self.shared.set.quorum_missed(error);
            }
            Err(_) => {}
        }
    }

    fn granted(&self, guard: &LockGuard) -> String {
        let handle = guard.handle();
        let held = &handle.tenancy.lease;
        if !trace::hears_acquire() {
            return String::new();
        }
        let on_nodes = held.on_nodes();
        let nodes = (0..on_nodes.len()).filter(|node| on_nodes.is_ours(*node));
        let names: Vec<&str> = nodes.map(|node| self.shared.set.name_of(node)).collect();
        names.join(", ")
    }

    fn report(&self, outcome: &'static str, nodes: &str, error: Option<&AcquireError>) {
        let waited = self.shared.set.clock.now().since(self.began);
        instruments::acquired(outcome, waited);
        self.span.end(outcome, nodes);
        if !trace::hears_acquire() {
            return;
        }
        let key = self.key.show();
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
