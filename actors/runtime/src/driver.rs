//! The one task per run: wait for a slot, start, publish, run, settle, close. The actor only hears from it.

use crate::{
    core::{RunCore, StartReply},
    handle::SubagentRun,
    registry::RegistryMessage,
    run::Effect,
    settlement::Ending,
};
use futures_util::FutureExt;
use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    time::Duration,
};
use subagents_seam::{
    CancelCause, CancellationToken, Closed, DeadlineKind, DynChild, DynProvider, Instant, RunContext,
    StartContext, StartError, StartRequest,
};
use tokio::{
    sync::oneshot,
    time::{sleep_until, timeout_at},
};
use tokio_util::sync::WaitForCancellationFutureOwned;

const START: Duration = Duration::from_mins(1);
const CANCEL_GRACE: Duration = Duration::from_secs(2);
const DISPOSE: Duration = Duration::from_secs(15);

/// What a driver is given.
pub(crate) struct Assignment {
    pub(crate) provider: DynProvider,
    pub(crate) blank_is_fine: bool,
    pub(crate) request: StartRequest,
    pub(crate) reply: StartReply,
    /// Set for a start that waits for a slot; it carries whether the slot is borrowed.
    pub(crate) permit: Option<oneshot::Receiver<bool>>,
}

/// Whatever ends the driver's task, the run settles, and the registry hears of it.
pub(crate) struct DriverGuard {
    core: Arc<RunCore>,
    reply: Option<StartReply>,
    blank_is_fine: bool,
}

impl Drop for DriverGuard {
    fn drop(&mut self) {
        let core = &self.core;
        if !core.state().is_settled() {
            match self.reply.take() {
                Some(reply) => core.reject(reply, lost(core)),
                None => core.settle(Ending::Lost, self.blank_is_fine),
            }
        }
        if core.driver_done() == Effect::Gone {
            // The registry has seen the actor's exit and waits for this.
            let told = core
                .shared
                .registry
                .get()
                .map(|it| it.send_message(RegistryMessage::DriverDone(core.clone())));
            if !matches!(told, Some(Ok(()))) {
                core.farewell();
            }
        } else if let Some(actor) = core.actor.get() {
            actor.stop(None);
        }
        core.finish_without_registry();
    }
}

impl DriverGuard {
    pub(crate) fn set_reply(&mut self, reply: StartReply) {
        self.reply = Some(reply);
    }
}

/// What to tell the caller of a start whose driver was lost.
fn lost(core: &RunCore) -> StartError {
    if core.shared.standing() == crate::shared::Standing::Failed {
        return StartError::ServiceFailed;
    }
    StartError::Cancelled { cause: core.cause_or_inherited() }
}

pub(crate) fn guard(core: Arc<RunCore>, assignment: &Assignment) -> DriverGuard {
    DriverGuard { core, reply: None, blank_is_fine: assignment.blank_is_fine }
}

/// Drives one run to its end.
pub(crate) async fn drive(mut guard: DriverGuard, assignment: Assignment) {
    let Assignment { provider, blank_is_fine, request, reply, permit } = assignment;
    guard.set_reply(reply);
    let core = guard.core.clone();
    // Few requests bring a token of their own.
    let mut token = request.get_token().map(|token| Box::pin(token.clone().cancelled_owned()));
    let started = async {
        match permit {
            Some(permit) => wait_for_slot(&core, permit, &mut token).await?,
            None => core.admit(core.is_borrowed()),
        }
        start(&core, &provider, request, &mut token).await
    }
    .await;
    drop(provider);
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            if let Some(reply) = guard.reply.take() {
                core.reject(reply, error);
            }
            return;
        }
    };
    if !core.publish(child.local_agent().is_some()) {
        return close(&core, child).await;
    }
    if let Some(reply) = guard.reply.take() {
        // A caller that left drops the handle, and that cancels the run.
        drop(reply.send(Ok(SubagentRun::new(core.clone()))));
    }
    let ending = run(&core, &mut child, &mut token).await;
    core.settle(ending, blank_is_fine);
    close(&core, child).await;
}

type Token = Option<Pin<Box<WaitForCancellationFutureOwned>>>;

