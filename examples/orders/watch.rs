//! A stream of events: a client watches an order, and the lock sees to it that nobody else does at the same time.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Sse;
use axum::response::sse::Event;
use futures_util::stream::{Stream, unfold};
use tower_redlock::Held;
use tower_redlock::middleware::Rejection;

use crate::shop::Shop;

/// Tells every second whether the order is paid, until the client leaves, the lock is lost, or the service stops.
pub(crate) async fn watch(
    held: Held,
    State(shop): State<Shop>,
    Path(id): Path<u64>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Rejection> {
    // The response is out before the stream has begun, so the stream takes the lock along.
    let guard = held.into_guard()?;
    let seconds = tokio::time::interval(Duration::from_secs(1));
    let begin = Some((guard, shop.order(id), seconds));
    let events = unfold(begin, |state| async move {
        let (guard, order, mut seconds) = state?;
        tokio::select! {
            biased;
            _ = guard.lost() => None,
            // A stream has no end of its own, and the server would wait for it: it says its last word and ends.
            () = guard.draining() => {
                let _ = guard.release().await;
                Some((Ok(Event::default().event("moved").data("connect again")), None))
            }
            _ = seconds.tick() => {
                let paid = Event::default().event("paid").data(order.is_paid().to_string());
                Some((Ok(paid), Some((guard, order, seconds))))
            }
        }
    });
    Ok(Sse::new(events))
}
