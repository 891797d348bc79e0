//! One client: its place in the tree, and what it has under way.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use subagents_runtime::{Root, SubagentService};
use subagents_seam::{CancelCause, Name, Parent};
use subagents_tool::Toolbox;
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
    /// The tools that were here when it came, until somebody tells it of changes.
    known: Mutex<Option<Vec<Name>>>,
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
        // Before it has seen any tool: what is another by the time that somebody listens, it is told (SPEC 2.4). Not a stream of
        // changes, which holds what nobody reads.
        let known = Mutex::new(Some(names(toolbox)));
        Self { place, gone, calls, toolbox: toolbox.clone(), known }
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

    /// Whether the tools are others than when it came. None where that was asked already.
    pub(crate) fn has_news(&self) -> Option<bool> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).take();
        known.map(|known| known != names(&self.toolbox))
    }

    /// It goes, and what it owns is cancelled.
    pub(crate) fn leave(&self) {
        if let Place::Root(root) = &self.place {
            root.cancel(CancelCause::requested("the client has gone"));
        }
        self.gone.cancel();
    }
}

fn names(toolbox: &Toolbox) -> Vec<Name> {
    toolbox.tools().into_iter().map(|tool| tool.name).collect()
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
