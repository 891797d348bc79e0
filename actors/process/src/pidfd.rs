//! A process that cannot be mistaken for another: its number may be given anew, the descriptor may not.

use rustix::io::Errno;
use rustix::process::Signal;

#[cfg(target_os = "linux")]
mod system {
    use std::os::fd::OwnedFd;

    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    #[derive(Debug)]
    pub(super) struct Descriptor(OwnedFd);

    pub(super) fn open(id: i32) -> Result<Descriptor, Errno> {
        let pid = Pid::from_raw(id).ok_or(Errno::SRCH)?;
        pidfd_open(pid, PidfdFlags::empty()).map(Descriptor)
    }

    pub(super) fn send(descriptor: &Descriptor, signal: Signal) -> Result<(), Errno> {
        pidfd_send_signal(&descriptor.0, signal)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use rustix::io::Errno;
    use rustix::process::Signal;

    #[derive(Debug)]
    pub(super) struct Descriptor(std::convert::Infallible);

    pub(super) fn open(_: i32) -> Result<Descriptor, Errno> {
        Err(Errno::NOSYS)
    }

    pub(super) fn send(descriptor: &Descriptor, _: Signal) -> Result<(), Errno> {
        match descriptor.0 {}
    }
}

#[derive(Debug)]
pub(crate) struct Pidfd(system::Descriptor);

impl Pidfd {
    /// Of the process that has this number now. `INVAL` or `NOENT` says that it is the number of a thread.
    pub(crate) fn open(id: i32) -> Result<Self, Errno> {
        system::open(id).map(Self)
    }

    pub(crate) fn send(&self, signal: Signal) -> Result<(), Errno> {
        system::send(&self.0, signal)
    }
}
