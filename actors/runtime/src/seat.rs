//! A place in the tree from which one may delegate: a root or a run. The record by which the runtime judges depth and
//! liveness, whatever a request says.

use crate::{core::RunCore, events::ScopedEvents, lineage, shared::Shared};
use std::{
    any::Any,
    fmt,
    ops::Deref,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
};
use subagents_seam::{
    AgentId, CancelCause, CancellationToken, Epoch, Name, NodeId, Parent, RunId, StartError,
    parent::ParentParts,
};
use tokio::sync::{Notify, futures::Notified};

/// In the order of use, as the record of a run that it is part of.
#[repr(C)]
pub(crate) struct Seat {
    pub(crate) agent: AgentId,
    pub(crate) depth: u32,
    /// Set when nothing more may start below.
    ended: AtomicBool,
    /// The smallest cap of this place and of all above it.
    pub(crate) max_depth: Option<u32>,
    pub(crate) token: CancellationToken,
    /// Runs below that are not gone yet.
    children: AtomicUsize,
    /// Told when the last run below is gone, and when a run that sits here is.
    changed: Notify,
    /// Made when somebody asks for the events of this parent alone.
    pub(crate) scoped: OnceLock<Box<ScopedEvents>>,
}

impl Seat {
    pub(crate) fn new(agent: AgentId, depth: u32, max_depth: Option<u32>, token: CancellationToken) -> Self {
        Self {
            agent,
            depth,
            max_depth,
            token,
            ended: AtomicBool::new(false),
            children: AtomicUsize::new(0),
            changed: Notify::new(),
            scoped: OnceLock::new(),
        }
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, SeqCst);
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    pub(crate) fn children(&self) -> usize {
        self.children.load(SeqCst)
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Completes when no run below is left. Cancel-safe.
    pub(crate) async fn childless(&self) {
        while self.children() > 0 {
            let emptied = self.changed();
            if self.children() == 0 {
                return;
            }
            emptied.await;
        }
    }
}

/// A root or an adopted agent.
pub(crate) struct RootCore {
    /// Its node. Not its agent's id: one agent may be adopted twice.
    pub(crate) id: NodeId,
    pub(crate) seat: Seat,
    pub(crate) epoch: Epoch,
    pub(crate) cwd: Arc<Path>,
    pub(crate) label: Name,
    pub(crate) created: u64,
    pub(crate) revision: AtomicU64,
    pub(crate) cause: OnceLock<CancelCause>,
    /// Starts made below it, ever.
    starts: AtomicU64,
    /// A token gives its list of children back when the last one leaves. This one stays, or each run that runs alone
    /// would allocate the list anew.
    _stays: CancellationToken,
    pub(crate) shared: Arc<Shared>,
}

impl RootCore {
    pub(crate) fn new(shared: Arc<Shared>, seat: Seat, epoch: Epoch, cwd: Arc<Path>, created: u64) -> Self {
        Self {
            id: AgentId::new().into(),
            _stays: seat.token.child_token(),
            seat,
            epoch,
            label: cwd.to_string_lossy().into_owned().into(),
            cwd,
            created,
            revision: AtomicU64::new(0),
            cause: OnceLock::new(),
            starts: AtomicU64::new(0),
            shared,
        }
    }

    /// Counts one more start, up to the cap.
    fn count_start(&self, cap: u64) -> Result<(), StartError> {
        self.starts
            .fetch_update(Relaxed, Relaxed, |starts| (starts < cap).then_some(starts + 1))
            .map(|_| ())
            .map_err(|_| StartError::StartLimitExceeded { cap })
    }

    /// Takes back a start that was not admitted.
    pub(crate) fn uncount_start(&self) {
        self.starts.fetch_sub(1, Relaxed);
    }

    pub(crate) fn as_parent(self: &Arc<Self>, local: Option<Arc<dyn Any + Send + Sync>>) -> Parent {
        Parent::from_parts(ParentParts {
            agent: self.seat.agent,
            epoch: self.epoch,
            run: None,
            depth: self.seat.depth,
            cwd: self.cwd.clone(),
            token: self.seat.token.clone(),
            local,
            seat: self.clone(),
        })
    }

    /// Cancels everything below and lets nothing more start.
    pub(crate) fn close(self: &Arc<Self>, cause: CancelCause) {
        // A service that closes first is why, whoever drops the root afterwards.
        let _ = self.cause.set(self.shared.closing_cause().unwrap_or(cause));
        self.seat.end();
        self.seat.token.cancel();
        if self.seat.children() == 0 {
            self.shared.remove_root(self);
        }
    }
}

/// Where a run was asked for.
#[derive(Clone)]
pub(crate) enum Place {
    Root(Arc<RootCore>),
    Run(Arc<RunCore>),
}

impl Place {
    /// The record behind a parent, if the runtime made it and for this service.
    pub(crate) fn of(parent: &Parent, service: &Arc<Shared>) -> Option<Self> {
        let place = match parent.seat().clone().downcast::<RootCore>() {
            Ok(root) => Self::Root(root),
            Err(seat) => Self::Run(seat.downcast::<RunCore>().ok()?),
        };
        Arc::ptr_eq(place.shared(), service).then_some(place)
    }

