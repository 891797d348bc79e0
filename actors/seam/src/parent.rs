//! Who delegates.

use crate::{AgentId, CancellationToken, Epoch, RunId};
use std::{any::Any, fmt, path::Path, sync::Arc};

/// The delegating side of a start: a place in the tree that the runtime gave out.
///
/// It comes from a root of the service, from an adopted agent, or from
/// [`StartContext::as_parent`](crate::StartContext::as_parent) for a child's own delegations. Cloning shares it.
/// The runtime judges depth and liveness by its own record and never by what stands here, so a forged parent gains
/// nothing: its start is refused with `PARENT_GONE`.
///
/// Dropping a `Parent` does nothing, and holding one keeps no run running; it does hold the memory of the record behind
/// it.
#[derive(Clone)]
pub struct Parent(Arc<ParentParts>);

#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "hidden: `Parent` shows what is in it")]
pub struct ParentParts {
    pub agent: AgentId,
    pub epoch: Epoch,
    pub run: Option<RunId>,
    pub depth: u32,
    pub cwd: Arc<Path>,
    pub token: CancellationToken,
    pub local: Option<Arc<dyn Any + Send + Sync>>,
    /// The runtime's own record of this place.
    pub seat: Arc<dyn Any + Send + Sync>,
}

impl Parent {
    #[doc(hidden)]
    pub fn from_parts(parts: ParentParts) -> Self {
        Self(Arc::new(parts))
    }

    #[doc(hidden)]
    pub fn seat(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.0.seat
    }

    /// The agent that delegates.
    pub fn agent_id(&self) -> AgentId {
        self.0.agent
    }

    /// Which life of that agent (SPEC 23.3).
    pub fn epoch(&self) -> Epoch {
        self.0.epoch
    }

    /// The run this agent is, if it is one.
    pub fn run_id(&self) -> Option<RunId> {
        self.0.run
    }

    /// How deep in the tree it stands: 0 for a root (SPEC 5.1).
    pub fn depth(&self) -> u32 {
        self.0.depth
    }

    /// Its working directory: absolute, enterable when it was given.
    pub fn cwd(&self) -> &Path {
        &self.0.cwd
    }

    /// Cancelled when this agent ends or is cancelled. A child token of it is right for foreground work.
    pub fn token(&self) -> &CancellationToken {
        &self.0.token
    }

    /// What an in-process provider reaches the agent's session by; opaque to everybody else.
    pub fn local(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.0.local.as_ref()
    }
}

impl From<&Parent> for Parent {
    fn from(parent: &Parent) -> Self {
        parent.clone()
    }
}

impl fmt::Debug for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parent")
            .field("agent", &self.0.agent)
            .field("epoch", &self.0.epoch)
            .field("run", &self.0.run)
            .field("depth", &self.0.depth)
            .field("cwd", &self.0.cwd)
            .finish_non_exhaustive()
    }
}

/// An agent that lives in this process and is no run: a host's own, which may delegate once the service adopts it.
pub trait LocalAgent: Send + Sync + 'static {
    /// Its id, equal to the id of its session (SPEC 1.1).
    fn id(&self) -> AgentId;

    /// Which life of it this is.
    fn epoch(&self) -> Epoch {
        Epoch::default()
    }

    /// The depth in its session's header: the floor of its depth here (SPEC 5.1).
    fn depth(&self) -> u32 {
        0
    }

    /// The deepest place that what is below it may have, where something above it has said so; of all such the smallest holds.
    fn max_depth(&self) -> Option<u32> {
        None
    }

    /// Its working directory, absolute.
    fn cwd(&self) -> &Path;

    /// Cancelled when the agent ends.
    fn token(&self) -> CancellationToken;

    /// What an in-process provider reaches its session by.
    fn local(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }
}
