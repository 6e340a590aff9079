#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f(once: Once) {
    let _ = once.response_for_rejection(http::StatusCode::OK);
}

fn main() {}
