#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f() {
    is_extractor::<LockManager, Locked<OrderId>>();
}
