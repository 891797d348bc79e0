//! The broadcast channel of lifecycle and tree changes. Nothing that a listener does or leaves undone touches a run.

use crate::{
    core::RunCore,
    run::{Effect, State},
    seat::{Place, RootCore},
    settlement::Settled,
    shared::Shared,
    tree,
};
use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use subagents_seam::{Event, Node, Parent, RunEndInfo, RunInfo, StopReason};
use tokio::sync::broadcast::{self, error::RecvError};

/// The sequence of changes and the channel they go out on; both under one lock, so that what is sent is in order.
pub(crate) struct Log {
    sequence: u64,
    /// Taken away when the service ends, so that listeners see the end.
    sender: Option<broadcast::Sender<Item>>,
    capacity: usize,
}

impl Log {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { sequence: 0, sender: Some(broadcast::channel(capacity).0), capacity }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub(crate) fn send(&mut self, item: Item) {
        if let Some(sender) = &self.sender
            && sender.receiver_count() > 0
        {
            // An error says that the last listener left in between.
            let _ = sender.send(item);
        }
    }

    pub(crate) fn wants(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| sender.receiver_count() > 0)
    }

    pub(crate) fn end(&mut self) {
        self.sender = None;
    }

    fn subscribe(&self) -> Option<broadcast::Receiver<Item>> {
        self.sender.as_ref().map(broadcast::Sender::subscribe)
    }
}

/// The channel of one parent's own delegations; empty once that parent has ended.
pub(crate) struct ScopedEvents(Mutex<Option<broadcast::Sender<Item>>>);

impl ScopedEvents {
    fn sender(&self) -> MutexGuard<'_, Option<broadcast::Sender<Item>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn send(&self, item: Item) {
        if let Some(sender) = &*self.sender() {
            let _ = sender.send(item);
        }
    }

    pub(crate) fn end(&self) {
        *self.sender() = None;
    }
}

/// One item on the channel: small, and rendered by whoever listens.
#[derive(Clone)]
pub(crate) enum Item {
    ProviderAdded(Arc<str>),
    ProviderRemoved(Arc<str>),
    Root { root: Arc<RootCore>, revision: u64, gone: bool },
    Run { core: Arc<RunCore>, state: State, effect: Effect, revision: u64, at: u64 },
    Node(Box<Node>),
}

impl Item {
    /// The lifecycle event first, then the change of the tree.
    fn render(self, into: &mut VecDeque<Event>) {
        match self {
            Self::ProviderAdded(name) => into.push_back(Event::ProviderAdded { name }),
            Self::ProviderRemoved(name) => into.push_back(Event::ProviderRemoved { name }),
            Self::Node(node) => into.push_back(Event::NodeChanged(node)),
            Self::Root { root, revision, gone: true } => {
                into.push_back(Event::NodeGone { id: root.seat.agent.into(), revision });
            }
            Self::Root { root, revision, gone: false } => {
                into.push_back(Event::NodeChanged(Box::new(tree::root_node(&root, revision))));
            }
            Self::Run { core, state, effect, revision, at } => {
                match effect {
                    Effect::Started => into.push_back(Event::Started(info(&core))),
                    Effect::Ended => into.push_back(Event::Ended(end_info(&core))),
                    Effect::Gone => {
                        if let Some(process) = core.process_id() {
                            into.push_back(Event::NodeGone { id: process, revision });
                        }
                        into.push_back(Event::NodeGone { id: core.id.into(), revision });
                        return;
                    }
                    Effect::Nothing | Effect::Changed | Effect::Rejected => {}
                }
                into.push_back(Event::NodeChanged(Box::new(tree::run_node_at(&core, state, revision, at))));
            }
        }
    }
}

fn info(core: &RunCore) -> RunInfo {
    RunInfo::new(core.id, core.provider.clone(), core.seat.agent, core.is_local())
}

fn end_info(core: &RunCore) -> RunEndInfo {
    let (stop_reason, message) = match core.outcome() {
        Some(Settled::Ok(result)) => (result.stop_reason.clone(), result.last_assistant_message().cloned()),
        Some(Settled::Err(_)) | None => (StopReason::Error, None),
    };
    RunEndInfo::new(info(core), stop_reason, message)
}

/// A listener that fell behind: this many items are lost to it, and to nobody else. Call
/// [`SubagentService::watch`](crate::SubagentService::watch) again to be exact again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lagged(pub u64);

impl fmt::Display for Lagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the listener fell behind and lost {} items; watch again", self.0)
    }
}

impl std::error::Error for Lagged {}

/// A subscription to the service's events (SPEC 2.6).
///
/// It sees what happens from the moment it was made. Dropping it unsubscribes and changes nothing else.
#[must_use = "dropping a stream unsubscribes"]
pub struct EventStream {
    shared: Arc<Shared>,
    receiver: Option<broadcast::Receiver<Item>>,
    pending: VecDeque<Event>,
}

impl EventStream {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let receiver = shared.log().subscribe();
        Self { shared, receiver, pending: VecDeque::new() }
    }

    /// Narrows the stream to one parent's own delegations: their lifecycle and their nodes (SPEC 2.7).
    ///
    /// They come on a channel of their own, which another parent's noise cannot lag. A parent of another service has
    /// none: the stream then ends at once.
    pub fn of(mut self, parent: &Parent) -> Self {
        self.pending.clear();
        self.receiver = Place::of(parent, &self.shared).and_then(|place| {
            // Under the log's lock, so that the end of the service cannot slip between.
            let log = self.shared.log();
            log.sender.as_ref()?;
            let scoped = place
                .seat()
                .scoped
                .get_or_init(|| Box::new(ScopedEvents(Mutex::new(Some(broadcast::channel(log.capacity).0)))));
            scoped.sender().as_ref().map(broadcast::Sender::subscribe)
        });
        self
    }

    /// The next event, `Err` where some were lost, or `None` once the service has ended.
    ///
    /// Cancel-safe: an event is either returned or still there.
    pub async fn next(&mut self) -> Option<Result<Event, Lagged>> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(Ok(event));
            }
            match self.receiver.as_mut()?.recv().await {
                Ok(item) => item.render(&mut self.pending),
                Err(RecvError::Lagged(lost)) => return Some(Err(Lagged(lost))),
                Err(RecvError::Closed) => {
                    self.receiver = None;
                    return None;
                }
            }
        }
    }

    /// An event that is there already, if there is one.
    pub fn try_next(&mut self) -> Option<Result<Event, Lagged>> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(Ok(event));
            }
            match self.receiver.as_mut()?.try_recv() {
                Ok(item) => item.render(&mut self.pending),
                Err(broadcast::error::TryRecvError::Lagged(lost)) => return Some(Err(Lagged(lost))),
                Err(broadcast::error::TryRecvError::Empty) => return None,
                Err(broadcast::error::TryRecvError::Closed) => {
                    self.receiver = None;
                    return None;
                }
            }
        }
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}
