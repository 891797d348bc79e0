//! What is left when the host is killed: a shell that waits for the end of its stdin, and then ends every process that
//! bears a tag of the host. A host may have a program of its own do the same: see [`Guardian`].
//!
//! It has no tag itself, an environment of its own, no descriptor but its stdio, and is deaf to what a terminal sends.
//! The host's end closes the lifeline, however it comes; a farewell makes it leave without looking.

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

/// A watchdog that ends sooner by itself cannot work here.
const SHORT_LIFE: Duration = Duration::from_secs(5);
/// After so many of them in a row no other is tried, for a while.
const SHORT_LIVES: u32 = 3;
const TRY_AGAIN: Duration = Duration::from_mins(1);

/// A program that does it in place of the shell, and calls [`guard`](crate::guard).
#[derive(Debug, Clone)]
pub(crate) struct Guardian {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
}

/// Sees to it that there is a watchdog.
#[derive(Debug)]
pub(crate) struct Watch {
    host: HostTag,
    /// Since when the host may have children.
    since: u64,
    guardian: Option<Guardian>,
    watchdog: Option<Watchdog>,
    short_lives: u32,
    gave_up: Option<Instant>,
}

impl Watch {
    pub(crate) fn new(host: HostTag, since: u64) -> Self {
        Self { host, since, guardian: None, watchdog: None, short_lives: 0, gave_up: None }
    }

    pub(crate) fn set_guardian(&mut self, guardian: Guardian) {
        self.guardian = Some(guardian);
    }

    pub(crate) fn id(&mut self) -> Option<u32> {
        self.watchdog.as_mut().and_then(|watchdog| watchdog.is_alive().then(|| watchdog.shell.id()))
    }

    /// Starts one where there is none, or where it has been killed. Elsewhere than on Linux there is nothing that it
    /// could find the descendants by.
    pub(crate) fn ensure(&mut self) {
        if let Some(watchdog) = &mut self.watchdog {
            if watchdog.is_alive() {
                return;
            }
            let short = watchdog.started.elapsed() < SHORT_LIFE;
            self.short_lives = if short { self.short_lives + 1 } else { 0 };
            self.watchdog = None;
            if self.short_lives == SHORT_LIVES {
                self.gave_up = Some(Instant::now());
                tracing::warn!("watchdogs end as soon as they are started: {WITHOUT}");
            }
        }
        if self.gave_up.is_some_and(|since| since.elapsed() >= TRY_AGAIN) {
            (self.gave_up, self.short_lives) = (None, 0);
        }
        if cfg!(not(target_os = "linux")) || self.gave_up.is_some() {
            return;
        }
        let mut started = Watchdog::start(self.host, self.since, self.guardian.as_ref());
        if let (Some(_), Err(error)) = (&self.guardian, &started) {
            tracing::warn!(%error, "the guardian cannot be started; a shell takes its place");
            started = Watchdog::start(self.host, self.since, None);
        }
        match started {
            Ok(watchdog) => self.watchdog = Some(watchdog),
            Err(error) => tracing::warn!(%error, "no watchdog can be started: {WITHOUT}"),
        }
    }

    /// As [`ensure`](Self::ensure), where there was one.
    pub(crate) fn ensure_again(&mut self) {
        if self.watchdog.is_some() || self.gave_up.is_some() {
            self.ensure();
        }
    }

    /// Lets it go, and waits for that, not for long. Blocks.
    pub(crate) fn dismiss(&mut self) {
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.dismiss();
        }
    }
}

const WITHOUT: &str = "children outlive this process if it is killed";

#[expect(clippy::disallowed_methods, reason = "this is the crate that starts processes")]
fn new(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

#[derive(Debug)]
struct Watchdog {
    shell: Child,
    lifeline: Option<ChildStdin>,
    started: Instant,
}

impl Watchdog {
    fn start(host: HostTag, since: u64, guardian: Option<&Guardian>) -> io::Result<Self> {
        let mut command = if let Some(guardian) = guardian {
            let mut command = new(&guardian.program);
            command.arg0("subagents-watchdog").args(&guardian.args).arg(guardian::scope(host, since));
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
        launch::detached(&mut command);
        let mut shell = command.spawn()?;
        let lifeline = shell.stdin.take();
        Ok(Self { shell, lifeline, started: Instant::now() })
    }

    /// Whether it is there still. An error says that somebody else has taken note of its end.
    fn is_alive(&mut self) -> bool {
        matches!(self.shell.try_wait(), Ok(None))
    }

    fn dismiss(mut self) {
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
