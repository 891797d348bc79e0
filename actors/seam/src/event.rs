//! What goes out on the broadcast channel. Nothing that a listener does or leaves undone touches a run (SPEC 2.6).

use crate::{AgentId, Content, Node, NodeId, RunId, StopReason};
use serde::Serialize;
use std::sync::Arc;

/// One item of the event stream: the lifecycle of runs and providers, and changes of the tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// A provider was registered.
    ProviderAdded {
        /// Its name.
        name: Arc<str>,
    },
    /// A provider's registration ended. Live runs of it go on (SPEC 2.3).
    ProviderRemoved {
        /// Its name.
        name: Arc<str>,
    },
    /// A run was published (SPEC 2.5). A rejected start has no lifecycle event.
    Started(RunInfo),
    /// A published run settled: exactly one for each `Started`, after it.
    Ended(RunEndInfo),
    /// A node is new or changed: the whole record.
    NodeChanged(Box<Node>),
    /// A node left the tree.
    NodeGone {
        /// The node.
        id: NodeId,
        /// The revision of its going.
        revision: u64,
    },
}

/// Which run (SPEC 1.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunInfo {
    /// The run.
    pub run_id: RunId,
    /// The provider's name when the run started; it need not be registered any more.
    pub provider: Arc<str>,
    /// The child.
    pub id: AgentId,
    /// Whether the child is an agent in this process.
    pub local: bool,
}

impl RunInfo {
    #[doc(hidden)]
    pub fn new(run_id: RunId, provider: Arc<str>, id: AgentId, local: bool) -> Self {
        Self { run_id, provider, id, local }
    }
}

/// Which run ended, and how (SPEC 1.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RunEndInfo {
    /// The same as in its `Started`.
    #[serde(flatten)]
    pub run: RunInfo,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// The final output; absent when empty or when the run has no result.
    pub last_assistant_message: Option<Content>,
}

impl RunEndInfo {
    #[doc(hidden)]
    pub fn new(run: RunInfo, stop_reason: StopReason, last_assistant_message: Option<Content>) -> Self {
        Self { run, stop_reason, last_assistant_message }
    }
}
