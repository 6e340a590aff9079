//! One acquire round over all nodes, including the release of what a lost round set.

pub(crate) mod attempt;
pub(crate) mod fence;
pub(crate) mod record;
