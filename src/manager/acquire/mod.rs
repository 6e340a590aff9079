//! One call for a lock, from a caller's request to its result: the queue of this process first, then rounds over the
//! nodes; with its metrics, events and span.
//!
//! ```text
//!   call ──► turn ──► contender ──► round ──► nodes
//!    ▲                 │  │ wait (between two rounds)
//!    └── Acquired ◄────┘
//! ```

pub(crate) mod contender;
mod hint;
pub(crate) mod wait;

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock as _;
use crate::key_error::KeyError;
use crate::lock_key::{LockKey, LockKeys};
use crate::manager::acquire::contender::{Acquired, Contender};
use crate::manager::acquire::wait::{Called, Wait, turn, turn_of_all};
use crate::manager::error::AcquireError;
use crate::manager::guard::LockGuard;
use crate::manager::lease::held::Tenancy;
use crate::manager::permits::Permit;
use crate::manager::round::{Lock, Purpose};
use crate::manager::shared::Shared;
use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};
use crate::protocol::renewal::Terms;
use crate::{instruments, trace};

pub(crate) async fn acquire(
    shared: &Arc<Shared>,
    terms: Terms,
    names: LockKeys,
    limit: Duration,
) -> Result<LockGuard, AcquireError> {
    let keys = shared.namespace.node_keys(&names)?;
    let purpose = Lock::<false>;
    Ok(lock(
        acquire_for(shared, terms, keys, purpose, limit).await?,
    ))
}

/// Acquires a lock for one of its readers.
pub(crate) async fn acquire_shared(
    shared: &Arc<Shared>,
    terms: Terms,
    names: LockKeys,
    limit: Duration,
) -> Result<LockGuard, AcquireError> {
    let keys = shared.namespace.node_keys(&names)?;
    if keys.are_several() {
        return Err(KeyError::several().into());
    }
    let purpose = Lock::<true>;
    let acquired = acquire_for(shared, terms, keys.shared(), purpose, limit).await?;
    Ok(lock(acquired))
}

/// Acquires one of the `permits` of a key, within `limit`.
pub(crate) async fn acquire_permit(
    shared: &Arc<Shared>,
    terms: Terms,
    names: LockKeys,
    (permits, limit): (u32, Duration),
) -> Result<LockGuard, AcquireError> {
    let keys = shared.namespace.permits().node_keys(&names)?;
    if keys.are_several() {
        return Err(KeyError::several().into());
    }
    // With the number of a slot it is a name that operators can ask for.
    let (len, most) = (
        names.first().as_str().len(),
        LockKey::MAX_LEN - ":255".len(),
    );
    if len > most {
        return Err(KeyError::too_long(len, most).into());
    }
    let permit = Permit::new(permits);
    Ok(lock(acquire_for(shared, terms, keys, permit, limit).await?))
}

/// What is acquired where nothing is found in place of a lock.
fn lock<P: Purpose<Found = Infallible, Along = ()>>(acquired: Acquired<P>) -> LockGuard {
    match acquired {
        Acquired::Lock(guard, ()) => guard,
        Acquired::Found(never) => match never {},
    }
}

/// Acquires a lock on `keys`, or what `purpose` finds in its place.
///
/// The turns of several keys are taken at once or not at all: no caller has that of one while it waits for that of
/// another, so there is no deadlock, and a key that one caller cannot use yet is free for others.
pub(crate) async fn acquire_for<P: Purpose>(
    shared: &Arc<Shared>,
    terms: Terms,
    keys: NodeKeys,
    purpose: P,
    limit: Duration,
) -> Result<Acquired<P>, AcquireError> {
    let call = AcquireCall::new(shared, &keys);
    let wait = Wait::new(call.began, limit);
    tokio::select! {
        biased;
        () = shared.all_asked() => {}
        // During a shutdown the queue refuses the caller.
        () = shared.registry.closing.given() => {}
    }
    let outcome = call
        .around(queue_and_contend(shared, terms, keys, purpose, wait))
        .await;
    call.end(&outcome);
    outcome
}

async fn queue_and_contend<P: Purpose>(
    shared: &Arc<Shared>,
    terms: Terms,
    keys: NodeKeys,
    purpose: P,
    wait: Wait,
) -> Result<Acquired<P>, AcquireError> {
    let mut queued = false;
    let is_free = || !shared.queue.is_in_use(keys.first().as_str());
    let join = || {
        let is_open = !shared.registry.closing.is_given();
        is_open.then(|| purpose.join(shared, &keys, &terms))?
    };
    let joined = |(tenancy, along): (Tenancy, P::Along)| {
        let guard = LockGuard::new(Arc::clone(shared), tenancy);
        Acquired::Lock(guard.waited_for(wait.waited(shared)), along)
    };
    if P::SHARED
        && is_free()
        && let Some(share) = join()
    {
        return Ok(joined(share));
    }
    let turn = if keys.are_several() {
        Some(turn_of_all(shared, &terms, &keys, wait, || queued = true).await?)
    } else if P::ANY && is_free() {
        None
    } else {
        match turn::<P>(shared, &terms, &keys, wait, &mut queued).await? {
            Called::Turn(turn) => match join() {
                Some(share) => return Ok(joined(share)),
                None => Some(turn),
            },
            // Then it has queued anew.
            Called::Lapsed => return Err(wait.busy(shared, &keys)),
            Called::Lock(guard) if !purpose.fits(guard.slot()) => None,
            Called::Lock(guard) => {
                // Handed on only to those who can take it.
                let busy = || wait.busy(shared, &keys);
                let along = P::HANDED_ON.ok_or_else(busy)?;
                let guard = guard.waited_for(wait.waited(shared));
                return Ok(Acquired::Lock(guard, along));
            }
        }
    };
    let contender = Contender::new(shared, terms, (keys, purpose), turn, wait, queued);
    // Boxed, so that the futures of the many that wait are small: only one per key contends.
    Box::pin(contender.contend()).await
}

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
            span: trace::AcquireSpan::new(|| key.show().into_owned()),
        }
    }

    pub(crate) fn around<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        self.span.around(work)
    }

    pub(crate) fn end<P: Purpose>(mut self, outcome: &Result<Acquired<P>, AcquireError>) {
        self.ended = true;
        match outcome {
            Ok(Acquired::Lock(guard, along)) if !P::is_replay(along) => {
                let nodes = self.granted(guard);
                self.report("acquired", &nodes, None);
            }
            Ok(_) => self.report("replayed", "", None),
            Err(error) => self.report(error.word(), "", Some(error)),
        }
        match outcome {
            Ok(_) => self.shared.quorum_answered(),
            // The log has an error for each node that disagrees.
            Err(AcquireError::NoQuorum(error)) if error.is_disagreement() => {}
            Err(error @ (AcquireError::NoQuorum(_) | AcquireError::TooSlow { .. })) => {
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
