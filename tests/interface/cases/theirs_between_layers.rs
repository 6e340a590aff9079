//! Something stands between the two layers.

#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f(once: Once, order: Order) {
    let between =
        tower::layer::layer_fn(|inner| tower::util::MapRequest::new(inner, |request| request));
    let _ = once.with_lock((between, order)).layer(());
}
