#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f() -> Option<Arc<dyn Notifier>> {
    Some(Arc::new(Nothing))
}

fn main() {}
