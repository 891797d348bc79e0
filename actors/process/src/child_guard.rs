//! What holds a child from the moment it is there, and ends it when it is let go.

use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::sync::oneshot;

use crate::exit::{self, Exit};
use crate::group::Group;
use crate::ledger::Record;
use crate::reaper::Reaper;
use crate::scope::{Tag, Target};
use crate::sweep::{Order, SweepReport};
use crate::table::{self, Key};

/// How long what a dropped child leaves is swept.
const BUDGET: Duration = Duration::from_secs(30);

/// A child, its group, and its tag. Dropping it kills them all, unless they are known to be gone.
#[derive(Debug)]
pub(crate) struct ChildGuard {
    pub(crate) group: Group,
    /// Taken by the reaping.
    child: Option<Child>,
    pid: Pid,
    reaper: Arc<Reaper>,
    tag: Tag,
    /// None where the system has no table of processes.
    root: Option<Key>,
    /// In the ledger, where one is kept.
    record: Option<Record>,
    /// Nothing of the child is left.
    gone: bool,
}

impl ChildGuard {
    /// Of a child that was just started. `None` where it has no proper id, which cannot be.
    pub(crate) fn new(
        child: Child,
        reaper: Arc<Reaper>,
        tag: Tag,
        mut record: Option<Record>,
    ) -> Option<Self> {
        if let Some(record) = &mut record {
            record.started(child.id());
        }
        let pid = Pid::from_raw(i32::try_from(child.id()).ok()?)?;
        let root = table::entry(pid.as_raw_nonzero().get()).map(|entry| entry.key);
        reaper.add_child(tag, child.id());
        Some(Self { group: Group::new(pid), child: Some(child), pid, reaper, tag, root, record, gone: false })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    pub(crate) fn child(&mut self) -> Option<&mut Child> {
        self.child.as_mut()
    }

    /// Reaps the child, whose exit is known.
    pub(crate) fn reap(&mut self) {
        if let Some(mut child) = self.child.take() {
            match child.try_wait() {
                Ok(Some(_)) => {}
                Ok(None) => self.child = Some(child),
                // Somebody else has reaped it: nothing pins the number.
                Err(_) => self.group.forget(),
            }
        }
    }

    pub(crate) fn is_reaped(&self) -> bool {
        self.child.is_none()
    }

    /// Ends all that descends from the child, in and out of its group.
    pub(crate) fn sweep(&self, budget: Duration) -> oneshot::Receiver<SweepReport> {
        self.reaper.sweep(self.order(budget))
    }

    /// Nothing is left: the drop has nothing to do.
    pub(crate) fn set_gone(&mut self) {
        self.gone = true;
        self.record = None;
    }

    fn order(&self, budget: Duration) -> Order {
        Order {
            target: Target::Child(self.tag),
            root: self.root,
            group: Some(self.pid.as_raw_nonzero().get()),
            since: self.root.map_or(0, |root| root.start),
            budget,
            reply: None,
            record: None,
        }
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if !self.gone {
            self.end();
        }
        self.reaper.remove_child(self.tag);
    }
}

impl ChildGuard {
    fn end(&mut self) {
        let exit = exit::peek(self.pid);
        if self.child.is_none() || exit == Some(Exit::Unknown) {
            // It was reaped, by us or by somebody else, so the number is not pinned.
            self.group.forget();
        }
        self.group.signal(Signal::KILL);
        let record = self.record.take();
        self.reaper.order(Order { record, ..self.order(BUDGET) });
        if exit.is_some() {
            self.reap();
        }
        if let Some(child) = self.child.take() {
            tracing::debug!(pid = child.id(), "killed the group of a dropped child process");
            self.reaper.reap_later(child);
        }
    }
}
