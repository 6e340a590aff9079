#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f() {
    let _ = LockManager::builder().nodes(["redis://10.0.0.1"]);
}

fn main() {}
