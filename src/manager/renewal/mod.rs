//! Keeping locks: extending them until they are released.

pub(crate) mod watchdog;
