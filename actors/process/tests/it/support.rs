//! What the tests share.

use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process, test_kill_process_group};
use subagents_process::{Command, Process};

/// Nothing here takes that long; a test that does has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// `sh -c script`, with a piped stdin.
pub(crate) fn sh(script: &str) -> Command {
    Command::new("/bin/sh", "/").args(["-c", script]).stdin_piped()
}

/// Asks until it holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The state letter of a process that is ours to see, none when it is gone altogether.
pub(crate) fn state(id: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].trim_start().chars().next()
}

/// Whether it runs: not gone, no zombie.
pub(crate) fn alive(id: u32) -> bool {
    test_kill_process(pid(id)).is_ok() && !matches!(state(id), None | Some('Z' | 'X'))
}

/// Whether the group has no member at all, zombies included.
pub(crate) fn group_gone(id: u32) -> bool {
    test_kill_process_group(pid(id)) == Err(rustix::io::Errno::SRCH)
}

/// Whether no member of the group runs. An orphan's zombie is the first process's to reap, whenever it likes.
pub(crate) fn group_dead(id: u32) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().all(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((_, rest)) = stat.rsplit_once(") ") else { return true };
        let fields: Vec<_> = rest.split(' ').collect();
        fields[2] != id.to_string() || ["Z", "X"].contains(&fields[0])
    })
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}

/// Waits for the child's first line, by which it says that it is set up.
pub(crate) async fn first_line(process: &mut Process) -> (String, subagents_process::Lines) {
    let mut lines = process.take_stdout().unwrap().into_lines(1000);
    let line = tokio::time::timeout(PATIENCE, lines.next()).await.unwrap().unwrap().unwrap();
    (line, lines)
}

/// All that comes on stdout.
pub(crate) async fn read_all(process: &mut Process) -> Vec<u8> {
    let mut stdout = process.take_stdout().unwrap();
    let mut all = Vec::new();
    while let Some(chunk) = tokio::time::timeout(PATIENCE, stdout.read_chunk()).await.unwrap().unwrap() {
        assert!(chunk.len() <= 64 * 1024);
        all.extend_from_slice(chunk);
    }
    all
}

/// Whether this is a process for the test of this name alone; where it is not, one is started, and the test holds if it
/// does there. For what concerns all children of a process.
pub(crate) fn alone(test: &str) -> bool {
    const VARIABLE: &str = "ALONE_IN_ITS_PROCESS";
    if std::env::var(VARIABLE).is_ok_and(|alone| alone == test) {
        return true;
    }
    #[expect(clippy::disallowed_methods, reason = "it is this test program")]
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(VARIABLE, test)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("1 passed"), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    false
}

/// A word in the arguments of whoever it concerns, which nothing that is tested looks at.
#[derive(Debug)]
pub(crate) struct Marker(String);

impl Marker {
    pub(crate) fn fresh() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self(format!("marked-{}-{}-", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn of(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The command lines of all that bear it, or sit right below one that does. A zombie has none.
    pub(crate) fn alive(&self) -> Vec<String> {
        self.find(|_| true)
    }

    /// Those that are in another process group.
    pub(crate) fn outside(&self, group: u32) -> Vec<String> {
        self.find(|fields| fields[2] != group.to_string())
    }

    fn find(&self, wanted: impl Fn(&[&str]) -> bool) -> Vec<String> {
        let mut found: Vec<(u32, String)> = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
            let fields: Vec<_> = rest.split(' ').collect();
            let ours = line.contains(&self.0) || found.iter().any(|(id, _)| id.to_string() == fields[1]);
            // A host bears it in its environment, not here.
            if ours && !["Z", "X"].contains(&fields[0]) && wanted(&fields) {
                found.push((id, line));
            }
        }
        found.into_iter().map(|(_, line)| line).collect()
    }
}
