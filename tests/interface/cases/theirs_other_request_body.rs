//! The service inside takes requests with the body that the idempotency layer was given, not with the one it gives.

#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f(layer: Once) {
    is_service(
        layer.layer(tower::service_fn(async |_: http::Request<String>| {
            Ok::<_, Infallible>(http::Response::new(String::new()))
        })),
    );
}
