//! `subagents` lets one AI agent delegate work to child agents: any program, any agent, one contract.
//!
//! This crate is the facade. The vocabulary is re-exported from `subagents-seam`, the runtime from
//! `subagents-runtime`, each provider from a crate of its own behind a feature.

pub use subagents_runtime::*;
pub use subagents_seam::*;

#[cfg(feature = "exec")]
pub use subagents_exec::Exec;

/// The snippets of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
