//! The vocabulary of `subagents`: what a caller asks for, what a provider offers, what comes back, and what can be
//! seen of it while it happens.
//!
//! This crate does no I/O and knows no actor system. A provider depends on it alone; the runtime drives what is
//! declared here.
//!
//! | to … | look at |
//! |---|---|
//! | ask for a child | [`StartRequest`], [`Parent`], [`Deadlines`], [`ToolFilter`] |
//! | read what it did | [`SubagentResult`], [`StopReason`], [`Diagnostic`] |
//! | know what went wrong | [`StartError`], [`ResultError`], [`DisposeError`], [`DelegateError`], each with a stable `code()` |
//! | write a provider | [`SubagentProvider`], [`Child`], [`StartContext`], [`RunContext`], or [`provider_fn`] for the smallest case |
//! | follow what happens | [`Event`], [`Node`], [`Tree`] |
//! | write a tool that a model may call | [`Tool`], [`ToolContext`], [`ToolOutput`] |
//! | refuse a schema early | [`schema::check`] |

pub mod capabilities;
pub mod content;
pub mod context;
pub mod error;
pub mod event;
pub mod ids;
mod name;
pub mod parent;
pub mod progress;
pub mod provider;
pub mod request;
pub mod result;
pub mod schema;
mod text;
pub mod tool;
pub mod tree;

pub use capabilities::{AgentOption, Capabilities, Capability, PromptKind};
pub use content::{Content, ContentBlock};
pub use context::{RunContext, StartContext};
pub use error::{
    BuildError, CancelCause, DeadlineKind, DelegateError, DisposeError, FailureCode, ProviderFailure,
    RegisterError, ResultError, RootError, StartError,
};
pub use event::{Event, NodeChange, RunEndInfo, RunInfo};
pub use ids::{AgentId, Epoch, NodeId, RunId};
pub use name::Name;
pub use parent::{LocalAgent, Parent};
pub use progress::{Progress, Waiting};
pub use provider::{Child, Closed, DynChild, DynProvider, SubagentProvider, provider_fn};
pub use request::{AgentOptions, Deadlines, MaxDepth, StartRequest, ToolFilter};
pub use result::{
    DeniedCall, Details, Diagnostic, SchemaAttempt, StopReason, SubagentResult, Truncation, Usage,
};
pub use schema::{SchemaViolation, UnsupportedSchema};
pub use text::{bounded, sanitised};
pub use tool::{DynTool, Tool, ToolContext, ToolDefinition, ToolError, ToolOutput};
pub use tree::{Node, NodeEnd, NodeKind, Phase, Timestamp, Tree, Wait};

/// The clock of every deadline here: tokio's, so that a test can pause it.
pub use tokio::time::Instant;
/// What carries a cancellation down the tree. A token has no reason; the cause is recorded beside it.
pub use tokio_util::sync::CancellationToken;
