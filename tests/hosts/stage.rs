//! One host, set up for one scenario: a private home, a working directory, `subagents` on its PATH, what it delegates to,
//! and who is alive of it.

use super::expectations::{Host, suite};
use super::processes::{Mark, VARIABLE};
use super::real::alive::{self, Process};
use super::real::home;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// What is to be gone is gone by then.
pub(crate) const GONE: Duration = Duration::from_secs(20);
/// Nothing that has to come takes that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Gone when dropped, with all that was written.
pub(crate) struct Stage {
    folder: TempDir,
    mark: Mark,
}

/// What a child is, in the configuration.
pub(crate) struct Provider<'a> {
    pub(crate) command: Vec<OsString>,
    pub(crate) env: BTreeMap<String, OsString>,
    /// Its tool.
    pub(crate) tool: &'a str,
    /// Of the tool.
    pub(crate) timeout: Option<&'a str>,
}

impl Stage {
    pub(crate) fn new() -> io::Result<Self> {
        // The real path: the system shows it for processes.
        let folder =
            tempfile::Builder::new().prefix("hosts-").tempdir_in(std::env::temp_dir().canonicalize()?)?;
        Ok(Self { folder, mark: Mark::fresh() })
    }

    /// With what the host has in its home, and what it delegates to.
    pub(crate) fn set(&self, host: &Host, base: &str) -> io::Result<()> {
        for folder in
            [self.home(), self.home().join("tmp"), self.runtime(), self.work(), self.child(), self.bin()]
        {
            fs::create_dir(folder)?;
        }
        if let Some(template) = host.home() {
            home::copy(&template, &self.home(), &|text| self.filled(text, base))?;
        }
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_subagents"), self.bin().join("subagents"))?;
        fs::copy(suite().join("child.sh"), self.child().join("child.sh")).map(drop)
    }

    fn filled(&self, text: &str, base: &str) -> String {
        text.replace("@BASE@", base).replace("@HOME@", &self.home().to_string_lossy())
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// As a session of a desktop has one.
    fn runtime(&self) -> PathBuf {
        self.home().join("run")
    }

    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    /// Where the host works, and with it what it delegates to.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// What it delegates to, with its files.
    pub(crate) fn child(&self) -> PathBuf {
        self.folder.path().join("child")
    }

    /// The child that does what the first word says.
    pub(crate) fn obedient(&self) -> Provider<'static> {
        let command = vec!["sh".into(), self.child().join("child.sh").into()];
        Provider { command, env: BTreeMap::new(), tool: "subagent", timeout: None }
    }

