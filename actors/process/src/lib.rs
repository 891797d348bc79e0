//! One child process, started and ended with care.
//!
//! A [`Command`] says what to run and in which environment; [`Command::spawn`] starts it in a process group of
//! its own and gives a [`Process`], or a [`SpawnError`] that says what to do next. A `Process` has bounded
//! output ([`Stdout`], [`Lines`], [`StderrTail`]), an exit that can be awaited any number of times
//! ([`Process::wait`]), and a bounded teardown ([`Process::terminate`]). Dropping it kills the whole group.
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
//! # What it does not do
//!
//! - It has **no effect on the host process**: no signal handler of its own, no `SIGCHLD`, no `waitpid(-1)`, no
//!   subreaper, no global, no change of the environment. One thing comes from tokio: when a `Process` is dropped
//!   while its child is still dying and the runtime that it was started in is gone, tokio reaps the orphan, and
//!   registers a `SIGCHLD` listener to do so.
//! - A descendant that leaves the process group (`setsid`, a daemon) is **not found**: this version signals the
//!   group and nothing else.
//! - A host that dies of `SIGKILL` leaves its children running; they read the end of their stdin, no more.
//! - It runs no shell, ever.
//!
//! Linux is what it is built and tested for. The code uses no other system's interfaces, and where there is no
//! pidfd it asks for the exit every few milliseconds.

mod command;
mod environment;
mod error;
mod exit;
mod framing;
mod group;
mod guardian;
mod hunt;
mod launch;
mod leash;
mod ledger;
mod lookup;
mod pidfd;
mod process;
mod scope;
mod stdin;
mod stdout;
mod sweep;
mod table;
mod tail;
mod teardown;
mod warden;
mod watchdog;

pub use command::Command;
pub use environment::looks_secret;
pub use error::{FrameError, LedgerError, SpawnError, StdinError};
pub use exit::Exit;
pub use framing::LineFramer;
pub use guardian::guard;
pub use ledger::{Ledger, Leftover, Reaped};
pub use process::Process;
pub use stdin::Stdin;
pub use stdout::{Lines, Stdout};
pub use tail::StderrTail;
pub use teardown::{Ladder, Stage, Teardown};
pub use warden::Host;
