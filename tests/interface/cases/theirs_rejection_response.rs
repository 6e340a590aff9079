#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f(layer: Order) {
    let _ = layer.rejection_response(http::StatusCode::CONFLICT);
}

fn main() {}
