//! The commands of borrowers.

use redis::Cmd;

use super::{END_CLAIM, VERIFY, config, flag, life};
use crate::node::{EndClaim, VerifyRequest};

/// The command for a verify.
pub(in crate::node::redis) fn verify(request: &VerifyRequest, identity: &str) -> Cmd {
    let keys = request.keys.as_slice();
    let namespace = request.keys.namespace();
    let mut cmd = VERIFY.run(3 + keys.len(), 9 + keys.len());
    cmd.arg(namespace.marker());
    for key in keys {
        cmd.arg(key.as_str());
    }
    cmd.arg(namespace.loans(&request.owner))
        .arg(namespace.borrowers(&request.owner));
    config(&mut cmd, request.config.as_deref(), identity);
    cmd.arg(request.owner.as_str());
    match &request.claim {
        Some(claim) => cmd
            .arg(claim.loan)
            .arg(claim.borrower.expose())
            .arg(life(claim.keep)),
        None => cmd.arg(""),
    };
    cmd
}

/// The command for the end of a claim.
pub(in crate::node::redis) fn end_claim(request: &EndClaim) -> Cmd {
    let (namespace, claim) = (request.keys.namespace(), &request.claim);
    let mut cmd = END_CLAIM.run(3, 8);
    cmd.arg(namespace.loans(&request.owner))
        .arg(namespace.borrowers(&request.owner))
        .arg(request.keys.first().as_str())
        .arg(claim.loan)
        .arg(claim.borrower.expose())
        .arg(flag(request.ran))
        .arg(request.owner.as_str())
        .arg(life(claim.keep));
    cmd
}
