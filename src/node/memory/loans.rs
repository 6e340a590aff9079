//! Who has which loan of a lock, beside the locks.

use std::collections::HashMap;

use super::super::{EndClaim, ReleaseRequest, VerifyRequest};
use super::store::Store;
use crate::moment::Moment;
use crate::namespace::Namespace;
use crate::token::{Claim, OwnerHash, OwnerToken};

/// The loans of one node, by namespace and owner of the lock.
#[derive(Default)]
pub(super) struct Loans {
    lent: HashMap<(Namespace, OwnerHash), Lent>,
}

/// The loans of one lock.
struct Lent {
    loans: HashMap<u32, Borrower>,
    // What is left of a lock that nobody released.
    expires: Moment,
}

struct Borrower {
    id: OwnerToken,
    at_work: bool,
}

impl Loans {
    /// Notes a claim; whether the loan is not another's.
    fn claim(&mut self, place: (Namespace, OwnerHash), claim: &Claim, now: Moment) -> bool {
        // Few locks are lent at a time.
        self.lent.retain(|_, lent| lent.expires > now);
        let lent = self.lent.entry(place).or_insert_with(|| Lent {
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
        borrower.id == claim.borrower
    }

    fn end(&mut self, request: &EndClaim, is_owned: bool, now: Moment) {
        let (place, claim) = (place_of(request), &request.claim);
        let known = self.lent.get_mut(&place);
        let known = known.and_then(|lent| lent.loans.get_mut(&claim.loan));
        match known {
            Some(borrower) if borrower.id != claim.borrower => {}
            Some(borrower) if request.ran => borrower.at_work = false,
            Some(_) => {
                if let Some(lent) = self.lent.get_mut(&place) {
                    lent.loans.remove(&claim.loan);
                }
            }
            None if request.ran && is_owned => {
                // So that no copy of the call has it here.
                self.claim(place, claim, now);
                self.end(request, is_owned, now);
            }
            None => {}
        }
    }

    /// Whether a borrower of this owner is at work; else its loans are forgotten.
    fn is_borrowed(&mut self, place: &(Namespace, OwnerHash), now: Moment) -> bool {
        let lent = self.lent.get(place).filter(|lent| lent.expires > now);
        let at_work = lent.is_some_and(|lent| lent.loans.values().any(|loan| loan.at_work));
        if !at_work {
            self.lent.remove(place);
        }
        at_work
    }

    /// Forgets everything.
    #[cfg(feature = "test-util")]
    pub(super) fn clear(&mut self) {
        self.lent.clear();
    }
}

fn place_of(request: &EndClaim) -> (Namespace, OwnerHash) {
    (request.keys.namespace().clone(), request.owner)
}

impl Store {
    /// Notes the claim of a borrower, if there is one; whether it has the loan.
    pub(super) fn claim(&mut self, request: &VerifyRequest, now: Moment) -> bool {
        let Some(claim) = &request.claim else {
            return true;
        };
        let place = (request.keys.namespace().clone(), request.owner);
        self.loans.claim(place, claim, now)
    }

    pub(super) fn end_claim(&mut self, request: &EndClaim, now: Moment) {
        let entry = self.live(request.keys.first(), now);
        let is_owned = entry.is_some_and(|entry| OwnerHash::of(&entry.token) == request.owner);
        self.loans.end(request, is_owned, now);
    }

    /// Whether what is to be released is to stay, for a borrower is at work.
    pub(super) fn is_borrowed(&mut self, request: &ReleaseRequest, now: Moment) -> bool {
        let owner = OwnerHash::of(&request.token);
        let place = (request.keys.namespace().clone(), owner);
        request.lent && self.loans.is_borrowed(&place, now)
    }
}
