//! Borrowing: to run under the lock of another service, as long as a quorum of nodes confirms it.

use std::sync::Arc;
use std::time::Duration;

use crate::lease::Lease;
use crate::lock_keys::LockKeys;
use crate::manager::error::acquire::ShuttingDown;
use crate::manager::error::borrow::BorrowError;
use crate::manager::guard::LockGuard;
use crate::manager::lease::held::HeldLease;
use crate::manager::ledger::Obligation;
use crate::manager::lock_manager::LockManager;
use crate::manager::nodes::random::token;
use crate::manager::release::releaser::Release;
use crate::manager::renewal::verify::{Verified, take_late_replies, verify};
use crate::manager::shared::Shared;
use crate::manager::target::LockTarget;
use crate::node::EndClaim;
use crate::token::{LoanProof, Owner};

impl LockManager {
    /// Runs under the lock of another service, which [lent](crate::LockHandle::lend) it and showed `proof`, if a
    /// quorum of the nodes confirms that its owner holds `keys` at this moment.
    ///
    /// `keys` come from the call, not from the proof, and must be the lender's, or some of them. The borrowed lock:
    ///
    /// * does not wait and does not enter the queue: the lender has excluded all others;
    /// * lasts as long as a quorum of the nodes keeps the lender's token for, less the drift. The watchdog asks again
    ///   and again, so it follows the lender's extensions, and is *lost* when they end, for
    ///   [`LossReason::Lender`](crate::error::LossReason::Lender) at once when too many nodes do not have the lender's
    ///   token. The lender may be told of the end first: it counts from when it sent an extension and the nodes from
    ///   when that came, and an extension without a reply it does not count at all. Nobody else can have the lock
    ///   by then;
    /// * is never extended by the borrower, never handed off and never released: to drop the guard ends the work under
    ///   it, and tells the nodes so, which keep the lock until then;
    /// * is the only one under its loan: every other caller that shows the same proof, now or later, is refused
    ///   ([`BorrowError::Taken`]). Of copies that come at the very same moment all may be refused;
    /// * has the lender's fencing token ([`LockHandle::fence`](crate::LockHandle::fence)) as the proof states it. The
    ///   resource checks it, together with [`owner_hash`](crate::LockHandle::owner_hash), which the nodes did confirm.
    ///
    /// It excludes all others except the lender and the borrowers under other loans of the same lock: lender and
    /// borrowers must keep out of each other's way themselves.
    ///
    /// Take proofs only from peers that you trust. The hash of the owner also stands wherever a resource keeps it, and
    /// anyone who can read it there could show it here.
    ///
    /// # Errors
    ///
    /// See [`BorrowError`]. None of them repeats the proof.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any point: the nodes are told in the background that the loan is not taken. Where the claim
    /// still stands in the socket of a connection that is given up at that moment, a node may count it later on; then
    /// the loan is spent though no work ran under it, and the lock is free when its ttl is over.
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
        let shared = &self.shared;
        let terms = self.times.terms;
        let obligation = shared
            .ledger
            .begin(terms.ttl)
            .map(Obligation::owing_nothing);
        let obligation = obligation.ok_or(BorrowError::ShuttingDown(ShuttingDown))?;
        shared.all_asked().await;
        let target = LockTarget::new(&shared.namespace, keys).map_err(BorrowError::InvalidKey)?;
        let borrower = token().map_err(BorrowError::NoEntropy)?;
        let lender = (proof.owner(), proof.claim(borrower));
        // Until work runs under it, the loan can be claimed again.
        let mut claiming = Claiming {
            shared,
            ttl: terms.ttl,
            request: EndClaim::new(target.keys.clone(), lender.0, lender.1, false),
            obligation: Some(obligation.share()),
        };
        let Verified { sent, nodes, late } = verify(shared, terms, &target.keys, lender).await?;
        let lease = Lease {
            keys: target.names,
            owner: Owner::Lender(lender.0, lender.1),
            fence: proof.fence(),
            ttl: terms.ttl,
            started: sent,
            deadline: nodes.deadline(),
        };
        let clock = Arc::clone(&shared.clock);
        let held = HeldLease::new(
            (shared.serial, shared.next_id()),
            shared.redact,
            lease,
            target.keys,
            clock,
            nodes,
            (None, obligation),
        );
        let held = Arc::new(held);
        claiming.obligation = None;
        let guard = LockGuard::first(shared, Arc::clone(&held));
        let guard = guard.map_err(BorrowError::ShuttingDown)?;
        if !late.is_empty() {
            let late = take_late_replies(Arc::clone(&shared.node_set), held, late, sent);
            shared.tasks.spawn(late);
        }
        Ok(guard)
    }
}

/// A claim that is ended unless the lock is borrowed.
struct Claiming<'a> {
    shared: &'a Arc<Shared>,
    ttl: Duration,
    request: EndClaim,
    // A shutdown waits for its end. `None` once the lock is borrowed.
    obligation: Option<Obligation>,
}

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        if let Some(obligation) = self.obligation.take() {
            // A release that is dropped goes on in the background.
            let request = self.request.clone();
            let obligation = Some(obligation);
            drop(Release::of_claim(
                self.shared,
                request,
                obligation,
                self.ttl,
            ));
        }
    }
}
