//! What all children of one process share: the tags, the watchdog, and the thread that looks for descendants.
//!
//! There is one for the whole process, since the end of the whole process is what the watchdog watches for; it is there
//! while somebody holds it, and has no effect on anything but our own children. The thread does what would block a
//! runtime, and needs none: a child may be dropped anywhere.

use std::ffi::OsString;
use std::io;
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::launch;
use crate::ledger::Page;
use crate::scope::{HostTag, Tag, Tags, VARIABLE};
use crate::sweep::{Bag, Order, Sweep};
use crate::table;
use crate::watchdog::{Guardian, Watchdog};

/// The pauses between two looks at a child that was killed and is not dead yet.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How often is asked whether all work is done.
const LOOK_AGAIN: Duration = Duration::from_millis(3);

static CURRENT: Mutex<Weak<Warden>> = Mutex::new(Weak::new());

/// Keeps what all children of this process share, from one child to the next: the watchdog, and the thread that looks for
/// descendants. Cheap to clone. Without it they come with the first child and go with the last, which costs a millisecond
/// each time.
#[derive(Debug, Clone)]
pub struct Host(Arc<Warden>);

impl Host {
    /// That of this process. Starts the thread where there is none; the watchdog comes with the first child.
    ///
    /// # Errors
    ///
    /// What the system says where it has no room for a thread.
    pub fn current() -> io::Result<Self> {
        Warden::current().map(Self)
    }

    /// Lets a program do the watchdog's work in place of a shell: it is started with these arguments and one more, and has
    /// to call [`guard`](crate::guard) with that and its stdin. It gets an almost empty environment, and ignores what a
    /// terminal sends. Where it cannot be started, the shell is. Holds for watchdogs that are started from now on; call
    /// it before the first child.
    ///
    /// A guardian can end what forks and ends faster than a shell can look, and takes some more memory.
    pub fn set_guardian(
        &self,
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) {
        let args = args.into_iter().map(Into::into).collect();
        self.0.shared.lock().guardian = Some(Guardian { program: program.into(), args });
    }

