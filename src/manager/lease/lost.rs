//! [`Lost`]: waiting for the end of a lock.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tokio::sync::futures::OwnedNotified;

use crate::manager::error::loss::LossReason;
use crate::manager::lease::held::HeldLease;

pin_project! {
    /// The future of [`LockHandle::lost`](crate::LockHandle::lost). It owns what it needs and can be stored.
    #[must_use = "futures do nothing unless polled"]
    pub struct Lost {
        hold: Arc<HeldLease>,
        number: u32,
        #[pin]
        ended: OwnedNotified,
    }
}

impl Lost {
    /// The end of a lock for the tenant `number`.
    pub(in crate::manager) fn new(hold: Arc<HeldLease>, number: u32) -> Self {
        Self {
            ended: Arc::clone(&hold.ended).notified_owned(),
            hold,
            number,
        }
    }
}

impl Future for Lost {
    type Output = LossReason;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LossReason> {
        let mut this = self.project();
        loop {
            // No wake-up can be lost between this check and the poll: the notification was created before both.
            if let Some(reason) = this.hold.ended_because(*this.number) {
                if reason != LossReason::Released {
                    this.hold.end_is_told();
                }
                return Poll::Ready(reason);
            }
            ready!(this.ended.as_mut().poll(cx));
            this.ended
                .set(Arc::clone(&this.hold.ended).notified_owned());
        }
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost")
            .field("key", self.hold.lease.key())
            .finish_non_exhaustive()
    }
}
