//! The runtime from outside, with a child that does what its prompt says.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may spawn tasks of its own, and a panic is how it fails"
)]

mod admission;
mod batch;
mod cancel;
mod drops;
mod events;
mod faults;
mod nesting;
mod property;
mod shutdown;
mod spans;
mod start;
mod support;
mod tree;
