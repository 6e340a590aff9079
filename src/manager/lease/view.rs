//! [`LeaseView`]: a held lock as a snapshot shows it.

use crate::manager::lease::held::HeldLease;
use crate::moment::Moment;
use crate::namespace::NodeKeys;
use crate::token::FencingToken;
use crate::trace::Caller;

/// A held lock as a snapshot shows it.
pub(crate) struct LeaseView {
    pub(crate) keys: NodeKeys,
    pub(crate) since: Moment,
    /// Until when it may be relied on; the origin of time once it is lost.
    pub(crate) deadline: Moment,
    pub(crate) fence: Option<FencingToken>,
    pub(crate) borrowed: bool,
}

impl HeldLease {
    /// Notes that it belongs to the caller that runs now.
    pub(crate) fn belongs_to_caller(&self) {
        self.inner().caller = Caller::current();
    }

    /// Logs something about the lock in the span of its caller; `tell` gets the name by which it is shown.
    pub(crate) fn tell(&self, tell: impl FnOnce(&str)) {
        let caller = self.inner().caller.clone();
        caller.tell(|| tell(&self.keys.first().show(self.redact)));
    }

    /// The nodes that have granted it, as far as is known.
    pub(crate) fn granted(&self) -> Vec<usize> {
        self.inner().state.holding()
    }

    /// How it looks now.
    pub(crate) fn view(&self) -> LeaseView {
        let inner = self.inner();
        let state = &inner.state;
        LeaseView {
            keys: self.keys.clone(),
            since: state.since(),
            deadline: state.deadline(),
            fence: self
                .lease
                .fence
                .map(|first| first.handed_on(state.tenant())),
            borrowed: self.is_borrowed(),
        }
    }
}
