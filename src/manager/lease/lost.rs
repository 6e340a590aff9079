//! [`Lost`]: waiting for the end of a lock.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
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

impl Lost {
    /// Whether the time is over for which the lock may be relied on. Nobody may have been told of that yet, as when
    /// this process has just gone on after it stood still.
    pub(crate) fn is_overdue(&self) -> bool {
        self.tenancy.lease.is_overdue()
    }

    /// The result of `work`; or why the lock was lost before.
    pub(crate) async fn or_done<T>(self, work: impl Future<Output = T>) -> Result<T, LossReason> {
        let mut lost = pin!(self);
        let mut work = pin!(work);
        poll_fn(|cx| lost.as_mut().poll_beside(cx, |cx| work.as_mut().poll(cx))).await
    }

    /// Polls work that ends with the lock. A result that exists wins, but work is not polled that goes on after the time
    /// of the lock is over: it would go on until it next waits.
    pub(crate) fn poll_beside<T>(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        work: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, LossReason>> {
        if self.is_overdue()
            && let Poll::Ready(reason) = self.as_mut().poll(cx)
        {
            return Poll::Ready(Err(reason));
        }
        match work(cx) {
            Poll::Ready(done) => Poll::Ready(Ok(done)),
            Poll::Pending => self.poll(cx).map(Err),
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