    pub(crate) fn seat(&self) -> &Seat {
        match self {
            Self::Root(root) => &root.seat,
            Self::Run(run) => &run.seat,
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        match self {
            Self::Root(root) => &root.shared,
            Self::Run(run) => &run.shared,
        }
    }

    /// The root at the top. A walk: most runs stand right below it.
    pub(crate) fn root(&self) -> &Arc<RootCore> {
        let mut place = self;
        loop {
            match place {
                Self::Root(root) => return root,
                Self::Run(run) => place = &run.parent,
            }
        }
    }

    /// Whether it has left the tree.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Self::Root(root) => root.seat.is_ended() && root.seat.children() == 0,
            Self::Run(run) => run.is_taken_out(),
        }
    }

    pub(crate) fn node_id(&self) -> NodeId {
        match self {
            Self::Root(root) => root.id,
            Self::Run(run) => run.id().into(),
        }
    }

    /// The nearest run at or above this place that a limit counts: it lends. One that no limit counts passes on what it
    /// cannot lend itself, or a chain through it would wait for its own slot.
    pub(crate) fn lender(&self) -> Option<RunId> {
        let mut place = self;
        while let Self::Run(run) = place {
            if run.is_limited() {
                return Some(run.id());
            }
            place = &run.parent;
        }
        None
    }

    /// The runs at and above this place, the nearest first.
    pub(crate) fn runs(&self) -> Vec<RunId> {
        let (mut place, mut runs) = (self, Vec::new());
        while let Self::Run(run) = place {
            runs.push(run.id());
            place = &run.parent;
        }
        runs
    }

    /// Why a run below this place finds its token cancelled.
    pub(crate) fn inherited_cause(&self) -> CancelCause {
        match self {
            Self::Root(root) => root
                .cause
                .get()
                .cloned()
                .or_else(|| root.shared.closing_cause())
                .unwrap_or(CancelCause::Parent),
            Self::Run(run) => run.shared.closing_cause().unwrap_or(CancelCause::Parent),
        }
    }

    /// Takes a seat below: the depth is judged, the start counted, and this place is not gone before the child is.
    pub(crate) fn take_seat(&self, cap: Option<u32>, start_cap: u64) -> Result<(), StartError> {
        let seat = self.seat();
        // Counted first and judged second: whoever ends this place afterwards sees the child and waits for it.
        seat.children.fetch_add(1, SeqCst);
        let judged = if seat.is_ended() {
            Err(StartError::ParentGone)
        } else {
            lineage::child_depth(seat.depth, lineage::tighter(seat.max_depth, cap))
                .and_then(|_| self.root().count_start(start_cap))
        };
        if judged.is_err()
            && let Some(gone) = self.leave_seat()
        {
            gone.farewell();
        }
        judged
    }

    /// The child that sat here is gone. Returns the run of this place where it is gone by this; its farewell is the
    /// caller's.
    #[must_use = "the run of this place may be gone by this"]
    pub(crate) fn leave_seat(&self) -> Option<Arc<RunCore>> {
        let seat = self.seat();
        if seat.children.fetch_sub(1, SeqCst) == 1 {
            seat.wake();
            match self {
                Self::Root(root) if seat.is_ended() => root.shared.remove_root(root),
                Self::Root(_) => {}
                Self::Run(run) => return run.childless(),
            }
        }
        None
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node_id().fmt(f)
    }
}

/// A run's hold on the place above it. A chain of them is let go in a loop: it may be longer than a stack is deep.
pub(crate) struct Link(Option<Place>);

impl Link {
    pub(crate) fn new(place: Place) -> Self {
        Self(Some(place))
    }
}

impl Deref for Link {
    type Target = Place;
    fn deref(&self) -> &Place {
        self.0.as_ref().unwrap_or_else(|| unreachable!("it is emptied by its own drop alone"))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(Place::Run(run)) = next {
            next = Arc::into_inner(run).and_then(|mut run| {
                if let Some(above) = run.leave_seat() {
                    above.farewell();
                }
                run.parent.0.take()
            });
        }
    }
}

/// A fact that is read from other threads.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    pub(crate) fn is_up(&self) -> bool {
        self.0.load(Acquire)
    }

    pub(crate) fn set(&self, up: bool) {
        self.0.store(up, Release);
    }
}
