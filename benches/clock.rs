//! Time that several processes agree on, and waits that are finer than a timer of tokio, which counts milliseconds.

use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;

/// Nanoseconds of the system's monotonic clock, which is the same in every process.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |part: i64| u64::try_from(part).unwrap();
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

/// Milliseconds from one time to another, negative if the other is earlier.
#[allow(clippy::cast_precision_loss, reason = "hours, at most")]
pub(crate) fn millis(from: u64, to: u64) -> f64 {
    if to >= from {
        (to - from) as f64 / 1e6
    } else {
        -((from - to) as f64 / 1e6)
    }
}

/// Blocks this thread until `at`.
pub(crate) fn sleep_until(at: u64) {
    let left = at.saturating_sub(now());
    if left > 0 {
        thread::sleep(Duration::from_nanos(left));
    }
}

/// Makes the sleeps of this thread end as near to their time as the system can, where it can be asked to.
pub(crate) fn sharpen() {
    #[cfg(target_os = "linux")]
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).unwrap();
}

/// Waits of one length, kept by a thread that sleeps, so that they cost no time of the runtime that waits.
#[derive(Clone)]
pub(crate) struct Alarm {
    length: Duration,
    // Equal waits end in the order in which they began, so a queue is all that is needed.
    waits: Sender<(u64, oneshot::Sender<()>)>,
}

impl Alarm {
    pub(crate) fn new(length: Duration) -> Self {
        let (waits, queue) = mpsc::channel::<(u64, oneshot::Sender<()>)>();
        thread::spawn(move || {
            sharpen();
            while let Ok((due, done)) = queue.recv() {
                sleep_until(due);
                // Whoever waited may be gone.
                let _ = done.send(());
            }
        });
        Self { length, waits }
    }

    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    pub(crate) async fn wait(&self) {
        let (done, wait) = oneshot::channel();
        self.waits.send((now() + nanos(self.length), done)).unwrap();
        wait.await.unwrap();
    }
}
