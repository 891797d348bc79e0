//! The record of one run that its handle, its actor, its driver and the registry share. What the registry needs at the
//! actor's exit lies here, since a supervisor hears of an exit before it hears the last message.

mod link;
#[cfg(test)]
mod tests;

use crate::{
    events::Item,
    progress::Live,
    race::Contained,
    registry::RegistryMessage,
    run::{self, Effect, Input, State},
    run_actor::RunMessage,
    seat::{Flag, Link, Place, Seat},
    settlement::{Ending, Settled, Shown, Wanted, conclude},
    shared::{Ids, Shared},
    tree,
};
use ractor::ActorRef;
use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicU32, AtomicU64,
            Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
        },
    },
    time::Duration,
};
use subagents_seam::{
    CancelCause, Deadlines, DisposeError, Instant, Name, NodeId, Phase, ResultError, RunId, StartError,
    SubagentResult,
};
use tokio::sync::oneshot;

/// What a caller of a start is told.
pub(crate) type StartReply = oneshot::Sender<Result<(), StartError>>;

/// In the order of use: a sweep over the tree reads the first bytes of each, and nothing else of most.
#[repr(C)]
pub(crate) struct RunCore {
    /// Revision and state in one word, so that a look is whole without a lock.
    record: AtomicU64,
    /// When each phase began, in microseconds; written before the state that makes it readable.
    since: [AtomicU64; 5],
    /// The last sign of life; 0 for none.
    last_sign: AtomicU64,
    /// The ticket in the queue; 0 for none.
    ticket: AtomicU64,
    id: RunId,
    above: NodeId,
    pub(crate) provider: Name,
    pub(crate) label: Option<Name>,
    live: OnceLock<Box<Live>>,
    borrowed: Flag,
    local: Flag,
    taken_out: Flag,
    /// Whether it holds, borrows or waits for a slot.
    limited: Flag,
    killed: Flag,
    /// Its `Ended` is on the channel.
    told: Flag,
    wanted: Wanted,
    place: AtomicU32,
    pub(crate) seat: Seat,

    outcome: OnceLock<Stored>,
    cause: OnceLock<CancelCause>,
    leak: OnceLock<Arc<str>>,
    /// The code of the error that rejected the start.
    rejection: OnceLock<&'static str>,
    pub(crate) parent: Link,
    pub(crate) shared: Arc<Shared>,
    bounds: Option<Box<Bounds>>,
    /// The run's own lock: a change of its state and what is sent of it are one.
    waiting: Mutex<Waiting>,
}

/// Not in the index.
const NO_PLACE: u32 = u32::MAX;

/// The outcome, small: hardly any run has an error.
type Stored = Result<Arc<SubagentResult>, Box<ResultError>>;

#[derive(Default)]
struct Waiting {
    /// From the actor's start to the run's end. A gone run that is remembered must not hold an actor's memory.
    actor: Option<ActorRef<RunMessage>>,
    /// Rarely anybody: most look when it is there.
    callers: Option<Box<Callers>>,
    /// Whether it still sits below its parent.
    seated: bool,
}

#[derive(Default)]
struct Callers {
    settled: Vec<oneshot::Sender<Settled>>,
    /// A rejection is told when nothing is left of the start.
    rejected: Option<(StartReply, StartError)>,
}

/// See [`RunCore::glance`].
#[derive(Clone, Copy)]
pub(crate) struct Glance {
    pub(crate) state: State,
    pub(crate) revision: u64,
    pub(crate) since: u64,
    pub(crate) created: u64,
    pub(crate) last_sign: Option<u64>,
    pub(crate) labelled: bool,
    pub(crate) borrowed: bool,
    pub(crate) depth: u32,
}

/// What a run sets itself; the rest is the service's.
pub(crate) struct Bounds {
    pub(crate) deadlines: Deadlines,
    /// When the batch that it belongs to ends.
    pub(crate) until: Option<Instant>,
}

