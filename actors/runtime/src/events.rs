//! The broadcast channel of lifecycle and tree changes. Nothing that a listener does or leaves undone touches a run.

use crate::{
    core::RunCore,
    run::{Effect, State},
    seat::{Place, RootCore},
    shared::Shared,
    tree,
};
use arc_swap::ArcSwapOption;
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst, fence},
    },
};
use subagents_seam::{
    Event, Name, Node, NodeChange, NodeId, Parent, RunEndInfo, RunInfo, StopReason, SubagentResult,
    event::{Moment, NodeSource},
};
use tokio::sync::broadcast::{
    self,
    error::{RecvError, TryRecvError},
};

/// The channel, and the sequence that numbers every change.
///
/// What is sent for one run is sent under that run's own lock, so its order is right; between runs there is none to
/// keep, since a revision is only ever compared with another of the same node.
pub(crate) struct Channel {
    sequence: AtomicU64,
    /// Taken away when the service ends, so that listeners see the end.
    sender: ArcSwapOption<broadcast::Sender<Item>>,
    /// A change is stored before this is read, and a listener counted before it copies: one of the two sees the other.
    listeners: AtomicUsize,
    capacity: usize,
}

impl Channel {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            sequence: AtomicU64::new(0),
            sender: ArcSwapOption::from_pointee(broadcast::channel(capacity).0),
            listeners: AtomicUsize::new(0),
            capacity,
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.sequence.fetch_add(1, SeqCst) + 1
    }

    /// Sends what `item` makes, if anybody listens.
    pub(crate) fn send(&self, item: impl FnOnce() -> Item) {
        if self.listeners.load(SeqCst) > 0
            && let Some(sender) = &*self.sender.load()
        {
            // An error says that the last listener left in between.
            let _ = sender.send(item());
        }
    }

    pub(crate) fn end(&self) {
        self.sender.store(None);
    }

    fn subscribe(&self) -> Option<broadcast::Receiver<Item>> {
        self.listeners.fetch_add(1, SeqCst);
        fence(SeqCst);
        self.sender.load().as_ref().map(|sender| sender.subscribe())
    }

    fn unsubscribe(&self) {
        self.listeners.fetch_sub(1, SeqCst);
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
    ProviderAdded(Name),
    ProviderRemoved(Name),
    Root {
        root: Arc<RootCore>,
        revision: u64,
    },
    Run {
        core: Arc<RunCore>,
        state: State,
        effect: Effect,
        revision: u64,
        at: u64,
    },
    Node(Arc<Node>),
    /// It holds nothing: what is gone does not wait for a listener to read this.
    Gone {
        id: NodeId,
        revision: u64,
    },
}

impl Item {
    /// The first event of an item, the lifecycle before the change of the tree, and what it still owes.
    fn render(self) -> (Event, Option<NodeChange>) {
        match self {
            Self::ProviderAdded(name) => (Event::ProviderAdded { name }, None),
            Self::ProviderRemoved(name) => (Event::ProviderRemoved { name }, None),
            Self::Node(node) => {
                let moment = Moment { revision: node.revision, state: 0, at: 0 };
                (Event::NodeChanged(NodeChange::new(node.id, moment, node)), None)
            }
            Self::Gone { id, revision } => (Event::NodeGone { id, revision }, None),
            Self::Root { root, revision } => {
                let moment = Moment { revision, state: 0, at: 0 };
                (Event::NodeChanged(NodeChange::new(root.id, moment, root)), None)
            }
            Self::Run { core, state, effect, revision, at } => {
                let lifecycle = match effect {
                    Effect::Started => Some(Event::Started(info(&core))),
                    Effect::Ended => Some(Event::Ended(end_info(&core))),
                    Effect::Nothing | Effect::Changed | Effect::Rejected | Effect::Gone => None,
                };
                let moment = Moment { revision, state: state.bits(), at };
                let change = NodeChange::new(core.id().into(), moment, core);
                match lifecycle {
                    Some(lifecycle) => (lifecycle, Some(change)),
                    None => (Event::NodeChanged(change), None),
                }
            }
        }
    }
}

impl NodeSource for RunCore {
    fn render(&self, moment: &Moment) -> Node {
        let glance = self.glance_at(State::from_bits(moment.state), moment.revision, moment.at);
        tree::run_node_of(self, &glance, &self.shared.clock)
    }
}

impl NodeSource for RootCore {
    fn render(&self, moment: &Moment) -> Node {
        tree::root_node(self, moment.revision)
    }
}

fn info(core: &RunCore) -> RunInfo {
    RunInfo::new(core.id(), core.provider.clone(), core.seat.agent, core.is_local())
}

fn end_info(core: &RunCore) -> RunEndInfo {
    let stop_reason = core.result().map_or(StopReason::Error, |result| result.stop_reason.clone());
    let message = core.result().and_then(SubagentResult::last_assistant_message).cloned();
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
    owed: Option<NodeChange>,
}

impl EventStream {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let receiver = shared.channel.subscribe();
        Self { shared, receiver, owed: None }
    }

    /// Narrows the stream to one parent's own delegations: their lifecycle and their nodes (SPEC 2.7).
    ///
    /// They come on a channel of their own, which another parent's noise cannot lag. A parent of another service has
    /// none: the stream then ends at once.
    pub fn of(mut self, parent: &Parent) -> Self {
        self.owed = None;
        self.receiver = Place::of(parent, &self.shared).and_then(|place| {
            let scoped = place.seat().scoped.get_or_init(|| {
                let sender = broadcast::channel(self.shared.channel.capacity).0;
                Box::new(ScopedEvents(Mutex::new(Some(sender))))
            });
            let receiver = scoped.sender().as_ref().map(broadcast::Sender::subscribe);
            if self.shared.channel.sender.load().is_none() || place.is_gone() {
                // It ended meanwhile, and may not have seen this channel.
                scoped.end();
            }
            receiver
        });
        self
    }

    /// The next event, `Err` where some were lost, or `None` once the service has ended.
    ///
    /// Cancel-safe: an event is either returned or still there.
    pub async fn next(&mut self) -> Option<Result<Event, Lagged>> {
        if let Some(event) = self.pay() {
            return Some(Ok(event));
        }
        match self.receiver.as_mut()?.recv().await {
            Ok(item) => Some(Ok(self.take(item))),
            Err(RecvError::Lagged(lost)) => Some(Err(Lagged(lost))),
            Err(RecvError::Closed) => {
                self.receiver = None;
                None
            }
        }
    }

    /// An event that is there already, if there is one.
    pub fn try_next(&mut self) -> Option<Result<Event, Lagged>> {
        if let Some(event) = self.pay() {
            return Some(Ok(event));
        }
        match self.receiver.as_mut()?.try_recv() {
            Ok(item) => Some(Ok(self.take(item))),
            Err(TryRecvError::Lagged(lost)) => Some(Err(Lagged(lost))),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Closed) => {
                self.receiver = None;
                None
            }
        }
    }

    fn take(&mut self, item: Item) -> Event {
        let (event, owed) = item.render();
        self.owed = owed;
        event
    }

    fn pay(&mut self) -> Option<Event> {
        self.owed.take().map(Event::NodeChanged)
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.shared.channel.unsubscribe();
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").field("open", &self.receiver.is_some()).finish_non_exhaustive()
    }
}
