//! One way to run the program, with a deadline, and a look at what it leaves behind.

use crate::processes::{Mark, VARIABLE};
use serde_json::Value;
use std::{
    ffi::OsStr,
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

pub(crate) use rustix::process::Signal;
use tempfile::TempDir;

/// No test waits longer than this for anything.
const PATIENCE: Duration = Duration::from_mins(1);

/// A directory with this `subagents.toml`, in which `{}` is the directory.
pub(crate) fn configured(text: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let text = text.replace("{}", folder.path().to_str().expect("a plain path"));
    std::fs::write(folder.path().join("subagents.toml"), text).expect("it can be written");
    folder
}

/// One run of the program.
#[derive(Debug)]
pub(crate) struct Run {
    command: Command,
    mark: Mark,
    input: Vec<u8>,
}

/// `subagents` with these arguments. Its stdin is empty unless something else is said.
pub(crate) fn subagents<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    let mark = Mark::fresh();
    let mut command = program(env!("CARGO_BIN_EXE_subagents"));
    // No test writes into the folder of whoever runs it.
    command.args(args).env(VARIABLE, mark.value()).env("SUBAGENTS__LEDGER", "false");
    for name in ["SUBAGENTS_MAX_DEPTH", "SUBAGENTS_MCP_TOKEN", "SUBAGENTS_LOG"] {
        command.env_remove(name);
    }
    // Whoever runs the tests may be a child itself: this is the outermost host all the same.
    command.env("SUBAGENTS_DEPTH", "0");
    // Whoever runs the tests may have a configuration.
    command.env("XDG_CONFIG_HOME", "/no/such/folder");
    // Nor is what the tests start among what somebody looks at.
    command.env("XDG_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"));
    Run { command, mark, input: Vec::new() }
}

/// `subagents` with these arguments, with a soft limit of so many open files.
pub(crate) fn subagents_with_files<'a>(files: usize, args: impl IntoIterator<Item = &'a str>) -> Run {
    let mark = Mark::fresh();
    let mut command = program("sh");
    command.args(["-c", "ulimit -Sn \"$1\" && shift && exec \"$@\"", "sh", &files.to_string()]);
    command
        .arg(env!("CARGO_BIN_EXE_subagents"))
        .args(args)
        .env(VARIABLE, mark.value())
        .env("SUBAGENTS_DEPTH", "0")
        .env("SUBAGENTS__LEDGER", "false");
    Run { command, mark, input: Vec::new() }
}

/// A script of the shell, in which `"$0" "$@"` is `subagents` with these arguments.
pub(crate) fn shell(script: &str, args: &[&str]) -> Run {
    let mark = Mark::fresh();
    let mut command = program("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_subagents")]).args(args);
    command.env(VARIABLE, mark.value()).env("SUBAGENTS__LEDGER", "false");
    command.env("XDG_CONFIG_HOME", "/no/such/folder").env("XDG_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"));
    Run { command, mark, input: Vec::new() }
}

/// Any program.
#[expect(clippy::disallowed_methods, reason = "the tests run the real program, and tools to compare it with")]
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Run {
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it in this directory.
    pub(crate) fn directory(mut self, directory: impl AsRef<Path>) -> Self {
        self.command.current_dir(directory);
        self
    }

    pub(crate) fn unset(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Input for a program that is started: it is written at once, and then ends.
    pub(crate) fn input_kept(mut self, input: &str) -> Self {
        let file = tempfile::tempfile().expect("a file");
        (&file).write_all(input.as_bytes()).expect("room for it");
        (&file).seek(SeekFrom::Start(0)).expect("its beginning");
        self.command.stdin(file);
        self
    }

    /// Runs it to its end.
    pub(crate) fn end(mut self) -> Ended {
        let child = self.command.spawn().expect("the program starts");
        Ended::of(child, self.input, &self.mark)
    }

    /// Starts it; stdin stays open.
    pub(crate) fn start(mut self) -> Live {
        let child = self.command.spawn().expect("the program starts");
        Live { child, mark: self.mark }
    }
}

/// A program under way.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) child: Child,
    mark: Mark,
}

impl Live {
    pub(crate) fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(id.expect("a process id"), signal).expect("it is alive");
    }

    pub(crate) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Waits until `count` processes are alive, the program itself among them.
    pub(crate) fn until_alive(&self, count: usize) {
        let begun = Instant::now();
        while self.mark.alive().len() < count {
            assert!(begun.elapsed() < PATIENCE, "only {:?} are alive", self.mark.alive());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end; reads what comes until then.
    pub(crate) fn end(self) -> Ended {
        Ended::of(self.child, Vec::new(), &self.mark)
    }

    /// Waits for the end, without reading anything.
    pub(crate) fn end_unread(mut self) -> (Option<i32>, Vec<String>) {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return (status.code(), self.mark.alive());
            }
            let late = begun.elapsed() > PATIENCE;
            if late {
                let _ = self.child.kill();
            }
            assert!(!late, "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A program that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    /// What was alive after its end.
    pub(crate) left: Vec<String>,
}

impl Ended {
    fn of(child: Child, input: Vec<u8>, mark: &Mark) -> Self {
        let output = wait(child, input);
        let text = |bytes| String::from_utf8(bytes).expect("the output is text");
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
            left: mark.alive(),
        }
    }

    /// Each line of stdout, as JSON.
    pub(crate) fn json(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
}

/// Feeds it, reads it, and waits for its end.
pub(crate) fn wait(mut child: Child, input: Vec<u8>) -> Output {
    let id = child.id();
    let stdin = child.stdin.take();
    thread::spawn(move || {
        // A program that does not want all of it closes its end.
        let _ = stdin.map(|mut stdin| stdin.write_all(&input));
    });
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let output = receiver.recv_timeout(PATIENCE);
    if output.is_err() {
        let id = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
        let _ = id.map(|id| rustix::process::kill_process(id, Signal::KILL));
    }
    output.expect("it ends").expect("its output can be read")
}

/// Reads until `text` has come.
pub(crate) fn read_until(from: &mut impl Read, text: &str) -> String {
    let mut read = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&read).contains(text) {
        let count = from.read(&mut byte).expect("it can be read");
        assert_eq!(count, 1, "it ended after {:?}", String::from_utf8_lossy(&read));
        read.push(byte[0]);
    }
    String::from_utf8(read).expect("the output is text")
}
