//! Keeping locks: extending ours, and verifying those that others lent us.

pub(in crate::manager) mod verify;
pub(in crate::manager) mod watchdog;
