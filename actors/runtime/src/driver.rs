//! The one task per run: wait for a slot, start, publish, run, settle, close. The actor only hears from it.
//!
//! A hundred thousand of these futures may be alive at once, so what is awaited is awaited in one place ([`race`]) and
//! what is rare is boxed.

use crate::race::{Contained, Panic, Raced, Token, at_once, message_of, race};
use crate::{
    core::{RunCore, StartReply},
    settlement::Ending,
    shared::Standing,
};
use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};
use subagents_seam::{
    CancelCause, CancellationToken, Closed, DeadlineKind, DynChild, DynProvider, Instant, Phase, RunContext,
    StartContext, StartError, StartRequest, provider::BoxFuture,
};
use tokio::sync::oneshot;

const START: Duration = Duration::from_mins(1);
const CANCEL_GRACE: Duration = Duration::from_secs(2);
const DISPOSE: Duration = Duration::from_secs(15);
/// What is said of a child whose teardown nobody saw to its end.
pub(crate) const CUT_SHORT: &str = "its teardown was cut short; its guards ended what they held";

/// What a driver is given; one box on the whole way to it.
pub(crate) struct Assignment {
    pub(crate) provider: DynProvider,
    pub(crate) request: StartRequest,
    /// Taken by the driver's guard.
    pub(crate) reply: Option<StartReply>,
    /// Set for a start that waits for a slot; it carries whether the slot is borrowed.
    pub(crate) permit: Option<oneshot::Receiver<bool>>,
}

/// Whatever ends the driver's task: the run settles, and goes with its actor, whichever of the two is last.
pub(crate) struct DriverGuard {
    core: Arc<RunCore>,
    /// Until the start is answered.
    reply: Option<StartReply>,
    /// A child was made and nobody has seen its teardown end.
    open: bool,
    /// It gave up waiting for the runs below.
    abandons: bool,
    /// Why the start is to be rejected, once that is decided.
    decided: Option<Box<StartError>>,
}

impl DriverGuard {
    pub(crate) fn new(core: Arc<RunCore>, reply: StartReply) -> Self {
        Self { core, reply: Some(reply), open: false, abandons: false, decided: None }
    }
}

impl Drop for DriverGuard {
    fn drop(&mut self) {
        let core = &self.core;
        if self.open {
            core.leaked(CUT_SHORT);
        }
        if !core.state().is_settled() {
            match self.reply.take() {
                Some(reply) => {
                    let error = self.decided.take().map_or_else(|| lost(core), |decided| *decided);
                    core.reject(reply, error);
                }
                None => core.settle(Ending::Lost),
            }
        }
        if let Some(actor) = core.driver_done(self.abandons) {
            actor.stop(None);
        }
    }
}

/// What to tell the caller of a start whose driver was lost.
fn lost(core: &RunCore) -> StartError {
    if core.seat.token.is_cancelled() { cancelled(core) } else { refused(CancelCause::OwnerLost, core) }
}

/// What to tell the caller of a start that was cancelled.
fn cancelled(core: &RunCore) -> StartError {
    refused(core.cause_or_inherited(), core)
}

fn refused(cause: CancelCause, core: &RunCore) -> StartError {
    if cause == CancelCause::OwnerLost && core.shared.standing() == Standing::Failed {
        return StartError::ServiceFailed;
    }
    StartError::Cancelled { cause }
}

/// Drives one run to its end.
#[expect(
    clippy::manual_async_fn,
    reason = "an `async fn` keeps its arguments twice, in every run that waits"
)]
pub(crate) fn drive(mut guard: DriverGuard, assignment: Box<Assignment>) -> impl Future<Output = ()> + Send {
    async move {
        let core = guard.core.clone();
        // Few requests bring a token of their own.
        let mut token = assignment.request.get_token().map(|token| Box::pin(token.clone().cancelled_owned()));
        let started = match start(&mut guard, &core, assignment, &mut token).await {
            Ok(started) => Some(started),
            Err(error) => {
                guard.decided = Some(Box::new(error));
                None
            }
        };
        let Some((mut child, local)) = started else {
            // A start may have delegated before it failed: nothing more starts below, and what did ends first.
            core.seat.end();
            core.seat.token.cancel();
            if core.seat.children() > 0 {
                Box::pin(wait_for_children(&mut guard, &core)).await;
            }
            return;
        };
        if core.publish(local) {
            if let Some(reply) = guard.reply.take() {
                // A caller that left has cancelled the run by that.
                let _ = reply.send(Ok(()));
            }
            let ending = run(&core, &mut child, &mut token).await;
            core.settle(ending);
        }
        close(&mut guard, &core, child).await;
    }
}

