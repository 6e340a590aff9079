//! Work that must go on after the caller has left: releases that are owed, late grants, extensions.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

/// Runs jobs on the runtime that the manager was built on, up to a bound, and can be waited for.
pub(super) struct Background {
    runtime: Handle,
    limit: usize,
    jobs: Gauge,
    // Those of them that do not count for the limit.
    beside: Gauge,
}

impl Background {
    /// The most jobs at a time. One job is one lock that is being settled, so this is far from any sane load;
    /// what is beyond it is left to its ttl.
    pub(super) const LIMIT: usize = 10_000;

    pub(super) fn new(runtime: Handle) -> Self {
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
    pub(super) fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) -> bool {
        let inside = self.jobs.enter();
        if self.jobs.count().saturating_sub(self.beside.count()) > self.limit {
            return false;
        }
        self.go_on(inside, job);
        true
    }

    /// Runs `job` as [`spawn`](Self::spawn) does, whether there is room or not: for extensions, of which there are
    /// never many at a time, and without which releases that pile up would cost the locks that are held.
    pub(super) fn spawn_anyway(&self, job: impl Future<Output = ()> + Send + 'static) {
        self.go_on(self.jobs.enter(), job);
    }

    /// Runs `job` as [`spawn`](Self::spawn) does, in no room of others: for what may take long, and has a bound of its
    /// own.
    pub(super) fn spawn_beside(&self, job: impl Future<Output = ()> + Send + 'static) {
        let beside = self.beside.enter();
        self.spawn_anyway(async move {
            let _beside = beside;
            job.await;
        });
    }

    /// Counts one job more, which runs elsewhere, until the value is dropped or [goes on](Self::go_on) here.
    pub(super) fn enter(&self) -> Inside {
        self.jobs.enter()
    }

    /// Runs the rest of a job that was counted before.
    pub(super) fn go_on(&self, inside: Inside, job: impl Future<Output = ()> + Send + 'static) {
        self.runtime
            .spawn(crate::trace::in_span(Counted { job, inside }));
    }

    /// A timer of the runtime that this is called in; outside of any, of the manager's.
    pub(super) fn timer(&self, after: Duration) -> Sleep {
        let outside = Handle::try_current().is_err();
        let _inside = outside.then(|| self.runtime.enter());
        sleep(after)
    }

    /// Waits until no job runs, at most for `limit`; tells how many still do.
    pub(super) async fn idle(&self, limit: Duration) -> usize {
        self.jobs.idle(limit).await
    }
}

pin_project! {
    /// A job that counts as long as it is there. An async block would hold the job twice.
    struct Counted<F> {
        #[pin]
        job: F,
        // After the job, which may be waited for by that.
        inside: Inside,
    }
}

impl<F: Future<Output = ()>> Future for Counted<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().job.poll(cx)
    }
}

/// Counts how many are inside, and can be waited on until nobody is.
#[derive(Clone)]
pub(super) struct Gauge {
    state: Arc<State>,
}

struct State {
    inside: AtomicUsize,
    idle: Notify,
}

impl Gauge {
    pub(super) fn new() -> Self {
        Self {
            state: Arc::new(State {
                inside: AtomicUsize::new(0),
                idle: Notify::new(),
            }),
        }
    }

    /// Counts one in until the value is dropped: also by a panic, or by the end of a runtime.
    pub(super) fn enter(&self) -> Inside {
        self.state.inside.fetch_add(1, Ordering::AcqRel);
        Inside(self.clone())
    }

    pub(super) fn count(&self) -> usize {
        self.state.inside.load(Ordering::Acquire)
    }

    /// Waits until nobody is inside, at most for `limit`; tells how many still are.
    pub(super) async fn idle(&self, limit: Duration) -> usize {
        let idle = async {
            loop {
                let notified = self.state.idle.notified();
                if self.count() == 0 {
                    return;
                }
                notified.await;
            }
        };
        let _ = tokio::time::timeout(limit, idle).await;
        self.count()
    }
}

/// One that is counted by a [`Gauge`].
#[derive(Debug)]
#[must_use = "it counts for as long as it is kept"]
pub(super) struct Inside(Gauge);

impl Drop for Inside {
    fn drop(&mut self) {
        let state = &self.0.state;
        if state.inside.fetch_sub(1, Ordering::AcqRel) == 1 {
            state.idle.notify_waiters();
        }
    }
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&self.count()).finish()
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background")
            .field("jobs", &self.jobs)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn jobs_beyond_the_limit_are_refused_and_idle_waits_for_the_rest() {
        let mut background = Background::new(Handle::current());
        background.limit = 2;
        let (first, go_first) = oneshot::channel::<()>();
        let (second, go_second) = oneshot::channel::<()>();
        assert!(background.spawn(async { drop(go_first.await) }));
        assert!(background.spawn(async { drop(go_second.await) }));
        assert!(!background.spawn(async {}));
        assert_eq!(background.jobs.count(), 2);
        background.spawn_anyway(std::future::ready(()));
        assert_eq!(background.jobs.count(), 3, "what must not wait is run");
        let (third, go_third) = oneshot::channel::<()>();
        background.spawn_beside(async { drop(go_third.await) });
        tokio::task::yield_now().await;
        assert_eq!(background.idle(Duration::ZERO).await, 3);
        drop(first);
        tokio::task::yield_now().await;
        assert!(background.spawn(async {}), "there is room beside the third");
        drop((second, third));
        assert_eq!(background.idle(Duration::from_secs(5)).await, 0);
    }

    #[test]
    fn a_job_for_a_runtime_that_has_ended_is_dropped() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let background = Background::new(runtime.handle().clone());
        drop(runtime);
        assert!(background.spawn(std::future::pending()));
        assert_eq!(background.jobs.count(), 0);
    }
}
