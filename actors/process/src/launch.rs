//! What happens between fork and exec. The only unsafe code of the house.
//!
//! The child sets its own tag, so that it is there before the child can do anything, and then executes the program by
//! itself: the standard library's way would hand a file that is no program to a shell.

#![allow(unsafe_code, reason = "a hook between fork and exec is unsafe to install")]

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::scope::Tag;

/// The limits that hold a tag. Neither has had an effect since Linux 2.4.
#[cfg(target_os = "linux")]
const LIMITS: [Resource; 2] = [Resource::Rss, Resource::Locks];
/// Elsewhere they are in force, or not there.
#[cfg(not(target_os = "linux"))]
const LIMITS: [Resource; 0] = [];

/// The tags that a process has in its limits.
pub(crate) type LimitTags = [Option<Tag>; LIMITS.len()];

/// Those that this process itself has, if it is the descendant of a host.
pub(crate) fn own_tags() -> LimitTags {
    LIMITS.map(|limit| Tag::from_limit(getrlimit(limit).current?))
}

/// In which limits the children of this process get their tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TagPlaces([bool; LIMITS.len()]);

impl TagPlaces {
    /// Beside the tags that this process has inherited. A limit is free where it has none, or where another has the same:
    /// the host above must not lose sight of what is below us. With two limits that is so for two hosts, one below the
    /// other; who is deeper has the variable alone.
    pub(crate) fn beside(inherited: LimitTags) -> Self {
        let mut places = [true; LIMITS.len()];
        for (at, place) in places.iter_mut().enumerate() {
            *place = inherited[at].is_none() || inherited[..at].contains(&inherited[at]);
        }
        Self(places)
    }
}

/// Lets the child that `command` starts bear no tag, whether this process has one or not, be deaf to what a terminal sends
/// (what is ignored stays so through exec), and hold no descriptor but its stdio.
pub(crate) fn detached(command: &mut Command) {
    let tagged = own_tags().map(|tag| tag.is_some());
    let limits = limits(TagPlaces(tagged), None);
    // SAFETY: see `set`; and `signal` and `close_range` are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            set(&limits);
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGTSTP] {
                libc::signal(signal, libc::SIG_IGN);
            }
            // A pipe that the host was given would not end with the host. Refused by old kernels, where it stays open.
            #[cfg(target_os = "linux")]
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
}

/// Lets `command` execute `file` with these arguments, the first of which is its name, and this environment, with this
/// tag in these places. Where a hard limit is too low for it, the child goes without.
pub(crate) fn execute(
    command: &mut Command,
    file: &Path,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    environment: &BTreeMap<OsString, OsString>,
    (tag, places): (Tag, TagPlaces),
) -> io::Result<()> {
    let file = CString::new(file.as_os_str().as_bytes())?;
    let arguments = Words::new(arguments.into_iter().map(|argument| argument.as_ref().as_bytes().to_vec()))?;
    let environment = Words::new(environment.iter().map(|(name, value)| {
        let mut entry = name.as_bytes().to_vec();
        entry.push(b'=');
        entry.extend_from_slice(value.as_bytes());
        entry
    }))?;
    let limits = limits(places, Some(tag.as_limit()));
    // SAFETY: see `set`; and `execve` is async-signal-safe, and gets a text and two lists that end as it asks for. The
    // hook owns them.
    unsafe {
        command.pre_exec(move || {
            set(&limits);
            libc::execve(file.as_ptr(), arguments.as_ptr(), environment.as_ptr());
            // It returns only when it failed.
            Err(io::Error::last_os_error())
        });
    }
    Ok(())
}

type Limits = [Option<(Resource, Rlimit)>; LIMITS.len()];

/// The value for these places, or the highest there is.
fn limits(places: TagPlaces, value: Option<u64>) -> Limits {
    let mut wanted = places.0.into_iter();
    LIMITS.map(|limit| {
        let maximum = getrlimit(limit).maximum;
        wanted.next()?.then_some((limit, Rlimit { current: value.or(maximum), maximum }))
    })
}

/// Between fork and exec: system calls that are async-signal-safe, no allocation, no lock, no global, no panic; the
/// values were made before the fork.
fn set(limits: &Limits) {
    for (limit, values) in limits.iter().flatten() {
        // Refused where the hard limit is lower: the variable and the descent are left to find it by.
        let _ = setrlimit(*limit, *values);
    }
}

/// Texts as the system takes them: a list of addresses that ends with a null.
struct Words {
    _texts: Vec<CString>,
    addresses: Vec<usize>,
}

impl Words {
    fn new(words: impl Iterator<Item = Vec<u8>>) -> io::Result<Self> {
        let texts = words.map(CString::new).collect::<Result<Vec<_>, _>>()?;
        // A text stays where it is when its owner moves.
        let addresses = texts.iter().map(|text| text.as_ptr().expose_provenance()).chain([0]).collect();
        Ok(Self { _texts: texts, addresses })
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.addresses.as_ptr().cast()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::scope::Tags;

    #[test]
    fn each_of_two_hosts_has_a_limit_of_its_own_and_a_third_takes_none_away() {
        let (top, below) = (Tags::new(None, None).next(), Tags::new(None, None).next());
        for (inherited, places) in [
            ([None, None], [true, true]),
            ([Some(top), Some(top)], [false, true]),
            ([Some(top), Some(below)], [false, false]),
            ([Some(top), None], [false, true]),
            ([None, Some(below)], [true, false]),
        ] {
            assert_eq!(TagPlaces::beside(inherited), TagPlaces(places), "{inherited:?}");
        }
    }
}
