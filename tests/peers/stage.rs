//! One agent, set up for one scenario: a private home, a working directory, and who is alive of it.

use super::expectations::{Agent, suite};
use super::processes::{Mark, VARIABLE};
use std::fs;
use std::path::{Path, PathBuf};
use subagents::{Acp, acp::KnownAgent};
use tempfile::TempDir;

/// Where the agents are.
pub(crate) fn installed_in() -> PathBuf {
    std::env::var_os("SUBAGENTS_PEERS").filter(|folder| !folder.is_empty()).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers"),
        |folder| std::path::absolute(&folder).unwrap_or_else(|_| folder.into()),
    )
}

/// Whether an agent is installed, at its pin.
pub(crate) enum Installed {
    Here(PathBuf),
    AtAnotherPin,
    No,
}

impl Installed {
    pub(crate) fn look(agent: &Agent) -> Self {
        let folder = installed_in().join(&agent.name);
        match fs::read_to_string(folder.join(".pins")) {
            Ok(pins) if pins == agent.pins() && folder.join(&agent.program).exists() => Self::Here(folder),
            Ok(_) => Self::AtAnotherPin,
            Err(_) => Self::No,
        }
    }
}

/// Gone when dropped, with all that was written.
pub(crate) struct Stage {
    folder: TempDir,
    mark: Mark,
}

impl Stage {
    pub(crate) fn set(agent: &Agent, base: &str) -> std::io::Result<Self> {
        // The real path: the system shows it for processes.
        let folder =
            tempfile::Builder::new().prefix("peers-").tempdir_in(std::env::temp_dir().canonicalize()?)?;
        let stage = Self { folder, mark: Mark::fresh() };
        for folder in [stage.home(), stage.home().join("tmp"), stage.work()] {
            fs::create_dir(folder)?;
        }
        let template = suite().join("agents").join(&agent.name).join("home");
        if template.is_dir() {
            stage.copy(&template, &stage.home(), base)?;
        }
        Ok(stage)
    }

    fn copy(&self, from: &Path, to: &Path, base: &str) -> std::io::Result<()> {
        for entry in fs::read_dir(from)? {
            let from = entry?.path();
            let to = to.join(from.file_name().unwrap_or_default());
            if from.is_dir() {
                fs::create_dir(&to)?;
                self.copy(&from, &to, base)?;
            } else {
                fs::write(&to, self.filled(&fs::read_to_string(&from)?, base))?;
            }
        }
        Ok(())
    }

    fn filled(&self, text: &str, base: &str) -> String {
        text.replace("@BASE@", base)
            .replace("@HOME@", &self.home().to_string_lossy())
            .replace("@SUITE@", &suite().to_string_lossy())
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Where the agent works.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// The agent as a provider. With `record`, what it says and hears is in that file.
    pub(crate) fn provider(&self, agent: &Agent, installed: &Path, base: &str, record: Option<&Path>) -> Acp {
        let program = installed.join(&agent.program);
        let mut acp = match record {
            Some(file) => {
                let recorder = suite().join("record.py");
                Acp::new("python3").arg(recorder).arg(file).arg("--").arg(program)
            }
            None => Acp::new(program),
        };
        acp = acp.args(agent.args.iter().map(|argument| self.filled(argument, base)));
        // All that an agent may look for in somebody's home is in this one.
        let home = self.home();
        acp = acp.env("HOME", &home).env("TMPDIR", home.join("tmp")).env(VARIABLE, self.mark.value());
        for (variable, folder) in [
            ("XDG_CACHE_HOME", ".cache"),
            ("XDG_CONFIG_HOME", ".config"),
            ("XDG_DATA_HOME", ".local/share"),
            ("XDG_STATE_HOME", ".local/state"),
        ] {
            acp = acp.env(variable, home.join(folder));
        }
        for (name, value) in &agent.env {
            acp = acp.env(name, self.filled(value, base));
        }
        if let Some(name) = &agent.known {
            acp = acp.known(KnownAgent::named(name).expect("agent.json names one that is known"));
        }
        acp
    }

    /// The processes that are alive of it, by the mark in their environment, or by where they work: some tools clean the
    /// environment. A zombie has neither.
    fn processes(&self) -> Vec<(u32, String)> {
        let mark = format!("{VARIABLE}={}", self.mark.value());
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let process = process.path();
            let marked = || {
                let environment = fs::read(process.join("environ")).unwrap_or_default();
                environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
            };
            let works_here =
                || fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(self.folder.path()));
            let command = fs::read(process.join("cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            (marked() || works_here()).then_some((pid, command))
        });
        processes.collect()
    }

    /// Who is alive of it.
    pub(crate) fn alive(&self) -> Vec<String> {
        self.processes().into_iter().map(|(_, command)| command).collect()
    }

    /// Kills all that is alive of it now.
    pub(crate) fn kill(&self) {
        for (pid, _) in self.processes() {
            kill(pid);
        }
    }
}

/// `SIGKILL`. One that is gone is as it should be.
pub(crate) fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
