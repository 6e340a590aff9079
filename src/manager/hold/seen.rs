//! A held lock as it is shown.

use std::sync::atomic::Ordering;

use super::Hold;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::token::FencingToken;

/// A lock as it is shown.
pub(in crate::manager) struct Seen {
    pub(in crate::manager) keys: NodeKeys,
    pub(in crate::manager) since: Moment,
    /// Until when it may be relied on; long past for one that is lost.
    pub(in crate::manager) deadline: Moment,
    pub(in crate::manager) fence: Option<FencingToken>,
    pub(in crate::manager) borrowed: bool,
}

impl Hold {
    /// What there is to be seen of it now.
    pub(in crate::manager) fn seen(&self) -> Seen {
        let since = self.inner().since;
        let number = self.tenant.load(Ordering::Acquire);
        Seen {
            keys: self.keys.clone(),
            since,
            deadline: self.end(),
            fence: self.lease.fence.map(|first| first.handed_on(number)),
            borrowed: self.is_borrowed(),
        }
    }
}