/// Completes when the run is cancelled by whichever way, with the cause recorded.
async fn cancelled(core: &RunCore, token: &mut Token) {
    match token {
        None => core.seat.token.cancelled().await,
        Some(token) => tokio::select! {
            () = core.seat.token.cancelled() => {}
            () = token => core.cancel(CancelCause::Token),
        },
    }
    core.cause_or_inherited();
}

async fn wait_for_slot(
    core: &Arc<RunCore>,
    permit: oneshot::Receiver<bool>,
    token: &mut Token,
) -> Result<(), StartError> {
    let patience = core.deadline(|deadlines| deadlines.queue);
    let until = patience.and_then(|patience| {
        core.shared.clock.instant(core.since(subagents_seam::Phase::Queued)).checked_add(patience)
    });
    tokio::select! {
        biased;
        permit = permit => match permit {
            Ok(borrowed) => {
                core.admit(borrowed);
                Ok(())
            }
            Err(_) => Err(StartError::ServiceFailed),
        },
        () = cancelled(core, token) => Err(StartError::Cancelled { cause: core.cause_or_inherited() }),
        () = at(until) => Err(StartError::QueueTimeout { after: patience.unwrap_or_default() }),
    }
}

/// A deadline so far away that the clock cannot say it lies thirty years ahead.
fn after(now: Instant, patience: Duration) -> Instant {
    now.checked_add(patience).unwrap_or_else(|| now + Duration::from_hours(30 * 365 * 24))
}

/// Completes at a point in time, or never.
async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Asks the provider for a child. A start that is cut short is told by its token, given the grace, and dropped; a child
/// that comes out of it late is closed.
async fn start(
    core: &Arc<RunCore>,
    provider: &DynProvider,
    request: StartRequest,
    token: &mut Token,
) -> Result<Box<dyn DynChild>, StartError> {
    if core.seat.token.is_cancelled() || request.get_token().is_some_and(CancellationToken::is_cancelled) {
        core.cancel(if core.seat.token.is_cancelled() {
            core.cause_or_inherited()
        } else {
            CancelCause::Token
        });
        return Err(StartError::Cancelled { cause: core.cause_or_inherited() });
    }
    let patience = core.deadline(|deadlines| deadlines.start).unwrap_or(START);
    let context = StartContext::new(core.clone(), request);
    // Making the future may panic as well: a provider may be written by hand.
    let starting = match catch_unwind(AssertUnwindSafe(|| provider.start(context))) {
        Ok(starting) => starting,
        Err(panic) => return Err(panicked(core, &*panic)),
    };
    let mut starting = contained(starting);
    let error = tokio::select! {
        biased;
        started = &mut starting => match started {
            // Whatever comes out of a start that is cancelled by now, the cancel is what happened.
            Ok(started) if core.seat.token.is_cancelled() => {
                if let Ok(child) = started {
                    close(core, child).await;
                }
                return Err(StartError::Cancelled { cause: core.cause_or_inherited() });
            }
            Ok(started) => return started,
            Err(panic) => return Err(panicked(core, &*panic)),
        },
        () = cancelled(core, token) => StartError::Cancelled { cause: core.cause_or_inherited() },
        () = at(Instant::now().checked_add(patience)) => {
            StartError::StartTimeout { provider: core.provider.clone(), after: patience }
        }
    };
    core.seat.token.cancel();
    let grace = core.deadline(|deadlines| deadlines.cancel_grace).unwrap_or(CANCEL_GRACE);
    if let Ok(Ok(Ok(child))) = timeout_at(after(Instant::now(), grace), &mut starting).await {
        close(core, child).await;
    }
    drop_contained(starting);
    Err(error)
}

fn panicked(core: &RunCore, panic: &(dyn Any + Send)) -> StartError {
    let message = subagents_seam::Diagnostic::new("panic", &message_of(panic)).text().into();
    StartError::ProviderPanicked { provider: core.provider.clone(), message }
}

