//! Which borrower has which loan of a lock.

use std::collections::HashMap;

use crate::moment::Moment;
use crate::mutant::{self, Mutant};
use crate::namespace::{Namespace, NodeKeys};
use crate::node::{EndClaim, ReleaseRequest, VerifyRequest};
use crate::token::{Claim, OwnerHash, OwnerToken};

/// The loans of one node, by namespace and owner of the lock.
#[derive(Default)]
pub(super) struct Loans {
    lent: HashMap<(Namespace, OwnerHash), Lent>,
}

/// The loans of one lock.
struct Lent {
    loans: HashMap<u32, Borrower>,
    // When the loans of a lock that nobody released are dropped.
    expires: Moment,
}

struct Borrower {
    id: OwnerToken,
    at_work: bool,
}

impl Loans {
    /// Notes the claim in `request`, if there is one. Returns whether the loan is not another borrower's.
    pub(super) fn claim(&mut self, request: &VerifyRequest, now: Moment) -> bool {
        let Some(claim) = &request.claim else {
            return true;
        };
        self.note(lock_of(&request.keys, request.owner), claim, now)
    }

    fn note(&mut self, lock: (Namespace, OwnerHash), claim: &Claim, now: Moment) -> bool {
        // Few locks are lent at a time.
        self.lent.retain(|_, lent| lent.expires > now);
        let lent = self.lent.entry(lock).or_insert_with(|| Lent {
            loans: HashMap::new(),
            expires: now,
        });
        let fresh = || {
            lent.expires = lent.expires.max(now + claim.keep);
            Borrower {
                id: claim.borrower,
                at_work: true,
            }
        };
        let borrower = lent.loans.entry(claim.loan).or_insert_with(fresh);
        borrower.id == claim.borrower || mutant::is(Mutant::LoanOfMany)
    }

    /// Ends a claim. `is_owned`: the owner still holds the lock.
    pub(super) fn end(&mut self, request: &EndClaim, is_owned: bool, now: Moment) {
        let (lock, claim) = (lock_of(&request.keys, request.owner), &request.claim);
        let known = self.lent.get_mut(&lock);
        let known = known.and_then(|lent| lent.loans.get_mut(&claim.loan));
        match known {
            Some(borrower) if borrower.id != claim.borrower => {}
            Some(borrower) if request.ran => borrower.at_work = false,
            Some(_) => {
                if let Some(lent) = self.lent.get_mut(&lock) {
                    lent.loans.remove(&claim.loan);
                }
            }
            None if request.ran && is_owned => {
                // So that no copy of the call gets the loan here.
                self.note(lock, claim, now);
                self.end(request, is_owned, now);
            }
            None => {}
        }
    }

    /// Whether the lock of a release must stay, because a borrower is at work; if none is, its loans are forgotten.
    pub(super) fn is_borrowed(&mut self, request: &ReleaseRequest, now: Moment) -> bool {
        if !request.lent || mutant::is(Mutant::ReleasedUnderBorrower) {
            return false;
        }
        let lock = &lock_of(&request.keys, OwnerHash::of(&request.token));
        let lent = self.lent.get(lock).filter(|lent| lent.expires > now);
        let at_work = lent.is_some_and(|lent| lent.loans.values().any(|loan| loan.at_work));
        if !at_work {
            self.lent.remove(lock);
        }
        at_work
    }
}

fn lock_of(keys: &NodeKeys, owner: OwnerHash) -> (Namespace, OwnerHash) {
    (keys.namespace().clone(), owner)
}
