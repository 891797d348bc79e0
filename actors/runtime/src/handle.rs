//! What a caller holds of a run: before publication, after it, and while only watching.

use crate::{
    core::RunCore, driver, progress::ProgressStream, run_actor::RunMessage, settlement::Settled,
    shared::Standing,
};
use std::{
    fmt,
    future::{Future, IntoFuture, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use subagents_seam::{
    AgentId, CancelCause, DisposeError, Node, Phase, ResultError, RunId, StartError, SubagentResult,
};
use tokio::sync::oneshot;

/// On top of a run's own ladder, before its disposal says that something is left.
const MARGIN: Duration = Duration::from_secs(1);

/// A start on its way: it has an id, can be cancelled, and is awaited for the run.
///
/// **Dropping** it, or the future made of it, cancels the start; it is rolled back in its own task.
#[must_use = "dropping a start cancels it; await it"]
pub struct Starting {
    id: RunId,
    pending: Pending,
}

enum Pending {
    Refused(Option<StartError>),
    Asked { core: Option<Arc<RunCore>>, reply: oneshot::Receiver<Result<(), StartError>> },
}

impl Starting {
    pub(crate) fn refused(id: RunId, error: StartError) -> Self {
        Self { id, pending: Pending::Refused(Some(error)) }
    }

    pub(crate) fn asked(core: Arc<RunCore>, reply: oneshot::Receiver<Result<(), StartError>>) -> Self {
        Self { id: core.id(), pending: Pending::Asked { core: Some(core), reply } }
    }

    /// The id of the run to be. It is in the tree, as queued or starting, once the registry has seen it.
    pub fn id(&self) -> RunId {
        self.id
    }

    pub(crate) fn core(&self) -> Option<Arc<RunCore>> {
        if let Pending::Asked { core, .. } = &self.pending { core.clone() } else { None }
    }

    /// Cancels the start; awaiting it then gives `CANCELLED`, unless it was published first.
    pub fn cancel(&self, cause: CancelCause) {
        if let Pending::Asked { core: Some(core), .. } = &self.pending {
            core.request_cancel(cause);
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Pending::Asked { core: Some(core), .. } = &self.pending {
            core.request_cancel(CancelCause::Dropped);
        }
    }
}

impl IntoFuture for Starting {
    type Output = Result<SubagentRun, StartError>;
    type IntoFuture = StartFuture;

    fn into_future(self) -> StartFuture {
        StartFuture(self)
    }
}

/// The future of a [`Starting`]. Cancel-safe only in the sense of its guard: dropping it cancels the start.
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct StartFuture(Starting);

impl Future for StartFuture {
    type Output = Result<SubagentRun, StartError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0.pending {
            Pending::Refused(error) => Poll::Ready(Err(error.take().unwrap_or(StartError::ServiceFailed))),
            Pending::Asked { core, reply } => {
                let answer = ready!(Pin::new(reply).poll(cx));
                // From here on the run is the handle's, and not this guard's any more.
                let core = core.take();
                Poll::Ready(match (answer, core) {
                    (Ok(Ok(())), Some(core)) => Ok(SubagentRun::new(core)),
                    (Ok(Err(error)), _) => Err(error),
                    // The registry went without an answer.
                    (Err(_), Some(core))
                        if matches!(core.shared.standing(), Standing::Draining | Standing::Closed) =>
                    {
                        Err(StartError::Draining)
                    }
                    (Err(_) | Ok(Ok(())), _) => Err(StartError::ServiceFailed),
                })
            }
        }
    }
}

impl fmt::Debug for Starting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Starting").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A published run, owned by its caller (SPEC 1.7, 3.3).
///
/// **Dropping** it cancels the run with the cause *dropped*, with a warning that names it, unless it had settled. To do
/// otherwise: [`dispose`](Self::dispose), [`detach`](Self::detach), or a [`watcher`](Self::watcher) beside it.
#[must_use = "dropping a run cancels it; dispose it, or detach it"]
pub struct SubagentRun {
    watcher: RunWatcher,
    armed: bool,
}

impl SubagentRun {
    pub(crate) fn new(core: Arc<RunCore>) -> Self {
        Self { watcher: RunWatcher::new(core), armed: true }
    }

    /// The run.
    pub fn id(&self) -> RunId {
        self.watcher.id()
    }

    /// The child (SPEC 1.7: the original's run id).
    pub fn agent_id(&self) -> AgentId {
        self.watcher.agent_id()
    }

    /// The result: the same for every caller, however late, also after `dispose`.
    ///
    /// The future borrows nothing and may be dropped freely; the run goes on.
    ///
    /// # Errors
    /// Only where the provider could not wait for its child, or the async runtime is gone. A child's failure is a value.
    pub fn result(&self) -> impl Future<Output = Result<Arc<SubagentResult>, ResultError>> + Send + use<> {
        self.watcher.result()
    }

    /// Cancels the run. The first cause wins; a second call changes nothing. Returns at once.
    pub fn cancel(&self, cause: CancelCause) {
        self.watcher.cancel(cause);
    }

    /// Ends the run, if it has not ended, and returns when nothing is left of it: no task, no process, no child below.
    ///
    /// Idempotent: every caller gets the same answer. The work goes on if the future is dropped.
    ///
    /// # Errors
    /// [`DisposeError::Leaked`] where the bounded teardown could not make sure.
    pub fn dispose(&self) -> impl Future<Output = Result<(), DisposeError>> + Send + use<> {
        self.watcher.dispose()
    }

    /// Lets the run go on by itself: it is torn down when it settles, its result is in its `Ended` event and, while it
    /// is remembered, with [`SubagentService::outcome`](crate::SubagentService::outcome).
    pub fn detach(mut self) -> RunWatcher {
        self.armed = false;
        self.watcher.clone()
    }

    /// A handle that watches, waits and can cancel, and whose drop does nothing.
    pub fn watcher(&self) -> RunWatcher {
        self.watcher.clone()
    }

    /// What the run shows of itself from now on, and the text so far.
    pub fn progress(&self) -> ProgressStream {
        self.watcher.progress()
    }

    /// The run's node in the tree, as of now.
    pub fn node(&self) -> Node {
        self.watcher.node()
    }
}

impl Drop for SubagentRun {
    fn drop(&mut self) {
        let core = &self.watcher.core;
        if self.armed && !core.state().is_settled() && !core.seat.token.is_cancelled() {
            tracing::warn!(run = %core.id(), provider = %core.provider, "a run was dropped before it settled and is cancelled");
            core.request_cancel(CancelCause::Dropped);
        }
    }
}

impl fmt::Debug for SubagentRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.watcher.core.fmt(f)
    }
}

