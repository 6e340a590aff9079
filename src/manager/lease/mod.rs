//! One lock that this process holds, from its grant to its end.
//!
//! [`state`] decides: a pure machine, to which every event comes (a tick of the watchdog, the reply of a node, a guard
//! that leaves) with its time, and which answers with effects. It knows who has the lock (its *tenant*), and asks
//! `protocol::renewal`, a pure fold over the nodes' replies, until when the lock may be relied on and what to send
//! next.
//!
//! [`held`] drives it: a mutex around the state, the effects once that is unlocked, and atomics that answer "is it
//! lost?" without it. [`registry`] keeps all held locks by the time at which each is due; from there the watchdog, one
//! task for all, sends the extensions.

pub(crate) mod held;
pub(crate) mod registry;
pub(crate) mod state;
