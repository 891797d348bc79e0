//! The signals that ask the program to end. Only the program installs handlers, the library never does.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that was caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caught {
    Interrupt,
    Terminate,
    Hangup,
}

impl Caught {
    /// The exit code that says so, as a shell would.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Hangup => 129,
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupted",
            Self::Terminate => "asked to terminate",
            Self::Hangup => "the terminal is gone",
        }
    }
}

/// The handlers.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// None where it was ignored from the start, as under `nohup`.
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn install() -> io::Result<Self> {
        let ignored =
            std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status));
        // Where the program was started with it ignored, the system would let nobody know how a child ended.
        drop(signal(SignalKind::child())?);
        // A file that may not grow is an error of the write, not the program's end.
        drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: if ignored { None } else { Some(signal(SignalKind::hangup())?) },
        })
    }

    /// The next one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Caught {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Caught::Interrupt,
            _ = self.terminate.recv() => Caught::Terminate,
            _ = hangup => Caught::Hangup,
        }
    }
}

/// Whether the first bit, that of SIGHUP, is in the mask of ignored signals.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::ignores_hangup;

    #[test]
    fn an_ignored_hangup_is_seen() {
        assert!(ignores_hangup("Name:\tx\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("Name:\tx\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }
}
