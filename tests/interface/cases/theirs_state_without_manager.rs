//! The state has no manager.

#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

#[derive(Clone)]
pub struct App;
impl AsLockKeys for OrderId {
    fn to_lock_keys(&self) -> Result<LockKeys, KeyError> {
        Ok(LockKey::new("order")?.into())
    }
}
pub fn f() {
    is_extractor::<App, Locked<OrderId>>();
}