/// A deadline so far away that the clock cannot say it lies thirty years ahead.
fn after(now: Instant, patience: Duration) -> Instant {
    now.checked_add(patience).unwrap_or_else(|| now + Duration::from_hours(30 * 365 * 24))
}

/// When a phase of the run began.
fn began(core: &RunCore, phase: Phase) -> Instant {
    core.shared.clock.instant(core.since(phase))
}

/// What its batch leaves it from this moment on.
fn left(core: &RunCore, from: Instant) -> Option<Duration> {
    core.until().map(|until| until.saturating_duration_since(from))
}

/// Then it is cancelled as well.
fn batch_is_over(core: &RunCore) -> bool {
    let over = core.until().is_some_and(|until| until <= Instant::now());
    if over {
        core.cancel(CancelCause::Deadline(DeadlineKind::Batch));
    }
    over
}

async fn wait_for_slot(
    core: Arc<RunCore>,
    permit: oneshot::Receiver<bool>,
    token: &mut Token,
) -> Result<(), StartError> {
    let asked = began(&core, Phase::Queued);
    let patience = core.deadline(|deadlines| deadlines.queue).into_iter().chain(left(&core, asked)).min();
    let until = patience.map(|patience| after(asked, patience));
    let mut permit: Contained<BoxFuture<'_, _>> = Contained::new(Box::pin(permit));
    match race(&core, Some(token), &mut permit, until).await {
        Raced::Done(Ok(Ok(borrowed))) => {
            core.set_limited(borrowed);
            core.admit();
            Ok(())
        }
        Raced::Done(_) => Err(StartError::ServiceFailed),
        Raced::Cancelled => Err(cancelled(&core)),
        Raced::Late if batch_is_over(&core) => Err(cancelled(&core)),
        Raced::Late => Err(StartError::QueueTimeout { after: patience.unwrap_or_default() }),
    }
}

type Started = Result<Box<dyn DynChild>, StartError>;
/// A child, and whether it is local.
type Ready = (Contained<Box<dyn DynChild>>, bool);

/// Asks the provider for a child, and whether it is local. What is rare is boxed.
#[expect(clippy::manual_async_fn, reason = "as for `drive`")]
fn start(
    guard: &mut DriverGuard,
    core: &Arc<RunCore>,
    mut assignment: Box<Assignment>,
    token: &mut Token,
) -> impl Future<Output = Result<Ready, StartError>> + Send {
    async move {
        if let Some(permit) = assignment.permit.take() {
            Box::pin(wait_for_slot(core.clone(), permit, token)).await?;
        }
        let Assignment { provider, request, .. } = *assignment;
        let mut starting = begin(core, &provider, request)?;
        let raced = if let Some(raced) = at_once(&mut starting).await {
            raced
        } else {
            // Only a start that takes time is seen starting.
            core.admit();
            let (admitted, patience) = start_bound(core);
            Box::pin(race(core, Some(token), &mut starting, Some(after(admitted, patience)))).await
        };
        match judge_start(core, starting, raced) {
            Ok(ready) => {
                guard.open = true;
                Ok(ready)
            }
            Err(undone) => Box::pin(undo(guard, core, undone)).await,
        }
    }
}

/// From when on a start is given how long.
fn start_bound(core: &RunCore) -> (Instant, Duration) {
    // One that never waited for a slot is given its time from the call on, however long its first step took.
    let admitted = began(core, if core.ticket().is_none() { Phase::Queued } else { Phase::Starting });
    let patience = core.patience(|deadlines| deadlines.start, START);
    (admitted, left(core, admitted).map_or(patience, |left| left.min(patience)))
}

/// A start that gives no run, and what of it is still there.
enum Undone<'p> {
    Refused(StartError),
    /// A child that nobody wants any more.
    Late(Contained<Box<dyn DynChild>>, StartError),
    Cut(Contained<BoxFuture<'p, Started>>, StartError),
}

/// What came of a start. Whatever comes out of one that is cancelled by now, the cancel is what happened.
fn judge_start<'p>(
    core: &RunCore,
    starting: Contained<BoxFuture<'p, Started>>,
    raced: Raced<Started>,
) -> Result<Ready, Undone<'p>> {
    let started = match raced {
        Raced::Done(Ok(started)) => started,
        Raced::Done(Err(panic)) => return Err(Undone::Refused(panicked(core, panic))),
        Raced::Cancelled => return Err(Undone::Cut(starting, cancelled(core))),
        Raced::Late if batch_is_over(core) => return Err(Undone::Cut(starting, cancelled(core))),
        Raced::Late => {
            core.cancel(CancelCause::Deadline(DeadlineKind::Start));
            let (_, after) = start_bound(core);
            return Err(Undone::Cut(
                starting,
                StartError::StartTimeout { provider: core.provider.clone(), after, reason: None },
            ));
        }
    };
    let cancelled = core.seat.token.is_cancelled().then(|| cancelled(core));
    let mut child = match (started, cancelled) {
        (Ok(child), None) => Contained::new(child),
        (Ok(child), Some(error)) => return Err(Undone::Late(Contained::new(child), error)),
        (Err(overruled), Some(error)) => {
            drop(Contained::new(overruled));
            return Err(Undone::Refused(error));
        }
        (Err(error), None) => return Err(Undone::Refused(error)),
    };
    match catch_unwind(AssertUnwindSafe(|| child.get().is_some_and(|child| child.local_agent().is_some()))) {
        Ok(local) => Ok((child, local)),
        Err(panic) => Err(Undone::Late(child, panicked(core, panic))),
    }
}

