//! One acquire round: all nodes are asked at once, their replies are folded into a verdict, and the round becomes a
//! lock or is given back.

pub(crate) mod attempt;
mod end;
