//! The real program, and the house as a whole. One binary: linking is what costs.

mod cli;
mod house;
