//! Carries hunts out: many at once over one reading of the table, since reading it is what costs.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::sync::oneshot;

use crate::hunt::{End, Hunt, Step, View};
use crate::ledger::Record;
use crate::pidfd::Pidfd;
use crate::scope::{HostTag, Tag, Target};
use crate::table::{self, Entry, Key, Scan};

/// How long one chase lasts.
const CHASE: Duration = Duration::from_millis(15);
/// Between two looks, when all that can be done is to wait for the kernel.
const PAUSE: Duration = Duration::from_millis(1);
/// By how much that grows.
const MOST_VAIN: u32 = 20;

/// The longest that a hunt may take, whatever was asked for.
const LONGEST: Duration = Duration::from_hours(24);
/// How many descriptors are kept for looking.
const RESERVE: usize = 3;

/// What is to be ended.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) target: Target,
    /// The child itself, by which its descendants are found even where they bear no mark.
    pub(crate) root: Option<Key>,
    /// The group that it leads: what is found outside has escaped a kill of the group.
    pub(crate) group: Option<i32>,
    /// Nothing that began earlier is ours, whatever it bears.
    pub(crate) since: u64,
    pub(crate) budget: Duration,
    /// Nobody waits where a child was dropped.
    pub(crate) reply: Option<oneshot::Sender<SweepReport>>,
    /// Of such a child, until it is gone.
    pub(crate) record: Option<Record>,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SweepReport {
    /// How many were found alive, at one time or another.
    pub(crate) ended: u32,
    /// How many of them were outside the group.
    pub(crate) escaped: u32,
    /// Who is alive still.
    pub(crate) left: Vec<u32>,
    /// Nobody is seen, and that is no proof that nobody is there.
    pub(crate) unknown: bool,
}

#[derive(Debug)]
struct Active {
    order: Order,
    hunt: Hunt,
    members: HashMap<Key, Member>,
    escaped: HashSet<Key>,
    /// Those alive at the last look.
    alive: Vec<Key>,
}

#[derive(Debug)]
struct Member {
    /// It pins the process; none where descriptors ran out, or a filter forbids it.
    pidfd: Option<Pidfd>,
    stopped: bool,
}

/// Places among the active hunts.
#[derive(Debug, Default)]
struct Known {
    keys: HashMap<Key, Vec<usize>>,
    tags: HashMap<Tag, Vec<usize>>,
    hosts: HashMap<HostTag, Vec<usize>>,
}

/// The hunts that are on.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    active: Vec<Active>,
    /// Whose children these are, where that is this process.
    host: Option<HostTag>,
    /// Descriptors to look with where the host has used up the others.
    reserve: Vec<File>,
    /// The last look saw nothing, which was told.
    blind: bool,
    /// Looks in a row that only waited.
    vain: u32,
    /// A hunt for which nobody waits has ended otherwise than with nobody left.
    left: bool,
}