    /// Returns when no child of this process is left, in whosever hands: each has been terminated, or was dropped, and is
    /// killed, looked for and reaped. Inside a tokio runtime with its time driver on. A child that somebody keeps delays
    /// it without end, and one that cannot be ended for seconds: wrap it in a timeout. Cancel-safe.
    pub async fn idle(&self) {
        while self.0.is_busy() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The process id of the watchdog that ends all children and what descends from them if this process is killed;
    /// `None` while there has been no child, and where it could not be started.
    pub fn watchdog(&self) -> Option<u32> {
        self.0.watchdog()
    }
}

#[derive(Debug)]
pub(crate) struct Warden {
    /// A fork of the host has a copy of this and neither thread nor watchdog.
    host: u32,
    tags: Tags,
    shared: Arc<Shared>,
    page: Mutex<Option<Arc<Page>>>,
    /// Those that are held.
    children: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Bounded by the number of children: each has one order and one end.
#[derive(Debug, Default)]
struct State {
    orders: Vec<Order>,
    /// Dropped children that are not reaped.
    dying: Vec<Child>,
    watchdog: Option<Watchdog>,
    guardian: Option<Guardian>,
    /// The thread has something to do that is not in the lists any more.
    busy: bool,
    /// Nobody holds the warden any more.
    closing: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Warden {
    /// The one of this process; starts it where there is none.
    pub(crate) fn current() -> io::Result<Arc<Self>> {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(warden) = current.upgrade()
            && warden.host == std::process::id()
        {
            return Ok(warden);
        }
        let variable = std::env::var(VARIABLE).ok();
        let tags = Tags::new(launch::own_tag(), variable.as_deref());
        let shared = Arc::<Shared>::default();
        let (sweep, work) = (Sweep::new(tags.nested()), shared.clone());
        std::thread::Builder::new().name("subagents-warden".to_owned()).spawn(move || serve(&work, sweep))?;
        let warden = Arc::new(Self {
            host: std::process::id(),
            tags,
            shared,
            page: Mutex::default(),
            children: AtomicUsize::new(0),
        });
        *current = Arc::downgrade(&warden);
        Ok(warden)
    }

    /// The tag of the next child, and its variable. Sees to it that the watchdog is there before the child is.
    pub(crate) fn next_tag(&self) -> (Tag, OsString) {
        self.watch();
        let tag = self.tags.next();
        (tag, self.tags.variable(tag))
    }

    /// Whether a child gets its tag into its limits: not where that of a host above is in them.
    pub(crate) fn sets_limits(&self) -> bool {
        !self.tags.nested()
    }

    /// Elsewhere than on Linux there is nothing that a watchdog could find the descendants by.
    fn watch(&self) {
        if cfg!(not(target_os = "linux")) {
            return;
        }
        let mut state = self.shared.lock();
        if state.watchdog.as_mut().is_some_and(Watchdog::is_alive) {
            return;
        }
        let since = table::own_entry().map_or(0, |entry| entry.key.start);
        let start = |guardian| Watchdog::start(self.tags.host(), since, guardian);
        let mut started = start(state.guardian.as_ref());
        if let (Some(_), Err(error)) = (&state.guardian, &started) {
            tracing::warn!(%error, "the guardian cannot be started; a shell takes its place");
            started = start(None);
        }
        match started {
            Ok(watchdog) => state.watchdog = Some(watchdog),
            Err(error) => {
                tracing::warn!(%error, "without a watchdog: children outlive this process if it is killed");
            }
        }
    }

    /// What all tags of this process begin with.
    pub(crate) fn host(&self) -> HostTag {
        self.tags.host()
    }

    /// Opens the ledger's page for this process; `None` where it has one.
    pub(crate) fn open_page(&self, open: impl FnOnce() -> io::Result<Page>) -> Option<io::Result<Arc<Page>>> {
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        if page.is_some() {
            return None;
        }
        Some(open().map(|opened| page.insert(Arc::new(opened)).clone()))
    }

    pub(crate) fn close_page(&self) {
        let page = self.page.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Removes files where nothing is recorded: not under the lock.
        drop(page);
    }

    pub(crate) fn add_child(&self) {
        self.children.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn remove_child(&self) {
        self.children.fetch_sub(1, Ordering::AcqRel);
    }

    /// The page to record children in, where a ledger is kept.
    pub(crate) fn page(&self) -> Option<Arc<Page>> {
        self.page.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The watchdog's process id, where it is there.
    pub(crate) fn watchdog(&self) -> Option<u32> {
        self.shared.lock().watchdog.as_ref().map(Watchdog::id)
    }

    fn is_busy(&self) -> bool {
        let state = self.shared.lock();
        // A child that is dropped gives its order first, and is no child after that.
        self.children.load(Ordering::Acquire) > 0
            || state.busy
            || !state.orders.is_empty()
            || !state.dying.is_empty()
    }

    /// Ends what `order` names. The answer is an error where the thread is gone, which only a fork of the host sees.
    pub(crate) fn hunt(&self, order: Order) {
        self.shared.lock().orders.push(order);
        self.shared.changed.notify_one();
    }

    /// As [`hunt`](Self::hunt), with an answer.
    pub(crate) fn hunted(&self, mut order: Order) -> oneshot::Receiver<Bag> {
        let (reply, bag) = oneshot::channel();
        order.reply = Some(reply);
        self.hunt(order);
        bag
    }

    /// Reaps a killed child as soon as it is dead.
    pub(crate) fn bury(&self, child: Child) {
        self.shared.lock().dying.push(child);
        self.shared.changed.notify_one();
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_one();
    }
}

/// The thread. It ends when nobody holds the warden and everything asked for is done.
fn serve(shared: &Shared, mut sweep: Sweep) {
    let mut dying = Vec::new();
    let mut pause = FIRST_PAUSE;
    loop {
        let mut state = shared.lock();
        state.busy = !sweep.is_idle() || !dying.is_empty();
        while state.orders.is_empty() && state.dying.is_empty() && sweep.is_idle() {
            if dying.is_empty() {
                if state.closing {
                    let watchdog = state.watchdog.take();
                    drop(state);
                    return watchdog.into_iter().for_each(Watchdog::dismiss);
                }
                state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                let waited = shared.changed.wait_timeout(state, pause);
                (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                pause = (pause * 2).min(LONGEST_PAUSE);
                break;
            }
        }
        let orders = std::mem::take(&mut state.orders);
        if !state.dying.is_empty() {
            pause = FIRST_PAUSE;
        }
        dying.append(&mut state.dying);
        state.busy = true;
        drop(state);
        for order in orders {
            sweep.begin(order);
        }
        if !sweep.is_idle() {
            sweep.round();
        }
        // An error says that somebody else has reaped it.
        dying.retain_mut(|child: &mut Child| matches!(child.try_wait(), Ok(None)));
    }
}
