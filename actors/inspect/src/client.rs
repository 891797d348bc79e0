//! The side of whoever looks. It blocks: it is for programs that do nothing else.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Take, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use subagents_seam::RunId;

use crate::folder::Folder;
use crate::wire::{Answer, Change, LONGEST_ANSWER, Question, Seen};

/// The socket of a host that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSocket {
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
    /// The host does not answer: it has ended, or hangs.
    #[error("the host of process {pid} does not answer: {source}; look again, or see whether it hangs")]
    Silent {
        /// Its process.
        pid: u32,
        /// How it was seen.
        source: io::Error,
    },
    /// What it says is nothing that is known here.
    #[error("the host of process {pid} speaks another version: {what}; look with the program of its version")]
    Version {
        /// Its process.
        pid: u32,
        /// What it said.
        what: Box<str>,
    },
}

impl InspectError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "INSPECT_FOLDER",
            Self::Silent { .. } => "INSPECT_SILENT",
            Self::Version { .. } => "INSPECT_VERSION",
        }
    }
}

/// The hosts of this user that have a socket in the folder, by their processes. A socket whose host was killed is removed.
///
/// # Errors
/// Where the folder is there and is not the user's own.
pub fn hosts(folder: &Folder) -> Result<Vec<HostSocket>, InspectError> {
    match folder.check() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(InspectError::Folder { path: folder.path().to_owned(), source }),
        Ok(()) => {}
    }
    let entries = fs::read_dir(folder.path())
        .map_err(|source| InspectError::Folder { path: folder.path().to_owned(), source })?;
    let mut found: Vec<_> = entries.flatten().filter_map(|entry| HostSocket::of(&entry.path())).collect();
    found.sort_by(|one, other| (one.pid, &one.path).cmp(&(other.pid, &other.path)));
    found.retain(|host| match UnixStream::connect(&host.path) {
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // Nobody listens, and nobody will: the name has its process in it.
            let _ = fs::remove_file(&host.path);
            false
        }
        Err(_) => false,
    });
    Ok(found)
}

impl HostSocket {
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(".sock")?;
        let (pid, count) = name.split_once('-')?;
        let _: u32 = count.parse().ok()?;
        Some(Self { path: path.to_owned(), pid: pid.parse().ok()? })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its tree, now.
    ///
    /// # Errors
    /// Where it does not answer in time.
    pub fn look(&self, patience: Duration) -> Result<Seen, InspectError> {
        match self.ask(&Question::Tree, patience)?.next()? {
            Some(Answer::Seen(seen)) => Ok(*seen),
            other => Err(self.odd(other)),
        }
    }

    /// Its tree, and what happens from then on; `patience` is for the first answer.
    ///
    /// # Errors
    /// As of [`look`](Self::look).
    pub fn watch(&self, patience: Duration) -> Result<(Seen, Watch), InspectError> {
        let mut conversation = self.ask(&Question::Watch, patience)?;
        match conversation.next()? {
            Some(Answer::Seen(seen)) => {
                let unlimited = conversation.read.get_ref().get_ref().set_read_timeout(None);
                unlimited.map_err(|source| InspectError::Silent { pid: self.pid, source })?;
                Ok((*seen, Watch(conversation)))
            }
            other => Err(self.odd(other)),
        }
    }

    /// Cancels a run, and waits for it to be gone. None where it has no such run; otherwise whether it is gone.
    ///
    /// # Errors
    /// As of [`look`](Self::look).
    pub fn cancel(&self, run: RunId, patience: Duration) -> Result<Option<bool>, InspectError> {
        match self.ask(&Question::Cancel { run }, patience)?.next()? {
            Some(Answer::NoSuchRun) => Ok(None),
            Some(Answer::Cancelled { gone }) => Ok(Some(gone)),
            other => Err(self.odd(other)),
        }
    }

    fn ask(&self, question: &Question, patience: Duration) -> Result<Conversation, InspectError> {
        let pid = self.pid;
        let asked = || {
            let mut stream = UnixStream::connect(&self.path)?;
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            stream.write_all(format!("{}\n", serde_json::to_string(question)?).as_bytes())?;
            Ok(stream)
        };
        let stream = asked().map_err(|source| InspectError::Silent { pid, source })?;
        Ok(Conversation { pid, read: BufReader::new(stream.take(LONGEST_ANSWER)) })
    }

    fn odd(&self, answer: Option<Answer>) -> InspectError {
        match answer {
            Some(Answer::Refused { why }) => InspectError::Version { pid: self.pid, what: why.into() },
            Some(_) => InspectError::Version { pid: self.pid, what: "it answers something else".into() },
            None => InspectError::Silent { pid: self.pid, source: io::ErrorKind::UnexpectedEof.into() },
        }
    }
}

#[derive(Debug)]
struct Conversation {
    pid: u32,
    read: BufReader<Take<UnixStream>>,
}

impl Conversation {
    fn next(&mut self) -> Result<Option<Answer>, InspectError> {
        let pid = self.pid;
        let mut line = String::new();
        self.read.get_mut().set_limit(LONGEST_ANSWER);
        self.read.read_line(&mut line).map_err(|source| InspectError::Silent { pid, source })?;
        if line.is_empty() {
            return Ok(None);
        }
        let wrong = |error: serde_json::Error| InspectError::Version { pid, what: error.to_string().into() };
        serde_json::from_str(&line).map(Some).map_err(wrong)
    }
}

/// What happens in a host, from a look on.
#[derive(Debug)]
pub struct Watch(Conversation);

impl Watch {
    /// Waits for the next thing to happen; none once the host has ended.
    ///
    /// # Errors
    /// Where what comes cannot be read.
    #[expect(clippy::should_implement_trait, reason = "it may fail")]
    pub fn next(&mut self) -> Result<Option<Change>, InspectError> {
        match self.0.next()? {
            Some(Answer::Change(change)) => Ok(Some(*change)),
            Some(Answer::Refused { .. }) | None => Ok(None),
            Some(_) => {
                Err(InspectError::Version { pid: self.0.pid, what: "it answers something else".into() })
            }
        }
    }
}
