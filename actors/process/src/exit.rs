//! How a child ended, and how that is learnt without reaping it.

use std::fmt;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, waitid};

/// How the leader of a process group ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Exit {
    /// It returned this code; 0 is success.
    Code(i32),
    /// A signal of this number ended it; see [`Exit::signal_name`].
    Signal(i32),
    /// It is gone, and something else in the host took its status: a `waitpid(-1)`, or an ignored `SIGCHLD`.
    Unknown,
}

impl Exit {
    /// Whether it returned 0.
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }

    /// The name of the signal that ended it, such as `SIGSEGV`; none for a real-time signal or another exit.
    pub fn signal_name(self) -> Option<&'static str> {
        match self {
            Self::Signal(number) => {
                SIGNALS.iter().find(|(signal, _)| signal.as_raw() == number).map(|(_, name)| *name)
            }
            Self::Code(_) | Self::Unknown => None,
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.signal_name()) {
            (Self::Code(code), _) => write!(f, "exit code {code}"),
            (Self::Signal(_), Some(name)) => write!(f, "signal {name}"),
            (Self::Signal(number), None) => write!(f, "signal {number}"),
            (Self::Unknown, _) => f.write_str("unknown exit"),
        }
    }
}

/// By name and not by number: the numbers differ from machine to machine.
const SIGNALS: [(Signal, &str); 23] = [
    (Signal::HUP, "SIGHUP"),
    (Signal::INT, "SIGINT"),
    (Signal::QUIT, "SIGQUIT"),
    (Signal::ILL, "SIGILL"),
    (Signal::TRAP, "SIGTRAP"),
    (Signal::ABORT, "SIGABRT"),
    (Signal::BUS, "SIGBUS"),
    (Signal::FPE, "SIGFPE"),
    (Signal::KILL, "SIGKILL"),
    (Signal::USR1, "SIGUSR1"),
    (Signal::SEGV, "SIGSEGV"),
    (Signal::USR2, "SIGUSR2"),
    (Signal::PIPE, "SIGPIPE"),
    (Signal::ALARM, "SIGALRM"),
    (Signal::TERM, "SIGTERM"),
    (Signal::TTIN, "SIGTTIN"),
    (Signal::TTOU, "SIGTTOU"),
    (Signal::XCPU, "SIGXCPU"),
    (Signal::XFSZ, "SIGXFSZ"),
    (Signal::VTALARM, "SIGVTALRM"),
    (Signal::PROF, "SIGPROF"),
    (Signal::IO, "SIGIO"),
    (Signal::SYS, "SIGSYS"),
];

/// How often the exit is asked for where there is no pidfd to wait on.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// Learns the exit of one child and leaves it unreaped. An unreaped leader pins its process id, so the group
/// can be signalled until the very end without any danger of meeting a stranger under the same number.
#[derive(Debug)]
pub(crate) struct ExitWatch {
    pid: Pid,
    #[cfg(target_os = "linux")]
    pidfd: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

impl ExitWatch {
    /// Watches a child of ours that is not reaped yet. Inside a tokio runtime.
    pub(crate) fn new(pid: Pid) -> Self {
        Self {
            pid,
            #[cfg(target_os = "linux")]
            pidfd: watched(pid),
        }
    }

    /// The exit, if there is one. Does not block.
    pub(crate) fn peek(&self) -> Option<Exit> {
        peek(self.pid)
    }

    /// Waits for the exit. Cancel-safe.
    pub(crate) async fn wait(&self) -> Exit {
        loop {
            if let Some(exit) = self.peek() {
                return exit;
            }
            self.changed().await;
        }
    }

    #[cfg(target_os = "linux")]
    async fn changed(&self) {
        let Some(pidfd) = &self.pidfd else { return tokio::time::sleep(ASK_EVERY).await };
        match pidfd.readable().await {
            // Readiness is forgotten only while the child is alive, so that an exit is never slept through.
            Ok(mut ready) if self.peek().is_none() => ready.clear_ready(),
            Ok(_) => {}
            Err(_) => tokio::time::sleep(ASK_EVERY).await,
        }
    }

    #[cfg(not(target_os = "linux"))]
    async fn changed(&self) {
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// The exit of a child that is not reaped, if there is one. Does not block.
pub(crate) fn peek(pid: Pid) -> Option<Exit> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    match waitid(WaitId::Pid(pid), options) {
        Ok(None) | Err(rustix::io::Errno::INTR) => None,
        Ok(Some(status)) => Some(exit_of(&status)),
        Err(_) => Some(Exit::Unknown),
    }
}

/// A pidfd in the reactor. None where it is out of descriptors or forbidden by a filter: asking again and again
/// does as well.
#[cfg(target_os = "linux")]
#[allow(deprecated, reason = "the successor is unsafe for types that are not I/O-safe, and OwnedFd is")]
fn watched(pid: Pid) -> Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>> {
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
    tokio::io::unix::AsyncFd::with_interest(pidfd, tokio::io::Interest::READABLE).ok()
}

fn exit_of(status: &WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_read_well() {
        assert_eq!(Exit::Code(3).to_string(), "exit code 3");
        assert_eq!(Exit::Signal(Signal::SEGV.as_raw()).to_string(), "signal SIGSEGV");
        assert_eq!(Exit::Signal(40).to_string(), "signal 40");
        assert!(Exit::Code(0).success() && !Exit::Unknown.success());
    }
}
