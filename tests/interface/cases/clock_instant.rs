#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f() {
    let _ = LockManager::builder().clock(std::time::Instant::now());
}

fn main() {}
