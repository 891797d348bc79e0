//! What all children of one process share: the tags, the watchdog, and the thread that sweeps and reaps.
//!
//! There is one for the whole process, since the end of the whole process is what the watchdog watches for; it is there
//! while somebody holds it, and has no effect on anything but our own children. The thread does what would block a
//! runtime, and needs none: a child may be dropped anywhere.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::launch::{self, TagPlaces};
use crate::ledger::HostRecords;
use crate::peer::Descent;
use crate::scope::{HostTag, Tag, Tags, VARIABLE};
use crate::sweep::{Order, Sweep, SweepReport};
use crate::table;
use crate::watchdog::{Guardian, Watch};

/// The pauses between two looks at a child that was killed and is not dead yet.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How often is seen to the watchdog while there is one.
const WATCH_EVERY: Duration = Duration::from_secs(1);

static CURRENT: Mutex<Weak<Reaper>> = Mutex::new(Weak::new());

#[derive(Debug)]
pub(crate) struct Reaper {
    /// A fork of the host has a copy of this and no thread.
    host: u32,
    tags: Tags,
    places: TagPlaces,
    shared: Arc<Shared>,
    ledger: Mutex<LedgerSlot>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Apart from the state: starting a watchdog takes its time, and a drop must not wait for it.
    watch: Mutex<Watch>,
    /// Children that are held by somebody, with their process ids.
    children: Mutex<HashMap<Tag, u32>>,
}

/// Bounded by the number of children: each has one order and one end.
#[derive(Debug, Default)]
struct State {
    orders: Vec<Order>,
    /// Dropped children that are not reaped.
    dying: Vec<Child>,
    /// The thread has something to do that is not in the lists any more.
    busy: bool,
    /// Something of a dropped child could not be ended, or not be seen to be.
    left: bool,
    /// Nobody holds the reaper any more.
    closing: bool,
}

