//! The handle of a service.

use crate::{
    EventStream, RunWatcher, ServiceBuilder, ServiceEnd, ShutdownReport,
    admission::LaneId,
    batch::{self, BatchBuilder},
    checks,
    core::{Bounds, NewRun, RunCore},
    driver::{Assignment, CUT_SHORT},
    events::Item,
    handle::Starting,
    lineage,
    providers::Registration,
    registry::{Asked, RegistryMessage, Start},
    root::{self, Root},
    seat::Place,
    settlement::Wanted,
    shared::{Ids, Shared, Standing},
    tree,
};
use std::{
    fmt,
    path::Path,
    sync::{Arc, Weak},
    time::Duration,
};
use subagents_seam::{
    CancelCause, CancellationToken, Capabilities, DelegateError, DynProvider, Instant, LocalAgent, Name,
    Parent, RegisterError, ResultError, RootError, RunId, StartError, StartRequest, SubagentResult, Tree,
    context::RunLink as _,
};
use tokio::sync::oneshot;

/// The service: start children, follow them, end them. Clone shares it.
///
/// **Dropping** the last clone cancels everything; the clean-up goes on in tracked tasks. To wait for it and learn what
/// became of each run: [`shutdown`](Self::shutdown).
#[derive(Clone)]
pub struct SubagentService {
    owner: Arc<Owner>,
}

struct Owner {
    shared: Arc<Shared>,
    /// The lane of providers that are registered later: no limit but the overall one.
    unlimited: LaneId,
}

impl Drop for Owner {
    fn drop(&mut self) {
        close(&self.shared, CancelCause::ServiceDropped);
    }
}

/// Cancels everything and has the registry stop when nothing is left. Never blocks.
fn close(shared: &Arc<Shared>, cause: CancelCause) {
    shared.drain(cause);
    shared.tell(RegistryMessage::Close);
}

/// A reference that does not keep the service: for what the service itself holds, like a tool inside a provider.
#[derive(Clone, Debug)]
pub struct WeakService(Weak<Owner>);

impl WeakService {
    /// The service, if somebody still holds it.
    pub fn upgrade(&self) -> Option<SubagentService> {
        self.0.upgrade().map(|owner| SubagentService { owner })
    }
}

impl SubagentService {
    /// A builder with no provider, no limit and the default deadlines.
    pub fn builder() -> ServiceBuilder {
        ServiceBuilder::new()
    }

