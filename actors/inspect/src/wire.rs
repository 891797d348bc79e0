//! What goes over the socket: a line of JSON for a question, lines of JSON for answers, each with the version it is written in.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use subagents_seam::{Event, RunId, Tree, bounded, sanitised};

/// Of all that is below, and of [`Tree`] and [`Event`] as they are written. Whoever changes any so that it cannot be read
/// before or after raises it.
pub(crate) const VERSION: u64 = 1;
/// The longest question.
pub(crate) const LONGEST_QUESTION: u64 = 4096;
/// The longest answer that is read: the tree of some hundred thousand runs.
pub(crate) const LONGEST_ANSWER: u64 = 256 * 1024 * 1024;

/// Who a host is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HostInfo {
    /// What it calls itself.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// The version of what it runs on.
    pub version: String,
}

impl HostInfo {
    pub(crate) fn new(name: &str, pid: u32, version: &str) -> Self {
        Self { name: line_of(name, 80), pid, version: line_of(version, 80) }
    }

    /// Safe to show, whoever wrote it.
    pub(crate) fn cleaned(&self) -> Self {
        Self::new(&self.name, self.pid, &self.version)
    }
}

/// A host's tree at one time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Seen {
    /// Whose it is.
    pub host: HostInfo,
    /// The tree, also of what is gone and remembered.
    pub tree: Tree,
}

/// What comes of a watch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type")]
#[non_exhaustive]
pub enum Change {
    /// The whole tree again: more happened at once than was kept for whoever watches, and this has what is lost of it.
    Tree {
        /// It.
        tree: Tree,
    },
    /// Something that happened: [`Tree::apply`] brings a tree up to date with it.
    ///
    /// An [`Ended`](Event::Ended) has no message of the child, and a [`NodeChanged`](Event::NodeChanged) is its node as of
    /// when it was sent.
    Event {
        /// It.
        event: Event,
    },
}

/// What became of a run that was to be cancelled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
#[non_exhaustive]
pub enum CancelOutcome {
    /// Nothing is left of it.
    Gone,
    /// It has ended, and something of it may be left.
    MayBeLeft {
        /// What, in few words.
        what: String,
    },
    /// It is cancelled, and had not ended when the host stopped waiting. It goes on ending.
    Ending,
    /// No run of this id is alive there.
    NoSuchRun,
}

/// A question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
pub(crate) enum Question {
    Tree,
    Watch,
    Cancel { run: RunId },
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub(crate) enum Answer {
    Seen(Box<Seen>),
    Change(Box<Change>),
    Cancelled(CancelOutcome),
    /// The service has ended, or ends while it is watched.
    Ended,
    Refused {
        why: String,
    },
}

/// Why a line is not understood.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It is of this version; 0 is none.
    Version(u64),
    /// It is of ours, or no line of anybody's.
    Unknown(serde_json::Error),
}

/// One line, with its end.
pub(crate) fn line(what: &impl Serialize) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Line<'a, T> {
        version: u64,
        #[serde(flatten)]
        what: &'a T,
    }
    let mut line = serde_json::to_string(&Line { version: VERSION, what })?;
    line.push('\n');
    Ok(line)
}

/// What a line says. Its version comes first: of another one nothing else is known.
pub(crate) fn read<T: DeserializeOwned>(line: &[u8]) -> Result<T, Unread> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        version: u64,
    }
    match serde_json::from_slice(line).map_err(Unread::Unknown)? {
        Head { version: VERSION } => serde_json::from_slice(line).map_err(Unread::Unknown),
        Head { version } => Err(Unread::Version(version)),
    }
}

/// Foreign words as one line that is safe to show.
pub(crate) fn line_of(text: &str, limit: usize) -> String {
    bounded(&sanitised(text).replace(['\n', '\t'], " "), limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_and_another_version_is_told() {
        let said = line(&Question::Watch).expect("it is written");
        assert_eq!(said, "{\"version\":1,\"ask\":\"watch\"}\n");
        assert!(matches!(read(said.as_bytes()), Ok(Question::Watch)));
        for outcome in [
            CancelOutcome::Gone,
            CancelOutcome::MayBeLeft { what: "a process".to_owned() },
            CancelOutcome::Ending,
            CancelOutcome::NoSuchRun,
        ] {
            let said = line(&Answer::Cancelled(outcome.clone())).expect("it is written");
            let Ok(Answer::Cancelled(told)) = read(said.as_bytes()) else { panic!("{said}") };
            assert_eq!(told, outcome);
        }
        for (said, version) in [(r#"{"version":2,"ask":"tree"}"#, 2), (r#"{"ask":"tree"}"#, 0), ("{}", 0)] {
            let Err(Unread::Version(told)) = read::<Question>(said.as_bytes()) else { panic!("{said}") };
            assert_eq!(told, version, "{said}");
        }
        for said in ["", "x", "[1]", "1", r#"{"version":-1}"#, r#"{"version":1,"ask":"everything"}"#] {
            assert!(matches!(read::<Question>(said.as_bytes()), Err(Unread::Unknown(_))), "{said}");
        }
    }
}
