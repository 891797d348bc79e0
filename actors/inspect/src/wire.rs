//! What goes over the socket: a line of JSON for a question, lines of JSON for answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use subagents_seam::{RunId, Tree};

/// The longest question.
pub(crate) const LONGEST_QUESTION: usize = 4096;
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
    /// The whole tree: at first, and again where changes were lost.
    Tree {
        /// It.
        tree: Tree,
    },
    /// Something that happened, as [`Event`](subagents_seam::Event) writes it.
    Event {
        /// It.
        event: Value,
    },
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
    /// No run of this id is alive here.
    NoSuchRun,
    /// It is gone, or was not within the time.
    Cancelled {
        gone: bool,
    },
    Refused {
        why: String,
    },
}