pub(crate) struct NewRun {
    /// Where a seat was taken for it.
    pub(crate) parent: Place,
    pub(crate) max_depth: Option<u32>,
    pub(crate) provider: Name,
    pub(crate) label: Option<Name>,
    pub(crate) bounds: Option<Box<Bounds>>,
    pub(crate) wanted: Wanted,
}

impl RunCore {
    pub(crate) fn new(shared: Arc<Shared>, ids: Ids, new: NewRun) -> Self {
        let NewRun { parent, max_depth, provider, label, bounds, wanted } = new;
        let above = parent.seat();
        let seat = Seat::new(ids.agent, above.depth + 1, max_depth, above.token.child_token());
        Self {
            record: AtomicU64::new(u64::from(State::QUEUED.bits())),
            since: [ids.now, 0, 0, 0, 0].map(AtomicU64::new),
            last_sign: AtomicU64::new(0),
            ticket: AtomicU64::new(0),
            id: ids.run,
            above: parent.node_id(),
            provider,
            label,
            live: OnceLock::new(),
            borrowed: Flag::default(),
            local: Flag::default(),
            taken_out: Flag::default(),
            limited: Flag::default(),
            killed: Flag::default(),
            told: Flag::default(),
            wanted,
            place: AtomicU32::new(NO_PLACE),
            seat,
            outcome: OnceLock::new(),
            cause: OnceLock::new(),
            leak: OnceLock::new(),
            rejection: OnceLock::new(),
            parent: Link::new(parent),
            shared,
            bounds,
            waiting: Mutex::new(Waiting { actor: None, callers: None, seated: true }),
        }
    }

    // ---- looking

    /// Something from every line of memory that a node is made of, in one go. A sweep glances at many runs before it
    /// reads the first, and the processor fetches the lines of all of them at once.
    pub(crate) fn glance(&self) -> Glance {
        let (state, revision) = self.look();
        self.glance_at(state, revision, self.since(state.phase()))
    }

    /// As [`glance`](Self::glance), as of one state of it.
    pub(crate) fn glance_at(&self, state: State, revision: u64, since: u64) -> Glance {
        Glance {
            state,
            revision,
            since,
            created: self.since(Phase::Queued),
            last_sign: self.last_sign(),
            labelled: self.label.is_some(),
            borrowed: self.is_borrowed(),
            depth: self.seat.depth,
        }
    }

    pub(crate) fn id(&self) -> RunId {
        self.id
    }

    pub(crate) fn set_place(&self, place: u32) {
        self.place.store(place, Release);
    }

    pub(crate) fn take_place(&self) -> Option<u32> {
        Some(self.place.swap(NO_PLACE, AcqRel)).filter(|place| *place != NO_PLACE)
    }

    /// The node above.
    pub(crate) fn above(&self) -> NodeId {
        self.above
    }

    /// State and revision, of one moment.
    pub(crate) fn look(&self) -> (State, u64) {
        unpack(self.record.load(Acquire))
    }

    pub(crate) fn state(&self) -> State {
        self.look().0
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.state().phase() == Phase::Gone
    }

    pub(crate) fn is_taken_out(&self) -> bool {
        self.taken_out.is_up()
    }

    pub(crate) fn since(&self, phase: Phase) -> u64 {
        self.since[phase as usize].load(Acquire)
    }

    pub(crate) fn last_sign(&self) -> Option<u64> {
        Some(self.last_sign.load(Relaxed)).filter(|at| *at > 0)
    }

    pub(crate) fn ticket(&self) -> Option<u64> {
        Some(self.ticket.load(Acquire)).filter(|ticket| *ticket > 0)
    }

    pub(crate) fn is_borrowed(&self) -> bool {
        self.borrowed.is_up()
    }

