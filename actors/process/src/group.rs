//! A process group: signalling it, and knowing when it is empty.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::table;

/// The group that a child leads. Once it is known to be empty, or is given up, it is never signalled again: its number may
/// then belong to somebody else.
///
/// The number is pinned by the unreaped leader, and for the rest of the teardown that reaps it by whatever member is left,
/// which is looked at every few milliseconds.
#[derive(Debug)]
pub(crate) struct Group {
    id: Pid,
    empty: bool,
}

impl Group {
    pub(crate) fn new(leader: Pid) -> Self {
        Self { id: leader, empty: false }
    }

    /// Gives it up: its number may be somebody else's from now on. Whoever is left is found by the tag.
    pub(crate) fn forget(&mut self) {
        self.empty = true;
    }

    /// Sends a signal to every member.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if !self.empty && kill_process_group(self.id, signal) == Err(Errno::SRCH) {
            self.empty = true;
        }
    }

    /// Whether no member is alive. To be asked only when the leader has been reaped: unreaped, it is a member.
    ///
    /// `thorough` also looks whether those that are left are but zombies, which the kernel counts as members and
    /// a container's first process may never reap. That reads all of `/proc`, so not at once.
    pub(crate) fn is_empty(&mut self, thorough: bool) -> bool {
        if !self.empty {
            self.empty = match test_kill_process_group(self.id) {
                Err(Errno::SRCH) => true,
                // Also "not permitted": a member there is, though not ours to signal.
                Ok(()) | Err(_) => thorough && self.members().is_some_and(|members| members.is_empty()),
            };
        }
        self.empty
    }

    /// The members that are alive; `None` where the system does not tell.
    pub(crate) fn members(&self) -> Option<Vec<u32>> {
        let id = self.id.as_raw_nonzero().get();
        let members =
            table::scan().ok()?.entries.into_iter().filter(|entry| entry.alive && entry.group == id);
        Some(members.filter_map(|entry| u32::try_from(entry.key.id).ok()).collect())
    }
}
