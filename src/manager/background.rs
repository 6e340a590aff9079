//! Work that must go on after the caller has left: releases that are owed, late grants, extensions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Runs jobs on the runtime that the manager was built on, up to a bound, and can be waited for.
pub(super) struct Background {
    runtime: Handle,
    limit: usize,
    state: Arc<State>,
}

struct State {
    running: AtomicUsize,
    idle: Notify,
}

impl Background {
    /// The most jobs at a time. One job is one lock that is being settled, so this is far from any sane load;
    /// what is beyond it is left to its ttl.
    pub(super) const LIMIT: usize = 10_000;

    pub(super) fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            limit: Self::LIMIT,
            state: Arc::new(State {
                running: AtomicUsize::new(0),
                idle: Notify::new(),
            }),
        }
    }

    /// Runs `job`; `false` if there is no room for it and it was dropped.
    ///
    /// It can be called from anywhere, also outside a runtime. If the manager's runtime has ended, the job is
    /// dropped unrun.
    pub(super) fn spawn(&self, job: impl Future<Output = ()> + Send + 'static) -> bool {
        if self.state.running.fetch_add(1, Ordering::AcqRel) >= self.limit {
            self.state.leave();
            return false;
        }
        let leave = Leave(Arc::clone(&self.state));
        self.runtime.spawn(async move {
            let _leave = leave;
            job.await;
        });
        true
    }

    /// How many jobs run.
    pub(super) fn running(&self) -> usize {
        self.state.running.load(Ordering::Acquire)
    }

    /// Waits until no job runs, at most for `limit`; tells how many still do.
    pub(super) async fn idle(&self, limit: Duration) -> usize {
        let idle = async {
            loop {
                let notified = self.state.idle.notified();
                if self.running() == 0 {
                    return;
                }
                notified.await;
            }
        };
        let _ = tokio::time::timeout(limit, idle).await;
        self.running()
    }
}

impl State {
    fn leave(&self) {
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.idle.notify_waiters();
        }
    }
}

/// Counts a job as done when it is dropped: also when it panics or its runtime ends.
struct Leave(Arc<State>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background")
            .field("running", &self.running())
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
        assert_eq!(background.running(), 2);
        assert_eq!(background.idle(Duration::ZERO).await, 2);
        drop((first, second));
        assert_eq!(background.idle(Duration::from_secs(5)).await, 0);
    }

    #[test]
    fn a_job_for_a_runtime_that_has_ended_is_dropped() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let background = Background::new(runtime.handle().clone());
        drop(runtime);
        assert!(background.spawn(std::future::pending()));
        assert_eq!(background.running(), 0);
    }
}