/// Runs the child until it returns, or until it has to be dropped.
async fn run(core: &Arc<RunCore>, child: &mut Box<dyn DynChild>, token: &mut Token) -> Ending {
    let published = Instant::now();
    let total = core.deadline(|deadlines| deadlines.total).and_then(|total| published.checked_add(total));
    let idle = core.deadline(|deadlines| deadlines.idle);
    let context = RunContext::new(core.clone());
    let running = match catch_unwind(AssertUnwindSafe(|| child.run(context))) {
        Ok(running) => running,
        Err(panic) => return Ending::Panicked(message_of(&*panic)),
    };
    let mut running = contained(running);
    let mut grace = None;
    let ending = loop {
        let quiet_until = idle.and_then(|idle| last_sign(core, published).checked_add(idle));
        let until = [total, quiet_until, grace].into_iter().flatten().min();
        tokio::select! {
            biased;
            returned = &mut running => break match returned {
                Ok(returned) => Ending::Returned(returned),
                Err(panic) => Ending::Panicked(message_of(&*panic)),
            },
            () = cancelled(core, token), if grace.is_none() => {
                let patience = core.deadline(|deadlines| deadlines.cancel_grace).unwrap_or(CANCEL_GRACE);
                grace = Some(after(Instant::now(), patience));
            }
            () = at(until) => {
                let now = Instant::now();
                if grace.is_some_and(|grace| grace <= now) {
                    break Ending::Cut;
                }
                if total.is_some_and(|total| total <= now) {
                    core.cancel(CancelCause::Deadline(DeadlineKind::Total));
                    break Ending::Cut;
                }
                // A sign of life since the timer was set moves it on.
                if idle.is_some_and(|idle| after(last_sign(core, published), idle) <= now) {
                    core.cancel(CancelCause::Deadline(DeadlineKind::Idle));
                    break Ending::Cut;
                }
            }
        }
    };
    drop_contained(running);
    ending
}

fn last_sign(core: &RunCore, published: Instant) -> Instant {
    core.last_sign().map_or(published, |at| core.shared.clock.instant(at).max(published))
}

/// Tears the child down, then waits for what is below it: gone child-first. Bounded; what is left is a fact.
async fn close(core: &Arc<RunCore>, child: Box<dyn DynChild>) {
    let patience = core.deadline(|deadlines| deadlines.dispose).unwrap_or(DISPOSE);
    let now = Instant::now();
    let deadline = after(now, patience);
    match catch_unwind(AssertUnwindSafe(|| child.close(deadline))) {
        Err(panic) => core.leaked(format!("its teardown panicked: {}", message_of(&*panic))),
        Ok(closing) => {
            let mut closing = contained(closing);
            match timeout_at(deadline, &mut closing).await {
                Ok(Ok(Closed::Clean)) => {}
                Ok(Ok(Closed::Leaked(what))) => core.leaked(what),
                Ok(Ok(_)) => core.leaked("its teardown ended in a way that is not known here"),
                Ok(Err(panic)) => core.leaked(format!("its teardown panicked: {}", message_of(&*panic))),
                Err(_) => core.leaked(format!("its teardown took longer than {patience:?}")),
            }
            drop_contained(closing);
        }
    }
    if core.seat.children() > 0 {
        // Those below were cancelled with it and are bounded themselves: their grace, then their teardown.
        let grace = core.deadline(|deadlines| deadlines.cancel_grace).unwrap_or(CANCEL_GRACE);
        // Each level below adds its own ladder, so no fixed bound is right for all; eight levels' worth is generous.
        let bound = grace.saturating_add(patience).saturating_mul(8);
        if timeout_at(after(now, bound), core.seat.childless()).await.is_err() {
            core.leaked(format!("{} runs below it are not gone", core.seat.children()));
        }
    }
}

type Panic = Box<dyn Any + Send>;

/// Runs a future of foreign code; its panic is a value.
fn contained<F: Future + Unpin>(future: F) -> futures_util::future::CatchUnwind<AssertUnwindSafe<F>> {
    AssertUnwindSafe(future).catch_unwind()
}

/// Foreign code may panic in a destructor as well.
fn drop_contained<T>(foreign: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(foreign))) {
        let panic: Panic = panic;
        tracing::warn!(message = %message_of(&*panic), "a destructor of foreign code panicked");
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
    message
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "with a value that is no text".to_owned())
}