async fn undo(guard: &mut DriverGuard, core: &Arc<RunCore>, undone: Undone<'_>) -> Result<Ready, StartError> {
    Err(match undone {
        Undone::Refused(error) => error,
        Undone::Late(child, error) => {
            close(guard, core, child).await;
            error
        }
        Undone::Cut(starting, mut error) => {
            guard.decided = Some(Box::new(error.clone()));
            let said = cut_short(guard, core, starting).await;
            if let StartError::StartTimeout { reason, .. } = &mut error {
                *reason = said;
            }
            error
        }
    })
}

/// Makes the provider's start, unless the run is cancelled by now.
fn begin<'p>(
    core: &Arc<RunCore>,
    provider: &'p DynProvider,
    request: StartRequest,
) -> Result<Contained<BoxFuture<'p, Started>>, StartError> {
    if request.get_token().is_some_and(CancellationToken::is_cancelled) {
        core.cancel(CancelCause::Token);
    }
    if core.seat.token.is_cancelled() {
        return Err(cancelled(core));
    }
    let context = StartContext::new(core.clone(), request);
    // Making the future may panic as well: a provider may be written by hand.
    let starting = catch_unwind(AssertUnwindSafe(|| provider.start(context)));
    starting.map(Contained::new).map_err(|panic| panicked(core, panic))
}

/// A start that is cut short is told by its token, given the grace, and dropped; a child that comes out of it late is
/// closed. Gives what the provider said of it, if it said something.
async fn cut_short(
    guard: &mut DriverGuard,
    core: &Arc<RunCore>,
    mut starting: Contained<BoxFuture<'_, Started>>,
) -> Option<Box<str>> {
    core.seat.token.cancel();
    let grace = core.patience(|deadlines| deadlines.cancel_grace, CANCEL_GRACE);
    let late = race(core, None, &mut starting, Some(after(Instant::now(), grace))).await;
    drop(starting);
    match late {
        Raced::Done(Ok(Ok(child))) => close(guard, core, Contained::new(child)).await,
        Raced::Done(Err(panic)) => {
            tracing::warn!(run = %core.id(), message = %message_of(panic), "a start panicked after it was cut short");
        }
        Raced::Done(Ok(Err(overruled))) => {
            let said = if let StartError::ProviderFailed(failure) = &overruled {
                Some(format!("{failure} ({})", failure.code().as_str()).into())
            } else {
                None
            };
            drop(Contained::new(overruled));
            return said;
        }
        Raced::Cancelled | Raced::Late => {}
    }
    None
}

fn panicked(core: &RunCore, panic: Panic) -> StartError {
    let message = subagents_seam::Diagnostic::new("panic", &message_of(panic)).text().into();
    StartError::ProviderPanicked { provider: core.provider.clone(), message }
}

/// Runs the child until it returns, or until it has to be dropped.
#[expect(clippy::manual_async_fn, reason = "as for `drive`")]
fn run(
    core: &Arc<RunCore>,
    child: &mut Contained<Box<dyn DynChild>>,
    token: &mut Token,
) -> impl Future<Output = Ending> + Send {
    async move {
        let Some(child) = child.get() else { return Ending::Lost };
        let context = RunContext::new(core.clone());
        let mut running = match catch_unwind(AssertUnwindSafe(|| child.run(context))) {
            Ok(running) => Contained::new(running),
            Err(panic) => return Ending::Panicked(message_of(panic)),
        };
        // A cancelled run has its grace, whatever else would have ended it.
        let mut grace = None;
        loop {
            let until = grace.or_else(|| Bound::of(core).first());
            let listening = if grace.is_none() { Some(&mut *token) } else { None };
            match race(core, listening, &mut running, until).await {
                Raced::Done(Ok(returned)) => break Ending::Returned(returned.map(Arc::new)),
                Raced::Done(Err(panic)) => break Ending::Panicked(message_of(panic)),
                Raced::Cancelled => {
                    let patience = core.patience(|deadlines| deadlines.cancel_grace, CANCEL_GRACE);
                    grace = Some(after(Instant::now(), patience));
                }
                Raced::Late => {
                    if let Some(cause) = overdue(core, grace) {
                        core.cancel(cause);
                        break Ending::Cut;
                    }
                }
            }
        }
    }
}

