//! A stream of events: a client watches an order, and the lock sees to it that nobody else does at the same time.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::stream::{Stream, unfold};
use tokio::time::{Instant, interval, sleep_until};
use tower_redlock::layer::Rejection;
use tower_redlock::{Held, LockGuard};

use crate::shop::Shop;

/// For how long a stream lasts: the manager's `max_hold`, a minute unless set, less a ttl. At `max_hold` its lock would
/// be lost, which is an error in the log and an alarm.
pub(crate) const LONGEST: Duration = Duration::from_secs(50);

/// Tells every second whether the order is paid, until the client leaves, the lock is lost, the service stops, or the
/// stream has lasted for [`LONGEST`].
pub(crate) async fn watch(
    held: Held,
    State(shop): State<Shop>,
    Path(id): Path<u64>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Rejection> {
    // The response is out before the stream has begun, so the stream takes the lock along.
    let guard = held.into_guard()?;
    let seconds = interval(Duration::from_secs(1));
    let end = Instant::now() + LONGEST;
    let begin = Some((guard, shop.order(id), seconds));
    let events = unfold(begin, move |state| async move {
        let (guard, order, mut seconds) = state?;
        tokio::select! {
            biased;
            _ = guard.lost() => None,
            // A stream has no end of its own, and the server would wait for it: it says its last word and ends.
            () = guard.draining() => Some((Ok(moved(guard).await), None)),
            () = sleep_until(end) => Some((Ok(moved(guard).await), None)),
            _ = seconds.tick() => {
                let paid = Event::default().event("paid").data(order.is_paid().to_string());
                Some((Ok(paid), Some((guard, order, seconds))))
            }
        }
    });
    Ok(Sse::new(events))
}

/// The last word. The lock is free before the client reads it, and connects again.
async fn moved(guard: LockGuard) -> Event {
    let _ = guard.release().await;
    Event::default().event("moved").data("connect again")
}
