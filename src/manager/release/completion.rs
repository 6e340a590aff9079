//! Writing the record of a piece of work, and releasing its lock in the same step.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::manager::error::release::{CompleteError, ReleaseUnconfirmed};
use crate::manager::lease::held::{HeldLease, PendingRelease};
use crate::manager::release::command::Command;
use crate::manager::release::releaser::Release;
use crate::manager::shared::Shared;
use crate::node::{CompleteRequest, ReleaseRequest};
use crate::record::Record;

/// When a record ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// This long from now on.
    After(Duration),
    /// When it was to end already, in milliseconds since 1970.
    At(u64),
}

/// Writes `outcome` as the result of the work under `lease`, or, for `None`, that the work may be done again, and gives
/// the lock back. Returns once a quorum of nodes has it, or too few have it within the node time-out.
///
/// # Cancel safety
///
/// The nodes that a quorum does not need are asked in the background, and so are all nodes when this is dropped.
pub(crate) async fn complete(
    shared: &Arc<Shared>,
    lease: &Arc<HeldLease>,
    pending: PendingRelease,
    outcome: Option<(Bytes, End)>,
) -> Result<(), CompleteError> {
    let (token, Some(ballot)) = (lease.lease.owner, lease.lease.fence) else {
        return Err(CompleteError {
            confirmed: 0,
            needed: shared.terms.quorum.needed(),
        });
    };
    let record = outcome.map(|(body, end)| {
        // Decided here and nowhere else: later writes of the same result take it from the record.
        let until = match end {
            End::After(keep) => lease.end_after(keep),
            End::At(until) => until,
        };
        Record::new(ballot, body, until)
    });
    let release = ReleaseRequest::new(lease.keys.clone(), token, true).since(lease.lease.started);
    let request = CompleteRequest::new(release, record).under(Some(Arc::clone(&shared.config)));
    let release = Release::of_held(shared, lease, pending, Command::Complete(request));
    let outcome = release.quorum().await;
    outcome.map_err(|ReleaseUnconfirmed { confirmed, needed }| CompleteError { confirmed, needed })
}
