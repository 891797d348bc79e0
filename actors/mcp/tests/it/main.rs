//! The server from outside: a client writes lines and reads lines, and children do what a script says.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may spawn tasks of its own, and a panic is how it fails"
)]

mod calls;
mod client;
#[cfg(feature = "http")]
mod guest;
mod hostile;
#[cfg(feature = "http")]
mod http;
