//! One client: its place in the tree, and what it has under way.

use std::path::Path;

use subagents_runtime::{Root, WeakService};
use subagents_seam::{CancelCause, Parent};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::server::McpError;

/// One client. What it owns is cancelled when it leaves, and when this is dropped.
#[derive(Debug)]
pub(crate) struct Client {
    root: Root,
    gone: CancellationToken,
    calls: TaskTracker,
}

impl Client {
    /// Below a root of its own. `gone` says when it has left; `calls` counts what it has under way.
    pub(crate) fn enter(
        service: &WeakService,
        cwd: &Path,
        gone: CancellationToken,
        calls: TaskTracker,
    ) -> Result<Self, McpError> {
        let root = service.upgrade().ok_or(McpError::ServiceGone)?.root(cwd)?;
        Ok(Self { root, gone, calls })
    }

    pub(crate) fn parent(&self) -> &Parent {
        self.root.parent()
    }

    /// Cancelled when it has left.
    pub(crate) fn gone(&self) -> &CancellationToken {
        &self.gone
    }

    /// Held by whatever it has under way.
    pub(crate) fn call(&self) -> TaskTrackerToken {
        self.calls.token()
    }

    /// It goes, and what it owns is cancelled.
    pub(crate) fn leave(&self) {
        self.gone.cancel();
        self.root.cancel(CancelCause::RootDropped);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}
