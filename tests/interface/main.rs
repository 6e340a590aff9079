//! The interface as others meet it: what the compiler says of it, and whose types are in it.

mod cases;
mod compiler;
mod foreign;
mod messages;
