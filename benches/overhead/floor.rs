//! *floor*: the least a registry of supervised actors can be with ractor. Start and dispose are calls to one
//! actor, the child is an actor linked to it, the result is a oneshot, and dispose is answered when the
//! registry has handled the child's exit. No ids of its own, no index to look at, no events, no tokens, no
//! deadlines. The workspace uses ractor without message spans, and so does this.

use crate::harness::{Hold, OK, Peer};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use std::collections::HashMap;
use tokio::sync::oneshot;

struct Child;

struct ChildState {
    result: Option<oneshot::Sender<String>>,
    hold: Hold,
}

impl ChildState {
    fn settle(&mut self) {
        if let Some(result) = self.result.take() {
            let _ = result.send(OK.to_owned());
        }
    }
}

/// The only thing a child is told: stop holding.
pub(crate) struct Release;

impl Actor for Child {
    type Msg = Release;
    type State = ChildState;
    type Arguments = ChildState;

    async fn pre_start(
        &self,
        _: ActorRef<Release>,
        state: ChildState,
    ) -> Result<ChildState, ActorProcessingErr> {
        Ok(state)
    }

    async fn post_start(
        &self,
        _: ActorRef<Release>,
        state: &mut ChildState,
    ) -> Result<(), ActorProcessingErr> {
        match state.hold {
            Hold::No => state.settle(),
            Hold::UntilReleased | Hold::UntilCancelled => {}
        }
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Release>,
        Release: Release,
        state: &mut ChildState,
    ) -> Result<(), ActorProcessingErr> {
        state.settle();
        Ok(())
    }
}

pub(crate) enum Order {
    Start(Hold, RpcReplyPort<Started>),
    Dispose(ActorId, RpcReplyPort<()>),
    KillAll(RpcReplyPort<()>),
}

pub(crate) struct Started {
    child: ActorRef<Release>,
    result: Option<oneshot::Receiver<String>>,
}

struct Registry;

#[derive(Default)]
struct RegistryState {
    entries: HashMap<ActorId, Entry>,
    emptied: Option<RpcReplyPort<()>>,
}

struct Entry {
    child: ActorRef<Release>,
    exited: bool,
    disposer: Option<RpcReplyPort<()>>,
}

impl Actor for Registry {
    type Msg = Order;
    type State = RegistryState;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Order>, (): ()) -> Result<RegistryState, ActorProcessingErr> {
        Ok(RegistryState::default())
    }

    async fn handle(
        &self,
        myself: ActorRef<Order>,
        order: Order,
        state: &mut RegistryState,
    ) -> Result<(), ActorProcessingErr> {
        match order {
            Order::Start(hold, reply) => {
                let (settle, result) = oneshot::channel();
                let arguments = ChildState { result: Some(settle), hold };
                let (child, _) = Actor::spawn_linked(None, Child, arguments, myself.get_cell()).await?;
                let entry = Entry { child: child.clone(), exited: false, disposer: None };
                state.entries.insert(child.get_id(), entry);
                let _ = reply.send(Started { child, result: Some(result) });
            }
            Order::Dispose(id, reply) => match state.entries.get_mut(&id) {
                Some(entry) if !entry.exited => {
                    entry.child.stop(None);
                    entry.disposer = Some(reply);
                }
                _ => {
                    state.entries.remove(&id);
                    let _ = reply.send(());
                }
            },
            Order::KillAll(reply) => {
                for entry in state.entries.values() {
                    entry.child.kill();
                }
                state.emptied = Some(reply);
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Order>,
        event: SupervisionEvent,
        state: &mut RegistryState,
    ) -> Result<(), ActorProcessingErr> {
        let (SupervisionEvent::ActorTerminated(child, ..) | SupervisionEvent::ActorFailed(child, _)) = event
        else {
            return Ok(());
        };
        let id = child.get_id();
        if state.emptied.is_some() {
            state.entries.remove(&id);
            if state.entries.is_empty() {
                let _ = state.emptied.take().expect("seen above").send(());
            }
        } else if let Some(entry) = state.entries.get_mut(&id) {
            if let Some(disposer) = entry.disposer.take() {
                state.entries.remove(&id);
                let _ = disposer.send(());
            } else {
                entry.exited = true;
            }
        }
        Ok(())
    }
}

#[derive(Clone)]
pub(crate) struct Floor {
    registry: ActorRef<Order>,
}

impl Floor {
    async fn ask<T: Send + 'static>(&self, order: impl FnOnce(RpcReplyPort<T>) -> Order) -> T {
        self.registry.call(order, None).await.expect("the registry lives").expect("the registry answers")
    }
}

impl Peer for Floor {
    const NAME: &'static str = "floor";
    type Run = Started;

    async fn open() -> Self {
        let (registry, _) = Actor::spawn(None, Registry, ()).await.expect("the registry starts");
        Self { registry }
    }

    async fn start(&self, hold: Hold) -> Started {
        self.ask(|reply| Order::Start(hold, reply)).await
    }

    fn release(&self, run: &mut Started) {
        run.child.cast(Release).expect("the child lives");
    }

    async fn result(&self, run: &mut Started) -> usize {
        run.result.take().expect("asked once").await.expect("the child settles").len()
    }

    async fn dispose(&self, run: Started) {
        let id = run.child.get_id();
        self.ask(move |reply| Order::Dispose(id, reply)).await;
    }

    async fn cancel_all(&self, _: &mut [Started]) {
        self.ask(Order::KillAll).await;
    }

    async fn close(self) {
        self.registry.stop_and_wait(None, None).await.expect("the registry stops");
    }
}