/// When a published run has to end, by each of its deadlines.
struct Bound {
    total: Option<Instant>,
    idle: Option<Instant>,
    batch: Option<Instant>,
}

impl Bound {
    fn of(core: &RunCore) -> Self {
        let published = began(core, Phase::Running);
        let total = core.deadline(|deadlines| deadlines.total).map(|total| after(published, total));
        let idle = core.deadline(|deadlines| deadlines.idle);
        let idle = idle.map(|idle| after(last_sign(core, published), idle));
        Self { total, idle, batch: core.until() }
    }

    fn first(&self) -> Option<Instant> {
        [self.total, self.idle, self.batch].into_iter().flatten().min()
    }
}

/// Which deadline has passed; none where a sign of life has moved the idle one on since the timer was set.
fn overdue(core: &RunCore, grace: Option<Instant>) -> Option<CancelCause> {
    let now = Instant::now();
    let passed = |at: Option<Instant>| at.is_some_and(|at| at <= now);
    if grace.is_some() {
        return passed(grace).then(|| core.cause_or_inherited());
    }
    let Bound { total, idle, batch } = Bound::of(core);
    let which = [(batch, DeadlineKind::Batch), (total, DeadlineKind::Total), (idle, DeadlineKind::Idle)];
    let which = which.into_iter().find(|(at, _)| passed(*at));
    which.map(|(_, kind)| CancelCause::Deadline(kind))
}

fn last_sign(core: &RunCore, published: Instant) -> Instant {
    core.last_sign().map_or(published, |at| core.shared.clock.instant(at).max(published))
}

/// Tears the child down, then waits for what is below it: gone child-first. Bounded; what is left is a fact.
#[expect(clippy::manual_async_fn, reason = "as for `drive`")]
fn close(
    guard: &mut DriverGuard,
    core: &Arc<RunCore>,
    child: Contained<Box<dyn DynChild>>,
) -> impl Future<Output = ()> + Send {
    async move {
        guard.open = true;
        let now = if core.state().is_settled() { began(core, Phase::Closing) } else { Instant::now() };
        let deadline = after(now, dispose_patience(core));
        if let Some(mut closing) = begin_close(core, child, deadline) {
            let closed = match at_once(&mut closing).await {
                Some(closed) => closed,
                None => Box::pin(race(core, None, &mut closing, Some(deadline))).await,
            };
            judge_close(core, closed);
        }
        guard.open = false;
        if core.seat.children() > 0 {
            Box::pin(wait_for_children(guard, core)).await;
        }
    }
}

fn dispose_patience(core: &RunCore) -> Duration {
    core.patience(|deadlines| deadlines.dispose, DISPOSE)
}

fn begin_close(
    core: &RunCore,
    child: Contained<Box<dyn DynChild>>,
    deadline: Instant,
) -> Option<Contained<BoxFuture<'static, Closed>>> {
    let child = child.take()?;
    let closing = catch_unwind(AssertUnwindSafe(|| child.close(deadline)));
    closing.map(Contained::new).map_err(|panic| teardown_panicked(core, panic)).ok()
}

fn judge_close(core: &RunCore, closed: Raced<Closed>) {
    match closed {
        Raced::Done(Ok(Closed::Clean)) => {}
        Raced::Done(Ok(Closed::Leaked(what))) => core.leaked(what),
        Raced::Done(Ok(_)) => core.leaked("its teardown ended in a way that is not known here"),
        Raced::Done(Err(panic)) => teardown_panicked(core, panic),
        Raced::Cancelled | Raced::Late => {
            core.leaked(format!("its teardown took longer than {:?}", dispose_patience(core)));
        }
    }
}

fn teardown_panicked(core: &RunCore, panic: Panic) {
    core.leaked(format!("its teardown panicked: {}", message_of(panic)));
}

async fn wait_for_children(guard: &mut DriverGuard, core: &RunCore) {
    // Those below were cancelled with it and are bounded themselves. Each level below adds its own grace and teardown,
    // so no bound is right for all trees; eight levels' worth is generous.
    if tokio::time::timeout_at(after(Instant::now(), ladder(core).saturating_mul(8)), core.seat.childless())
        .await
        .is_err()
    {
        core.leaked(format!("{} runs below it are not gone", core.seat.children()));
        guard.abandons = true;
    }
}

/// How long a run may take from its cancel to its end.
pub(crate) fn ladder(core: &RunCore) -> Duration {
    let grace = core.patience(|deadlines| deadlines.cancel_grace, CANCEL_GRACE);
    grace.saturating_add(dispose_patience(core))
}
