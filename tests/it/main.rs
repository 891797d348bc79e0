//! The real program, the providers under the real runtime, and the house as a whole. One binary: linking is what costs.

mod acp;
mod cli;
mod contract;
mod exec;
mod hosts;
mod house;
mod peers;
mod pins;
mod processes;
#[allow(
    dead_code,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "most of it is for programs that start something"
)]
#[path = "../real.rs"]
mod real;
mod structured;
