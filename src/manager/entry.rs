//! From asking for a lock to having it: the queue of this process, then the nodes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::asking::Asking;
use super::attempt::Purpose;
use super::baton::{Baton, Note, Turns};
use super::core::Core;
use super::error::{AcquireError, Contended, QueueFull, ShuttingDown, WaitTimeout};
use super::guard::LockGuard;
use super::queue::{Closed, Entered, Refused, Seat};
use super::waiter::{Contender, Prize};
use super::waits::Waiting;
use crate::clock::Clock as _;
use crate::key_error::KeyError;
use crate::lock_keys::LockKeys;
use crate::moment::Moment;
use crate::namespace::{NodeKey, NodeKeys};

/// How long a caller waits for a busy lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    began: Moment,
    limit: Duration,
}

impl Wait {
    pub(super) const fn new(began: Moment, limit: Duration) -> Self {
        Self { began, limit }
    }

    pub(super) const fn is_patient(&self) -> bool {
        !self.limit.is_zero()
    }

    pub(super) fn waited(&self, core: &Core) -> Duration {
        core.clock.now().since(self.began)
    }

    pub(super) const fn began(&self) -> Moment {
        self.began
    }

    pub(super) fn left(&self, core: &Core) -> Duration {
        self.limit.saturating_sub(self.waited(core))
    }

    /// The error of one who waited in vain for `key`.
    pub(super) fn busy(&self, core: &Core, key: &NodeKey) -> AcquireError {
        self.busy_for(core, core.queue.note(key.shared()).as_ref())
    }

    fn busy_for(&self, core: &Core, note: Option<&Note>) -> AcquireError {
        let remaining = note.and_then(|note| note.remaining(&*core.clock));
        if self.is_patient() {
            let waited = self.waited(core);
            AcquireError::WaitTimeout(WaitTimeout { remaining, waited })
        } else {
            AcquireError::Contended(Contended { remaining })
        }
    }
}

/// Gets in line, and goes for the lock when its turn has come.
pub(super) async fn acquire(
    core: &Arc<Core>,
    names: LockKeys,
    limit: Duration,
) -> Result<LockGuard, AcquireError> {
    let keys = core.namespace.place_all(&names)?;
    match go(core, (names, keys), Purpose::Lock, limit).await? {
        Prize::Lock(guard) | Prize::Adopted(guard, _) => Ok(guard),
        // Nodes tell of records only if they are asked for them.
        Prize::Record(_) => Err(AcquireError::NoQuorum(core.no_answer())),
    }
}

/// Gets in line, and goes for what is wanted when the turn has come.
///
/// The turns of several keys are waited for one after the other, in the order of the keys, which is the same for
/// everybody: so nobody waits in a circle.
pub(super) async fn go(
    core: &Arc<Core>,
    (names, keys): (LockKeys, NodeKeys),
    purpose: Purpose,
    limit: Duration,
) -> Result<Prize, AcquireError> {
    let asking = Asking::new(core, &keys);
    let wait = Wait::new(asking.began(), limit);
    core.standings.introduced(core.node_timeout).await;
    let search = line_up(core, (names, keys), purpose, wait);
    let outcome = asking.around(search).await;
    asking.end(&outcome);
    outcome
}

async fn line_up(
    core: &Arc<Core>,
    (names, keys): (LockKeys, NodeKeys),
    purpose: Purpose,
    wait: Wait,
) -> Result<Prize, AcquireError> {
    let several = names.are_several();
    let mut queued = false;
    let mut turns: Option<Turns> = None;
    for key in keys.as_slice() {
        let turn = match turn(core, key, (purpose, several), wait, &mut queued).await? {
            Baton::Turn(turn) => turn,
            Baton::Lock(guard) => return Ok(Prize::Lock(guard.waited_for(wait.waited(core)))),
        };
        match &mut turns {
            Some(turns) => turns.push(turn),
            none => *none = Some(Turns::new(turn)),
        }
    }
    let Some(mut turns) = turns else {
        // There is always a key.
        return Err(AcquireError::InvalidKey(KeyError::no_key()));
    };
    if matches!(purpose, Purpose::Recall { .. }) {
        // The next is to look for what came of it.
        turns = turns.personal();
    }
    let contender = Contender::new(core, (names, keys), purpose, turns, wait, queued);
    // Boxed, so that the many who wait are small: only one per key goes for it.
    Box::pin(contender.contend()).await
}

