//! `subagents` lets one AI agent delegate work to child agents: any program, any agent, one contract. Every run is a
//! supervised actor, settles exactly once, and when it is disposed nothing of it is left.
//!
//! ```
//! use std::time::Duration;
//! use subagents::{Capabilities, Deadlines, StartRequest, SubagentResult, SubagentService, provider_fn};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Any program would be `Exec::new("some-agent").args(["--print", "{}"])`.
//!     let count = provider_fn(Capabilities::NONE, |start, _run| async move {
//!         Ok(SubagentResult::completed(start.prompt().to_text().split_whitespace().count().to_string()))
//!     });
//!     let service = SubagentService::builder()
//!         .provider("count", count)
//!         .limit("count", 8) // eight at once,
//!         .queue(1_000) // a thousand waiting, the next is refused
//!         .deadlines(Deadlines::new().total(Duration::from_secs(30)))
//!         .build()?;
//!     let root = service.root(std::env::current_dir()?)?;
//!
//!     // Start, result and dispose in one.
//!     let answer = service.delegate("count", StartRequest::new(&root, "three short words")).await?;
//!     assert_eq!(answer.text(), "3");
//!
//!     // Step by step. A child's failure is a value with a stop reason; `Err` is a start or a wait that failed.
//!     let run = service.start("count", StartRequest::new(&root, "two words").label("count")).await?;
//!     assert!(run.result().await?.stop_reason.is_success());
//!     run.dispose().await?;
//!
//!     // Admission closes, everything is cancelled top-down, and what is left after ten seconds is killed.
//!     assert!(service.shutdown(Duration::from_secs(10)).await.is_clean());
//!     Ok(())
//! }
//! ```
//!
//! # Where things are
//!
//! | to | there is |
//! |---|---|
//! | set up | [`SubagentService::builder`], [`ServiceBuilder`], [`SubagentService::root`] |
//! | delegate | [`SubagentService::delegate`], [`SubagentService::start`] and [`SubagentRun`], [`SubagentService::batch`] and [`Batch`] |
//! | say what is wanted | [`StartRequest`], [`Deadlines`], [`Content`] |
//! | understand what came | [`SubagentResult`], [`StopReason`], [`Diagnostic`]; [`StartError`], [`ResultError`], [`DisposeError`], [`DelegateError`] |
//! | run any program | `Exec`, behind the default feature `exec` |
//! | run any agent that speaks the Agent Client Protocol | `Acp`, behind the feature `acp` |
//! | take the providers from a file | `config`, behind the feature of that name |
//! | let a model delegate | `tool`, and for any MCP host `mcp`, behind the features of these names |
//! | write a provider | [`provider_fn`], or [`SubagentProvider`] and [`Child`] |
//! | get a value that matches a schema of a child that answers with text | `schema::SchemaAsk`, behind the feature `schema` |
//! | delegate from a child | [`StartContext::as_parent`], [`SubagentService::downgrade`] |
//! | look | [`SubagentService::tree`], [`SubagentService::watch`], [`RunWatcher`]; from another program `inspect`, behind the feature of that name |
//! | end | [`SubagentService::shutdown`], [`SubagentService::cancel`]; [what a drop means](subagents_runtime#what-a-drop-means) |
//!
//! This crate is the facade. The vocabulary is re-exported from `subagents-seam`, the runtime from
//! `subagents-runtime`, each provider from a crate of its own behind a feature.

pub use subagents_runtime::{
    Batch, BatchBuilder, BatchItem, EventStream, ItemOutcome, Lagged, ProgressStream, ProgressUpdate,
    Registration, Root, RunWatcher, ServiceBuilder, ServiceEnd, ShutdownReport, StartFuture, Starting,
    StopOn, SubagentRun, SubagentService, WeakService,
};
pub use subagents_seam::{
    AgentId, AgentOption, AgentOptions, BuildError, CancelCause, CancellationToken, Capabilities, Capability,
    Child, Closed, Content, ContentBlock, DeadlineKind, Deadlines, DelegateError, DeniedCall, Details,
    Diagnostic, DisposeError, DynChild, DynProvider, DynTool, Epoch, Event, FailureCode, Instant, LocalAgent,
    MaxDepth, Name, Node, NodeChange, NodeEnd, NodeId, NodeKind, Parent, Phase, Progress, PromptKind,
    ProviderFailure, RegisterError, ResultError, RootError, RunContext, RunEndInfo, RunId, RunInfo,
    SchemaAttempt, SchemaViolation, StartContext, StartError, StartRequest, StopReason, SubagentProvider,
    SubagentResult, Timestamp, Tool, ToolContext, ToolDefinition, ToolError, ToolFilter, ToolOutput, Tree,
    Truncation, UnsupportedSchema, Usage, Wait, Waiting, bounded, provider_fn, sanitised,
};
/// The vocabulary by subject, for what is named less often.
pub use subagents_seam::{
    capabilities, content, context, error, event, ids, parent, progress, provider, request, result, schema,
    tree,
};

#[cfg(feature = "config")]
pub mod config;

#[cfg(feature = "exec")]
pub use subagents_exec::Exec;

#[cfg(feature = "acp")]
pub use subagents_acp::Acp;

/// Agents that speak the Agent Client Protocol: who decides what they may do, what they are handed, which are known. Behind
/// the feature `acp`.
#[cfg(feature = "acp")]
pub mod acp {
    pub use subagents_acp::{
        Acp, AgentInfo, AuthMethod, Decide, Decision, KNOWN_AGENTS, KnownAgent, McpServer, Permission,
        PermissionOption, PermissionRequest,
    };
}

/// The tools by which a model delegates. Behind the feature `tool`.
#[cfg(feature = "tool")]
pub mod tool {
    pub use subagents_tool::{
        DEFAULT_ANSWER_BYTES, DEFAULT_MAX_DEPTH, OUTPUT_TOOL, SubagentTool, ToolDepth, Toolbox,
        ToolboxChanges, ToolboxError,
    };
}

/// A running service from outside: its tree, and the end of a run. Behind the feature `inspect`.
#[cfg(feature = "inspect")]
pub mod inspect {
    pub use subagents_inspect::{
        CancelOutcome, Change, Folder, HostInfo, HostSocket, InspectError, Inspector, OpenError, Seen,
        Stopper, Watch, hosts,
    };
}

/// The MCP server, which offers the tools to any MCP host. Behind the feature `mcp`; over HTTP behind `mcp-http`.
#[cfg(feature = "mcp")]
pub mod mcp {
    #[cfg(feature = "mcp-http")]
    pub use subagents_mcp::{HttpToken, HttpTokenError};
    pub use subagents_mcp::{McpError, McpServer, PATIENCE};
}

/// What the children of this process share, and the record of them that the next process finds. Behind the features `exec`
/// and `acp`.
#[cfg(any(feature = "acp", feature = "exec"))]
pub mod process {
    pub use subagents_process::{
        HandedDepth, Host, Ledger, LedgerError, Leftover, Reaped, guard, handed_depth, inherited_variable,
    };
}

/// The snippets of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