/// A handle on a run that owns nothing of it. Clone and drop as you like.
#[derive(Clone)]
pub struct RunWatcher {
    core: Arc<RunCore>,
}

impl RunWatcher {
    pub(crate) fn new(core: Arc<RunCore>) -> Self {
        Self { core }
    }

    /// The run.
    pub fn id(&self) -> RunId {
        self.core.id()
    }

    /// The child.
    pub fn agent_id(&self) -> AgentId {
        self.core.seat.agent
    }

    /// See [`SubagentRun::result`].
    pub fn result(&self) -> impl Future<Output = Result<Arc<SubagentResult>, ResultError>> + Send + use<> {
        let core = self.core.clone();
        async move { settled(&core).await }
    }

    /// See [`SubagentRun::cancel`].
    pub fn cancel(&self, cause: CancelCause) {
        if !self.core.state().is_settled() {
            self.core.request_cancel(cause);
        }
    }

    /// See [`SubagentRun::dispose`].
    pub fn dispose(&self) -> impl Future<Output = Result<(), DisposeError>> + Send + use<> {
        let core = self.core.clone();
        // The message goes out now: a future that is never polled must not keep a run alive. A run that has settled is
        // on its way out by itself.
        if !core.state().is_settled() {
            core.request_cancel(CancelCause::Disposed);
        }
        async move {
            // A run on its way out is gone in a moment: most disposals need no timer.
            for _ in 0..3 {
                if core.is_taken_out() {
                    return core.disposed();
                }
                one_turn().await;
            }
            // Each step is bounded, unless a child blocks its thread: then this is.
            let patience = driver::ladder(&core).saturating_mul(9).saturating_add(MARGIN);
            if core.shared.within(patience, core.gone()).await.is_err() {
                core.leaked("its task does not end");
            }
            core.disposed()
        }
    }

    /// See [`SubagentRun::progress`].
    pub fn progress(&self) -> ProgressStream {
        ProgressStream::new(self.core.clone())
    }

    /// See [`SubagentRun::node`].
    pub fn node(&self) -> Node {
        crate::tree::run_node(&self.core)
    }

    /// Whether the run has settled.
    pub fn is_settled(&self) -> bool {
        self.core.told_state().is_settled()
    }

    /// Where the run is on its way.
    pub fn phase(&self) -> Phase {
        self.core.told_state().phase()
    }

    /// Ends the run's actor as a fault would.
    #[cfg(feature = "fault-injection")]
    #[doc(hidden)]
    pub fn inject_kill(&self) {
        if let Some(actor) = self.core.actor() {
            actor.kill();
        }
    }

    /// Panics the run's actor.
    #[cfg(feature = "fault-injection")]
    #[doc(hidden)]
    pub fn inject_panic(&self) {
        if let Some(actor) = self.core.actor() {
            let _ = actor.send_message(RunMessage::Panic);
        }
    }
}

impl fmt::Debug for RunWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

/// Lets the tasks that are ready on this thread go first, once. Not tokio's `yield_now`: that polls the I/O driver too, by a system call
/// that costs as much as half of what is waited for.
async fn one_turn() {
    let mut waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The settlement: from the cell that actor and handle share, or as the run actor's reply.
async fn settled(core: &RunCore) -> Settled {
    if let Some(outcome) = core.outcome() {
        return outcome;
    }
    if let Some(actor) = core.actor() {
        let (waiter, answer) = oneshot::channel();
        let _ = actor.send_message(RunMessage::Result(waiter));
        if let Ok(outcome) = answer.await {
            return outcome;
        }
        // A message that was in the mailbox of an actor that ends is dropped with its waiter.
    }
    let (waiter, answer) = oneshot::channel();
    core.await_settled(waiter);
    let outcome = answer.await.ok();
    outcome.or_else(|| core.outcome()).unwrap_or(Err(ResultError::RuntimeGone))
}
