//! The system's table of processes, as far as `/proc` shows it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::io::Errno;

use crate::scope::{Tag, tags_in};

/// A process, told apart from all before and after it with the same number by its start, in ticks since the boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) id: i32,
    pub(crate) start: u64,
}

/// What one line of the table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// No zombie, and nothing of the kernel's own.
    pub(crate) alive: bool,
    /// Of the limit that the line shows.
    pub(crate) tag: Option<Tag>,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) entries: Vec<Entry>,
    /// Everything that was alive at the end of the reading is in it.
    pub(crate) complete: bool,
}

/// Flag of a thread of the kernel.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// How often what is made while the table is read is followed. Not how long: a thread that has to wait for its turn in
/// between gets to its end all the same.
const FOLLOWED: usize = 100;

/// Reads it all.
///
/// Numbers are given in turn, so whoever is made while it is read has one above the newest of before: those are read until
/// there is no newer one, and who forks and ends in the meantime cannot slip through. (A number that is given and not to be
/// seen yet belongs to a fork under way, whose parent is there and seen.) A reading in which the numbers begin anew is not
/// complete. A process may be in it twice.
///
/// # Errors
///
/// Where it cannot be read, or not wholly: no `/proc`, one that is none, no descriptor left.
pub(crate) fn scan() -> io::Result<Scan> {
    is_ours()?;
    let before = newest()?;
    let (mut entries, mut line) = (Vec::with_capacity(256), Vec::with_capacity(512));
    for entry in std::fs::read_dir("/proc")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        entries.extend(read_entry(id, &mut line)?);
    }
    let complete = match before {
        Some(before) => follow(before, &mut entries, &mut line)?,
        None => false,
    };
    Ok(Scan { entries, complete })
}

/// An error where the table is that of another PID namespace: its numbers mean others to us. Such a one shows us with more
/// than one number.
pub(crate) fn is_ours() -> io::Result<()> {
    let link = std::fs::read_link("/proc/self")?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    // Kernels before 4.1 do not tell.
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let one = numbers.is_none_or(|numbers| numbers.split_ascii_whitespace().count() == 1);
    if one && link.to_str().and_then(|me| me.parse().ok()) == Some(std::process::id()) {
        return Ok(());
    }
    Err(io::Error::other("the /proc here is that of another PID namespace; mount one of its own"))
}

/// Reads the processes that were made after the one with this number; false where they come too fast, or the numbers
/// began anew.
fn follow(mut read: i32, entries: &mut Vec<Entry>, line: &mut Vec<u8>) -> io::Result<bool> {
    for _ in 0..FOLLOWED {
        let Some(newest) = newest()?.filter(|newest| *newest >= read) else { return Ok(false) };
        if newest == read {
            return Ok(true);
        }
        for id in read + 1..=newest {
            entries.extend(read_entry(id, line)?);
        }
        read = newest;
    }
    Ok(false)
}

/// One process; `None` when it is gone, or cannot be read.
pub(crate) fn entry(id: i32) -> Option<Entry> {
    read_entry(id, &mut Vec::with_capacity(512)).ok().flatten()
}

/// `None` when it is gone.
fn read_entry(id: i32, line: &mut Vec<u8>) -> io::Result<Option<Entry>> {
    line.clear();
    let read = File::open(format!("/proc/{id}/stat")).and_then(|mut file| file.read_to_end(line));
    match read {
        Ok(_) => Ok(parse(id, line)),
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)) => Ok(None),
        // Somebody else's, where the table shows each user his own alone.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(error),
    }
}

