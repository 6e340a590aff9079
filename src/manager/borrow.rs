//! Borrowing: to run under the lock of another service, as long as a quorum of nodes vouches for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::LockManager;
use super::core::{Core, token};
use super::error::{NoEntropy, NoQuorum, ShuttingDown};
use super::fanout::Fanout;
use super::guard::LockGuard;
use super::hold::Hold;
use super::ledger::Obligation;
use super::releaser::Release;
use crate::clock::Clock as _;
use crate::key_error::KeyError;
use crate::lease::Lease;
use crate::lock_keys::LockKeys;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::node::{EndClaim, NodeError, NodeErrorKind, VerifyReply, VerifyRequest};
use crate::protocol::renewal::Holding;
use crate::token::{Claim, LoanProof, Owner, OwnerHash};

impl LockManager {
    /// Runs under the lock of another service, which [lent](crate::LockHandle::lend) it and showed `proof`, if a
    /// quorum of the nodes confirms that its owner holds `keys` at this moment.
    ///
    /// `keys` come from the call, not from the proof, and must be the lender's, or some of them. The borrowed lock:
    ///
    /// * waits for nobody and takes no place in the queue: the lender has excluded all others;
    /// * lasts as long as a quorum of the nodes keeps the lender's token for, less the drift. The watchdog asks again
    ///   and again, so it follows the lender's extensions, and is *lost* when they end, for
    ///   [`LossReason::Lender`](crate::LossReason::Lender) at once when too many nodes do not have the lender's token.
    ///   The lender may be told of the end first: it counts from when it sent an extension and the nodes from when that
    ///   came, and an extension that was not answered it does not count at all. Nobody else can have the lock by then;
    /// * is never extended by us, never handed on and never released: to drop the guard ends the work under it, and
    ///   tells the nodes so, which keep the lock until then;
    /// * is the only one under its loan: whoever else shows the same proof, now or later, is refused
    ///   ([`BorrowError::Taken`]). Of copies that come at the very same moment it may be all;
    /// * has the lender's number ([`LockHandle::fence`](crate::LockHandle::fence)) by the word of the proof. What
    ///   judges it is the resource, by the number together with
    ///   [`owner_hash`](crate::LockHandle::owner_hash), which the nodes did confirm.
    ///
    /// It excludes everybody but the lender, and those to whom the same lock is lent by another loan: lender and
    /// borrowers see to it themselves that they do not get into each other's way.
    ///
    /// Take proofs only from peers that you trust. The hash of the owner also stands wherever a resource keeps it, and
    /// whoever can read it there could show it here.
    ///
    /// # Errors
    ///
    /// See [`BorrowError`]. None of them repeats the proof.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point: the nodes are told in the background that nobody has the loan. Where its question
    /// still stands in the socket of a connection that is given up at that moment, a node may take it for claimed
    /// later on; then the loan is spent though nobody ran, and the lock is free when its ttl is over.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_redlock::{LockKey, LockManager};
    ///
    /// # let locks = LockManager::builder().memory(5).connect().await?;
    /// let guard = locks.acquire("order:42").await?;
    /// let loan = guard.lend()?;
    /// // In another service over the same nodes:
    /// let proof = loan.proof().expose().parse()?;
    /// let borrowed = locks.borrow_keys(LockKey::new("order:42")?.into(), &proof).await?;
    /// assert_eq!((borrowed.is_borrowed(), borrowed.fence()), (true, guard.fence()));
    /// drop(borrowed);
    /// loan.returned();
    /// # Ok(()) }
    /// ```
    pub async fn borrow_keys(
        &self,
        keys: LockKeys,
        proof: &LoanProof,
    ) -> Result<LockGuard, BorrowError> {
        let core = &self.core;
        let obligation = core.ledger.begin().map(Obligation::owing_nothing);
        let obligation = obligation.ok_or(BorrowError::ShuttingDown(ShuttingDown))?;
        core.standings.introduced(core.node_timeout).await;
        let names = keys;
        let keys = core
            .namespace
            .place_all(&names)
            .map_err(BorrowError::InvalidKey)?;
        let borrower = token().map_err(BorrowError::NoEntropy)?;
        let lender = (proof.owner(), proof.claim(borrower));
        // Whatever happens before it runs, the loan can be claimed again.
        let mut claiming = Claiming::new(core, &keys, lender, obligation.share());
        let Look {
            sent,
            holding,
            late,
        } = look(core, &keys, lender).await?;
        let lease = Lease {
            keys: names,
            owner: Owner::Lender(lender.0, lender.1),
            fence: proof.fence(),
            ttl: core.terms.ttl,
            started: sent,
            deadline: holding.deadline(),
        };
        let clock = Arc::clone(&core.clock);
        let hold = Hold::new(
            (core.serial, core.next_id()),
            core.redact,
            lease,
            keys,
            clock,
            holding,
            (None, obligation),
        );
        let hold = Arc::new(hold);
        claiming.is_over = true;
        let inserted = core.registry.insert(&hold);
        let guard = LockGuard::new(Arc::clone(core), Arc::clone(&hold), 0);
        if !inserted {
            return Err(BorrowError::ShuttingDown(ShuttingDown));
        }
        if !late.is_empty() {
            let late = take_in(Arc::clone(core), hold, late, sent);
            core.background.spawn(late);
        }
        Ok(guard)
    }
}

