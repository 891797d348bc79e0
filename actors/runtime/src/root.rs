//! The top of a tree of delegations: a host that is no agent, or an agent that is no run.

use crate::{
    lineage,
    seat::{RootCore, Seat},
    shared::{Shared, Standing},
};
use std::{
    any::Any,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};
use subagents_seam::{AgentId, CancelCause, CancellationToken, Epoch, LocalAgent, Parent, RootError};

/// A place to delegate from. It guards what is below.
///
/// **Dropping** it cancels everything below it. Its `Parent` outlives it, and is then refused with `PARENT_GONE`.
#[must_use = "dropping a root cancels everything below it; keep it"]
pub struct Root {
    core: Arc<RootCore>,
    parent: Parent,
}

impl Root {
    pub(crate) fn new(shared: &Arc<Shared>, cwd: &Path) -> Result<Self, RootError> {
        let cwd = usable(cwd)?;
        let seat = Seat::new(AgentId::new(), shared.root_depth, shared.max_depth, shared.token.child_token());
        Self::enter(shared, seat, Epoch::default(), cwd, None)
    }

    pub(crate) fn adopt(shared: &Arc<Shared>, agent: &dyn LocalAgent) -> Result<Self, RootError> {
        let cwd = usable(agent.cwd())?;
        let depth = agent.depth().max(shared.root_depth);
        let max_depth = lineage::tighter(shared.max_depth, agent.max_depth());
        let seat = Seat::new(agent.id(), depth, max_depth, shared.token.child_token());
        let root = Self::enter(shared, seat, agent.epoch(), cwd, agent.local())?;
        // Two tokens above one place: the service's is its parent, the agent's is watched.
        let token = agent.token();
        if token.is_cancelled() {
            root.core.close(CancelCause::Parent);
            return Ok(root);
        }
        let (theirs, ours, core) = (token, root.core.seat.token.clone(), Arc::downgrade(&root.core));
        let watch = async move {
            tokio::select! {
                () = theirs.cancelled() => {
                    if let Some(core) = core.upgrade() {
                        core.close(CancelCause::Parent);
                    }
                }
                () = ours.cancelled() => {}
            }
        };
        shared.tracker.spawn_on(watch, &shared.runtime);
        Ok(root)
    }

    fn enter(
        shared: &Arc<Shared>,
        seat: Seat,
        epoch: Epoch,
        cwd: Arc<Path>,
        local: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self, RootError> {
        match shared.standing() {
            Standing::Open => {}
            Standing::Draining | Standing::Closed => return Err(RootError::Closed),
            Standing::Failed => return Err(RootError::ServiceFailed),
        }
        let core = Arc::new(RootCore::new(shared.clone(), seat, epoch, cwd, shared.clock.now()));
        shared.add_root(&core);
        let parent = core.as_parent(local);
        Ok(Self { core, parent })
    }

    /// The parent to delegate from. Clone and keep it as you like; it guards nothing.
    pub fn parent(&self) -> &Parent {
        &self.parent
    }

    /// The agent that this root is.
    pub fn agent_id(&self) -> AgentId {
        self.core.seat.agent
    }

    /// The token of everything below.
    pub fn token(&self) -> &CancellationToken {
        &self.core.seat.token
    }

    /// Cancels everything below, with a cause. Nothing more can start from here.
    pub fn cancel(&self, cause: CancelCause) {
        self.core.close(cause);
    }

    /// Completes when no run below is left. It does not cancel. Cancel-safe.
    pub async fn idle(&self) {
        self.core.seat.childless().await;
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.core.close(CancelCause::RootDropped);
    }
}

impl From<&Root> for Parent {
    fn from(root: &Root) -> Self {
        root.parent.clone()
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parent.fmt(f)
    }
}

/// A working directory is absolute and can be entered now (SPEC 17.2).
pub(crate) fn usable(cwd: &Path) -> Result<Arc<Path>, RootError> {
    let refused = |reason: &str| RootError::CwdNotUsable { path: PathBuf::from(cwd), reason: reason.into() };
    if !cwd.is_absolute() {
        return Err(refused("it is not absolute"));
    }
    let metadata = std::fs::metadata(cwd).map_err(|error| refused(&error.to_string()))?;
    if !metadata.is_dir() {
        return Err(refused("it is not a directory"));
    }
    // Entering needs the execute bit, which only a try tells: looking up `.` inside needs the same one.
    std::fs::metadata(cwd.join(".")).map_err(|error| refused(&format!("it cannot be entered: {error}")))?;
    Ok(cwd.into())
}
