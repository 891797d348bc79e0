//! `subagents`, run as people run it.

mod input;
mod output;
mod signals;
mod support;
mod usage;
mod volume;
