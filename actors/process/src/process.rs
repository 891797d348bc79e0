//! A running child.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};

use rustix::process::{Pid, Signal};
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::command::Command;
use crate::error::SpawnError;
use crate::exit::{Exit, ExitWatch};
use crate::group::Group;
use crate::lookup;
use crate::stdin::{SharedPipe, Stdin};
use crate::stdout::Stdout;
use crate::tail::StderrTail;
use crate::teardown::Teardown;

/// A child process that leads its own process group.
///
/// # Drop
///
/// Dropping it sends `SIGKILL` to the whole group, at once, unless the group is known to be gone. The drop does
/// not block, spawn or panic, inside or outside a runtime; the exit is not waited for. The child goes to a task that
/// waits on the runtime where it was started, and reaps it as soon as it is dead and that runtime is driven. Where that
/// runtime is gone, tokio reaps it, as long as any other with an I/O driver lives, when the next child ends at the latest.
/// To end a child in order, and to know that it is gone, call [`terminate`](Self::terminate).
///
/// # Zombies
///
/// A child that has exited stays unreaped until `terminate` or the drop: so its id, which is the group's too,
/// cannot be given to a stranger while we may still signal it. Do not keep a `Process` for its exit's sake.
#[derive(Debug)]
pub struct Process {
    /// Taken by the drop alone.
    child: Option<Child>,
    pub(crate) group: Group,
    pub(crate) exit: OnceLock<Exit>,
    pub(crate) stdout: Option<Stdout>,
    pub(crate) input: SharedPipe,
    pub(crate) teardown: Option<Teardown>,
    id: u32,
    watch: Arc<ExitWatch>,
    /// Where the drop sends a child that is still dying.
    undertaker: Option<oneshot::Sender<Child>>,
    stdin: Option<Stdin>,
    stderr: StderrTail,
    /// Reads stderr; a drop of the set ends it.
    _drain: JoinSet<()>,
}

impl Process {
    /// The one place in the workspace that starts a process. Everything about `command` has been checked.
    pub(crate) fn start(
        command: &Command,
        file: &Path,
        environment: &BTreeMap<OsString, OsString>,
    ) -> Result<Self, SpawnError> {
        let failed = |source| SpawnError::SpawnFailed { program: file.to_owned(), source };
        let runtime = Handle::try_current().map_err(|_| {
            failed(io::Error::other("there is no tokio runtime here to watch over the child"))
        })?;
        #[expect(clippy::disallowed_methods, reason = "this is the crate that starts processes")]
        let mut builder = tokio::process::Command::new(file);
        builder
            .arg0(&command.program)
            .args(&command.args)
            .current_dir(&command.cwd)
            .env_clear()
            .envs(environment)
            .stdin(if command.stdin_piped { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Whatever the terminal sends to the host's group (Ctrl-C) is the host's to pass on.
            .process_group(0);
        let mut child = builder.spawn().map_err(|error| {
            let args = command.args.iter().map(|arg| arg.len() + 1).sum();
            lookup::explain(file, args, error)
        })?;

        let pipes = (child.stdout.take(), child.stderr.take());
        let id = child.id().and_then(|id| Some((id, Pid::from_raw(i32::try_from(id).ok()?)?)));
        let ((Some(stdout), Some(stderr)), Some((id, pid))) = (pipes, id) else {
            // Cannot happen: the child was asked for with pipes and has not been awaited.
            return Err(failed(io::Error::other("the child has no pipes or no id")));
        };
        let (stderr, drain) = StderrTail::new(stderr, command.stderr_tail);
        let mut tasks = JoinSet::new();
        tasks.spawn(drain);
        let watch = Arc::new(ExitWatch::new(pid));
        let (undertaker, sent) = oneshot::channel();
        // It ends with the process: at once where nothing is sent.
        drop(runtime.spawn(reap_when_dead(sent, watch.clone())));
        let input = SharedPipe::new(child.stdin.take());
        tracing::debug!(pid = id, program = %file.display(), "started a child process");
        Ok(Self {
            child: Some(child),
            group: Group::new(pid),
            exit: OnceLock::new(),
            stdout: Some(Stdout::new(stdout)),
            stdin: command.stdin_piped.then(|| Stdin::new(input.clone())),
            input,
            teardown: None,
            id,
            watch,
            undertaker: Some(undertaker),
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

    /// Sends `SIGKILL` to the whole group, now, unless it is known to be gone. Does not wait;
    /// [`terminate`](Self::terminate) afterwards does.
    pub fn kill(&mut self) {
        self.group.signal(Signal::KILL);
    }

    /// Reaps the child, once its exit is known.
    pub(crate) fn reap(&mut self) {
        if self.exit().is_some()
            && let Some(child) = &mut self.child
        {
            // An error says that somebody else has reaped it.
            let _ = child.try_wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input.close();
        if !self.group.known_empty() {
            if self.exit().is_none() {
                tracing::debug!(pid = self.id, "killing the group of a dropped child process");
            }
            // Before reaping, so that the number is still ours.
            self.kill();
        }
        self.reap();
        if self.exit().is_none()
            && let (Some(child), Some(undertaker)) = (self.child.take(), self.undertaker.take())
        {
            // Where the runtime is gone it comes back, and is tokio's by its drop.
            let _ = undertaker.send(child);
        }
    }
}

/// Not left to tokio's queue of orphans, which is looked at when a `SIGCHLD` comes: a child that dies on its way into the
/// queue stays a zombie until another child ends, which may be never.
async fn reap_when_dead(sent: oneshot::Receiver<Child>, watch: Arc<ExitWatch>) {
    if let Ok(mut child) = sent.await {
        watch.wait().await;
        // An error says that somebody else has reaped it.
        let _ = child.try_wait();
    }
}
