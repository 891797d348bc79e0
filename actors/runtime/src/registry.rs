//! The registry actor: it spawns and supervises every run actor, holds admission, and sees every exit. Its handlers
//! route and never wait for a child, a provider or a caller.

use crate::{
    admission::{Admission, Admitted, LaneId, Submission},
    core::{RunCore, StartReply},
    driver::Assignment,
    index::IdHasher,
    run_actor::RunActor,
    settlement::Ending,
    shared::{Shared, Standing},
};
use ractor::{ActorProcessingErr, ActorRef, SupervisionEvent};
use std::{collections::HashMap, hash::BuildHasherDefault, sync::Arc};
use subagents_seam::{CancelCause, RunId, StartError};
use tokio::sync::oneshot;

pub(crate) enum RegistryMessage {
    Start(Start),
    /// A run under a limit is gone: its slot is free.
    Leave(RunId),
    /// Nothing more comes: stop once nothing lives. Said again by the last run.
    Close,
    /// Kill what lives: the grace of a shutdown ran out.
    KillAll,
    /// A test asks how a fault of the runtime itself is borne.
    #[cfg(feature = "fault-injection")]
    Panic,
}

pub(crate) struct Start {
    pub(crate) core: Asked,
    pub(crate) lane: LaneId,
    pub(crate) assignment: Box<Assignment>,
}

/// A run on its way to the registry. One that does not arrive leaves the place above free and is not counted.
pub(crate) struct Asked(Option<Arc<RunCore>>);

impl Asked {
    pub(crate) fn new(core: Arc<RunCore>) -> Self {
        Self(Some(core))
    }

    fn arrived(mut self) -> Option<Arc<RunCore>> {
        self.0.take()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(core) = self.0.take() {
            turned_away(&core);
        }
    }
}

/// Whatever ends the registry: an end that nobody asked for is a failure, and every run settles and goes.
pub(crate) struct Registry {
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.live() > 0 || shared.standing() == Standing::Open {
            shared.drain(CancelCause::OwnerLost);
            shared.advance(Standing::Failed);
            tracing::error!(live = shared.live(), "the registry failed; every run of the service ends");
            for core in shared.runs.all() {
                core.cancel(CancelCause::OwnerLost);
                if core.state().is_published() {
                    core.settle(Ending::Lost);
                }
                // The link has killed its actor, whose end cuts the driver.
            }
        } else {
            shared.advance(Standing::Closed);
        }
        shared.tracker.close();
        if shared.live() == 0 {
            shared.end();
        }
    }
}

/// A panic of the registry is told before its link kills the run actors, so that their ends know why.
struct Alarm<'a>(&'a Shared);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.advance(Standing::Failed);
            self.0.drain(CancelCause::OwnerLost);
        }
    }
}

pub(crate) struct State {
    admission: Admission,
    /// Of those that wait for a slot.
    permits: HashMap<RunId, oneshot::Sender<bool>, BuildHasherDefault<IdHasher>>,
    closing: bool,
}

#[ractor::actor(message = RegistryMessage, state = State, arguments = Admission)]
impl Registry {
    async fn pre_start(
        &self,
        _myself: ActorRef<RegistryMessage>,
        admission: Admission,
    ) -> Result<State, ActorProcessingErr> {
        Ok(State { admission, permits: HashMap::default(), closing: false })
    }

    async fn handle(
        &self,
        myself: ActorRef<RegistryMessage>,
        message: RegistryMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let _alarm = Alarm(&self.shared);
        match message {
            // Awaited here, not in a function of its own: the future of a start is large, and would be moved once more.
            RegistryMessage::Start(start) => {
                if let Some(actor) = self.admit(start, state) {
                    let run = actor.run();
                    if let Err(error) = RunActor::spawn_linked(None, actor, (), myself.get_cell()).await {
                        // Its guard has rejected the start and taken the run out.
                        tracing::error!(%run, %error, "a run actor did not start");
                    }
                }
            }
            RegistryMessage::Leave(run) => Self::leave(run, state),
            RegistryMessage::Close => state.closing = true,
            RegistryMessage::KillAll => {
                for core in self.shared.runs.all() {
                    core.kill();
                }
            }
            #[cfg(feature = "fault-injection")]
            #[expect(clippy::panic, reason = "that is what the message asks for")]
            RegistryMessage::Panic => panic!("a test panics the registry"),
        }
        self.stop_when_empty(&myself, state);
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<RegistryMessage>,
        event: SupervisionEvent,
        _state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        // Overridden, since by default any exit of a child ends its supervisor. What an exit means for a run its
        // actor's guard has done by itself: it does the same whether or not a supervisor is left.
        if let SupervisionEvent::ActorFailed(cell, error) = event {
            tracing::error!(actor = %cell.get_id(), %error, "a run actor failed; its run ends as an error");
        }
        Ok(())
    }
}

impl Registry {
    /// The actor of a start that is let in; the others are answered here.
    fn admit(&self, start: Start, state: &mut State) -> Option<RunActor> {
        let Start { core, lane, mut assignment } = start;
        let core = core.arrived()?;
        if self.shared.standing() != Standing::Open {
            refuse(&core, assignment.reply, StartError::Draining);
            return None;
        }
        match state.admission.submit(core.id(), lane, core.parent.lender()) {
            Submission::Free => {}
            Submission::Admitted { borrowed } => core.set_limited(borrowed),
            Submission::Queued { ticket } => {
                let (permit, permitted) = oneshot::channel();
                assignment.permit = Some(permitted);
                state.permits.insert(core.id(), permit);
                core.set_limited(false);
                core.set_ticket(ticket);
            }
            Submission::Full { queued, active } => {
                refuse(&core, assignment.reply, StartError::QueueFull { queued, active });
                return None;
            }
        }
        self.shared.enter(&core);
        if core.ticket().is_some() {
            core.announce();
        }
        Some(RunActor::new(core, assignment))
    }

    fn leave(run: RunId, state: &mut State) {
        state.permits.remove(&run);
        let mut admitted = state.admission.leave(run);
        while let Some(Admitted { run, borrowed }) = admitted.pop() {
            let taken = state.permits.remove(&run).is_some_and(|permit| permit.send(borrowed).is_ok());
            if !taken {
                // It was cancelled in the same moment: the slot goes on to the next.
                admitted.extend(state.admission.leave(run));
            }
        }
    }

    fn stop_when_empty(&self, myself: &ActorRef<RegistryMessage>, state: &State) {
        if state.closing && self.shared.live() == 0 {
            myself.stop(None);
        }
    }
}

/// Turns a start away before anything of it exists.
fn refuse(core: &Arc<RunCore>, reply: Option<StartReply>, error: StartError) {
    turned_away(core);
    if let Some(reply) = reply {
        let _ = reply.send(Err(error));
    }
}

fn turned_away(core: &RunCore) {
    core.parent.root().uncount_start();
    if let Some(above) = core.leave_seat() {
        above.farewell();
    }
}
