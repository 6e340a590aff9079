//! A feature that is not enabled: the compiler names it where something of it is used.

use crate::compiler::Compiler;

/// What is there with a feature only, and the feature.
const GATED: &[(&str, &str)] = &[
    ("tower_redlock::Locked", "axum"),
    ("tower_redlock::extract::AsLockKeys", "axum"),
    ("tower_redlock::key::path", "axum"),
    ("tower_redlock::IdempotencyLayer", "idempotency"),
    ("tower_redlock::idempotency::caller", "idempotency"),
    ("tower_redlock::InspectService", "inspect"),
    ("tower_redlock::metrics::describe", "metrics"),
    ("tower_redlock::node::RedisNode", "redis"),
];

#[test]
fn the_compiler_names_the_feature_that_is_missing() {
    let uses = GATED.iter().map(|(path, _)| format!("pub use {path};\n"));
    let said = Compiler::find().refuses_without_features(&uses.collect::<String>());
    let errors: Vec<&str> = said.split("\nerror").collect();
    for (path, feature) in GATED {
        let of_it = errors
            .iter()
            .find(|error| error.contains(&format!("use {path};")));
        let of_it = of_it.unwrap_or_else(|| panic!("`{path}` is accepted: {said}"));
        let named = format!("the item is gated behind the `{feature}` feature");
        assert!(of_it.contains(&named), "`{path}`: {of_it}");
    }
}
