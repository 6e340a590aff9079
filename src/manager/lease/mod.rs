//! One lock that this process holds, from its grant to its end.
//!
//! [`state`] decides: a pure machine that takes events (a tick of the watchdog, the reply of a node, a guard that
//! leaves) with their time, and returns effects. It knows the *tenant* of the lock. `protocol::renewal`, a pure fold
//! over the nodes' replies, gives it the deadline and the next step.
//!
//! [`held`] drives it: a mutex around the state, the effects once that is unlocked, and atomics that answer "is it
//! lost?" without it. [`registry`] keeps all held locks by the time at which each is due; from there the watchdog, one
//! task for all, sends the extensions.

pub(crate) mod held;
pub(crate) mod registry;
pub(crate) mod state;
