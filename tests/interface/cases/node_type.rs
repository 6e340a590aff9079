#[path = "../prelude.rs"]
mod prelude;

use prelude::*;

pub fn f() {
    let _: Arc<dyn Node> = Arc::new(Nothing);
}

fn main() {}
