//! A running child.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;

use rustix::process::Signal;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::child_guard::ChildGuard;
use crate::command::Command;
use crate::error::SpawnError;
use crate::exit::{self, Exit, ExitWatch};
use crate::launch;
use crate::lookup;
use crate::reaper::Reaper;
use crate::scope::VARIABLE;
use crate::stdin::{SharedPipe, Stdin};
use crate::stdout::Stdout;
use crate::tail::StderrTail;
use crate::teardown::Teardown;

/// A child process that leads its own process group, and bears a tag by which all that descends from it is found.
///
/// # Drop
///
/// Dropping it sends `SIGKILL` to the whole group, at once, and has everything else that descends from the child looked
/// for and killed, unless all is known to be gone. The drop does not block, spawn or panic, inside or outside a runtime;
/// neither exit nor search is waited for: a thread of this crate sees to both, and reaps the child.
/// To end a child in order, and to know that it is gone, call [`terminate`](Self::terminate).
///
/// # Zombies
///
/// A child that has exited stays unreaped until `terminate` or the drop: so its id, which is the group's too,
/// cannot be given to a stranger while we may still signal it. Do not keep a `Process` for its exit's sake.
#[derive(Debug)]
pub struct Process {
    pub(crate) guard: ChildGuard,
    pub(crate) exit: OnceLock<Exit>,
    pub(crate) stdout: Option<Stdout>,
    pub(crate) input: SharedPipe,
    pub(crate) teardown: Option<Teardown>,
    id: u32,
    watch: ExitWatch,
    stdin: Option<Stdin>,
    stderr: StderrTail,
    /// Reads stderr; a drop of the set ends it.
    _drain: JoinSet<()>,
}

impl Process {
    /// The one place in the workspace that starts a child. Everything about `command` has been checked.
    pub(crate) fn start(
        command: &Command,
        file: &Path,
        mut environment: BTreeMap<OsString, OsString>,
    ) -> Result<Self, SpawnError> {
        let failed = |source| SpawnError::SpawnFailed { program: file.to_owned(), source };
        Handle::try_current().map_err(|_| {
            failed(io::Error::other("there is no tokio runtime here to watch over the child"))
        })?;
        let reaper = Reaper::current().map_err(failed)?;
        #[expect(clippy::disallowed_methods, reason = "this is the crate that starts processes")]
        let mut builder = std::process::Command::new(file);
        builder
            .current_dir(&command.cwd)
            .stdin(if command.stdin_piped { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Whatever the terminal sends to the host's group (Ctrl-C) is the host's to pass on.
            .process_group(0);
        let (tag, variable) = reaper.next_tag();
        environment.insert(VARIABLE.into(), variable);
        let arguments = std::iter::once(&command.program).chain(&command.args);
        launch::execute(&mut builder, file, arguments, &environment, (tag, reaper.places()))
            .map_err(failed)?;
        let record = reaper.records().and_then(|records| records.record(tag, file, command.note.as_deref()));
        let child = builder.spawn().map_err(|error| {
            let args = command.args.iter().map(|arg| arg.len() + 1).sum();
            lookup::explain(file, args, error)
        })?;
        let id = child.id();
        // From here on a return or a panic ends it.
        let guard = ChildGuard::new(child, reaper, tag, record);
        let mut guard = guard.ok_or_else(|| failed(io::Error::other("the child has no proper id")))?;
        let pipes = guard.child().map(|child| (child.stdin.take(), child.stdout.take(), child.stderr.take()));
        let Some((stdin, Some(stdout), Some(stderr))) = pipes else {
            return Err(failed(io::Error::other("the child has no pipes")));
        };
        let stdin = stdin.map(|stdin| pipe::Sender::from_owned_fd(OwnedFd::from(stdin)));
        let stdin = stdin.transpose().map_err(failed)?;
        let stdout = pipe::Receiver::from_owned_fd(OwnedFd::from(stdout)).map_err(failed)?;
        let stderr = pipe::Receiver::from_owned_fd(OwnedFd::from(stderr)).map_err(failed)?;
        let (stderr, drain) = StderrTail::new(stderr, command.stderr_tail, command.secrets().masker());
        let mut tasks = JoinSet::new();
        tasks.spawn(drain);
        let watch = ExitWatch::new(guard.pid());
        let input = SharedPipe::new(stdin);
        tracing::debug!(pid = id, program = ?file, "started a child process");
        Ok(Self {
            guard,
            exit: OnceLock::new(),
            stdout: Some(Stdout::new(stdout)),
            stdin: command.stdin_piped.then(|| Stdin::new(input.clone())),
            input,
            teardown: None,
            id,
            watch,
            stderr,
            _drain: tasks,
        })
    }

    /// The process id of the child, which is its group's id too. Of use to show; to signal, there are
    /// [`kill`](Self::kill) and [`terminate`](Self::terminate).
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The child's stdin, once; `None` when it was taken, or not asked for by
    /// [`Command::stdin_piped`](crate::Command::stdin_piped).
    pub fn take_stdin(&mut self) -> Option<Stdin> {
        self.stdin.take()
    }

    /// The child's stdout, once. While it is not taken nobody reads it.
    pub fn take_stdout(&mut self) -> Option<Stdout> {
        self.stdout.take()
    }

    /// Gives back a stdout that was taken: [`terminate`](Self::terminate) then reads it to its end, so that a child which
    /// still has something to say is not ended by a closed pipe.
    pub fn give_back_stdout(&mut self, stdout: Stdout) {
        self.stdout = Some(stdout);
    }

    /// The end of what the child writes to stderr.
    pub fn stderr(&self) -> StderrTail {
        self.stderr.clone()
    }

    /// Waits until the child itself has exited; its descendants may live on. Any number may wait, any number of
    /// times. Cancel-safe. Does not close stdin: a child that reads to the end of its input needs that first.
    pub async fn wait(&self) -> Exit {
        if let Some(exit) = self.exit.get() {
            return *exit;
        }
        let exit = self.watch.wait().await;
        *self.exit.get_or_init(|| exit)
    }

    /// The child's exit, if it has exited. Does not block.
    pub fn exit(&self) -> Option<Exit> {
        if let Some(exit) = self.exit.get() {
            return Some(*exit);
        }
        let exit = self.watch.peek()?;
        Some(*self.exit.get_or_init(|| exit))
    }

    /// Sends `SIGKILL` to the whole group, now, unless it is known to be gone. Does not wait, and reaches nobody who has
    /// left the group; [`terminate`](Self::terminate) afterwards does both.
    pub fn kill(&mut self) {
        self.signal_group(Signal::KILL);
    }

    /// Signals the group, while its number is sure to be ours.
    pub(crate) fn signal_group(&mut self, signal: Signal) {
        if !self.guard.is_reaped() && exit::peek(self.guard.pid()) == Some(Exit::Unknown) {
            // Somebody else has reaped the leader: its number may have been given anew.
            self.guard.group.forget();
        }
        self.guard.group.signal(signal);
    }

    /// Reaps the child, once its exit is known.
    pub(crate) fn reap(&mut self) {
        if self.exit().is_some() {
            self.guard.reap();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input.close();
        // The number is given up by the reaping that the drop of the guard may do.
        let _ = self.exit();
    }
}
