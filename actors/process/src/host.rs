//! This process, as the host of its children.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::reaper::Reaper;
use crate::watchdog::Guardian;

/// How often is asked whether a child is left.
const LOOK_AGAIN: Duration = Duration::from_millis(3);

/// Keeps what all children of this process share, from one child to the next: the watchdog, and the thread that looks for
/// descendants. Cheap to clone. Without it they come with the first child and go with the last, which costs a millisecond
/// each time.
///
/// A process that forks itself, without exec, shares the watchdog with its copy: that one has to end, too.
#[derive(Debug, Clone)]
pub struct Host(Arc<Reaper>);

impl Host {
    /// That of this process. Starts the thread where there is none; the watchdog comes with the first child.
    ///
    /// # Errors
    ///
    /// What the system says where it has no room for a thread.
    pub fn current() -> io::Result<Self> {
        Reaper::current().map(Self)
    }

    /// Lets a program do the watchdog's work in place of a shell: it is started with these arguments and one more, and has
    /// to call [`guard`](crate::guard) with that and its stdin. It gets an almost empty environment, and ignores what a
    /// terminal sends. Where it cannot be started, the shell is. Holds for watchdogs that are started from now on; call
    /// it before the first child.
    ///
    /// A guardian can end what forks and ends faster than a shell can look, and takes some more memory.
    pub fn set_guardian(
        &self,
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = impl Into<OsString>>,
    ) {
        let args = args.into_iter().map(Into::into).collect();
        self.0.set_guardian(Guardian { program: program.into(), args });
    }

    /// Returns when no child of this process is left, in whosever hands: each has been terminated, or was dropped, and is
    /// killed, looked for and reaped. Inside a tokio runtime with its time driver on. A child that somebody keeps delays
    /// it without end, and one that cannot be ended for seconds: wrap it in a timeout. Cancel-safe.
    ///
    /// False where something of a dropped child, of any until now, could not be ended, or not be seen to have ended.
    pub async fn idle(&self) -> bool {
        while self.0.is_busy() {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        self.0.all_gone()
    }

    /// The process id of the watchdog that ends all children and what descends from them if this process is killed;
    /// `None` while there has been no child, and where it cannot be started.
    pub fn watchdog(&self) -> Option<u32> {
        self.0.watchdog()
    }
}
