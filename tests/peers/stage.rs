//! One agent, set up for one scenario: a private home, a working directory, and who is alive of it.

use super::expectations::{Agent, suite};
use super::processes::{Mark, VARIABLE};
use super::real::{alive, home};
use std::fs;
use std::path::{Path, PathBuf};
use subagents::{Acp, acp::KnownAgent};
use tempfile::TempDir;

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
            home::copy(&template, &stage.home(), &|text| stage.filled(text, base))?;
        }
        Ok(stage)
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
        for (variable, folder) in home::variables(&self.home()) {
            acp = acp.env(variable, folder);
        }
        acp = acp.env(VARIABLE, self.mark.value());
        for (name, value) in &agent.env {
            acp = acp.env(name, self.filled(value, base));
        }
        if let Some(name) = &agent.known {
            acp = acp.known(KnownAgent::named(name).expect("agent.json names one that is known"));
        }
        acp
    }

    fn processes(&self) -> Vec<alive::Process> {
        alive::processes(VARIABLE, self.mark.value(), self.folder.path())
    }

    /// Who is alive of it.
    pub(crate) fn alive(&self) -> Vec<String> {
        self.processes().into_iter().map(|process| process.command).collect()
    }

    /// Kills all that is alive of it now.
    pub(crate) fn kill(&self) {
        for process in self.processes() {
            alive::kill(process.pid);
        }
    }
}
