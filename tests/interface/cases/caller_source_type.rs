#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f(locks: LockManager) {
    let _ = IdempotencyLayer::new(locks, Nothing);
}

fn main() {}
