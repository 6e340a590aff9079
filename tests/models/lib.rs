//! Models of the protocols, checked in every order of events for small bounds.
//!
//! A model is a state machine of nodes, processes and what is between them, whose every step may come at any moment at
//! which it is possible: a command runs, a reply arrives or never does, a clock ticks, a node forgets. The checker
//! visits every state that can be reached. In [`lease`], [`fence`], [`sentinel`] and [`idempotency`], and where
//! [`moving`] retires a list, the processes decide by the library's own code (`src/protocol`, and the majority of Sentinels), which is mounted here; in the others
//! by code of the model, with the library's quorum and its length of a quarantine. What the nodes decide follows their
//! scripts. `tests/README.md` says which rule each model shows.
//!
//! Beside each model stand its *mutants*: the same model with one rule left out. The checker must find what is wrong
//! with each of them; a rule that can be left out unnoticed is not shown to be needed, or the model does not see it.
//! And each model must reach the situations that it is about: one in which nothing is ever granted has no flaw either.
//!
//! What no model covers: more nodes and callers than each says, values of messages that a fault has changed, and the
//! code around the rules (connections, tasks, queues). For that there are the other suites.

#![cfg(test)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and tells how many states it has seen"
)]

#[path = "../../src/moment.rs"]
#[allow(dead_code, unreachable_pub, reason = "the models need a part of it")]
mod moment;
#[path = "../../src/token.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    unnameable_types,
    reason = "the models need a part of it"
)]
mod token;

#[path = "../../src/protocol/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "the models need a part of it")]
mod protocol;

#[path = "../../src/node/redis/discovery/confirmation.rs"]
#[allow(dead_code, reason = "the models need a part of it")]
mod confirmation;

mod adoption;
mod check;
mod fence;
mod idempotency;
mod lease;
mod members;
mod moving;
mod permits;
mod quarantine;
mod readers;
mod sentinel;
