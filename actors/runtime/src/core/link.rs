//! What a child and its provider see and say of their run.

use super::RunCore;
use std::{
    any::Any,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use subagents_seam::{
    AgentId, CancelCause, CancellationToken, Epoch, Name, Parent, Progress, RunId, context::RunLink,
    parent::ParentParts,
};

impl RunLink for RunCore {
    fn run_id(&self) -> RunId {
        self.id
    }

    fn agent_id(&self) -> AgentId {
        self.seat.agent
    }

    fn provider(&self) -> &Name {
        &self.provider
    }

    fn depth(&self) -> u32 {
        self.seat.depth
    }

    fn max_depth(&self) -> Option<u32> {
        self.seat.max_depth
    }

    fn token(&self) -> &CancellationToken {
        &self.seat.token
    }

    fn cause(&self) -> Option<CancelCause> {
        // A settled run cancels its own token; that is no cause.
        let cancelled = self.seat.token.is_cancelled() && !self.state().is_settled();
        self.cause.get().cloned().or_else(|| cancelled.then(|| self.cause_or_inherited()))
    }

    fn progress(&self, progress: Progress<'_>) {
        let at = self.shared.clock.now();
        self.last_sign.store(at.max(1), Relaxed);
        if matches!(progress, Progress::Alive) || self.state().is_settled() {
            return;
        }
        if let Progress::Process { .. } = progress {
            // A node of its own: it appears after its run and never when that has gone, so it is told under the lock.
            let locked = self.waiting();
            if !self.state().is_settled() {
                self.live_or_new().take_in(progress, at);
                self.tell_process(&locked);
            }
        } else {
            self.live_or_new().take_in(progress, at);
        }
    }

    fn lineage(&self) -> Vec<RunId> {
        self.parent.runs()
    }

    fn as_parent(self: Arc<Self>, cwd: Arc<Path>, local: Option<Arc<dyn Any + Send + Sync>>) -> Parent {
        Parent::from_parts(ParentParts {
            agent: self.seat.agent,
            epoch: Epoch::default(),
            run: Some(self.id),
            depth: self.seat.depth,
            cwd,
            token: self.seat.token.clone(),
            local,
            seat: self,
        })
    }
}
