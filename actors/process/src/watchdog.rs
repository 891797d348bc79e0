//! What is left when the host is killed: a shell that waits for the end of its stdin, and then ends every process that
//! bears a tag of the host.
//!
//! A host may have a program of its own do the same: see [`Guardian`].
//!
//! It has no tag itself, an environment of its own, no descriptor but the lifeline, and is deaf to what a terminal
//! sends. The host's end closes the lifeline, however it comes; a farewell makes it leave without looking.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::guardian;
use crate::launch;
use crate::scope::HostTag;

const SCRIPT: &str = include_str!("watchdog.sh");

/// How long after the farewell it may take to leave.
const PATIENCE: Duration = Duration::from_secs(1);

/// A program that does it in place of the shell, and calls [`guard`](crate::guard).
#[derive(Debug, Clone)]
pub(crate) struct Guardian {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
}

#[expect(clippy::disallowed_methods, reason = "this is the crate that starts processes")]
fn new(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Child,
    lifeline: Option<ChildStdin>,
}

impl Watchdog {
    /// Starts it for the children of `host`, which has any since then.
    pub(crate) fn start(host: HostTag, since: u64, guardian: Option<&Guardian>) -> io::Result<Self> {
        let mut command = if let Some(guardian) = guardian {
            let mut command = new(&guardian.program);
            command.args(&guardian.args).arg(guardian::scope(host, since));
            command
        } else {
            let mut command = new("/bin/sh");
            command.args(["-c", SCRIPT, "subagents-watchdog", &host.to_string()]);
            command
        };
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LC_ALL", "C")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        launch::aside(&mut command);
        let mut shell = command.spawn()?;
        let lifeline = shell.stdin.take();
        Ok(Self { shell, lifeline })
    }

    pub(crate) fn id(&self) -> u32 {
        self.shell.id()
    }

    /// Whether it is there still. An error says that somebody else has taken note of its end.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.shell.try_wait(), Ok(None))
    }

    /// Lets it go, and waits for that, not for long. Blocks.
    pub(crate) fn dismiss(mut self) {
        if let Some(mut lifeline) = self.lifeline.take() {
            // An error says that it is gone already.
            let _ = lifeline.write_all(b"bye\n");
        }
        let end = Instant::now() + PATIENCE;
        let mut pause = Duration::from_micros(200);
        while let Ok(None) = self.shell.try_wait() {
            if Instant::now() >= end {
                let _ = self.shell.kill();
                let _ = self.shell.wait();
                return;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}
