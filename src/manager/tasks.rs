//! [`TaskTracker`]: runs work that goes on when its caller is gone, such as releases, late replies and extensions.
//!
//! Renewals, and releases that nobody waits for, run in the *background*, on a thread of the manager. On a worker of
//! the application, a handler that blocks its thread could keep all locks from being renewed: tokio puts a task that a
//! handler wakes into that worker's LIFO slot, from which no other worker steals.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

use crate::clock::Clock;
use crate::seam;

pub(crate) struct TaskTracker {
    calls: Handle,
    pub(super) background: Handle,
    // Given when the background thread is to end.
    pub(super) ended: Arc<Signal>,
    limit: usize,
    // Each job that counts towards the limit has a clone of this, so the number of clones is the number of jobs.
    counted: Arc<()>,
}

impl TaskTracker {
    /// At most this many jobs run at a time. If there is no room for a release, its lock ends with its ttl.
    pub(crate) const LIMIT: usize = 10_000;

    /// Starts the background thread. If the `clock` follows the runtime, as in tests, jobs run on `calls` instead.
    pub(crate) fn begin(calls: Handle, clock: &dyn Clock) -> io::Result<Self> {
        let ended = Arc::default();
        let background = match clock.follows_runtime() {
            true => calls.clone(),
            false => begin_thread(Arc::clone(&ended))?,
        };
        Ok(Self {
            calls,
            background,
            ended,
            limit: Self::LIMIT,
            counted: Arc::default(),
        })
    }

    /// Runs `job` on the runtime of the calls or in the `background`. `false` if there is no room for it.
    pub(crate) fn spawn(
        &self,
        background: bool,
        job: impl Future<Output = ()> + Send + 'static,
    ) -> bool {
        let token = Arc::clone(&self.counted);
        if background && self.ended.is_given() {
            // The background has ended, even if its thread still runs for a moment, so the job is dropped.
            return true;
        }
        if self.count() > self.limit {
            return false;
        }
        let job = crate::trace::in_span(Counted { job, token });
        self.start(background, job);
        true
    }

    /// Runs `job` even if there is no room. This is for extensions and records, because held locks and running requests
    /// already limit their number.
    pub(crate) fn spawn_anyway(
        &self,
        background: bool,
        job: impl Future<Output = ()> + Send + 'static,
    ) {
        self.start(background, crate::trace::in_span(job));
    }

    fn start(&self, background: bool, job: impl Future<Output = ()> + Send + 'static) {
        if background {
            seam::spawn_in_background(&self.background, job);
        } else {
            seam::spawn_on(&self.calls, job);
        }
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.counted) - 1
    }

    pub(crate) fn timer(&self, after: Duration) -> Sleep {
        let outside = Handle::try_current().is_err();
        let _inside = outside.then(|| self.background.enter());
        sleep(after)
    }
}

impl Drop for TaskTracker {
    fn drop(&mut self) {
        self.ended.give();
    }
}

fn begin_thread(ended: Arc<Signal>) -> io::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let thread = std::thread::Builder::new().name("tower-redlock".to_owned());
    thread.spawn(move || {
        runtime.block_on(ended.given());
        // Do not wait for blocking tasks, because the look-up of a host name can take long and nobody needs it now.
        runtime.shutdown_background();
    })?;
    Ok(handle)
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

/// Waits until `look` finds something. It looks immediately, and whenever all waiters of `changed` are notified.
pub(crate) async fn notified_until<T>(changed: &Notify, look: impl Fn() -> Option<T>) -> T {
    loop {
        // Create this before calling `look`, so that no change between the two is missed.
        let notified = changed.notified();
        if let Some(found) = look() {
            return found;
        }
        notified.await;
    }
}

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
    use std::time::Instant;

    use tokio::runtime::Runtime;
    use tokio::sync::oneshot;

    use super::*;
    use crate::LockManager;
    use crate::clock::SystemClock;

    fn tracker(runtime: Handle) -> TaskTracker {
        TaskTracker::begin(runtime, &SystemClock::new()).unwrap()
    }

    #[tokio::test]
    async fn jobs_beyond_the_limit_are_refused_until_others_have_ended() {
        let mut tasks = tracker(Handle::current());
        tasks.limit = 2;
        let (first, go_first) = oneshot::channel::<()>();
        let (second, go_second) = oneshot::channel::<()>();
        assert!(tasks.spawn(false, async { drop(go_first.await) }));
        assert!(tasks.spawn(false, async { drop(go_second.await) }));
        assert!(!tasks.spawn(false, async {}));
        assert_eq!(tasks.count(), 2);
        let (third, go_third) = oneshot::channel::<()>();
        tasks.spawn_anyway(false, async { drop(go_third.await) });
        assert_eq!(tasks.count(), 2, "the third does not count");
        drop(first);
        tokio::task::yield_now().await;
        assert!(
            tasks.spawn(false, async {}),
            "there is room beside the third"
        );
        drop((second, third));
        while tasks.count() > 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Calls `end`, and waits until the background tasks of the manager are dropped, because its thread has ended.
    fn ends(end: impl FnOnce(Runtime, LockManager) -> Option<Runtime>) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let connect = || LockManager::builder().memory(3).connect();
        let locks = runtime.block_on(async { connect().await.unwrap() });
        let thread = Arc::new(());
        let kept = Arc::clone(&thread);
        let job = async move {
            std::future::pending::<()>().await;
            drop(kept);
        };
        locks.shared.common.tasks.spawn_anyway(true, job);
        assert_eq!(Arc::strong_count(&thread), 2);
        let _runtime = end(runtime, locks);
        let begin = Instant::now();
        while Arc::strong_count(&thread) > 1 {
            assert!(begin.elapsed() < Duration::from_secs(10), "it goes on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_thread_ends_with_the_manager_its_shutdown_and_its_runtime() {
        let mut kept = Vec::new();
        ends(|runtime, locks| {
            drop(locks);
            Some(runtime)
        });
        ends(|runtime, locks| {
            runtime.block_on(locks.shutdown(Duration::ZERO));
            kept.push(locks);
            Some(runtime)
        });
        ends(|runtime, locks| {
            drop(runtime);
            kept.push(locks);
            None
        });
        for locks in kept {
            assert!(locks.shared.common.tasks.ended.is_given());
        }
    }

    #[test]
    fn a_job_for_a_runtime_that_has_ended_is_dropped() {
        let runtime = Runtime::new().unwrap();
        let tasks = tracker(runtime.handle().clone());
        drop(runtime);
        assert!(tasks.spawn(false, std::future::pending()));
        assert_eq!(tasks.count(), 0);
    }
}
