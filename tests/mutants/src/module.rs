//! Which defect is switched on. Only copies of the crate that `tests/mutants` makes have this file.

use std::sync::OnceLock;

const NAMES: &[&str] = &[/* names */];

/// The texts of scripts that stand otherwise with a defect.
const SCRIPTS: &[(&str, &str, &str)] = &[/* scripts */];

/// Whether this defect is switched on.
pub(crate) fn is(name: &str) -> bool {
    static CHOSEN: OnceLock<String> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let chosen = std::env::var("REDLOCK_MUTANT").unwrap_or_default();
        let is_known = chosen.is_empty() || NAMES.contains(&chosen.as_str());
        assert!(is_known, "REDLOCK_MUTANT is `{chosen}`, which is none of {NAMES:?}");
        chosen
    });
    chosen == name
}

/// The script with the defect that is switched on, if it is one of scripts.
#[allow(dead_code, reason = "the crate may be built without its scripts")]
pub(crate) fn script(script: String) -> String {
    let here = SCRIPTS.iter().filter(|(name, ..)| is(name));
    here.fold(script, |script, (_, right, wrong)| script.replace(right, wrong))
}