    /// The grace of a shutdown ran out on it.
    pub(crate) fn kill(&self) {
        self.killed.set(true);
        if let Some(actor) = self.actor() {
            actor.kill();
        }
    }

    pub(crate) fn was_killed(&self) -> bool {
        self.killed.is_up()
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.limited.is_up()
    }

    pub(crate) fn is_local(&self) -> bool {
        self.local.is_up()
    }

    /// The outcome, once its `Ended` is on the channel: both happen under the lock.
    pub(crate) fn outcome(&self) -> Option<Settled> {
        let _locked = (self.outcome.get().is_some() && !self.told.is_up()).then(|| self.waiting());
        self.stored()
    }

    /// As [`outcome`](Self::outcome), where `Ended` is known to be on the channel.
    pub(crate) fn stored(&self) -> Option<Settled> {
        self.outcome.get().map(|stored| stored.clone().map_err(|error| *error))
    }

    /// The state, once what it means is on the channel.
    pub(crate) fn told_state(&self) -> State {
        let _locked = self.waiting();
        self.state()
    }

    /// The result, where there is one.
    pub(crate) fn result(&self) -> Option<&SubagentResult> {
        self.outcome.get().and_then(|stored| stored.as_deref().ok())
    }

    pub(crate) fn leak(&self) -> Option<&Arc<str>> {
        self.leak.get()
    }