/// Waits for the turn of one key; or for its lock, unless it is one of `several`.
async fn turn(
    core: &Arc<Core>,
    key: &NodeKey,
    (purpose, several): (Purpose, bool),
    wait: Wait,
    queued: &mut bool,
) -> Result<Baton, AcquireError> {
    loop {
        let guard = match enter(core, key, purpose, wait) {
            Ok(Entered::Turn(turn)) => return Ok(Baton::Turn(turn)),
            Ok(Entered::Seat(seat)) => {
                let baton = called(core, key, seat, wait).await?;
                // Who comes back has waited, too.
                *queued = true;
                match baton {
                    Baton::Lock(guard) => guard,
                    turn @ Baton::Turn(_) => return Ok(turn),
                }
            }
            Err(refused) => return Err(core.refuse_entry(refused, wait)),
        };
        if guard.is_lost() {
            // Lost between the pass and this look; the turn went on to the next.
            drop(guard);
        } else if !several {
            return Ok(Baton::Lock(guard));
        } else {
            // A lock of one key is no part of a lock of several.
            // Boxed, as it is seldom needed, and everybody who waits would hold the room for it.
            match timeout(wait.left(core), Box::pin(guard.into_turn())).await {
                Ok(Some(turn)) => return Ok(Baton::Turn(turn)),
                Ok(None) => {}
                Err(_) => return Err(wait.busy(core, key)),
            }
        }
    }
}

/// Gets in line. A key that is in use is not for those who do not wait; but where they ask for a record, and nothing is
/// known of the key yet, it may be that whoever is before them is only asking, too.
fn enter(
    core: &Arc<Core>,
    key: &NodeKey,
    purpose: Purpose,
    wait: Wait,
) -> Result<Entered<Baton>, Refused<Note>> {
    let entered = core.queue.enter(key.shared(), wait.is_patient());
    match (entered, purpose) {
        (Err(Refused::InUse(None)), Purpose::Recall { .. }) => {
            let entered = core.queue.enter(key.shared(), true);
            entered.map_err(|refused| match refused {
                Refused::KeyFull | Refused::Full => Refused::InUse(None),
                refused => refused,
            })
        }
        (entered, _) => entered,
    }
}

/// Waits in the queue. Who does not wait at all is here only because the lock is being given back, or a record is being
/// asked for, which takes a node time-out at most; that is its patience for all of its keys.
async fn called(
    core: &Arc<Core>,
    key: &NodeKey,
    seat: Seat<Baton>,
    wait: Wait,
) -> Result<Baton, AcquireError> {
    let limit = if wait.is_patient() {
        wait.left(core)
    } else {
        core.node_timeout.saturating_sub(wait.waited(core))
    };
    let _waiting = Waiting::new(core, key, wait.began, true);
    match timeout(limit, seat).await {
        Ok(Ok(baton)) => Ok(baton),
        Ok(Err(Closed)) => Err(AcquireError::ShuttingDown(ShuttingDown)),
        Err(_) => Err(wait.busy(core, key)),
    }
}

impl Core {
    fn refuse_entry(&self, refused: Refused<Note>, wait: Wait) -> AcquireError {
        let bounds = self.queue.bounds();
        match refused {
            Refused::InUse(note) => wait.busy_for(self, note.as_ref()),
            Refused::KeyFull => AcquireError::QueueFull(QueueFull {
                limit: bounds.per_key,
                of_key: true,
            }),
            Refused::Full => AcquireError::QueueFull(QueueFull {
                limit: bounds.total,
                of_key: false,
            }),
            Refused::Closed => AcquireError::ShuttingDown(ShuttingDown),
        }
    }
}
