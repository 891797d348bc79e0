//! One client: its place in the tree, and what it has under way.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use subagents_runtime::{Root, SubagentService};
use subagents_seam::{CancelCause, Parent};
use subagents_tool::{Toolbox, ToolboxChanges};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::server::McpError;

/// One client. What it owns is cancelled when it leaves, and when this is dropped.
#[derive(Debug)]
pub(crate) struct Client {
    place: Place,
    gone: CancellationToken,
    calls: TaskTracker,
    toolbox: Toolbox,
    /// Since it came, until somebody tells it of them.
    changes: Mutex<Option<ToolboxChanges>>,
}

/// Where in the tree it delegates from.
#[derive(Debug)]
pub(crate) enum Place {
    /// A root of its own.
    Root(Root),
    /// A run of this service, whose child it is.
    Run(Parent),
}

impl Place {
    pub(crate) fn root(service: &SubagentService, cwd: &Path) -> Result<Self, McpError> {
        Ok(Self::Root(service.root(cwd)?))
    }
}

impl Client {
    /// `gone` says when it has left; `calls` counts what it has under way.
    pub(crate) fn enter(
        place: Place,
        toolbox: &Toolbox,
        gone: CancellationToken,
        calls: TaskTracker,
    ) -> Self {
        // Attached before it has seen any tool (SPEC 2.4).
        Self { place, gone, calls, toolbox: toolbox.clone(), changes: Mutex::new(toolbox.changes()) }
    }

    pub(crate) fn parent(&self) -> &Parent {
        match &self.place {
            Place::Root(root) => root.parent(),
            Place::Run(parent) => parent,
        }
    }

    /// Cancelled when it has left.
    pub(crate) fn gone(&self) -> &CancellationToken {
        &self.gone
    }

    /// Held by whatever it has under way.
    pub(crate) fn call(&self) -> TaskTrackerToken {
        self.calls.token()
    }

    /// What changes with the tools since it came; none where somebody tells it of that already.
    pub(crate) fn take_changes(&self) -> Option<ToolboxChanges> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// It goes, and what it owns is cancelled.
    pub(crate) fn leave(&self) {
        if let Place::Root(root) = &self.place {
            root.cancel(CancelCause::requested("the client has gone"));
        }
        self.gone.cancel();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.gone.cancel();
        // A run's place may be somebody else's, too.
        if let Place::Root(root) = &self.place {
            self.toolbox.forget(root.agent_id());
        }
    }
}
