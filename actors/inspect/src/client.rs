//! The side of whoever looks. It blocks, for no longer than it is told: it is for programs that do nothing else, and for
//! threads of their own.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::Pid;
use subagents_seam::RunId;

use crate::folder::{Folder, OpenFolder};
use crate::name;
use crate::wire::{
    Answer, CancelOutcome, Change, LONGEST_ANSWER, Question, Seen, Unread, VERSION, line, line_of, read,
};

/// A socket that was bound this long ago, is not listened at, and has no process, was left behind.
const LEFT: Duration = Duration::from_mins(1);
/// As much is read at once.
const PORTION: usize = 64 * 1024;
/// As much of a host's words is told in an error.
const LONGEST_WORDS: usize = 200;

/// The socket of a host that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSocket {
    folder: Folder,
    path: PathBuf,
    pid: u32,
}

/// Why a host could not be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The folder is not the user's own.
    #[error("the folder {} of sockets cannot be trusted: {source}; remove it", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The host does not answer, or not to the end, in the time it was given: it was killed, hangs, or takes nobody more.
    #[error("the host of process {pid} does not answer: {source}; look again, or see whether it hangs")]
    Silent {
        /// Its process.
        pid: u32,
        /// How it was seen.
        source: io::Error,
    },
    /// The service has ended, or its host has closed the socket.
    #[error("the service in process {pid} has ended; there is nothing to see any more")]
    Ended {
        /// Its process.
        pid: u32,
    },
    /// The host does not do it.
    #[error("the host of process {pid} refuses: {why}")]
    Refused {
        /// Its process.
        pid: u32,
        /// Why, in its words.
        why: Box<str>,
    },
    /// The host speaks another version of what goes over the socket.
    #[error(
        "the host of process {pid} speaks version {version}, and this is {VERSION}; look with the program of its version"
    )]
    Version {
        /// Its process.
        pid: u32,
        /// Its version; 0 is none.
        version: u64,
    },
    /// The host says more than is read.
    #[error(
        "the host of process {pid} answers with more than {} MiB; see whether it is one of subagents",
        LONGEST_ANSWER >> 20
    )]
    TooLong {
        /// Its process.
        pid: u32,
    },
    /// What the host says is no answer to what it was asked.
    #[error(
        "the host of process {pid} gives no answer that is known: {what}; see whether it is one of subagents"
    )]
    Unknown {
        /// Its process.
        pid: u32,
        /// What is wrong with it.
        what: Box<str>,
    },
}

impl InspectError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "INSPECT_FOLDER",
            Self::Silent { .. } => "INSPECT_SILENT",
            Self::Ended { .. } => "INSPECT_ENDED",
            Self::Refused { .. } => "INSPECT_REFUSED",
            Self::Version { .. } => "INSPECT_VERSION",
            Self::TooLong { .. } => "INSPECT_TOO_LONG",
            Self::Unknown { .. } => "INSPECT_UNKNOWN",
        }
    }
}

/// The hosts of this user that have a socket in the folder, by their processes, also those that take nobody at the moment. It
/// does not wait for any. A socket that a killed host left is removed.
///
/// # Errors
/// Where the folder is there and is not the user's own, or is another one meanwhile.
pub fn hosts(folder: &Folder) -> Result<Vec<HostSocket>, InspectError> {
    let wrong = |source| InspectError::Folder { path: folder.path().to_owned(), source };
    let open = match folder.open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(wrong)?,
    };
    hosts_in(folder, &open)
}

fn hosts_in(folder: &Folder, open: &OpenFolder) -> Result<Vec<HostSocket>, InspectError> {
    let wrong = |source| InspectError::Folder { path: folder.path().to_owned(), source };
    let mut found = Vec::new();
    for name in open.names().map_err(wrong)? {
        let path = folder.path().join(&name);
        if let Some(pid) = name::pid(&name, name::LISTENS) {
            match connect(&path).map_err(|error| error.kind()) {
                Err(io::ErrorKind::NotFound) => continue,
                // Some systems refuse where a host takes nobody at the moment. Once its process is gone nobody will listen
                // there: no name is used twice.
                Err(io::ErrorKind::ConnectionRefused) => {
                    if !is_alive(pid) {
                        remove(open, &name);
                    }
                    continue;
                }
                // Where it cannot be connected to, a look tells why.
                Ok(_) | Err(_) => {}
            }
            found.push(HostSocket { folder: folder.clone(), path, pid });
        } else if name::pid(&name, name::BINDS).is_some_and(|pid| !is_alive(pid)) && is_old(&path) {
            // A moment is too short to tell: a process of another namespace looks as if it were gone.
            remove(open, &name);
        }
    }
    open.stands().map_err(wrong)?;
    found.sort_by(|one, other| (one.pid, &one.path).cmp(&(other.pid, &other.path)));
    Ok(found)
}

