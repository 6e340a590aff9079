#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f() {
    let _ = key::header("x-order").prefix("order").parse::<u64>();
}