/// The second field, the name, may hold anything, so the others are counted from its end.
fn parse(id: i32, line: &[u8]) -> Option<Entry> {
    let after_name = line.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(line.get(after_name..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    let flags: u64 = fields.nth(3)?.parse().ok()?;
    let threads: u64 = fields.nth(10)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    let limit = fields.nth(2)?.parse().ok()?;
    // A process whose first thread has ended is a zombie to look at, and goes on in its others.
    let dead = matches!(state, b'Z' | b'X' | b'x') && threads <= 1;
    Some(Entry {
        key: Key { id, start },
        parent,
        group,
        alive: !dead && flags & KERNEL_THREAD == 0,
        tag: Tag::from_limit(limit),
    })
}

/// All tags that a process bears: of its limits and of its environment. What somebody else's process does not show us has
/// none.
pub(crate) fn marks(id: i32) -> io::Result<Vec<Tag>> {
    let read = |what: &str| match std::fs::read(format!("/proc/{id}/{what}")) {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)) => {
            Ok(Vec::new())
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(Vec::new()),
        read => read,
    };
    let limits = read("limits")?;
    let rows = limits.split(|byte| *byte == b'\n').filter_map(|row| std::str::from_utf8(row).ok());
    let mut tags: Vec<_> = rows.filter_map(tag_of_row).collect();
    tags.extend(tags_in(&read("environ")?));
    Ok(tags)
}

/// From a row like `Max file locks   SOFT   HARD   locks`.
fn tag_of_row(row: &str) -> Option<Tag> {
    let values = row.strip_prefix("Max file locks").or_else(|| row.strip_prefix("Max resident set"))?;
    Tag::from_limit(values.split_ascii_whitespace().next()?.parse().ok()?)
}

/// The number of the process, or thread, that was made last, of the whole system; `None` where it is not told.
pub(crate) fn newest() -> io::Result<Option<i32>> {
    match std::fs::read_to_string("/proc/loadavg") {
        Ok(line) => Ok(line.split_ascii_whitespace().last().and_then(|number| number.parse().ok())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What tells this boot of the machine from all others.
pub(crate) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id")).ok()?;
    Some(id.trim().to_owned())
}

/// This process, where the table is ours.
pub(crate) fn own_entry() -> Option<Entry> {
    is_ours().ok()?;
    entry(i32::try_from(std::process::id()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::Tags;

    #[test]
    fn a_hostile_name_does_not_confuse_the_reading() {
        let tag = Tags::new(None, None).next();
        let line = |name: &str, state: char, limit: u64| {
            format!("7 ({name}) {state} 3 77 9 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 10 {limit} 1")
        };
        let read = |line: &str| parse(7, line.as_bytes());
        let entry = read(&line("a) Z 1 2 (b)", 'S', tag.as_limit())).unwrap();
        assert_eq!((entry.key.start, entry.parent, entry.group, entry.alive), (4711, 3, 77, true));
        assert_eq!(entry.tag, Some(tag));
        let entry = read(&line("sh", 'Z', u64::MAX)).unwrap();
        assert_eq!((entry.alive, entry.tag), (false, None));
        let headless = line("sh", 'Z', u64::MAX).replace(" 20 0 1 0 ", " 20 0 2 0 ");
        assert!(read(&headless).unwrap().alive, "its first thread has ended, another goes on");
        assert_eq!(read(""), None);
        assert_eq!(read("7 (sh) S 3"), None);
    }

    #[test]
    fn a_row_of_limits_shows_a_tag() {
        let tag = Tags::new(None, None).next();
        assert_eq!(tag_of_row(&format!("Max file locks            {tag} unlimited locks")), Some(tag));
        assert_eq!(tag_of_row(&format!("Max resident set {tag} {tag} bytes")), Some(tag));
        assert_eq!(tag_of_row(&format!("Max open files {tag} {tag} files")), None);
        assert_eq!(
            tag_of_row("Max file locks            unlimited            unlimited            locks"),
            None
        );
    }

    #[test]
    fn the_real_table_has_this_process_in_it() {
        let scan = scan().unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let found = scan.entries.iter().find(|entry| entry.key.id == me).unwrap();
        assert_eq!(entry(me).unwrap().key, found.key);
        assert!(found.alive && marks(me).unwrap().is_empty() && boot_id().unwrap().len() == 36);
    }
}
