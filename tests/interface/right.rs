//! What is right, so that a case is refused for its mistake and for nothing else: that this compiles is the test.

#[path = "prelude.rs"]
mod prelude;

use prelude::*;

impl AsLockKeys for OrderId {
    fn to_lock_keys(&self) -> Result<LockKeys, KeyError> {
        Ok(LockKey::new("order")?.into())
    }
}

#[expect(dead_code, reason = "it is only compiled")]
fn right(locks: LockManager, layer: &Order, once: Once) {
    let order = |parts: &Parts| LockKey::join(["order", parts.uri.path()]);
    let _ = RedlockLayer::new(locks, order);
    let _ = once.clone().with_lock(layer.clone()).layer(());
    let _ = once.record_if(|answer: &http::response::Parts| answer.status.is_success());
    is_extractor::<LockManager, Locked<OrderId>>();
    is_service(
        layer.layer(tower::service_fn(async |_: http::Request<String>| {
            Ok::<_, Infallible>(http::Response::new(String::new()))
        })),
    );
}
