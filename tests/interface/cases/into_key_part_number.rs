#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f() {
    let _ = key::from_fn(|_: &Parts| 7_u64);
}
