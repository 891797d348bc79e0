//! The run actor: one delegation's address. A start made it; a cancel, a disposal of what still runs and the wait for
//! the result are messages to it. It owns the driver task and awaits nothing.

use crate::{
    core::RunCore,
    driver::{self, Assignment, DriverGuard},
    settlement::{Ending, Settled},
};
use ractor::{ActorProcessingErr, ActorRef};
use std::sync::{Arc, Mutex, PoisonError};
use subagents_seam::{CancelCause, RunId};
use tokio::{sync::oneshot, task::JoinHandle};
use tracing::Instrument;

pub(crate) enum RunMessage {
    Cancel(CancelCause),
    /// Answer when it has settled.
    Result(oneshot::Sender<Settled>),
    /// A test asks how a fault of the runtime itself is borne.
    #[cfg(feature = "fault-injection")]
    Panic,
}

pub(crate) struct RunActor {
    core: Arc<RunCore>,
    work: Mutex<Work>,
}

enum Work {
    Assigned(Box<Assignment>),
    Driven(JoinHandle<()>),
    None,
}

impl RunActor {
    pub(crate) fn new(core: Arc<RunCore>, assignment: Box<Assignment>) -> Self {
        Self { core, work: Mutex::new(Work::Assigned(assignment)) }
    }

    pub(crate) fn run(&self) -> RunId {
        self.core.id()
    }
}

/// Whatever ends the actor: the driver is cut, the run settles, and goes with its driver, whichever of the two is last.
/// After an ordinary end the first two are done already.
impl Drop for RunActor {
    fn drop(&mut self) {
        let work = std::mem::replace(self.work.get_mut().unwrap_or_else(PoisonError::into_inner), Work::None);
        match work {
            Work::Assigned(mut assignment) => {
                // It never came to a driver: a guard dropped at once does what the end of one would.
                drop(assignment.reply.take().map(|reply| DriverGuard::new(self.core.clone(), reply)));
            }
            Work::Driven(task) => {
                if !self.core.state().is_driver_done() {
                    self.core.cancel(CancelCause::OwnerLost);
                    task.abort();
                    if self.core.state().is_published() {
                        self.core.settle(Ending::Lost);
                    }
                }
            }
            Work::None => {}
        }
        self.core.actor_done();
    }
}

/// Writes the run's end into its span, however the driver ends.
struct Told {
    core: Arc<RunCore>,
    span: tracing::Span,
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(result) = self.core.result() {
            self.span.record("stop_reason", result.stop_reason.as_str());
        }
    }
}

#[ractor::actor(message = RunMessage, state = ())]
impl RunActor {
    async fn pre_start(
        &self,
        _myself: ActorRef<RunMessage>,
        _arguments: (),
    ) -> Result<(), ActorProcessingErr> {
        // Nothing happens here: it runs before the link to the supervisor.
        Ok(())
    }

    async fn post_start(
        &self,
        myself: ActorRef<RunMessage>,
        _state: &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let core = &self.core;
        core.set_actor(myself);
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if let Work::Assigned(mut assignment) = std::mem::replace(&mut *work, Work::None)
            && let Some(reply) = assignment.reply.take()
        {
            let guard = DriverGuard::new(core.clone(), reply);
            let span = tracing::info_span!(
                "subagent.run",
                run = %core.id(),
                agent = %core.seat.agent,
                provider = %core.provider,
                label = core.label.as_deref().unwrap_or_default(),
                depth = core.seat.depth,
                stop_reason = tracing::field::Empty,
            );
            let driver = driver::drive(guard, assignment);
            let tracker = &core.shared.tracker;
            *work = Work::Driven(if span.is_disabled() {
                tracker.spawn(driver)
            } else {
                let told = Told { core: core.clone(), span: span.clone() };
                let driver = async move {
                    let _told = told;
                    driver.await;
                };
                tracker.spawn(driver.instrument(span))
            });
        }
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<RunMessage>,
        message: RunMessage,
        _state: &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RunMessage::Cancel(cause) => self.core.cancel(cause),
            RunMessage::Result(waiter) => self.core.await_settled(waiter),
            #[cfg(feature = "fault-injection")]
            #[expect(clippy::panic, reason = "that is what the message asks for")]
            RunMessage::Panic => panic!("a test panics the run actor"),
        }
        Ok(())
    }
}
