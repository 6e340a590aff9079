//! [`TaskTracker`]: work that goes on when its caller is gone: releases, late replies, extensions. And the signals that
//! work waits for: a change that a [`Notify`] tells of, and [`Signal`], such a change that comes once.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

use crate::seam;

pub(crate) struct TaskTracker {
    runtime: Handle,
    limit: usize,
    // Each job that counts towards the limit has a clone.
    counted: Arc<()>,
}

impl TaskTracker {
    /// The most jobs at a time, one for each lock that is being released: far beyond a sane load. Locks beyond it are
    /// left to their ttl.
    pub(crate) const LIMIT: usize = 10_000;

    pub(crate) fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            limit: Self::LIMIT,
            counted: Arc::default(),
        }
    }

    /// Runs `job`, from anywhere; `false` if there is no room for it, or the manager's runtime has ended.
    pub(crate) fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) -> bool {
        let token = Arc::clone(&self.counted);
        if self.count() > self.limit {
            return false;
        }
        let job = crate::trace::in_span(Counted { job, token });
        seam::spawn_on(&self.runtime, job);
        true
    }

    /// Runs `job` whether there is room or not, and takes none of it: for extensions and for records. There are no more
    /// of these than locks that are held or requests that run, and releases that pile up must not keep them waiting.
    pub(crate) fn spawn_anyway(&self, job: impl Future<Output = ()> + Send + 'static) {
        seam::spawn_on(&self.runtime, crate::trace::in_span(job));
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.counted) - 1
    }

    pub(crate) fn timer(&self, after: Duration) -> Sleep {
        let outside = Handle::try_current().is_err();
        let _inside = outside.then(|| self.runtime.enter());
        sleep(after)
    }
}

pin_project! {
    struct Counted<F> {
        #[pin]
        job: F,
        token: Arc<()>,
    }
}

impl<F: Future<Output = ()>> Future for Counted<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().job.poll(cx)
    }
}

/// Waits until `look` finds something. It looks at once, and whenever all waiters of `changed` are notified.
pub(crate) async fn notified_until<T>(changed: &Notify, look: impl Fn() -> Option<T>) -> T {
    loop {
        // Before the look, so that no change is missed in between.
        let notified = changed.notified();
        if let Some(found) = look() {
            return found;
        }
        notified.await;
    }
}

/// Something that happens once, and is never undone.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    given: AtomicBool,
    changed: Notify,
}

impl Signal {
    pub(crate) fn give(&self) {
        self.given.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    pub(crate) async fn given(&self) {
        notified_until(&self.changed, || self.is_given().then_some(())).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn jobs_beyond_the_limit_are_refused_until_others_have_ended() {
        let mut tasks = TaskTracker::new(Handle::current());
        tasks.limit = 2;
        let (first, go_first) = oneshot::channel::<()>();
        let (second, go_second) = oneshot::channel::<()>();
        assert!(tasks.spawn(async { drop(go_first.await) }));
        assert!(tasks.spawn(async { drop(go_second.await) }));
        assert!(!tasks.spawn(async {}));
        assert_eq!(tasks.count(), 2);
        let (third, go_third) = oneshot::channel::<()>();
        tasks.spawn_anyway(async { drop(go_third.await) });
        assert_eq!(tasks.count(), 2, "the third does not count");
        drop(first);
        tokio::task::yield_now().await;
        assert!(tasks.spawn(async {}), "there is room beside the third");
        drop((second, third));
        while tasks.count() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_job_for_a_runtime_that_has_ended_is_dropped() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let tasks = TaskTracker::new(runtime.handle().clone());
        drop(runtime);
        assert!(tasks.spawn(std::future::pending()));
        assert_eq!(tasks.count(), 0);
    }
}