    /// Writes the configuration of `subagents`, in the user's folder, with this in the table of the tool.
    pub(crate) fn configure(&self, provider: &Provider<'_>, table: &str) -> io::Result<()> {
        // A string of JSON is one of TOML.
        let quoted = |text: &OsString| Value::from(text.to_string_lossy()).to_string();
        let command: Vec<_> = provider.command.iter().map(quoted).collect();
        let env: Vec<_> =
            provider.env.iter().map(|(name, value)| format!("{name} = {}", quoted(value))).collect();
        let timeout =
            provider.timeout.map_or_else(String::new, |timeout| format!("timeout = \"{timeout}\"\n"));
        let text = format!(
            "[providers.child]\nkind = \"exec\"\ncommand = [{}]\nenv = {{ {} }}\n\n[tools.{}]\nprovider = \"child\"\n{timeout}{table}\n",
            command.join(", "),
            env.join(", "),
            provider.tool,
        );
        let folder = self.home().join(".config/subagents");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("subagents.toml"), text)
    }

    /// The variables of the host, and no others.
    pub(crate) fn env(&self, host: &Host, base: &str) -> BTreeMap<String, OsString> {
        let mut path = OsString::from(self.bin());
        if let Some(paths) = std::env::var_os("PATH") {
            path.push(":");
            path.push(paths);
        }
        let mut env = BTreeMap::from([
            ("LANG".to_owned(), "C.UTF-8".into()),
            ("PATH".to_owned(), path),
            ("TERM".to_owned(), "dumb".into()),
            ("XDG_RUNTIME_DIR".to_owned(), self.runtime().into()),
            (VARIABLE.to_owned(), self.mark.value().into()),
        ]);
        for (variable, folder) in home::variables(&self.home()) {
            env.insert(variable.to_owned(), folder.into());
        }
        for (name, value) in host.env() {
            env.insert(name.clone(), self.filled(value, base).into());
        }
        env
    }

    /// Starts a program in the working directory, with this on its stdin and no other variables.
    #[expect(clippy::disallowed_methods, reason = "a host is started as its user does")]
    pub(crate) fn start(
        &self,
        program: &Path,
        args: &[String],
        env: &BTreeMap<String, OsString>,
        stdin: &str,
    ) -> Result<Live, String> {
        let started = (|| {
            let files = tempfile::Builder::new().prefix("streams-").tempdir_in(self.folder.path())?;
            let file = |name| files.path().join(name);
            fs::write(file("in"), stdin)?;
            // Whoever runs the suite in the background ignores interrupts, and its children with it.
            let mut command = Command::new("/usr/bin/env");
            command.arg("--default-signal=INT").arg(program);
            command.args(args).env_clear().envs(env).current_dir(self.work());
            command.stdin(Stdio::from(File::open(file("in"))?));
            command.stdout(Stdio::from(File::create(file("out"))?));
            command.stderr(Stdio::from(File::create(file("err"))?));
            let child = command.kill_on_drop(true).spawn()?;
            Ok::<_, io::Error>(Live { child, files })
        })();
        started.map_err(|error| format!("{} does not start: {error}", program.display()))
    }

    pub(crate) fn processes(&self) -> Vec<Process> {
        alive::processes(VARIABLE, self.mark.value(), self.folder.path())
    }

    /// Who is alive of it.
    pub(crate) fn alive(&self) -> Vec<String> {
        self.processes().into_iter().map(|process| process.command).collect()
    }

    /// Who is alive of what it delegated to.
    pub(crate) fn children(&self) -> Vec<String> {
        let files = self.child().to_string_lossy().into_owned();
        self.alive().into_iter().filter(|command| command.contains(&files)).collect()
    }

    /// The one `subagents mcp`.
    pub(crate) fn server(&self) -> Result<u32, String> {
        let processes = self.processes();
        let is_server = |process: &&Process| {
            let mut words = process.command.split_whitespace();
            words.next().is_some_and(|program| program.rsplit('/').next() == Some("subagents"))
                && words.next() == Some("mcp")
        };
        match &*processes.iter().filter(is_server).collect::<Vec<_>>() {
            [server] => Ok(server.pid),
            _ => Err(format!("one server was expected among {processes:?}")),
        }
    }

    /// Kills all that is alive of it now.
    pub(crate) fn kill(&self) {
        for process in self.processes() {
            alive::kill(process.pid);
        }
    }
}

/// A program that was started.
pub(crate) struct Live {
    child: Child,
    files: TempDir,
}

/// One that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Live {
    pub(crate) fn out(&self) -> String {
        self.read("out")
    }

    fn read(&self, name: &str) -> String {
        let read = fs::read(self.files.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&read).into_owned()
    }

    /// Its end; none where it has not come.
    pub(crate) fn has_ended(&mut self) -> Option<Ended> {
        let status = self.child.try_wait().ok()??;
        Some(Ended { code: status.code(), out: self.read("out"), err: self.read("err") })
    }

    pub(crate) async fn end(mut self) -> Result<Ended, String> {
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(Ok(status)) => Ok(Ended { code: status.code(), out: self.read("out"), err: self.read("err") }),
            Ok(Err(error)) => Err(format!("its end is not known: {error}")),
            Err(_) => Err(format!("it came to no end; {}", tail(&self.read("out"), &self.read("err")))),
        }
    }
}

impl Ended {
    /// That it ended well.
    pub(crate) fn well(self) -> Result<Self, String> {
        match self.code {
            Some(0) => Ok(self),
            code => Err(format!("it ended with {code:?}; {}", tail(&self.out, &self.err))),
        }
    }
}

/// The ends of what a program wrote.
fn tail(out: &str, err: &str) -> String {
    let end = |text: &str| {
        let skipped = text.chars().count().saturating_sub(1500);
        text.chars().skip(skipped).collect::<String>()
    };
    format!("stdout {:?}, stderr {:?}", end(out), end(err))
}

/// Asks until it holds.
pub(crate) async fn until(
    what: &str,
    patience: Duration,
    mut holds: impl FnMut() -> Result<bool, String>,
) -> Result<(), String> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > patience {
            return Err(format!("waited in vain until {what}"));
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
