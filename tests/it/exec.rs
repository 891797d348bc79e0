//! Real programs under the real runtime: what they are given, how they end, and that nothing is left of them.

mod end;
mod faults;
mod start;
mod support;
