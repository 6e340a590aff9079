//! The orders, and the handlers. Nothing here excludes anything: that is what the lock is for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use tower_redlock::Held;

/// All orders of the service.
#[derive(Clone, Default)]
pub(crate) struct Shop {
    orders: Arc<Mutex<HashMap<u64, Arc<Order>>>>,
}

/// One order, and what an auditor of it would count.
#[derive(Default)]
pub(crate) struct Order {
    paid: AtomicBool,
    charges: AtomicU32,
    inside: AtomicU32,
    most_inside: AtomicU32,
}

/// What a client is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Receipt {
    pub(crate) order: u64,
    pub(crate) paid: bool,
    /// Whether this very request charged the card.
    pub(crate) charged_now: bool,
}

impl Shop {
    pub(crate) fn order(&self, id: u64) -> Arc<Order> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(orders.entry(id).or_default())
    }
}

impl Order {
    /// How often the card was charged.
    pub(crate) fn charges(&self) -> u32 {
        self.charges.load(Ordering::SeqCst)
    }

    pub(crate) fn is_paid(&self) -> bool {
        self.paid.load(Ordering::SeqCst)
    }

    /// The most requests that were ever in the payment at the same time.
    pub(crate) fn most_inside(&self) -> u32 {
        self.most_inside.load(Ordering::SeqCst)
    }
}

/// Pays an order: reads its state, charges the card, writes the state. Two of these at once would charge twice.
pub(crate) async fn pay(
    lock: Held,
    State(shop): State<Shop>,
    Path(id): Path<u64>,
) -> Json<Receipt> {
    let order = shop.order(id);
    let inside = order.inside.fetch_add(1, Ordering::SeqCst) + 1;
    order.most_inside.fetch_max(inside, Ordering::SeqCst);
    // Also when this future is dropped half-way: the client is gone, or the lock is lost.
    let _leave = Leave(&order);

    let charged_now = !order.is_paid() && !lock.is_lost();
    if charged_now {
        // The payment provider takes its time.
        tokio::time::sleep(Duration::from_millis(500)).await;
        order.charges.fetch_add(1, Ordering::SeqCst);
        order.paid.store(true, Ordering::SeqCst);
    }
    Json(Receipt {
        order: id,
        paid: true,
        charged_now,
    })
}

struct Leave<'a>(&'a Order);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Shows an order. Reading needs no lock.
pub(crate) async fn show(State(shop): State<Shop>, Path(id): Path<u64>) -> Json<Receipt> {
    let order = shop.order(id);
    Json(Receipt {
        order: id,
        paid: order.paid.load(Ordering::SeqCst),
        charged_now: false,
    })
}
