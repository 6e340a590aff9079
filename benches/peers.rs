//! Locks that are compared where many want the same one: each as its own documentation says to wait for a lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tower_redlock::LockManager;

use crate::clock::{Alarm, now};

/// A holder that dies is waited for so long. Nobody dies here.
pub(crate) const TTL: Duration = Duration::from_secs(10);
/// Longer than any run: whoever waits gets a turn, or is counted as having got none.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// How many hold a key at once, if its locks are permits.
pub(crate) const PERMITS: u32 = 16;

/// A lock of some library.
#[derive(Clone)]
pub(crate) enum Peer {
    /// The floor: a lock that knows nothing of other processes.
    Mutex(Arc<Mutex<()>>),
    Ours(LockManager),
    Rslock(rslock::LockManager),
    /// Blocks its thread; every cycle gets one of its own.
    Redlock(Arc<redlock::RedLock>),
}

/// One critical section, in nanoseconds of the [`clock`](crate::clock).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    pub(crate) asked: u64,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// Whether giving the lock back was confirmed, of a library that says.
    pub(crate) confirmed: bool,
}

impl Peer {
    /// A lock by its name.
    pub(crate) async fn connect(name: &str, urls: Vec<String>) -> Self {
        match name {
            "mutex" => Self::Mutex(Arc::default()),
            "ours" | "permits" => {
                let builder = LockManager::builder().bootstrap(true).redis(urls);
                let locks = builder.ttl(TTL).max_wait(MAX_WAIT).connect().await;
                let locks = locks.unwrap();
                Self::Ours(match name {
                    "permits" => locks.permits(PERMITS).unwrap(),
                    _ => locks,
                })
            }
            // Its `acquire` is documented to loop until the lock is acquired: by default three attempts, up to
            // 200 ms apart, again and again.
            "rslock" => Self::Rslock(rslock::LockManager::new(urls)),
            // The same without the default pause.
            "rslock-20ms" => {
                let mut locks = rslock::LockManager::new(urls);
                locks.set_retry(u32::MAX, Duration::from_millis(20));
                Self::Rslock(locks)
            }
            // Its `acquire` loops in the same way.
            "redlock" => Self::Redlock(Arc::new(redlock::RedLock::new(urls))),
            _ => panic!("no such lock: {name}"),
        }
    }

    pub(crate) fn name(name: &str) -> &'static str {
        match name {
            "mutex" => "tokio Mutex (floor)",
            "ours" => "tower-redlock",
            "rslock" => "rslock 0.10",
            "rslock-20ms" => "rslock 0.10, 20 ms retries",
            "redlock" => "redlock 2.0 (threads)",
            _ => "?",
        }
    }

    /// The commands that it sends outside scripts.
    pub(crate) fn direct(&self) -> &'static [&'static str] {
        match self {
            Self::Mutex(_) | Self::Ours(_) => &[],
            Self::Rslock(_) | Self::Redlock(_) => &["set"],
        }
    }

    /// Waits for the lock, stays in the section as long as `section` says, and gives the lock back.
    pub(crate) async fn turn(&self, key: &str, section: &Alarm) -> Result<Turn, String> {
        let asked = now();
        let (began, ended);
        let mut confirmed = true;
        match self {
            Self::Mutex(mutex) => {
                let guard = mutex.lock().await;
                began = now();
                section.wait().await;
                ended = now();
                drop(guard);
            }
            Self::Ours(locks) => {
                let guard = locks.acquire(key).await.map_err(|e| e.to_string())?;
                began = now();
                section.wait().await;
                ended = now();
                confirmed = guard.release().await.is_ok();
            }
            Self::Rslock(locks) => {
                let guard = locks.acquire(key, TTL).await.map_err(|e| e.to_string())?;
                began = now();
                section.wait().await;
                ended = now();
                guard.release().await;
            }
            Self::Redlock(locks) => {
                let (locks, key, length) = (Arc::clone(locks), key.to_owned(), nanos_of(section));
                let turn = tokio::task::spawn_blocking(move || {
                    let ttl = usize::try_from(TTL.as_millis()).unwrap();
                    let guard = locks
                        .acquire(key.as_bytes(), ttl)
                        .map_err(|e| e.to_string())?;
                    let began = now();
                    crate::clock::sleep_until(began + length);
                    let ended = now();
                    drop(guard);
                    Ok::<_, String>((began, ended))
                });
                (began, ended) = turn.await.unwrap()?;
            }
        }
        Ok(Turn {
            asked,
            began,
            ended,
            confirmed,
        })
    }
}

fn nanos_of(section: &Alarm) -> u64 {
    crate::clock::nanos(section.length())
}

/// The turns in their order.
///
/// # Panics
///
/// If any two overlap: then it was no lock, and its speed is worth nothing.
pub(crate) fn in_order<T: Copy>(turns: &[(Turn, T)]) -> Vec<(Turn, T)> {
    let mut turns = turns.to_vec();
    turns.sort_unstable_by_key(|(turn, _)| turn.began);
    for pair in turns.windows(2) {
        let ((first, _), (second, _)) = (pair[0], pair[1]);
        assert!(
            second.began >= first.ended,
            "TWO HOLDERS AT ONCE: {first:?} and {second:?}"
        );
    }
    turns
}