fn remove(folder: &OpenFolder, name: &str) {
    // Somebody else may have done so.
    if folder.socket(name).is_ok() {
        let _ = folder.remove(name);
    }
}

fn is_old(path: &Path) -> bool {
    let age = fs::symlink_metadata(path).and_then(|data| data.modified()).map(|bound| bound.elapsed());
    matches!(age, Ok(Ok(age)) if age > LEFT)
}

fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// Connects at once or not at all: `WouldBlock` is a host that has not taken those who came before.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::from(socket()?);
    stream.set_nonblocking(true)?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(path)?)?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn socket() -> io::Result<OwnedFd> {
    use rustix::net::{SocketFlags, socket_with};
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn socket() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
}

impl HostSocket {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its tree, now. It blocks, and returns before `patience` is over, whatever the host does.
    ///
    /// # Errors
    /// Where the host does not answer in time, has ended, or says what cannot be understood.
    pub fn look(&self, patience: Duration) -> Result<Seen, InspectError> {
        match self.ask(&Question::Tree, patience)?.next()? {
            Some(Answer::Seen(seen)) => Ok(cleaned(*seen)),
            other => Err(self.odd(other)),
        }
    }

    /// Its tree, and what happens from then on; `patience` is for the first answer, and then for each to be read once it
    /// begins.
    ///
    /// # Errors
    /// As of [`look`](Self::look); [`InspectError::Refused`] where as many watch as may.
    pub fn watch(&self, patience: Duration) -> Result<(Seen, Watch), InspectError> {
        let mut conversation = self.ask(&Question::Watch, patience)?;
        match conversation.next()? {
            Some(Answer::Seen(seen)) => {
                Ok((cleaned(*seen), Watch { conversation, patience, is_over: false }))
            }
            other => Err(self.odd(other)),
        }
    }

    /// Cancels a run, and waits for it to be gone. The host waits for 20 s: where `patience` is longer there is an answer.
    ///
    /// # Errors
    /// As of [`look`](Self::look). The run may be cancelled all the same, and goes on ending.
    pub fn cancel(&self, run: RunId, patience: Duration) -> Result<CancelOutcome, InspectError> {
        match self.ask(&Question::Cancel { run }, patience)?.next()? {
            Some(Answer::Cancelled(CancelOutcome::MayBeLeft { what })) => {
                Ok(CancelOutcome::MayBeLeft { what: line_of(&what, LONGEST_WORDS) })
            }
            Some(Answer::Cancelled(outcome)) => Ok(outcome),
            other => Err(self.odd(other)),
        }
    }

    fn ask(&self, question: &Question, patience: Duration) -> Result<Conversation, InspectError> {
        let pid = self.pid;
        let deadline = Instant::now().checked_add(patience);
        let silent = |source| InspectError::Silent { pid, source };
        let stream = self.connect(&self.open()?)?;
        let timed = Timed { stream: Arc::new(stream), deadline };
        let asked = || {
            timed.stream.set_write_timeout(timed.left()?)?;
            (&*timed.stream).write_all(line(question)?.as_bytes())
        };
        asked().map_err(late).map_err(silent)?;
        Ok(Conversation { pid, read: BufReader::with_capacity(PORTION, timed) })
    }

    fn open(&self) -> Result<OpenFolder, InspectError> {
        let wrong = |source| InspectError::Folder { path: self.folder.path().to_owned(), source };
        self.folder.open().map_err(|error| self.ended_or(error, wrong))
    }

    /// Connects in a folder that has been checked, and is the same afterwards.
    fn connect(&self, folder: &OpenFolder) -> Result<UnixStream, InspectError> {
        let connected = connect(&self.path);
        let wrong = |source| InspectError::Folder { path: self.folder.path().to_owned(), source };
        folder.stands().map_err(wrong)?;
        let silent = |source| InspectError::Silent { pid: self.pid, source };
        connected.map_err(|error| self.ended_or(error, silent))
    }

    /// A host takes its socket with it.
    fn ended_or(&self, error: io::Error, other: impl FnOnce(io::Error) -> InspectError) -> InspectError {
        if error.kind() == io::ErrorKind::NotFound {
            InspectError::Ended { pid: self.pid }
        } else {
            other(error)
        }
    }

    fn odd(&self, answer: Option<Answer>) -> InspectError {
        odd(self.pid, answer)
    }
}

/// What a host says of itself is foreign.
fn cleaned(seen: Seen) -> Seen {
    Seen { host: seen.host.cleaned(), tree: seen.tree }
}