    pub(crate) fn new(shared: Arc<Shared>, unlimited: LaneId) -> Self {
        Self { owner: Arc::new(Owner { shared, unlimited }) }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// A reference that does not keep the service.
    pub fn downgrade(&self) -> WeakService {
        WeakService(Arc::downgrade(&self.owner))
    }

    // ---- providers

    /// Registers a provider until the registration is dropped. It has no limit of its own.
    ///
    /// # Errors
    /// `DUPLICATE_PROVIDER`, `INVALID_NAME`.
    pub fn register(
        &self,
        name: &str,
        provider: impl Into<DynProvider>,
    ) -> Result<Registration, RegisterError> {
        let shared = self.shared();
        let (name, generation) =
            shared.providers.add(name, provider.into(), self.owner.unlimited, |name| {
                shared.channel.send(|| Item::ProviderAdded(name.clone()));
            })?;
        Ok(Registration::new(shared.clone(), name, generation))
    }

    /// The names of the providers, in the order of registration (SPEC 2.1).
    pub fn providers(&self) -> Vec<Name> {
        self.shared().providers.names()
    }

    /// A provider, if one has this name (SPEC 2.1).
    pub fn provider(&self, name: &str) -> Option<DynProvider> {
        self.shared().providers.table().get(name).map(|entry| entry.provider.clone())
    }

    /// What a provider can honour.
    pub fn capabilities(&self, name: &str) -> Option<Capabilities> {
        self.shared().providers.table().get(name).map(|entry| entry.capabilities)
    }

    // ---- parents

    /// A root for a host that is no agent: depth 0, no log.
    ///
    /// # Errors
    /// `CWD_NOT_USABLE` where the working directory is not absolute or cannot be entered. The check does blocking I/O.
    pub fn root(&self, cwd: impl AsRef<Path>) -> Result<Root, RootError> {
        Root::new(self.shared(), cwd.as_ref())
    }

    /// A root for an agent that is no run. The depth in its header is the floor (SPEC 5.1); its end cancels what is
    /// below.
    ///
    /// # Errors
    /// As [`root`](Self::root).
    pub fn adopt(&self, agent: &dyn LocalAgent) -> Result<Root, RootError> {
        Root::adopt(self.shared(), agent)
    }

    /// The place of the run whose child is this process of the system's, for what that child asks of this service from
    /// outside: what starts from there is below the run, as deep, in its slots, and cancelled with it. `cwd` is absolute.
    /// `None` where no live run has such a process. It looks through the live runs.
    ///
    /// # Errors
    /// As [`root`](Self::root).
    pub fn parent_of_process(&self, pid: u32, cwd: impl AsRef<Path>) -> Result<Option<Parent>, RootError> {
        let cwd = root::usable(cwd.as_ref())?;
        Ok(self.shared().runs.of_process(pid).map(|run| run.as_parent(cwd, None)))
    }

    // ---- delegations

    /// Starts a child. The checks of SPEC 3.1 run at once, in this task; awaiting the value gives the run.
    ///
    /// # Errors
    /// Awaiting gives a [`StartError`]; then nothing is left of the start.
    pub fn start(&self, provider: &str, request: StartRequest) -> Starting {
        self.start_until(provider, request, None)
    }

    /// `until` is when the batch that it belongs to ends.
    pub(crate) fn start_until(
        &self,
        provider: &str,
        request: StartRequest,
        until: Option<Instant>,
    ) -> Starting {
        let ids = self.shared().mint();
        match self.ask(ids, provider, request, until) {
            Ok(starting) => starting,
            Err(error) => Starting::refused(ids.run, error),
        }
    }

    fn ask(
        &self,
        ids: Ids,
        provider: &str,
        request: StartRequest,
        until: Option<Instant>,
    ) -> Result<Starting, StartError> {
        let shared = self.shared();
        match shared.standing() {
            Standing::Open => {}
            Standing::Draining | Standing::Closed => return Err(StartError::Draining),
            Standing::Failed => return Err(StartError::ServiceFailed),
        }
        let table = shared.providers.table();
        let Some(entry) = table.get(provider) else {
            return Err(StartError::NoProvider { name: provider.into(), known: shared.providers.names() });
        };
        let cap = checks::check(entry, &request)?;
        if request.get_token().is_some_and(CancellationToken::is_cancelled) {
            return Err(StartError::Cancelled { cause: CancelCause::Token });
        }
        let place = Place::of(request.get_parent(), shared).ok_or(StartError::ParentGone)?;
        place.take_seat(cap, shared.max_starts)?;
        let max_depth = lineage::tighter(place.seat().max_depth, cap);
        let deadlines = request.get_deadlines().cloned();
        let bounds = (deadlines.is_some() || until.is_some())
            .then(|| Box::new(Bounds { deadlines: deadlines.unwrap_or_default(), until }));
        let wanted = match request.get_output_schema() {
            Some(_) => Wanted::Value,
            None if entry.blank_is_fine => Wanted::AnyText,
            None => Wanted::Text,
        };
        let new = NewRun {
            parent: place,
            max_depth,
            provider: entry.name.clone(),
            label: request.get_label().map(shown),
            bounds,
            wanted,
        };
        let core = Arc::new(RunCore::new(shared.clone(), ids, new));
        let (reply, answer) = oneshot::channel();
        let provider = entry.provider.clone();
        let assignment = Box::new(Assignment { provider, request, reply: Some(reply), permit: None });
        let start = Start { core: Asked::new(core.clone()), lane: entry.lane, assignment };
        if shared.tell(RegistryMessage::Start(start)) {
            Ok(Starting::asked(core, answer))
        } else {
            Err(if shared.standing() == Standing::Failed {
                StartError::ServiceFailed
            } else {
                StartError::Draining
            })
        }
    }

    /// Starts a child, waits for its result and disposes it.
    ///
    /// # Errors
    /// [`DelegateError`]: it did not start, has no result, or left something behind (then with the result).
    ///
    /// # Cancellation safety
    /// Dropping the future cancels the delegation.
    pub async fn delegate(
        &self,
        provider: &str,
        request: StartRequest,
    ) -> Result<Arc<SubagentResult>, DelegateError> {
        batch::delegate(self.start(provider, request), std::future::pending()).await
    }

    /// Many delegations to one provider, some at a time.
    pub fn batch(&self, parent: impl Into<Parent>, provider: impl Into<String>) -> BatchBuilder {
        BatchBuilder::new(self.clone(), parent.into(), provider.into())
    }

    /// Cancels one run by its id, from anywhere. False where no such run lives. It looks through the live runs; with a
    /// [`RunWatcher`](crate::RunWatcher) there is nothing to look for.
    pub fn cancel(&self, run: RunId, cause: CancelCause) -> bool {
        let core = self.shared().runs.get(run);
        core.inspect(|core| core.request_cancel(cause)).is_some()
    }

    /// A handle on one live run by its id, which watches, waits and can cancel. It looks through the live runs, as
    /// [`cancel`](Self::cancel) does.
    pub fn watcher(&self, run: RunId) -> Option<RunWatcher> {
        self.shared().runs.get(run).map(RunWatcher::new)
    }

    // ---- looking

    /// A copy of the tree. It reads the index, waits for nobody and changes nothing.
    pub fn tree(&self) -> Tree {
        tree::snapshot(self.shared())
    }

    /// A copy of the tree, and every change from then on: copy plus changes equals any later copy.
    pub fn watch(&self) -> (Tree, EventStream) {
        // First the subscription, then the copy: what falls between is in both, and the revisions tell.
        let events = self.events();
        (self.tree(), events)
    }

    /// Every event from now on.
    pub fn events(&self) -> EventStream {
        EventStream::new(self.shared().clone())
    }

    /// The outcome of a run that lives and has settled, or is gone and still remembered ([`ServiceBuilder::keep_gone`]).
    pub fn outcome(&self, run: RunId) -> Option<Result<Arc<SubagentResult>, ResultError>> {
        let live = self.shared().runs.get(run).and_then(|core| core.outcome());
        live.or_else(|| {
            let shared = self.shared();
            shared.kept.outcome(run, shared.clock.stamp(shared.clock.now()))
        })
    }

    // ---- the end

    /// Ends the service: admission closes, everything is cancelled top-down, what is left after `grace` is killed.
    ///
    /// Returns a second or two after `grace` at the latest. The work goes on if the future is dropped.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        let shared = self.shared().clone();
        let begun = Instant::now();
        let alive = shared.runs.all();
        close(&shared, CancelCause::Shutdown);
        let work = {
            let shared = shared.clone();
            async move { wind_down(&shared, grace).await }
        };
        // The work goes on if this future is dropped.
        let _ = shared.tracker.spawn_on(work, &shared.runtime).await;
        let _ = shared.within(AFTERMATH, shared.tracker.wait()).await;
        let killed = alive.iter().filter(|core| core.was_killed()).count();
        let leaked = alive.iter().filter_map(|core| {
            // What was killed is told apart from what may be left.
            let what = core.leak().filter(|what| ***what != *CUT_SHORT).cloned();
            let what = what.or_else(|| (!core.is_taken_out()).then(|| "its task does not end".into()));
            what.map(|what| (core.id(), what))
        });
        let leaked = leaked.collect();
        ShutdownReport { settled: alive.len() - killed, killed, leaked, elapsed: begun.elapsed() }
    }

