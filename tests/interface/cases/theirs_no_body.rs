//! The answer's body is none.

#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f(layer: Order) {
    is_service(
        layer.layer(tower::service_fn(async |_: http::Request<String>| {
            Ok::<_, Infallible>(http::Response::new(7_u64))
        })),
    );
}

fn main() {}
