#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f() {
    let _ = LockManager::builder().redis(6379);
}