    /// Completes when the service has ended, however that came.
    pub async fn closed(&self) -> ServiceEnd {
        self.shared().until(|shared| shared.standing() >= Standing::Closed).await;
        if self.shared().standing() == Standing::Failed { ServiceEnd::Failed } else { ServiceEnd::ShutDown }
    }

    /// Panics the registry, as a fault of the runtime would.
    #[cfg(feature = "fault-injection")]
    #[doc(hidden)]
    pub fn inject_registry_panic(&self) {
        self.shared().tell(RegistryMessage::Panic);
    }

    /// How many tasks the service owns now.
    #[cfg(feature = "fault-injection")]
    #[doc(hidden)]
    pub fn tasks(&self) -> usize {
        self.shared().tracker.len()
    }
}

/// A label as the tree keeps it: bounded, for it may be anybody's text.
fn shown(label: &Name) -> Name {
    if label.len() <= LABEL_BYTES {
        label.clone()
    } else {
        subagents_seam::bounded(label, LABEL_BYTES).into()
    }
}

const LABEL_BYTES: usize = 1024;

/// After the kill, this long is waited for what was killed.
const AFTERMATH: Duration = Duration::from_secs(1);

/// Waits for the end; kills what is left after the grace.
async fn wind_down(shared: &Arc<Shared>, grace: Duration) {
    let ended = |shared: &Shared| shared.standing() >= Standing::Closed && shared.live() == 0;
    if shared.within(grace, shared.until(ended)).await.is_err() {
        if !shared.tell(RegistryMessage::KillAll) {
            shared.runs.all().iter().for_each(|core| core.kill());
        }
        let _ = shared.within(AFTERMATH, shared.until(ended)).await;
    }
}

impl fmt::Debug for SubagentService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubagentService")
            .field("providers", &self.providers())
            .field("live", &self.shared().live())
            .field("standing", &self.shared().standing())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}