/// What an answer is that was not asked for.
fn odd(pid: u32, answer: Option<Answer>) -> InspectError {
    match answer {
        Some(Answer::Ended) => InspectError::Ended { pid },
        Some(Answer::Refused { why }) => {
            InspectError::Refused { pid, why: line_of(&why, LONGEST_WORDS).into() }
        }
        Some(Answer::Seen(_) | Answer::Change(_) | Answer::Cancelled(_)) => {
            InspectError::Unknown { pid, what: "it answers another question".into() }
        }
        None => InspectError::Silent { pid, source: io::ErrorKind::UnexpectedEof.into() },
    }
}

/// A stream that is read until a time, in however many portions.
#[derive(Debug)]
struct Timed {
    stream: Arc<UnixStream>,
    deadline: Option<Instant>,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        (&*self.stream).read(buffer).map_err(late)
    }
}

/// The system says of a time that is over that it would have to wait.
fn late(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

#[derive(Debug)]
struct Conversation {
    pid: u32,
    read: BufReader<Timed>,
}

impl Conversation {
    /// The next answer; none where the host has said all.
    fn next(&mut self) -> Result<Option<Answer>, InspectError> {
        let pid = self.pid;
        let mut line = Vec::new();
        let count = (&mut self.read).take(LONGEST_ANSWER).read_until(b'\n', &mut line);
        match count.map_err(|source| InspectError::Silent { pid, source })? {
            0 => return Ok(None),
            count if line.last() == Some(&b'\n') => debug_assert_eq!(count, line.len()),
            count if count as u64 == LONGEST_ANSWER => return Err(InspectError::TooLong { pid }),
            // It was killed while it spoke.
            _ => return Err(InspectError::Silent { pid, source: io::ErrorKind::UnexpectedEof.into() }),
        }
        read(&line).map(Some).map_err(|unread| match unread {
            Unread::Version(version) => InspectError::Version { pid, version },
            Unread::Unknown(error) => {
                InspectError::Unknown { pid, what: line_of(&error.to_string(), LONGEST_WORDS).into() }
            }
        })
    }

    /// Waits for the beginning of the next answer, for as long as it takes.
    fn begun(&mut self) -> Result<(), InspectError> {
        self.read.get_mut().deadline = None;
        loop {
            match self.read.fill_buf() {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(InspectError::Silent { pid: self.pid, source }),
            }
        }
    }
}

/// What happens in a host, from a look on.
///
/// It is an iterator and no stream, since it blocks: `next` waits for the next thing to happen, however long, and gives none
/// once the host has ended or the watch was [stopped](Self::stopper). After an error there is nothing more. A host keeps a place
/// for each watch.
///
/// **Dropping** it ends it, and gives the place back.
#[derive(Debug)]
#[must_use = "dropping it ends it"]
pub struct Watch {
    conversation: Conversation,
    patience: Duration,
    is_over: bool,
}

impl Watch {
    /// What ends it from another thread, also while it waits.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::downgrade(&self.conversation.read.get_ref().stream))
    }

    fn change(&mut self) -> Result<Option<Change>, InspectError> {
        self.conversation.begun()?;
        self.conversation.read.get_mut().deadline = Instant::now().checked_add(self.patience);
        match self.conversation.next()? {
            Some(Answer::Change(change)) => Ok(Some(*change)),
            Some(Answer::Ended) | None => Ok(None),
            other => Err(odd(self.conversation.pid, other)),
        }
    }
}

impl Iterator for Watch {
    type Item = Result<Change, InspectError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let change = self.change().transpose();
        self.is_over = !matches!(change, Some(Ok(_)));
        change
    }
}

impl std::iter::FusedIterator for Watch {}

/// Ends a [`Watch`]. **Dropping** it ends nothing.
#[derive(Clone, Debug)]
pub struct Stopper(Weak<UnixStream>);

impl Stopper {
    /// Ends the watch: whoever waits in it returns at once. Where it has ended, this does nothing.
    pub fn stop(&self) {
        if let Some(stream) = self.0.upgrade() {
            // It fails where the host was faster.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_folder_that_is_put_in_the_place_of_the_one_that_was_opened_is_noticed() {
        let temp = tempfile::tempdir().expect("a folder");
        let folder = Folder::at(temp.path().join("sockets"));
        let open = folder.make().expect("it is made");
        let path = folder.path().join(format!("1-{:016x}{}", 1, name::LISTENS));
        let ours = UnixListener::bind(&path).expect("a socket");
        let socket = hosts_in(&folder, &open).expect("it is ours").remove(0);
        socket.connect(&open).expect("it is ours");
        fs::rename(folder.path(), temp.path().join("moved")).expect("it is moved");
        folder.make().expect("another");
        let theirs = UnixListener::bind(&path).expect("a socket");
        assert_eq!(hosts_in(&folder, &open).expect_err("it is noticed").code(), "INSPECT_FOLDER");
        assert_eq!(socket.connect(&open).expect_err("it is noticed").code(), "INSPECT_FOLDER");
        drop((ours, theirs));
    }
}
