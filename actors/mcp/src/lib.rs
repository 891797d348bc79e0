//! The MCP server of `subagents`: whatever a [`Toolbox`](subagents_tool::Toolbox) has, for the model of any MCP host.
//!
//! ```no_run
//! use subagents_mcp::McpServer;
//! use subagents_runtime::SubagentService;
//! use subagents_tool::Toolbox;
//!
//! # async fn host(service: SubagentService, toolbox: Toolbox) -> Result<(), Box<dyn std::error::Error>> {
//! let server = McpServer::new(&service, toolbox, "/srv/repo");
//! server.serve(tokio::io::stdin(), tokio::io::stdout()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - Each client has a root of its own in the tree: what it owns is cancelled and disposed when it goes, in whatever way.
//! - Calls run concurrently; a cancelled one cancels its run, and only that.
//! - A client that asks for progress gets it; one that does not read is given up after [`PATIENCE`], and no queue to it grows
//!   beyond a bound.
//! - A call that fails is a result with `isError` that says why; errors of the protocol are for what is no call at all.
//!
//! The protocol is that of the official crate `rmcp`, in all its versions; its types are in no signature here.

mod client;
mod handler;
#[cfg(feature = "http")]
mod http;
mod lines;
mod pipe;
mod server;
mod wire;

#[cfg(feature = "http")]
pub use http::{HttpToken, HttpTokenError};
pub use pipe::PATIENCE;
pub use server::{McpError, McpServer};
