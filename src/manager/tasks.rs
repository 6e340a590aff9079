//! [`TaskTracker`]: work that must go on when its caller is gone: releases, late replies, extensions.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};

/// Spawns jobs on the runtime that the manager was built on, up to a bound.
pub(crate) struct TaskTracker {
    runtime: Handle,
    limit: usize,
    jobs: Gauge,
    // Those of them that do not count towards the limit.
    beside: Gauge,
}

impl TaskTracker {
    /// The most jobs at a time. One job is one lock that is being released, so this is far beyond a sane load; locks
    /// beyond it are left to their ttl.
    pub(crate) const LIMIT: usize = 10_000;

    pub(crate) fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            limit: Self::LIMIT,
            jobs: Gauge::new(),
            beside: Gauge::new(),
        }
    }

    /// Runs `job`; `false` if there is no room for it and it was dropped.
    ///
    /// It can be called from anywhere, also outside a runtime. If the manager's runtime has ended, the job is
    /// dropped unrun.
    pub(crate) fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) -> bool {
        let token = self.jobs.enter();
        if self.jobs.count().saturating_sub(self.beside.count()) > self.limit {
            return false;
        }
        self.spawn_counted(token, job);
        true
    }

    /// Runs `job` as [`spawn`](Self::spawn) does, whether there is room or not: for extensions, of which there are
    /// never many at a time, and without which releases that pile up would cost the locks that are held.
    pub(crate) fn spawn_anyway(&self, job: impl Future<Output = ()> + Send + 'static) {
        self.spawn_counted(self.jobs.enter(), job);
    }

    /// Runs `job` as [`spawn`](Self::spawn) does, beside its limit: for jobs that may take long, and have a bound of
    /// their own.
    pub(crate) fn spawn_beside(&self, job: impl Future<Output = ()> + Send + 'static) {
        let beside = self.beside.enter();
        self.spawn_anyway(async move {
            let _beside = beside;
            job.await;
        });
    }

    fn spawn_counted(&self, token: TaskToken, job: impl Future<Output = ()> + Send + 'static) {
        self.runtime
            .spawn(crate::trace::in_span(Counted { job, token }));
    }

    /// A timer of the runtime that this is called in; outside of any, of the manager's.
    pub(crate) fn timer(&self, after: Duration) -> Sleep {
        let outside = Handle::try_current().is_err();
        let _inside = outside.then(|| self.runtime.enter());
        sleep(after)
    }
}

pin_project! {
    /// A job that is counted as long as it exists. An async block would hold the job twice.
    struct Counted<F> {
        #[pin]
        job: F,
        token: TaskToken,
    }
}

impl<F: Future<Output = ()>> Future for Counted<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().job.poll(cx)
    }
}

/// Counts jobs.
#[derive(Clone)]
struct Gauge(Arc<AtomicUsize>);

impl Gauge {
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Counts one in until the value is dropped: also by a panic, or by the end of a runtime.
    fn enter(&self) -> TaskToken {
        self.0.fetch_add(1, Ordering::AcqRel);
        TaskToken(self.clone())
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// One job that is counted by a [`Gauge`].
#[derive(Debug)]
#[must_use = "it counts for as long as it is kept"]
struct TaskToken(Gauge);

impl Drop for TaskToken {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&self.count()).finish()
    }
}

impl fmt::Debug for TaskTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskTracker")
            .field("jobs", &self.jobs)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn jobs_beyond_the_limit_are_refused_until_others_have_ended() {
        let mut tasks = TaskTracker::new(Handle::current());
        tasks.limit = 2;
        let (first, go_first) = oneshot::channel::<()>();
        let (second, go_second) = oneshot::channel::<()>();
        assert!(tasks.spawn(async { drop(go_first.await) }));
        assert!(tasks.spawn(async { drop(go_second.await) }));
        assert!(!tasks.spawn(async {}));
        assert_eq!(tasks.jobs.count(), 2);
        tasks.spawn_anyway(std::future::ready(()));
        assert_eq!(tasks.jobs.count(), 3, "what must not wait is run");
        let (third, go_third) = oneshot::channel::<()>();
        tasks.spawn_beside(async { drop(go_third.await) });
        tokio::task::yield_now().await;
        assert_eq!(tasks.jobs.count(), 3);
        drop(first);
        tokio::task::yield_now().await;
        assert!(tasks.spawn(async {}), "there is room beside the third");
        drop((second, third));
        while tasks.jobs.count() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_job_for_a_runtime_that_has_ended_is_dropped() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let tasks = TaskTracker::new(runtime.handle().clone());
        drop(runtime);
        assert!(tasks.spawn(std::future::pending()));
        assert_eq!(tasks.jobs.count(), 0);
    }
}
