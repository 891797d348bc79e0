//! The runtime from outside, with a child that does what its prompt says.

mod admission;
mod batch;
mod cancel;
mod drops;
mod events;
mod faults;
mod nesting;
mod property;
mod shutdown;
mod start;
mod support;
mod tree;
