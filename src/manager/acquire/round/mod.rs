//! One acquire round over all nodes, including the release of what a lost round set.

pub(in crate::manager) mod attempt;
pub(in crate::manager) mod fence;
pub(in crate::manager) mod late;
pub(in crate::manager) mod record;
