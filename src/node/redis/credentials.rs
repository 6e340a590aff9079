//! The [`Credentials`] of a node whose user and password change.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use redis::Client;
use tokio::time::{Instant, timeout};

use crate::settings::server::{Credentials, CredentialsSource};

/// The credentials of one node, if they change.
#[derive(Default)]
pub(super) struct Rotation {
    source: OnceLock<CredentialsSource>,
    // The last ones and those before, which must not be seen in any text either.
    known: Mutex<Vec<Credentials>>,
    // A connection could not renew them, and none has authenticated since.
    is_stale: AtomicBool,
}

impl Rotation {
    pub(super) fn begin(&self, source: CredentialsSource) {
        self.source.get_or_init(|| source);
    }

    pub(super) fn set_stale(&self, is_stale: bool) -> bool {
        self.is_stale.swap(is_stale, Ordering::Relaxed) != is_stale
    }

    fn known(&self) -> MutexGuard<'_, Vec<Credentials>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn ask(&self) -> Result<Option<(Credentials, Option<Instant>)>, String> {
        let Some(CredentialsSource(source)) = self.source.get() else {
            return Ok(None);
        };
        let asked = Instant::now();
        // The program's: a panic in it must not end the connection.
        let called = catch_unwind(AssertUnwindSafe(|| (source.0)()));
        let mut call = called.map_err(|_| PANICKED.to_owned())?;
        let call = poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
            polled.unwrap_or_else(|_| Poll::Ready(Err(PANICKED.to_owned())))
        });
        let credentials = timeout(LONGEST_CALL, call).await;
        let credentials = credentials.unwrap_or_else(|_| {
            Err(format!(
                "the callback did not return within {LONGEST_CALL:?}"
            ))
        })?;
        let valid = credentials.valid_for;
        let again = valid.and_then(|valid| asked.checked_add((valid / 4 * 3).max(SOONEST)));
        let mut known = self.known();
        known.retain(|other| other.password != credentials.password);
        known.insert(0, credentials.clone());
        known.truncate(REMEMBERED);
        drop(known);
        Ok(Some((credentials, again)))
    }

    pub(super) fn apply(&self, client: Client) -> Client {
        let known = self.known();
        let Some(credentials) = known.first() else {
            return client;
        };
        let info = client.get_connection_info().clone();
        let mut settings = info.redis_settings().clone();
        settings = settings.set_password(&credentials.password);
        if let Some(user) = &credentials.user {
            settings = settings.set_username(user);
        }
        // It could be opened before.
        Client::open(info.set_redis_settings(settings)).unwrap_or(client)
    }

    /// What must not be seen in any text.
    pub(super) fn secrets(&self) -> Vec<String> {
        let known = self.known();
        let secrets = known.iter().map(|known| known.password.clone());
        secrets.filter(|secret| !secret.is_empty()).collect()
    }
}

const PANICKED: &str = "the callback panicked";
/// How long the callback may take.
const LONGEST_CALL: Duration = Duration::from_secs(10);
pub(super) const SOONEST: Duration = Duration::from_millis(100);
/// The number of credentials whose passwords are kept out of texts.
const REMEMBERED: usize = 64;
