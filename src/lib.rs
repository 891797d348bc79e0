//! subagents
