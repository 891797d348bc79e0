//! Real programs under the real runtime: what they are given, how they end, and that nothing is left of them.

mod border;
mod end;
mod faults;
mod lifetimes;
mod matrix;
mod pipes;
mod start;
mod support;
