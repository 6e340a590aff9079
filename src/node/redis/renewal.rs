//! Authenticating a connection in use, before its credentials end.

use std::convert::Infallible;
use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep_until, timeout};

use crate::node::redis::connect_failure::random;
use crate::node::redis::credentials::SOONEST;
use crate::node::redis::error::server_text;
use crate::node::redis::shared::Shared;
use crate::node::redis::transport::Multiplexed;
use crate::protocol::backoff::Backoff;

/// Authenticates `connection` again and again, each time before its credentials end. The first time is at `again`.
/// Never ends.
pub(super) async fn keep_valid(
    shared: &Shared,
    connection: &Multiplexed,
    mut again: Option<Instant>,
) -> Infallible {
    let mut backoff = NEW_BACKOFF;
    loop {
        match again {
            Some(again) => sleep_until(again).await,
            None => std::future::pending().await,
        }
        match authenticate(shared, connection.clone()).await {
            Ok(next) => {
                shared.credentials_work();
                (again, backoff) = (next, NEW_BACKOFF);
            }
            Err(reason) => {
                shared.credentials_fail(&reason);
                again = Some(Instant::now() + SOONEST + backoff.next(random()));
            }
        }
    }
}

/// Asks for credentials and shows them on a connection in use. Refused, the server goes on with those before. Returns
/// when to ask again.
async fn authenticate(
    shared: &Shared,
    mut connection: Multiplexed,
) -> Result<Option<Instant>, String> {
    let Some((credentials, again)) = shared.target.rotation.ask().await? else {
        return Ok(None);
    };
    let mut auth = redis::cmd("AUTH");
    match credentials
        .user
        .as_deref()
        .or(shared.target.user.as_deref())
    {
        Some(user) => auth.arg(user),
        None => &mut auth,
    };
    auth.arg(&credentials.password);
    let reply = timeout(LONGEST_REPLY, connection.send_packed_command(&auth)).await;
    match reply.map(|reply| reply.and_then(Value::extract_error)) {
        Ok(Ok(_)) => Ok(again),
        Ok(Err(error)) => Err(server_text(&error)),
        Err(_) => Err(format!(
            "the server did not answer within {LONGEST_REPLY:?}"
        )),
    }
}

/// How long the server may take to check credentials.
const LONGEST_REPLY: Duration = Duration::from_secs(1);
/// The pauses after credentials that could not be renewed.
const NEW_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