impl Sweep {
    pub(crate) fn new(host: Option<HostTag>) -> Self {
        Self { host, ..Self::default() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left
    }

    pub(crate) fn begin(&mut self, order: Order) {
        let hunt = Hunt::new(Instant::now(), order.budget.min(LONGEST));
        self.active.push(Active {
            order,
            hunt,
            members: HashMap::new(),
            escaped: HashSet::new(),
            alive: Vec::new(),
        });
    }

    /// One look at the table, and what follows from it for each hunt. Blocks for some milliseconds.
    pub(crate) fn round(&mut self) {
        if cfg!(not(target_os = "linux")) {
            // No table, no hunt: the group was signalled, and that is all that can be done.
            for hunt in self.active.drain(..) {
                hunt.reply(End::Gone);
            }
            return;
        }
        // Where the host has used up its descriptors, these are ours to look with.
        self.reserve.clear();
        let looked =
            table::scan().and_then(|scan| Ok((self.assign(&scan)?, self.reap_orphans(&scan)?, scan)));
        let (found, view) = match looked {
            // Whoever ended just now, and was reaped, may have left more of them.
            Ok((found, reaped, scan)) if scan.complete && !reaped => (found, View::Complete),
            Ok((found, ..)) => (found, View::Crowded),
            Err(error) => {
                if !std::mem::replace(&mut self.blind, true) {
                    tracing::warn!(%error, "the table of processes cannot be read: who is left is not known");
                }
                (vec![Vec::new(); self.active.len()], View::Blind)
            }
        };
        self.blind &= view == View::Blind;
        let now = Instant::now();
        let (mut chase, mut waits) = (false, view != View::Complete);
        for (mut active, seen) in std::mem::take(&mut self.active).into_iter().zip(found) {
            let step = active.see(&seen, view, now);
            waits |= step == Step::Kill;
            match step {
                Step::Done(end) => {
                    // Whoever was stopped and not killed is so now.
                    active.signal(Signal::KILL);
                    self.left |= active.order.reply.is_none() && end != End::Gone;
                    active.reply(end);
                    continue;
                }
                Step::Stop => active.signal(Signal::STOP),
                Step::Kill => active.signal(Signal::KILL),
                Step::Chase => {
                    active.signal(Signal::STOP);
                    chase = true;
                }
                Step::Look => {}
            }
            self.active.push(active);
        }
        self.reserve.extend((0..RESERVE).map_while(|_| File::open("/dev/null").ok()));
        if chase {
            self.chase();
        } else if waits && !self.active.is_empty() {
            // Who cannot be ended is not asked after all the time.
            self.vain = (self.vain + 1).min(MOST_VAIN);
            std::thread::sleep(PAUSE * self.vain);
        } else {
            self.vain = 0;
        }
    }

    /// Who of the table belongs to which hunt.
    fn assign(&self, scan: &Scan) -> io::Result<Vec<Vec<Entry>>> {
        let me = i32::try_from(std::process::id()).unwrap_or_default();
        let since = self.active.iter().map(|active| active.order.since).min().unwrap_or_default();
        let young: Vec<_> = scan
            .entries
            .iter()
            .filter(|entry| entry.alive && entry.key.start >= since && entry.key.id != me)
            .collect();
        let mut below: HashMap<i32, Vec<&Entry>> = HashMap::new();
        for entry in &young {
            below.entry(entry.parent).or_default().push(entry);
        }
        let mut found: Vec<HashMap<Key, Entry>> = vec![HashMap::new(); self.active.len()];
        let known = self.known();
        for entry in &young {
            for at in known.keys.get(&entry.key).into_iter().flatten() {
                found[*at].insert(entry.key, **entry);
            }
            for tag in self.marks(entry)? {
                for at in known.tags.get(&tag).into_iter().chain(known.hosts.get(&tag.host())).flatten() {
                    if entry.key.start >= self.active[*at].order.since {
                        found[*at].insert(entry.key, **entry);
                    }
                }
            }
        }
        // Whoever is below one of them is one of them.
        for (active, found) in self.active.iter().zip(&mut found) {
            let mut parents: Vec<_> = found.keys().map(|key| key.id).collect();
            while let Some(parent) = parents.pop() {
                for entry in below.get(&parent).into_iter().flatten() {
                    if entry.key.start >= active.order.since && found.insert(entry.key, **entry).is_none() {
                        parents.push(entry.key.id);
                    }
                }
            }
        }
        Ok(found.into_iter().map(|found| found.into_values().collect()).collect())
    }

    /// Where this process takes in orphans, as the first one of a container does, those that were ended are its to reap.
    /// The children themselves are not: whoever holds them does it.
    fn reap_orphans(&self, scan: &Scan) -> io::Result<bool> {
        let me = i32::try_from(std::process::id()).unwrap_or_default();
        let known = self.known();
        let mut reaped = false;
        for entry in scan.entries.iter().filter(|entry| entry.parent == me && !entry.alive) {
            let mut hunts = known.keys.get(&entry.key).into_iter().flatten().copied().collect::<Vec<_>>();
            for tag in self.marks(entry)? {
                hunts.extend(known.tags.get(&tag).into_iter().chain(known.hosts.get(&tag.host())).flatten());
            }
            let orphan = hunts.iter().any(|at| {
                let order = &self.active[*at].order;
                order.root.is_some_and(|root| root != entry.key && entry.key.start >= order.since)
            });
            if let (true, Some(pid)) = (orphan, Pid::from_raw(entry.key.id)) {
                // An error says that somebody else has reaped it.
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
                reaped |= matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_)));
            }
        }
        Ok(reaped)
    }

    /// By what a process is known to belong to which hunts.
    fn known(&self) -> Known {
        let mut known = Known::default();
        for (at, Active { order, members, .. }) in self.active.iter().enumerate() {
            match order.target {
                Target::Child(tag) => known.tags.entry(tag).or_default().push(at),
                Target::Host(host) => known.hosts.entry(host).or_default().push(at),
            }
            for key in members.keys().copied().chain(order.root) {
                known.keys.entry(key).or_default().push(at);
            }
        }
        known
    }

    fn marks(&self, entry: &Entry) -> io::Result<Vec<Tag>> {
        match entry.tag {
            // It was started by us, and by nobody below us: nothing more is to be known.
            Some(tag) if Some(tag.host()) == self.host => Ok(vec![tag]),
            _ => table::marks(entry.key.id),
        }
    }

    /// Looks at each process that is newly made, for a while, and kills those that are ours.
    fn chase(&mut self) {
        let end = Instant::now() + CHASE;
        let mut seen = newest();
        if seen == 0 {
            // The system does not tell which are new.
            std::thread::sleep(CHASE);
        }
        let mut caught = vec![0; self.active.len()];
        while seen != 0 && Instant::now() < end {
            let newest = newest();
            if newest == seen {
                std::thread::yield_now();
                continue;
            }
            // Numbers begin anew at some point; then only the newest is known to be new.
            let first = if newest > seen { seen + 1 } else { newest };
            for id in (first..=newest).rev() {
                self.catch(id, &mut caught);
            }
            seen = newest;
        }
        for (active, caught) in self.active.iter_mut().zip(caught) {
            active.hunt.chased(caught);
        }
    }

    /// Kills this one where it is ours.
    fn catch(&self, id: i32, caught: &mut [usize]) {
        let Ok(pidfd) = Pidfd::open(id) else { return };
        let Some(entry) = table::entry(id) else { return };
        let Ok(marks) = self.marks(&entry) else { return };
        for (active, caught) in self.active.iter().zip(caught) {
            let order = &active.order;
            let ours = entry.key.start >= order.since && marks.iter().any(|tag| order.target.covers(*tag));
            if ours && pidfd.send(Signal::KILL).is_ok() {
                *caught += 1;
            }
        }
    }
}

