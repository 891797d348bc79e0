//! What a provider is handed: the start of a child, and its run.

use crate::{
    AgentId, AgentOptions, CancelCause, CancellationToken, Content, Name, Parent, Progress, RunId,
    StartRequest, ToolFilter,
};
use serde_json::Value;
use std::{any::Any, fmt, path::Path, sync::Arc};

/// The runtime's side of a run.
#[doc(hidden)]
pub trait RunLink: Send + Sync + 'static {
    fn run_id(&self) -> RunId;
    fn agent_id(&self) -> AgentId;
    fn provider(&self) -> &Name;
    fn depth(&self) -> u32;
    fn max_depth(&self) -> Option<u32>;
    fn token(&self) -> &CancellationToken;
    fn cause(&self) -> Option<CancelCause>;
    fn progress(&self, progress: Progress<'_>);
    fn lineage(&self) -> Vec<RunId>;
    fn as_parent(self: Arc<Self>, cwd: Arc<Path>, local: Option<Arc<dyn Any + Send + Sync>>) -> Parent;
}

macro_rules! shared_accessors {
    () => {
        /// The run's id.
        pub fn run_id(&self) -> RunId {
            self.link.run_id()
        }

        /// The child's id, minted by the runtime; a local child's session has the same.
        pub fn agent_id(&self) -> AgentId {
            self.link.agent_id()
        }

        /// The name under which the provider was asked.
        pub fn provider(&self) -> &Name {
            self.link.provider()
        }

        /// The child's depth in the tree: its parent's plus one (SPEC 5.2).
        pub fn depth(&self) -> u32 {
            self.link.depth()
        }

        /// The deepest place that the child's own delegations may reach: the smallest cap of this request and of
        /// the runs above. `None` is unbounded.
        pub fn max_depth(&self) -> Option<u32> {
            self.link.max_depth()
        }

        /// The run's token: cancelled by the run's cancel and by everything above it.
        pub fn token(&self) -> &CancellationToken {
            self.link.token()
        }

        /// Whether the run is cancelled.
        pub fn is_cancelled(&self) -> bool {
            self.link.token().is_cancelled()
        }

        /// Completes when the run is cancelled. Cancel-safe.
        pub async fn cancelled(&self) {
            self.link.token().cancelled().await;
        }

        /// Why the run is cancelled, once that is recorded.
        pub fn cancel_cause(&self) -> Option<CancelCause> {
            self.link.cause()
        }

        /// Reports a sign of life. Never blocks; text beyond a bound is counted, not kept.
        pub fn progress(&self, progress: Progress<'_>) {
            self.link.progress(progress);
        }
    };
}

/// The start of one child: what was asked, and who the child will be (SPEC 1.4).
///
/// Dropping it does nothing.
pub struct StartContext {
    link: Arc<dyn RunLink>,
    request: StartRequest,
}

impl StartContext {
    #[doc(hidden)]
    pub fn new(link: Arc<dyn RunLink>, request: StartRequest) -> Self {
        Self { link, request }
    }

    shared_accessors!();

    /// What the child is asked.
    pub fn prompt(&self) -> &Content {
        self.request.get_prompt()
    }

    /// The delegating agent.
    pub fn parent(&self) -> &Parent {
        self.request.get_parent()
    }

    /// The runs above this one, its parent's first. Empty where a root delegates.
    pub fn lineage(&self) -> Vec<RunId> {
        self.link.lineage()
    }

    /// The working directory of the delegation: the parent's.
    pub fn cwd(&self) -> &Path {
        self.request.get_parent().cwd()
    }

    /// The label, if there is one.
    pub fn label(&self) -> Option<&Name> {
        self.request.get_label()
    }

    /// The agent options asked for. The service has checked that the provider honours each that is set.
    pub fn agent_options(&self) -> Option<&AgentOptions> {
        self.request.get_agent_options()
    }

    /// The schema of the answer, checked against the subset.
    pub fn output_schema(&self) -> Option<&Arc<Value>> {
        self.request.get_output_schema()
    }

    /// The tool filter.
    pub fn tool_filter(&self) -> Option<&ToolFilter> {
        self.request.get_tool_filter()
    }

    /// The persona.
    pub fn persona(&self) -> Option<&Arc<str>> {
        self.request.get_persona()
    }

    /// The child as the parent of its own delegations, in the same working directory.
    pub fn as_parent(&self) -> Parent {
        self.as_parent_with(self.request.get_parent().cwd().into(), None)
    }

    /// The same with another working directory, and with what an in-process provider reaches its session by.
    pub fn as_parent_with(&self, cwd: Arc<Path>, local: Option<Arc<dyn Any + Send + Sync>>) -> Parent {
        self.link.clone().as_parent(cwd, local)
    }
}

impl fmt::Debug for StartContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartContext")
            .field("run", &self.run_id())
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

/// A running child's side of its run. Clone shares it; dropping it does nothing.
#[derive(Clone)]
pub struct RunContext {
    link: Arc<dyn RunLink>,
}

impl RunContext {
    #[doc(hidden)]
    pub fn new(link: Arc<dyn RunLink>) -> Self {
        Self { link }
    }

    shared_accessors!();
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext").field("run", &self.run_id()).finish_non_exhaustive()
    }
}
