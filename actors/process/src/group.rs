//! A process group: signalling it, and knowing when it is empty.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// The group that a child leads. Once it is known to be empty it is never signalled again: its number may then
/// belong to somebody else.
///
/// The number is pinned by the unreaped leader, and after the reaping, which only a teardown or a drop does, by
/// whatever member is left. What remains is a teardown that is cut short between reaping and the last member's
/// end: the drop that follows signals a group that was alive at the last look.
#[derive(Debug)]
pub(crate) struct Group {
    id: Pid,
    empty: bool,
}

impl Group {
    pub(crate) fn new(leader: Pid) -> Self {
        Self { id: leader, empty: false }
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

    pub(crate) fn known_empty(&self) -> bool {
        self.empty
    }

    /// The members that are alive; `None` where `/proc` does not tell.
    pub(crate) fn members(&self) -> Option<Vec<u32>> {
        // Without our own entry this is no `/proc` to trust.
        std::fs::read_to_string("/proc/self/stat").ok()?;
        let members = std::fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read(entry.path().join("stat")).ok()?;
            let (state, group) = state_and_group(&stat)?;
            (group == self.id.as_raw_nonzero().get() && !matches!(state, b'Z' | b'X')).then_some(id)
        });
        Some(members.collect())
    }
}

/// State and process group from `/proc/PID/stat`, whose second field, the name, may hold anything.
fn state_and_group(stat: &[u8]) -> Option<(u8, i32)> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(stat.get(after_name..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    Some((state, fields.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_does_not_confuse_the_reading() {
        assert_eq!(state_and_group(b"7 (a) Z 1 2 (b)) S 3 77 9 0"), Some((b'S', 77)));
        assert_eq!(state_and_group(b"7 (sh) Z 3 78 9 0"), Some((b'Z', 78)));
        assert_eq!(state_and_group(b""), None);
    }
}
