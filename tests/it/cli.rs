//! `subagents`, run as people run it.

mod agents;
mod config;
mod input;
mod killed;
mod mcp;
mod output;
mod providers;
mod schema;
mod signals;
mod support;
mod terminal;
mod tree;
mod usage;
mod volume;