/// A claim that is given up unless it comes to something.
struct Claiming<'a> {
    core: &'a Arc<Core>,
    request: EndClaim,
    is_over: bool,
    // A shutdown waits for its end.
    obligation: Option<Obligation>,
}

impl<'a> Claiming<'a> {
    fn new(
        core: &'a Arc<Core>,
        keys: &NodeKeys,
        (owner, claim): (OwnerHash, Claim),
        obligation: Obligation,
    ) -> Self {
        Self {
            core,
            request: EndClaim::new(keys.clone(), owner, claim, false),
            is_over: false,
            obligation: Some(obligation),
        }
    }
}

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // What is dropped goes on in the background.
            let request = self.request.clone();
            drop(Release::of_claim(
                self.core,
                request,
                self.obligation.take(),
            ));
        }
    }
}

/// What came of asking all nodes for the owner.
struct Look {
    sent: Moment,
    holding: Holding,
    // The nodes that were not waited for.
    late: Fanout<Result<VerifyReply, NodeError>>,
}

/// Asks all nodes for the owner, until a quorum vouches for it or none can, after the node time-out at the latest.
async fn look(
    core: &Core,
    keys: &NodeKeys,
    (owner, claim): (OwnerHash, Claim),
) -> Result<Look, BorrowError> {
    let charter = Some(Arc::clone(&core.charter));
    let request = VerifyRequest::new(keys.clone(), owner, charter).claiming(claim);
    // Before anything can leave: what is left to the owner counts from here.
    let sent = core.clock.now();
    let nodes = core.nodes.iter().enumerate();
    let mut fanout = Fanout::new(nodes.map(|(index, node)| (index, node.verify(request.clone()))));
    let mut holding = Holding::following(core.terms, sent);
    let mut errors: Vec<(usize, NodeError)> = Vec::new();
    let (mut longest, mut is_claimed) = (Duration::ZERO, false);
    let timer = sleep(core.patience(sent));
    tokio::pin!(timer);
    loop {
        let answer = tokio::select! {
            biased;
            answer = fanout.next() => answer,
            () = &mut timer => {
                let late = fanout.abandon().into_iter();
                errors.extend(late.map(|node| (node, core.timed_out())));
                None
            }
        };
        let Some((node, answer)) = answer else { break };
        if let Ok(VerifyReply::Owner { remaining }) = &answer {
            longest = longest.max(*remaining);
        }
        is_claimed |= answer == Ok(VerifyReply::Taken);
        if let Some(error) = note(core, &mut holding, node, sent, answer) {
            errors.push((node, error));
        }
        // Enough, unless a node among them missed an extension and the others will give more time.
        let left = holding.deadline().since(core.clock.now());
        if holding.taken() || (!left.is_zero() && left >= longest.min(core.terms.ttl) / 2) {
            break;
        }
    }
    if let Some(error) = core.disagreement() {
        return Err(BorrowError::NoQuorum(error));
    }
    if holding.taken() {
        return Err(if is_claimed {
            BorrowError::Taken
        } else {
            BorrowError::NotOwner
        });
    }
    if core.clock.now() < holding.deadline() {
        return Ok(Look {
            sent,
            holding,
            late: fanout,
        });
    }
    let needed = core.terms.quorum.needed();
    if core.nodes.len() - holding.missing() >= needed {
        return Err(BorrowError::TooLate);
    }
    errors.sort_by_key(|(node, _)| *node);
    let failures = errors.into_iter();
    Err(BorrowError::NoQuorum(NoQuorum {
        needed,
        nodes: core.nodes.len(),
        failures: failures
            .map(|(node, error)| core.failure(node, error))
            .collect(),
        retry_after: core.quorum_in(),
        disagreed: false,
    }))
}