    pub(crate) fn rejection(&self) -> Option<&'static str> {
        self.rejection.get().copied()
    }

    pub(crate) fn live(&self) -> Option<&Live> {
        self.live.get().map(|live| &**live)
    }

    pub(crate) fn live_or_new(&self) -> &Live {
        self.live.get_or_init(Box::default)
    }

    pub(crate) fn process_id(&self) -> Option<NodeId> {
        self.live()?.process().map(|process| process.node)
    }

    /// A deadline that is none unless it is set. `Duration::MAX` means none.
    pub(crate) fn deadline(&self, which: impl Fn(&Deadlines) -> Option<Duration>) -> Option<Duration> {
        self.set_deadline(which).filter(|deadline| *deadline < Duration::MAX)
    }

    /// A deadline that has a default. `Duration::MAX` means none, which is as good as for ever.
    pub(crate) fn patience(
        &self,
        which: impl Fn(&Deadlines) -> Option<Duration>,
        default: Duration,
    ) -> Duration {
        self.set_deadline(which).unwrap_or(default)
    }

    /// When the batch that it belongs to ends.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.bounds.as_deref()?.until
    }

    fn set_deadline(&self, which: impl Fn(&Deadlines) -> Option<Duration>) -> Option<Duration> {
        self.bounds
            .as_deref()
            .and_then(|bounds| which(&bounds.deadlines))
            .or_else(|| which(&self.shared.deadlines))
    }

    pub(crate) fn disposed(&self) -> Result<(), DisposeError> {
        match self.leak.get() {
            None => Ok(()),
            Some(what) => Err(DisposeError::Leaked { run: self.id, what: what.clone() }),
        }
    }

    // ---- facts

    /// Feeds one fact to the state machine, under the run's lock, and says what followed.
    /// The lock is the caller's, for what goes with the fact.
    /// An outcome that comes too late stays with the caller: it is foreign, and must not be dropped under the lock.
    fn feed(self: &Arc<Self>, input: Input, outcome: &mut Option<Settled>) -> (Effect, WaitingGuard<'_>) {
        // The end of the driver is rarely the end of the run: it needs no time of its own.
        let read = (!matches!(input, Input::DriverDone { .. })).then(|| self.shared.clock.now());
        let guard = self.waiting();
        let before = self.state();
        let (state, effect) = run::step(before, input);
        if state == before {
            return (effect, guard);
        }
        if effect == Effect::Ended
            && let Some(outcome) = outcome.take()
        {
            // First the outcome, then the state that says it is there.
            let _ = self.outcome.set(outcome.map_err(Box::new));
        }
        let phase = state.phase();
        if phase == before.phase() {
            // A flag of the machine itself: nothing that anybody sees changed.
            let (_, revision) = self.look();
            self.record.store(pack(state, revision), Release);
            return (effect, guard);
        }
        let at = read.unwrap_or_else(|| self.shared.clock.now());
        self.since[phase as usize].store(at, Release);
        self.tell(state, effect, at, &guard);
        (effect, guard)
    }

    /// Stores a state with a revision of its own and sends it.
    fn tell(self: &Arc<Self>, state: State, effect: Effect, at: u64, locked: &WaitingGuard<'_>) {
        let revision = self.shared.channel.next();
        self.record.store(pack(state, revision), SeqCst);
        if effect == Effect::Gone {
            if let Some(id) = self.process_id() {
                self.send(|| Item::Gone { id, revision });
            }
            self.send(|| Item::Gone { id: self.id.into(), revision });
        } else {
            self.send(|| Item::Run { core: self.clone(), state, effect, revision, at });
        }
        if effect == Effect::Ended {
            self.told.set(true);
        }
        self.tell_process(locked);
    }

    /// To the service's listeners, and to those of the place above.
    pub(crate) fn send(&self, item: impl Fn() -> Item) {
        if let Some(scoped) = self.parent.seat().scoped.get() {
            scoped.send(item());
        }
        self.shared.channel.send(item);
    }

    /// Sends a process that was reported and not told yet, once its run is in the tree.
    fn tell_process(&self, _locked: &WaitingGuard<'_>) {
        if self.look().1 > 0
            && let Some(process) = self.live().and_then(Live::process)
            && process.revision == 0
        {
            tree::announce_process(self, &process);
        }
    }

    pub(crate) fn set_ticket(&self, ticket: u64) {
        self.ticket.store(ticket, Release);
    }

    pub(crate) fn set_limited(&self, borrowed: bool) {
        self.limited.set(true);
        self.borrowed.set(borrowed);
    }

    /// The place above is free of it, once. Returns the run above that is gone by this; its [farewell](Self::farewell)
    /// is the caller's.
    #[must_use = "the run above may be gone by this"]
    pub(crate) fn leave_seat(&self) -> Option<Arc<Self>> {
        let seated = std::mem::take(&mut self.waiting().seated);
        if seated { self.parent.leave_seat() } else { None }
    }

    /// Shows an unchanged state to listeners, with a revision of its own.
    pub(crate) fn announce(self: &Arc<Self>) {
        let guard = self.waiting();
        let state = self.state();
        self.tell(state, Effect::Changed, self.since(state.phase()), &guard);
    }

    /// It has its slot, or needs none. A start that is ready at once is never told: it goes straight to running.
    pub(crate) fn admit(self: &Arc<Self>) {
        let _ = self.feed(Input::Admitted, &mut None);
    }

    /// The publication boundary: false where the run is over already.
    pub(crate) fn publish(self: &Arc<Self>, local: bool) -> bool {
        self.local.set(local);
        self.feed(Input::Published, &mut None).0 == Effect::Started
    }

    /// Settles the run, once. Whoever comes second changes nothing.
    pub(crate) fn settle(self: &Arc<Self>, ending: Ending) {
        if self.state().is_settled() {
            return drop(Contained::new(ending));
        }
        let cause = self.seat.token.is_cancelled().then(|| self.cause_or_inherited());
        let mut outcome = Some(conclude(ending, cause.as_ref(), self.wanted, self.shown()));
        let (effect, mut waiting) = self.feed(Input::Settled, &mut outcome);
        let waiters = waiting.callers.as_deref_mut().map(|callers| std::mem::take(&mut callers.settled));
        drop(waiting);
        drop(Contained::new(outcome));
        // The end of a run cancels what is below it, and nothing more starts there.
        self.seat.end();
        self.seat.token.cancel();
        if effect == Effect::Ended {
            for waiter in waiters.unwrap_or_default() {
                if let Some(outcome) = self.stored() {
                    let _ = waiter.send(outcome);
                }
            }
            if let Some(live) = self.live.get() {
                live.wake();
            }
        }
    }

    /// Rejects the start, once; the caller is told when nothing is left of it.
    pub(crate) fn reject(self: &Arc<Self>, reply: StartReply, error: StartError) {
        let _ = self.rejection.set(error.code());
        self.waiting().callers.get_or_insert_default().rejected = Some((reply, error));
        let _ = self.feed(Input::Settled, &mut None);
        self.seat.end();
        self.seat.token.cancel();
    }

    /// The driver's task is gone. `abandons` says that it gave up waiting for the runs below. Returns the actor, which has
    /// nothing left to do.
    pub(crate) fn driver_done(self: &Arc<Self>, abandons: bool) -> Option<ActorRef<RunMessage>> {
        // Nothing can start below any more: the seat ended with the settlement.
        let childless = abandons || self.seat.children() == 0;
        let (effect, mut waiting) = self.feed(Input::DriverDone { childless }, &mut None);
        let actor = waiting.actor.take();
        drop(waiting);
        if effect == Effect::Gone {
            self.farewell();
        } else if !childless && self.seat.children() == 0 {
            // The last one left in between, and may have been too early to finish this run.
            if let Some(gone) = self.childless() {
                gone.farewell();
            }
        }
        actor
    }

    pub(crate) fn actor_done(self: &Arc<Self>) {
        let (effect, waiting) = self.feed(Input::ActorDone, &mut None);
        drop(waiting);
        if effect == Effect::Gone {
            self.farewell();
        }
    }

    /// The last run below is gone. Returns itself where it is gone by this.
    pub(crate) fn childless(self: &Arc<Self>) -> Option<Arc<Self>> {
        // Looked at after the end, when nothing starts below any more: before it, another may have sat down.
        let childless = self.seat.is_ended() && self.seat.children() == 0;
        let gone = childless && self.feed(Input::Childless, &mut None).0 == Effect::Gone;
        gone.then(|| self.clone())
    }

    /// The last step, by whoever fed the fact whose effect was `Gone`: also for those above that only waited for this
    /// one. In a loop: a chain of them may be longer than a stack is deep.
    pub(crate) fn farewell(self: &Arc<Self>) {
        let mut next = self.depart();
        while let Some(gone) = next {
            next = gone.depart();
        }
    }

    /// Returns the run above that is gone by this.
    fn depart(self: &Arc<Self>) -> Option<Arc<Self>> {
        // Kept before it is taken out: it is always in one of the two.
        self.shared.kept.push(self);
        self.shared.take_out(self);
        if let Some(scoped) = self.seat.scoped.get() {
            scoped.end();
        }
        let (actor, callers, seated) = {
            let mut waiting = self.waiting();
            (waiting.actor.take(), waiting.callers.take(), std::mem::take(&mut waiting.seated))
        };
        drop(actor);
        if self.limited.is_up() {
            // Its slot is free, before anybody hears that it is gone and starts the next.
            self.shared.tell(RegistryMessage::Leave(self.id));
        }
        // Gone child-first: the place above may go only now.
        let above = if seated { self.parent.leave_seat() } else { None };
        self.taken_out.set(true);
        self.seat.wake();
        self.shared.one_less();
        if let Some(live) = self.live.get() {
            live.wake();
        }
        if let Some((reply, error)) = callers.and_then(|callers| callers.rejected) {
            if let Some(what) = self.leak.get() {
                tracing::warn!(run = %self.id, provider = %self.provider, %what, "a rejected start may have left something");
            }
            let _ = reply.send(Err(error));
        }
        above
    }

    pub(crate) fn leaked(&self, what: impl AsRef<str>) {
        // It may be a child's own words.
        let what = subagents_seam::bounded(&subagents_seam::sanitised(what.as_ref()), 500);
        let _ = self.leak.set(what.into());
    }

    // ---- cancel

    /// Records the cause, if it is the first, and cancels.
    pub(crate) fn cancel(&self, cause: CancelCause) {
        if self.seat.token.is_cancelled() {
            // Cancelled from above, and nobody has looked yet: that came first.
            self.cause_or_inherited();
        } else {
            let _ = self.cause.set(cause);
        }
        self.seat.token.cancel();
    }

    /// The recorded cause. A cancelled token without one was cancelled from above.
    pub(crate) fn cause_or_inherited(&self) -> CancelCause {
        self.cause.get_or_init(|| self.parent.inherited_cause()).clone()
    }

    /// Asks the run actor to cancel; where it is gone or not there yet, does it at once.
    pub(crate) fn request_cancel(&self, cause: CancelCause) {
        // The cause is recorded at once, so that the first wins; the cancel itself is the actor's.
        if !self.seat.token.is_cancelled() {
            let _ = self.cause.set(cause.clone());
        }
        let told =
            self.actor().is_some_and(|actor| actor.send_message(RunMessage::Cancel(cause.clone())).is_ok());
        if !told {
            self.cancel(cause);
        }
    }

    // ---- waiting

    pub(crate) fn set_actor(&self, actor: ActorRef<RunMessage>) {
        self.waiting().actor = Some(actor);
    }

    pub(crate) fn actor(&self) -> Option<ActorRef<RunMessage>> {
        self.waiting().actor.clone()
    }

    fn waiting(&self) -> WaitingGuard<'_> {
        WaitingGuard(self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Answers when the run has settled: at once, or later.
    pub(crate) fn await_settled(&self, waiter: oneshot::Sender<Settled>) {
        let mut waiting = self.waiting();
        match self.stored() {
            Some(outcome) => {
                let _ = waiter.send(outcome);
            }
            // Nobody will settle what is gone; the waiter is dropped and asks again.
            None if self.is_gone() => {}
            None => {
                let settled = &mut waiting.callers.get_or_insert_default().settled;
                // Whoever asks again and again, as a `select!` in a loop does, leaves the old ones behind.
                if settled.len() >= 64 && settled.len().is_power_of_two() {
                    settled.retain(|waiter| !waiter.is_closed());
                }
                settled.push(waiter);
            }
        }
    }

    /// Completes when nothing of the run is left. Cancel-safe.
    pub(crate) async fn gone(&self) {
        while !self.is_taken_out() {
            let gone = self.seat.changed();
            if self.is_taken_out() {
                return;
            }
            gone.await;
        }
    }

    fn shown(&self) -> Option<Shown> {
        self.live().map(Live::shown)
    }
}

struct WaitingGuard<'a>(MutexGuard<'a, Waiting>);

impl std::ops::Deref for WaitingGuard<'_> {
    type Target = Waiting;
    fn deref(&self) -> &Waiting {
        &self.0
    }
}

impl std::ops::DerefMut for WaitingGuard<'_> {
    fn deref_mut(&mut self) -> &mut Waiting {
        &mut self.0
    }
}

fn pack(state: State, revision: u64) -> u64 {
    revision << 8 | u64::from(state.bits())
}

fn unpack(record: u64) -> (State, u64) {
    #[expect(clippy::cast_possible_truncation, reason = "the low byte is the state")]
    (State::from_bits(record as u8), record >> 8)
}

impl Drop for RunCore {
    fn drop(&mut self) {
        // One that never entered, or whose end nobody saw.
        if let Some(above) = self.leave_seat() {
            above.farewell();
        }
    }
}

impl fmt::Debug for RunCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("id", &self.id)
            .field("provider", &self.provider)
            .field("label", &self.label)
            .field("phase", &self.state().phase())
            .finish_non_exhaustive()
    }
}