/// The ledger of this process, where one is kept.
#[derive(Debug, Default)]
struct LedgerSlot {
    open: Option<Arc<HostRecords>>,
    /// All that were: while a child is recorded in one, it is there.
    known: Vec<Weak<HostRecords>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reaper {
    /// The one of this process; starts it where there is none.
    pub(crate) fn current() -> io::Result<Arc<Self>> {
        let mut current = lock(&CURRENT);
        if let Some(reaper) = current.upgrade()
            && reaper.host == std::process::id()
        {
            return Ok(reaper);
        }
        let (inherited, variable) = (launch::own_tags(), std::env::var(VARIABLE).ok());
        let tags = Tags::new(inherited.into_iter().flatten().next(), variable.as_deref());
        let since = table::own_entry().map_or(0, |entry| entry.key.start);
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            watch: Mutex::new(Watch::new(tags.host(), since)),
            children: Mutex::default(),
        });
        let (sweep, work) = (Sweep::new(Some(tags.host())), shared.clone());
        std::thread::Builder::new().name("subagents-reaper".to_owned()).spawn(move || serve(&work, sweep))?;
        let reaper = Arc::new(Self {
            host: std::process::id(),
            tags,
            places: TagPlaces::beside(inherited),
            shared,
            ledger: Mutex::default(),
        });
        *current = Arc::downgrade(&reaper);
        Ok(reaper)
    }

    /// The one of this process, where there is one.
    pub(crate) fn existing() -> Option<Arc<Self>> {
        lock(&CURRENT).upgrade().filter(|reaper| reaper.host == std::process::id())
    }

    /// The tag of the next child, and its variable. Sees to it that the watchdog is there before the child is.
    pub(crate) fn next_tag(&self) -> (Tag, OsString) {
        lock(&self.shared.watch).ensure();
        let tag = self.tags.next();
        (tag, self.tags.variable(tag))
    }

    /// The limits in which a child gets its tag.
    pub(crate) fn places(&self) -> TagPlaces {
        self.places
    }

    /// What all tags of this process begin with.
    pub(crate) fn host(&self) -> HostTag {
        self.tags.host()
    }

    pub(crate) fn set_guardian(&self, guardian: Guardian) {
        lock(&self.shared.watch).set_guardian(guardian);
    }

    /// The watchdog's process id, where it is there.
    pub(crate) fn watchdog(&self) -> Option<u32> {
        lock(&self.shared.watch).id()
    }

    /// Opens the records of this process in `folder`; `None` where they are open. Those that were closed while a child
    /// was recorded are taken up again.
    pub(crate) fn open_records(
        &self,
        folder: &Path,
        open: impl FnOnce() -> io::Result<HostRecords>,
    ) -> Option<io::Result<Arc<HostRecords>>> {
        let mut slot = lock(&self.ledger);
        if slot.open.is_some() {
            return None;
        }
        slot.known.retain(|known| known.strong_count() > 0);
        let known = slot.known.iter().filter_map(Weak::upgrade).find(|known| known.folder() == folder);
        let records = match known.map_or_else(|| open().map(Arc::new), Ok) {
            Ok(records) => records,
            Err(error) => return Some(Err(error)),
        };
        slot.known.push(Arc::downgrade(&records));
        Some(Ok(slot.open.insert(records).clone()))
    }

    pub(crate) fn close_records(&self) {
        let records = lock(&self.ledger).open.take();
        // Removes files where nothing is recorded: not under the lock.
        drop(records);
    }

    /// Where children are recorded, if they are.
    pub(crate) fn records(&self) -> Option<Arc<HostRecords>> {
        lock(&self.ledger).open.clone()
    }

    pub(crate) fn add_child(&self, tag: Tag, id: u32) {
        lock(&self.shared.children).insert(tag, id);
    }

    pub(crate) fn remove_child(&self, tag: Tag) {
        lock(&self.shared.children).remove(&tag);
    }

    /// Whose child of ours a process is, or descends from.
    pub(crate) fn descent(&self, id: i32) -> Descent {
        let Ok(tags) = table::marks(id) else { return Descent::Unknown };
        let children = lock(&self.shared.children);
        let mut ours = tags.iter().filter(|tag| tag.host() == self.host());
        match ours.clone().find_map(|tag| children.get(tag)) {
            Some(child) => Descent::Child(*child),
            None if ours.next().is_some() => Descent::Unknown,
            None => Descent::None,
        }
    }

    /// Whether all that was dropped is gone; to be asked when nothing is under way.
    pub(crate) fn all_gone(&self) -> bool {
        !lock(&self.shared.state).left
    }

    pub(crate) fn is_busy(&self) -> bool {
        let state = lock(&self.shared.state);
        // A child that is dropped gives its order first, and is no child after that.
        !lock(&self.shared.children).is_empty()
            || state.busy
            || !state.orders.is_empty()
            || !state.dying.is_empty()
    }

    /// Ends what `order` names.
    pub(crate) fn order(&self, order: Order) {
        lock(&self.shared.state).orders.push(order);
        self.shared.changed.notify_one();
    }

    /// As [`order`](Self::order), with an answer. It never comes in a fork of the host, which has no thread.
    pub(crate) fn sweep(&self, mut order: Order) -> oneshot::Receiver<SweepReport> {
        let (reply, report) = oneshot::channel();
        order.reply = Some(reply);
        self.order(order);
        report
    }

    /// Reaps a killed child as soon as it is dead.
    pub(crate) fn reap_later(&self, child: Child) {
        lock(&self.shared.state).dying.push(child);
        self.shared.changed.notify_one();
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        lock(&self.shared.state).closing = true;
        self.shared.changed.notify_one();
    }
}

/// The thread. It ends when nobody holds the reaper and everything asked for is done.
fn serve(shared: &Shared, mut sweep: Sweep) {
    let mut dying = Vec::new();
    let mut pause = FIRST_PAUSE;
    loop {
        let mut state = lock(&shared.state);
        state.busy = !sweep.is_idle() || !dying.is_empty();
        state.left |= sweep.has_left();
        if state.orders.is_empty() && state.dying.is_empty() && sweep.is_idle() {
            if dying.is_empty() && state.closing {
                drop(state);
                return lock(&shared.watch).dismiss();
            }
            let patience = if dying.is_empty() { WATCH_EVERY } else { pause };
            let waited = shared.changed.wait_timeout(state, patience);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        let orders = std::mem::take(&mut state.orders);
        if !state.dying.is_empty() {
            pause = FIRST_PAUSE;
        }
        dying.append(&mut state.dying);
        state.busy = !orders.is_empty() || !dying.is_empty() || !sweep.is_idle();
        drop(state);
        for order in orders {
            sweep.begin(order);
        }
        if !sweep.is_idle() {
            sweep.round();
        }
        // An error says that somebody else has reaped it.
        dying.retain_mut(|child: &mut Child| matches!(child.try_wait(), Ok(None)));
        let busy = !lock(&shared.children).is_empty();
        if busy {
            lock(&shared.watch).ensure_again();
        }
    }
}
