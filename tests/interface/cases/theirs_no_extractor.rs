//! What should come from the head of the request is no extractor.

#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f() {
    let _ = key::from_extractor(|_: Nothing| String::new());
}

fn main() {}
