//! The interface as others meet it: what the compiler says of it, and whose types are in it.

mod compiler;
mod foreign;
mod messages;
mod public;
mod right;
