//! How to run a program as a child.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use subagents_process::{Command, Host, Secrets, SpawnError, looks_secret};
use subagents_seam::{FailureCode, ProviderFailure, StartContext};

/// A program, its arguments, and what it is given of the environment. A provider holds one, and starts it for each
/// delegation.
///
/// `Debug` shows the names of variables, not their values.
#[derive(Clone)]
pub struct Program {
    name: OsString,
    args: Vec<OsString>,
    pass_env: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: Option<PathBuf>,
    /// Kept from the first child on, so that the watchdog does not come and go with each.
    host: Arc<OnceLock<Host>>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Program")
            .field("program", &self.name)
            .field("args", &self.args)
            .field("pass_env", &self.pass_env)
            .field("env", &env)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

impl Program {
    /// A path (a relative one is relative to the working directory), or a name that is looked for on the child's `PATH`.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            name: program.into(),
            args: Vec::new(),
            pass_env: Vec::new(),
            env: Vec::new(),
            cwd: None,
            host: Arc::default(),
        }
    }

    /// Adds an argument.
    pub fn arg(&mut self, arg: impl Into<OsString>) {
        self.args.push(arg.into());
    }

    /// Lets a variable through although its name looks like a secret (`SPEC 17.3`).
    pub fn pass_env(&mut self, name: impl Into<OsString>) {
        self.pass_env.push(name.into());
    }

    /// Sets a variable.
    pub fn env(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.env.push((name.into(), value.into()));
    }

    /// Runs it here, in place of the delegation's directory. Absolute (`SPEC 17.2`).
    pub fn cwd(&mut self, path: impl Into<PathBuf>) {
        self.cwd = Some(path.into());
    }

    /// The program, as it was named.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Its arguments.
    pub fn args(&self) -> &[OsString] {
        &self.args
    }

    /// Where it runs, for a delegation in `cwd`.
    pub fn directory<'a>(&'a self, cwd: &'a Path) -> &'a Path {
        self.cwd.as_deref().unwrap_or(cwd)
    }

    /// Whether a delegation in `cwd` could start it with these arguments, as far as that can be known without: the file that would be run. It
    /// looks a few files up, starts nothing, and needs no runtime.
    ///
    /// # Errors
    ///
    /// What a start would say.
    pub fn check(&self, cwd: &Path, args: &[OsString]) -> Result<PathBuf, ProviderFailure> {
        let command = self.command(cwd).args(args);
        command.check().map_err(|error| failure(error, &command.secrets()))
    }

    /// The command for a delegation in `cwd`, without its arguments.
    pub fn command(&self, cwd: &Path) -> Command {
        Command::new(&self.name, self.directory(cwd))
            .pass_env(&self.pass_env)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
    }

    /// What would help where this text, a failure of the program's, names a variable that is set here and withheld from it.
    pub fn withheld(&self, text: &str, cwd: &Path) -> Option<String> {
        let command = self.command(cwd);
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let named: Vec<_> = text.split(|c| !word(c)).filter(|name| looks_secret(OsStr::new(name))).collect();
        let mut withheld: Vec<_> = named
            .into_iter()
            .filter(|name| std::env::var_os(name).is_some() && command.variable(name).is_none())
            .collect();
        withheld.sort_unstable();
        withheld.dedup();
        withheld.truncate(3);
        let (names, is) = (withheld.join(" and "), if withheld.len() == 1 { "is" } else { "are" });
        let text = format!(
            "{names} {is} set here and withheld from it, as a name that looks like a secret: if it needs it, pass it on (pass_env)"
        );
        (!withheld.is_empty()).then_some(text)
    }

    /// Holds what the children of this process share, from now on for as long as this lives.
    pub fn hold_host(&self) {
        if let (None, Ok(host)) = (self.host.get(), Host::current()) {
            // Whoever was faster has the same.
            let _ = self.host.set(host);
        }
    }

    /// What the ledger says of the child that is being started, where one is kept.
    pub fn note(cx: &StartContext) -> String {
        let label = cx.label().map(|label| format!("{label}, ")).unwrap_or_default();
        format!("{label}run {} of {}", cx.run_id(), cx.provider())
    }
}

/// Why a program did not start, as a provider says it. What is in `secrets` is masked.
pub fn failure(error: SpawnError, secrets: &Secrets) -> ProviderFailure {
    let code = match &error {
        SpawnError::PromptTooLong { .. } => FailureCode::PromptTooLong,
        SpawnError::ProgramNotFound { .. } => FailureCode::ProgramNotFound,
        SpawnError::NotOnPath { .. } => FailureCode::NotOnPath,
        SpawnError::NotExecutable { .. } => FailureCode::NotExecutable,
        SpawnError::InterpreterNotFound { .. } => FailureCode::InterpreterNotFound,
        SpawnError::CwdNotUsable { .. } => FailureCode::CwdNotUsable,
        SpawnError::SpawnFailed { .. } | _ => FailureCode::SpawnFailed,
    };
    ProviderFailure::new(code, secrets.mask(&error.to_string())).with_source(error)
}
