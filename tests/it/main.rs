//! The real program, the providers under the real runtime, and the house as a whole. One binary: linking is what costs.

mod acp;
mod cli;
mod contract;
mod exec;
mod house;
mod peers;
mod processes;
mod structured;
