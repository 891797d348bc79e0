//! Agents that speak the Agent Client Protocol, under the real runtime: what they say, what they ask, and that nothing is
//! left of them.

mod agent;
mod border;
mod cancel;
mod end;
mod permission;
mod schema;
mod start;
mod support;
mod turn;

pub(crate) use agent::Script;
