//! The processes of one scene, found in `/proc`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A process, with its command line.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) command: String,
}

/// The processes that are alive of a scene: by a variable and its value in their environment; by where they work, or by what
/// they were called with, since some programs clean the environment. A zombie has none of these.
pub(crate) fn processes(variable: &str, value: &str, folder: &Path) -> Vec<Process> {
    let mark = format!("{variable}={value}");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let process = process.path();
        let marked = || {
            let environment = fs::read(process.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
        };
        let works_here = || fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
        let command = fs::read(process.join("cmdline")).ok()?;
        let called_with =
            || command.split(|byte| *byte == 0).any(|argument| is_below(OsStr::from_bytes(argument), folder));
        if !(marked() || works_here() || called_with()) {
            return None;
        }
        Some(Process { pid, command: String::from_utf8_lossy(&command).replace('\0', " ") })
    });
    processes.collect()
}

fn is_below(argument: &OsStr, folder: &Path) -> bool {
    Path::new(argument).starts_with(folder)
}

/// Whose child it is.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// `SIGKILL`. One that is gone is as it should be.
pub(crate) fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

/// `SIGINT`, as of somebody who presses Ctrl-C.
pub(crate) fn interrupt(pid: u32) {
    signal(pid, rustix::process::Signal::INT);
}

/// `SIGTERM`.
pub(crate) fn terminate(pid: u32) {
    signal(pid, rustix::process::Signal::TERM);
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
