//! One child process, and all that descends from it, started and ended with care.
//!
//! A [`Command`] says what to run and in which environment; [`Command::spawn`] starts it in a process group of
//! its own and gives a [`Process`], or a [`SpawnError`] that says what to do next. A `Process` has bounded
//! output ([`Stdout`], [`Lines`], [`StderrTail`]), an exit that can be awaited any number of times
//! ([`Process::wait`]), and a bounded teardown ([`Process::terminate`]). Dropping it kills the whole group, and whoever
//! has left the group.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use subagents_process::{Command, Ladder};
//!
//! let mut process = Command::new("wc", "/srv/repo").arg("-w").stdin_piped().spawn()?;
//! let mut stdin = process.take_stdin().ok_or("no stdin")?;
//! stdin.write_all(b"three short words\n").await?;
//! drop(stdin); // the child reads the end of its input
//!
//! let mut lines = process.take_stdout().ok_or("no stdout")?.into_lines(64 * 1024);
//! while let Some(line) = lines.next().await? {
//!     println!("{line}");
//! }
//! let exit = process.wait().await;
//! let teardown = process.terminate(Ladder::default()).await;
//! # let _ = (exit, teardown);
//! # Ok(())
//! # }
//! ```
//!
//! # How descendants are found
//!
//! Each child has a *tag*, a number: in two resource limits that Linux has not enforced for twenty years (`RLIMIT_RSS`,
//! `RLIMIT_LOCKS`), and in the variable `SUBAGENTS_SCOPE`. Both are inherited, wherever a descendant moves: `setsid`, a
//! second fork, `env -i` for the limits. Whoever bears the tag, or is below one that does, and did not begin before the
//! child, is stopped, killed, and seen to be gone; by descriptors that pin a process, never by a number alone. A host that
//! is a descendant of another host leaves one of the limits to it, and the next below has the variable alone.
//!
//! When the host itself is killed, a *watchdog* does this, an idle process that waits for the end of a pipe: a shell, or a
//! program of the host's own ([`Host::set_guardian`]). It comes with the first child and goes with the last one and the
//! last [`Host`]. A [`Ledger`], which is opt-in, lets the next host finish what neither could.
//!
//! # What it does not do
//!
//! - It has **no effect on the host process**: no signal handler, no `SIGCHLD`, no `waitpid(-1)`, no subreaper, no change
//!   of the environment. While there are children, or somebody holds a [`Host`], there are one thread and one watchdog.
//! - It does not find what a child hands to a daemon that was there before, nor who washes off every mark and orphans
//!   itself as well.
//! - It runs no shell for a child, ever: a file that the kernel does not execute is an error.
//!
//! Linux is what it is built and tested for. On macOS it compiles; there, only the process group is ended, there is no
//! watchdog, and a ledger is refused. Where there is no pidfd it asks for the exit every few milliseconds.

mod child_guard;
mod command;
mod environment;
mod error;
mod exit;
mod framing;
mod group;
mod guardian;
mod host;
mod hunt;
mod launch;
mod ledger;
mod lookup;
mod peer;
mod pidfd;
mod process;
mod reaper;
mod scope;
mod secrets;
mod stdin;
mod stdout;
mod sweep;
mod table;
mod tail;
mod teardown;
mod watchdog;

pub use command::Command;
pub use environment::looks_secret;
pub use error::{FrameError, LedgerError, SpawnError, StdinError};
pub use exit::Exit;
pub use framing::LineFramer;
pub use guardian::guard;
pub use host::Host;
pub use ledger::{Ledger, Leftover, Reaped};
pub use peer::{Descent, HandedDepth, Peer, handed_depth, inherited_variable, peer};
pub use process::Process;
pub use secrets::{Masker, Secrets};
pub use stdin::Stdin;
pub use stdout::{Lines, Stdout};
pub use tail::StderrTail;
pub use teardown::{Ladder, Stage, Teardown};
