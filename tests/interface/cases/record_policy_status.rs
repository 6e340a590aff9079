#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f(once: Once) {
    let _ = once.record_if(http::StatusCode::OK);
}

fn main() {}