fn newest() -> i32 {
    table::newest().ok().flatten().unwrap_or_default()
}

impl Active {
    fn see(&mut self, seen: &[Entry], view: View, now: Instant) -> Step {
        for entry in seen {
            if self.members.contains_key(&entry.key) {
                continue;
            }
            let pidfd = match Pidfd::open(entry.key.id) {
                Ok(pidfd) => Some(pidfd),
                // Gone, or the number of a thread, whose process has an entry as well.
                Err(Errno::INVAL | Errno::NOENT | Errno::SRCH) => continue,
                Err(_) => None,
            };
            // What the descriptor pins must be what was read.
            if table::entry(entry.key.id).is_some_and(|now| now.key == entry.key) {
                self.members.insert(entry.key, Member { pidfd, stopped: false });
                if self.order.group.is_some_and(|group| group != entry.group) {
                    self.escaped.insert(entry.key);
                }
            }
        }
        let seen = seen.iter().map(|entry| entry.key);
        self.alive = seen.filter(|key| self.members.contains_key(key)).collect();
        self.hunt.see(self.alive.iter().copied(), view, now)
    }

    fn signal(&mut self, signal: Signal) {
        for (key, member) in &mut self.members {
            if signal == Signal::STOP && std::mem::replace(&mut member.stopped, true) {
                continue;
            }
            // Refused where it belongs to somebody else: it may still end by itself.
            let _ = send(*key, member.pidfd.as_ref(), signal);
        }
    }

    fn reply(self, end: End) {
        let left = if end == End::Unknown {
            Vec::new()
        } else {
            self.alive.iter().filter_map(|key| u32::try_from(key.id).ok()).collect()
        };
        let report = SweepReport {
            ended: u32::try_from(self.members.len()).unwrap_or(u32::MAX),
            escaped: u32::try_from(self.escaped.len()).unwrap_or(u32::MAX),
            left,
            unknown: end == End::Unknown,
        };
        if report != SweepReport::default() {
            tracing::debug!(target = ?self.order.target, ?report, "descendants were found");
        }
        if let (Some(record), false) = (self.order.record, report.left.is_empty() && !report.unknown) {
            // The next host may be luckier.
            record.keep();
        }
        if let Some(reply) = self.order.reply {
            // An error says that nobody waits any more.
            let _ = reply.send(report);
        }
    }
}

fn send(key: Key, pidfd: Option<&Pidfd>, signal: Signal) -> Result<(), Errno> {
    match pidfd {
        Some(pidfd) => pidfd.send(signal),
        // Second best: between this look and the signal the number could change hands.
        None if table::entry(key.id).is_some_and(|now| now.key == key) => match Pid::from_raw(key.id) {
            Some(pid) => kill_process(pid, signal),
            None => Ok(()),
        },
        None => Ok(()),
    }
}
