//! Signs of life on the way from a child to its caller.

use crate::{SchemaAttempt, Usage};
use std::sync::Arc;

/// One sign of life. Each resets the idle deadline.
///
/// It is folded into the run's record at once, outside any mailbox: text is kept up to a bound, the rest is
/// counted. A child that reports faster than anybody reads costs neither memory nor time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// Alive, with nothing to show.
    Alive,
    /// Text of the answer. It is also the partial answer should the run be cut short.
    Text(&'a str),
    /// A new message of the answer begins.
    Message,
    /// The child thinks; the text is not kept.
    Thought(&'a str),
    /// A tool starts. The child waits for it until a finish or other progress about waiting.
    ToolStarted(&'a str),
    /// A tool is done.
    ToolFinished(&'a str),
    /// A tool call was denied. It is kept for the result's details (the first hundred), however the run ends.
    Denied {
        /// The tool, by name or as the child calls it.
        tool: &'a str,
        /// Who denied it, or what.
        reason: &'a str,
    },
    /// What it has said since the last attempt did not match the output schema; what follows is another answer. Kept for the
    /// result's details (the first hundred), however the run ends.
    SchemaAttempt(&'a SchemaAttempt),
    /// The child made a plan or changed it; it is counted.
    Plan,
    /// The child waits for something, or for nothing in particular any more.
    Waiting(Option<Waiting>),
    /// What it used up so far; replaces what was said before.
    Usage(Usage),
    /// The operating-system process that does the work, for the tree.
    Process {
        /// Its process id.
        pid: u32,
        /// The program, without its arguments (they may hold a prompt).
        program: &'a str,
    },
}

/// What a running child waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// A tool, by name.
    Tool(Arc<str>),
    /// An answer to a permission request, by its id.
    Permission(Arc<str>),
    /// A model.
    Model,
    /// Something else, in the provider's words.
    Other(Arc<str>),
}
