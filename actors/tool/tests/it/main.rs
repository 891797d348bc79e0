//! The tools from outside, as a host of a model uses them, with children that do what a script says.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may spawn tasks of its own, and a panic is how it fails"
)]

mod call;
mod depth;
mod membership;
mod support;