/// Takes in the answers that were not waited for, so that a node which forgets is no reason to end what others would
/// have vouched for.
async fn take_in(
    core: Arc<Core>,
    hold: Arc<Hold>,
    mut late: Fanout<Result<VerifyReply, NodeError>>,
    sent: Moment,
) {
    let answers = async {
        while let Some((node, answer)) = late.next().await {
            hold.answered(node, |holding| {
                // What is amiss with the node the next look will tell.
                let _ = note(&core, holding, node, sent, answer);
            });
        }
    };
    let _ = timeout(core.node_timeout, answers).await;
}

/// Takes in what `node` answered to a look that was sent at `sent`.
fn note(
    core: &Core,
    holding: &mut Holding,
    node: usize,
    sent: Moment,
    answer: Result<VerifyReply, NodeError>,
) -> Option<NodeError> {
    match answer {
        Ok(VerifyReply::Owner { remaining }) if core.in_time(sent) => {
            holding.vouch(node, sent, remaining);
        }
        Ok(VerifyReply::Owner { .. }) => return Some(core.too_late()),
        Ok(VerifyReply::NotOwner | VerifyReply::Taken) => holding.foreign(node, sent),
        Err(error) => {
            core.heard(node, &error);
            return Some(error);
        }
    }
    None
}

/// Asks one node again for the owner of a borrowed lock.
pub(super) async fn follow(
    core: Arc<Core>,
    index: usize,
    hold: Arc<Hold>,
    (owner, claim): (OwnerHash, Claim),
    sent: Moment,
) {
    let Some(node) = core.nodes.get(index) else {
        return;
    };
    // The claim again, for a node that has missed or forgotten it.
    let charter = Some(Arc::clone(&core.charter));
    let request = VerifyRequest::new(hold.keys.clone(), owner, charter).claiming(claim);
    let answer = match timeout(core.node_timeout, node.verify(request)).await {
        Ok(answer) => answer,
        Err(_) => Err(core.timed_out()),
    };
    hold.answered(index, |holding| {
        if let Some(error) = note(&core, holding, index, sent, answer)
            && matches!(
                error.kind(),
                NodeErrorKind::Rejected | NodeErrorKind::Misconfigured | NodeErrorKind::Foreign
            )
        {
            crate::trace::command_failed(core.name_of(index), "verify", &error);
        }
    });
}

/// Why a lock was not borrowed. The lender has it or not, whatever is said here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BorrowError {
    /// The keys cannot be lock keys.
    InvalidKey(KeyError),
    /// The owner of the proof does not hold the keys: not any more, or it never did.
    NotOwner,
    /// The owner holds them, and the loan has or had another borrower: another copy of the same call. It is good for
    /// one.
    Taken,
    /// The owner held them when the nodes were asked, and by the time they had answered its validity was over.
    TooLate,
    /// Too few nodes can answer.
    NoQuorum(NoQuorum),
    /// The operating system has no random numbers.
    NoEntropy(NoEntropy),
    /// The manager is shutting down.
    ShuttingDown(ShuttingDown),
}

impl fmt::Display for BorrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidKey(error) => error.fmt(f),
            Self::NotOwner => {
                f.write_str("the lock cannot be borrowed: the owner of the proof does not hold it")
            }
            Self::Taken => f.write_str(
                "the lock cannot be borrowed: another copy of this call has or had the loan, which is good for one; lend again for another call",
            ),
            Self::TooLate => f.write_str(
                "the lock cannot be borrowed: the lender's validity was over when the nodes had answered",
            ),
            Self::NoQuorum(error) => error.fmt(f),
            Self::NoEntropy(error) => error.fmt(f),
            Self::ShuttingDown(error) => error.fmt(f),
        }
    }
}

// Each variant's text is that of its content, so the content is not a source: a chain would print it twice.
impl std::error::Error for BorrowError {}
