//! The errors, one per phase: starting, writing, reading.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// Why a child did not start. Nothing of it is left behind. Each variant has a stable [`code`](Self::code).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The program was given as a path, and there is no such file.
    #[error("the program {} does not exist; correct the path, or give a bare name to look it up on PATH", .program.display())]
    ProgramNotFound {
        /// The path that was looked at.
        program: PathBuf,
    },
    /// The program was given as a bare name, and no directory of the child's `PATH` holds it.
    #[error("{name} is not on the child's PATH ({path}); {}", looked_for(.name))]
    NotOnPath {
        /// The name that was looked for.
        name: String,
        /// The `PATH` that was searched.
        path: String,
    },
    /// There is such a file, but it cannot be run.
    #[error("{} cannot be run: {reason}", .program.display())]
    NotExecutable {
        /// The file that was found.
        program: PathBuf,
        /// What is wrong with it, and what would help.
        reason: &'static str,
    },
    /// The program is there and what it needs to run is not: the interpreter on its `#!` line, or its loader.
    #[error("the interpreter of {}, {interpreter}, was not found; install it or correct the first line", .program.display())]
    InterpreterNotFound {
        /// The program that was to run.
        program: PathBuf,
        /// What is missing.
        interpreter: String,
    },
    /// The working directory is not absolute, is absent, is no directory, or may not be entered (`SPEC 17.2`).
    #[error("the working directory {} cannot be used: {reason}", .cwd.display())]
    CwdNotUsable {
        /// The directory that was asked for.
        cwd: PathBuf,
        /// What is wrong with it, and what would help.
        reason: String,
    },
    /// An argument, or all arguments and the environment together, are longer than the system takes.
    #[error("the arguments are too long for the system ({bytes} bytes); pass a long prompt on stdin")]
    PromptTooLong {
        /// The length of the argument that is too long, or of all arguments together.
        bytes: usize,
    },
    /// The system refused for any other reason, which is the source.
    #[error("{} could not be started: {source}; {}", .program.display(), advice(.source))]
    SpawnFailed {
        /// The program that was to run.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What would help where a name is not found.
fn looked_for(name: &str) -> &'static str {
    if name.trim().contains(char::is_whitespace) {
        "a command is not split into words: give the program and each argument by itself"
    } else {
        "install it, give its full path, or set PATH for the child"
    }
}

/// What would help against a refusal of the system.
fn advice(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::MFILE) => {
            "too many files are open: run fewer children at once (with the program: a lower -j), or raise ulimit -n"
        }
        Some(Errno::NFILE) => "the system has too many files open: run fewer children at once",
        Some(Errno::AGAIN | Errno::NOMEM) => {
            "there is no room for another process: run fewer children at once (with the program: a lower -j), or raise \
             ulimit -u"
        }
        _ => "check what it names",
    }
}

impl SpawnError {
    /// A stable name for programs to match on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ProgramNotFound { .. } => "PROGRAM_NOT_FOUND",
            Self::NotOnPath { .. } => "NOT_ON_PATH",
            Self::NotExecutable { .. } => "NOT_EXECUTABLE",
            Self::InterpreterNotFound { .. } => "INTERPRETER_NOT_FOUND",
            Self::CwdNotUsable { .. } => "CWD_NOT_USABLE",
            Self::PromptTooLong { .. } => "PROMPT_TOO_LONG",
            Self::SpawnFailed { .. } => "SPAWN_FAILED",
        }
    }
}

/// Why a ledger could not be kept. Each variant has a stable [`code`](Self::code). No child is concerned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The folder cannot be made, read or written.
    #[error("the ledger in {} cannot be kept: {source}; name a folder that this user may write to, or do without", .folder.display())]
    Unusable {
        /// The folder that was asked for.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A child was started whose record could not be written.
    #[error("a child could not be recorded in the ledger {}: {source}; make room there: until then only the watchdog knows of it", .folder.display())]
    NotRecorded {
        /// The folder of this process's records.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// This process has a ledger. Two would each know a part.
    #[error("this process keeps a ledger already; share the one there is, or drop it first")]
    AlreadyOpen,
    /// There is no `/proc` that tells one boot, and one process, from another.
    #[error("a ledger needs Linux with /proc mounted; do without one here")]
    Unsupported,
}

impl LedgerError {
    /// A stable name for programs to match on.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "LEDGER_UNUSABLE",
            Self::NotRecorded { .. } => "LEDGER_NOT_RECORDED",
            Self::AlreadyOpen => "LEDGER_ALREADY_OPEN",
            Self::Unsupported => "LEDGER_UNSUPPORTED",
        }
    }
}

/// Why nothing more can be written to a child.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StdinError {
    /// The child closed its stdin or is gone, or the teardown has closed it (`EPIPE`). Its exit tells more.
    #[error("the child does not read its stdin any more; look at its exit and its stderr")]
    Closed,
    /// The system refused the write for any other reason.
    #[error("the child's stdin could not be written")]
    Io(#[from] io::Error),
}

/// Why the next line of a child's output could not be given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A line is longer than the limit. It is skipped to its end, and the next call goes on after it.
    #[error(
        "a line of output is longer than {limit} bytes; raise the limit, or check that the child writes one message per line"
    )]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The whole output is longer than the limit. No more lines follow, and nothing more is read: end the child.
    #[error("the output is longer than {limit} bytes in all; raise the limit, or check what the child does")]
    TotalTooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// A line is not UTF-8. The next call goes on after it.
    #[error("a line of output is not UTF-8; check that the child writes text to stdout")]
    NotUtf8,
    /// The pipe could not be read. No more lines follow.
    #[error("the child's stdout could not be read")]
    Io(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_system_says_what_would_help() {
        for (errno, help) in [
            (Errno::MFILE, "ulimit -n"),
            (Errno::NFILE, "fewer"),
            (Errno::AGAIN, "ulimit -u"),
            (Errno::NOMEM, "fewer"),
            (Errno::IO, "check what it names"),
        ] {
            let error = SpawnError::SpawnFailed { program: "/bin/x".into(), source: errno.into() };
            assert!(error.to_string().contains(help), "{error}");
        }
    }
}
