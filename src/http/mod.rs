//! The parts that the lock layer and the idempotency layer share.
//!
//! | file | what it has |
//! |---|---|
//! | `rejection` | why a request is refused: one table of kinds, and the response that is made of a row |
//! | `settings` | the settings that both layers have |
//! | `body` | the body of every request and response that a layer makes or wraps |
//! | `state` | what the layers keep in the extensions of a request; its route, and the log of a route whose layers do not fit |
//! | `run_to_end` | work that goes on without its client, and ends with its lock |

pub(crate) mod body;
pub(crate) mod rejection;
pub(crate) mod run_to_end;
pub(crate) mod settings;
pub(crate) mod state;
