//! [`Lost`]: waiting for the end of a lock.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::sync::futures::OwnedNotified;

use crate::manager::error::loss::LossReason;
use crate::manager::lease::held::Tenancy;

pin_project! {
    /// The future of [`LockHandle::lost`](crate::LockHandle::lost). It owns what it needs and can be stored.
    #[must_use = "futures do nothing unless polled"]
    pub struct Lost {
        tenancy: Tenancy,
        #[pin]
        ended: OwnedNotified,
    }
}

impl Lost {
    /// The end of a lock for one of its tenants.
    pub(crate) fn new(tenancy: Tenancy) -> Self {
        Self {
            ended: Arc::clone(&tenancy.lease.ended).notified_owned(),
            tenancy,
        }
    }
}

impl Future for Lost {
    type Output = LossReason;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LossReason> {
        let mut this = self.project();
        let Tenancy { lease, number } = this.tenancy;
        loop {
            // No wake-up can be lost between this check and the poll: the notification was created before both.
            if let Some(reason) = lease.ended_because(*number) {
                if reason != LossReason::Released {
                    lease.inner().state.end_is_told();
                }
                return Poll::Ready(reason);
            }
            ready!(this.ended.as_mut().poll(cx));
            this.ended.set(Arc::clone(&lease.ended).notified_owned());
        }
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost")
            .field("key", self.tenancy.lease.lease.key())
            .finish_non_exhaustive()
    }
}
