//! What all parts of one service share: the clock, the channel, the index of what lives, its standing.

use crate::{
    clock::Clock,
    core::RunCore,
    events::{Channel, Item},
    index::{IdHasher, Index},
    kept::Kept,
    providers::Providers,
    registry::RegistryMessage,
    seat::RootCore,
};
use dashmap::DashMap;
use ractor::ActorRef;
use std::{
    future::IntoFuture,
    hash::BuildHasherDefault,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicU8, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};
use subagents_seam::{AgentId, CancelCause, CancellationToken, Deadlines, Instant, NodeId, RunId};
use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Sleep, Timeout},
};
use tokio_util::task::TaskTracker;

/// Where the service is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    Open = 0,
    Draining = 1,
    Closed = 2,
    Failed = 3,
}

pub(crate) struct Shared {
    pub(crate) id: NodeId,
    pub(crate) clock: Clock,
    pub(crate) created: u64,
    pub(crate) deadlines: Deadlines,
    pub(crate) max_depth: Option<u32>,
    pub(crate) root_depth: u32,
    pub(crate) max_starts: u64,
    pub(crate) token: CancellationToken,
    pub(crate) tracker: TaskTracker,
    /// Where its tasks run, also for what is called from elsewhere.
    pub(crate) runtime: Handle,
    pub(crate) providers: Providers,
    pub(crate) runs: Index,
    pub(crate) roots: DashMap<NodeId, Arc<RootCore>, BuildHasherDefault<IdHasher>>,
    pub(crate) kept: Kept,
    pub(crate) registry: OnceLock<ActorRef<RegistryMessage>>,
    pub(crate) channel: Channel,
    standing: AtomicU8,
    closing_cause: OnceLock<CancelCause>,
    /// Runs that are not gone.
    live: AtomicUsize,
    minted: AtomicU64,
    changed: Notify,
}

impl Shared {
    #[expect(clippy::too_many_arguments, reason = "called once, by the builder")]
    pub(crate) fn new(
        deadlines: Deadlines,
        max_depth: Option<u32>,
        root_depth: u32,
        max_starts: u64,
        event_capacity: usize,
        providers: Providers,
        kept: Kept,
        token: CancellationToken,
        runtime: Handle,
    ) -> Self {
        let clock = Clock::new();
        Self {
            id: AgentId::new().into(),
            created: clock.now(),
            clock,
            deadlines,
            max_depth,
            root_depth,
            max_starts,
            token,
            tracker: TaskTracker::new(),
            runtime,
            providers,
            runs: Index::default(),
            roots: DashMap::default(),
            kept,
            registry: OnceLock::new(),
            channel: Channel::new(event_capacity),
            standing: AtomicU8::new(Standing::Open as u8),
            closing_cause: OnceLock::new(),
            live: AtomicUsize::new(0),
            minted: AtomicU64::new(0),
            changed: Notify::new(),
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        match self.standing.load(SeqCst) {
            0 => Standing::Open,
            1 => Standing::Draining,
            2 => Standing::Closed,
            _ => Standing::Failed,
        }
    }

    /// Sends to the registry; false where it is gone.
    pub(crate) fn tell(&self, message: RegistryMessage) -> bool {
        self.registry.get().is_some_and(|registry| registry.send_message(message).is_ok())
    }

    /// The ids of a run and its child, of one moment, which is read once.
    pub(crate) fn mint(&self) -> Ids {
        let now = self.clock.now();
        let count = self.minted.fetch_add(1, Relaxed);
        let random = uuid::Uuid::new_v4().as_u128();
        let ms = self.clock.stamp(now).as_millis();
        #[expect(clippy::cast_possible_truncation, reason = "each takes one half of what is random")]
        let (high, low) = ((random >> 64) as u64, random as u64);
        Ids { now, run: RunId::mint(ms, count, low), agent: AgentId::mint(ms, count, high.rotate_left(32)) }
    }

    /// A timer for a caller, who may be outside of tokio: then it is the service's runtime that keeps the time.
    pub(crate) fn sleep_until(&self, until: Instant) -> Sleep {
        self.timed(|| tokio::time::sleep_until(until))
    }

    /// As [`sleep_until`](Self::sleep_until), for a bounded wait.
    pub(crate) fn within<F: IntoFuture>(&self, patience: Duration, work: F) -> Timeout<F::IntoFuture> {
        self.timed(|| tokio::time::timeout(patience, work))
    }

    fn timed<T>(&self, make: impl FnOnce() -> T) -> T {
        let _entered = Handle::try_current().is_err().then(|| self.runtime.enter());
        make()
    }

    /// Moves the service on; never back.
    pub(crate) fn advance(&self, to: Standing) {
        self.standing.fetch_max(to as u8, SeqCst);
        self.changed.notify_waiters();
    }

    /// Closes admission and cancels everything, top-down, once.
    pub(crate) fn drain(&self, cause: CancelCause) {
        let _ = self.closing_cause.set(cause);
        self.advance(Standing::Draining);
        self.token.cancel();
    }

    pub(crate) fn closing_cause(&self) -> Option<CancelCause> {
        self.closing_cause.get().cloned()
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(SeqCst)
    }

    pub(crate) fn enter(&self, core: &Arc<RunCore>) {
        self.live.fetch_add(1, SeqCst);
        self.runs.insert(core);
    }

    /// Takes a gone run out; true for the first to do so.
    pub(crate) fn take_out(&self, core: &RunCore) -> bool {
        self.runs.remove(core)
    }

    /// One live run less; for whoever took it out.
    pub(crate) fn one_less(&self) {
        if self.live.fetch_sub(1, SeqCst) == 1 {
            match self.standing() {
                // Nobody waits for this before the service drains, and then they look first.
                Standing::Open => return,
                // The registry waits for the last one.
                Standing::Draining => {
                    self.tell(RegistryMessage::Close);
                }
                // The registry went first: the last one out ends the streams.
                Standing::Closed | Standing::Failed => self.end(),
            }
            self.changed.notify_waiters();
        }
    }

    /// Nothing happens any more: listeners see the end.
    pub(crate) fn end(&self) {
        for root in &self.roots {
            if let Some(scoped) = root.seat.scoped.get() {
                scoped.end();
            }
        }
        self.channel.end();
    }

    /// Completes when `reached` holds. It is asked after each change of the standing, and when the last run is gone
    /// while the service drains. Cancel-safe.
    pub(crate) async fn until(&self, reached: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if reached(self) {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn add_root(&self, root: &Arc<RootCore>) {
        self.roots.insert(root.id, root.clone());
        let revision = self.channel.next();
        root.revision.store(revision, SeqCst);
        self.channel.send(|| Item::Root { root: root.clone(), revision });
    }

    pub(crate) fn remove_root(&self, root: &Arc<RootCore>) {
        if self.roots.remove(&root.id).is_some() {
            if let Some(scoped) = root.seat.scoped.get() {
                scoped.end();
            }
            let revision = self.channel.next();
            self.channel.send(|| Item::Gone { id: root.id, revision });
        }
    }
}

/// What is minted for a start, and when.
#[derive(Clone, Copy)]
pub(crate) struct Ids {
    pub(crate) now: u64,
    pub(crate) run: RunId,
    pub(crate) agent: AgentId,
}
