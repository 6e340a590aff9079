#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f() {
    let _ = key::Key::new("order");
}

fn main() {}
