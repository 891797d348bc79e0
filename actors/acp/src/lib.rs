//! The provider for any agent that speaks the Agent Client Protocol.
//!
//! [`Acp`] says how to run an agent. Each delegation starts it, makes one session, sends one prompt, and ends it with all
//! that descends from it.
//!
//! # What is made of the protocol
//!
//! - **The answer** is the text of all messages, a blank line between two of them; their number is in the result's details.
//!   Thoughts, plans and tool calls are progress, and are counted.
//! - **Permissions** are refused unless [`Acp::permission`] says otherwise; each refusal is in the result's details.
//! - **Stop reasons** become ours (`SPEC 18.4`). An agent's failure is told by what it answers, by its exit, or by the end of
//!   its output before its turn ended, which is never a success.
//! - **An output schema** goes into the prompt. The last message is validated, and the agent is asked again, a bounded number
//!   of times, each of them visible in the result's details.
//! - **Cancel** sends `session/cancel` and takes what the agent still says within the grace; the disposal closes the session
//!   where the agent offers that, then its stdin, then goes down the ladder of signals.
//! - **What is not offered**: files and terminals of ours. An agent works with its own.
//! - **What is tolerated**: lines that are no messages (counted), unknown updates, unknown methods, answers to nothing. What
//!   is not: more of that than any banner has, more output than [`Acp::max_total_output`], an agent that asks and does not
//!   read.
//!
//! # Why the connection is our own
//!
//! The protocol's types are those of its official crate, `agent-client-protocol-schema`. The connection of the official
//! client has three queues without a bound and a dispatch loop that answers a banner with an error; here whoever waits for
//! the agent reads and writes the pipes itself: no task, no queue, and an agent that is too fast for us waits.

mod agent;
mod answer;
mod child;
mod chunk;
mod connection;
mod failure;
mod handshake;
mod known;
mod mcp;
mod permission;
mod provider;
mod question;
mod sign_in;
mod spent;
mod start;
mod stray;
#[cfg(test)]
mod transcripts;
mod turn;
mod verdict;
mod wire;

pub use agent::AgentInfo;
pub use child::AcpChild;
pub use known::{KNOWN_AGENTS, KnownAgent};
pub use mcp::McpServer;
pub use permission::{Decide, Decision, Permission, PermissionOption, PermissionRequest};
pub use provider::Acp;
pub use sign_in::AuthMethod;
