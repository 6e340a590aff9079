#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f(once: Once) {
    let _ = once.rejection_response(http::StatusCode::OK);
}

fn main() {}
