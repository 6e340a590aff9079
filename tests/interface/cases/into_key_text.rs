#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f(locks: LockManager) {
    let _ = RedlockLayer::new(locks, |parts: &Parts| parts.uri.path().to_owned());
}
