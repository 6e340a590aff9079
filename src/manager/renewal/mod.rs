//! Keeping locks: extending ours, and verifying those that others lent us.

pub(crate) mod verify;
pub(crate) mod watchdog;
