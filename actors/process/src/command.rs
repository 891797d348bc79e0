//! What to run: program, arguments, working directory, environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::error::SpawnError;
use crate::lookup;
use crate::process::Process;
use crate::secrets::Secrets;

/// The longest single argument that Linux takes, its closing NUL included (`MAX_ARG_STRLEN`).
const LONGEST_ARGUMENT: usize = 128 * 1024;

/// How much of stderr is kept unless [`Command::stderr_tail`] says otherwise.
const STDERR_TAIL: usize = 8 * 1024;

/// Describes a child process and starts it. Never through a shell.
///
/// The environment is the host's without every name that holds `KEY`, `PASSWORD`, `SECRET` or `TOKEN` in any
/// case, and without every `SUBAGENTS_*`; [`pass_env`](Self::pass_env) lets single names through and
/// [`env`](Self::env) sets them (`SPEC 17.3`). A `Command` can be spawned any number of times.
#[derive(Debug, Clone)]
pub struct Command {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) cwd: PathBuf,
    pub(crate) environment: Environment,
    pub(crate) stdin_piped: bool,
    pub(crate) stderr_tail: usize,
    pub(crate) note: Option<String>,
}

impl Command {
    /// A command that runs `program` in the directory `cwd`, with an empty stdin.
    ///
    /// A `program` with a slash in it is a path, relative to `cwd` (never to the host's own directory); any other
    /// is looked for on the `PATH` of the *child's* environment, whose entries that are not absolute are skipped,
    /// so that a checked-out tree cannot shadow a program. `cwd` must be absolute, and a directory that we may
    /// enter (`SPEC 17.2`). Both are checked by [`spawn`](Self::spawn).
    pub fn new(program: impl Into<OsString>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: cwd.into(),
            environment: Environment::default(),
            stdin_piped: false,
            stderr_tail: STDERR_TAIL,
            note: None,
        }
    }

    /// Adds one argument, passed on as it is.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments, passed on as they are.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Lets these variables of the host reach the child although their names look like secrets. A name that the
    /// host does not have is no error.
    #[must_use]
    pub fn pass_env(mut self, names: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.environment.pass.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the child, whatever its name; it wins over the host's.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.set.push((name.into(), value.into()));
        self
    }

    /// Sets variables of the child, as [`env`](Self::env) does one.
    #[must_use]
    pub fn envs(
        mut self,
        variables: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>,
    ) -> Self {
        self.environment.set.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Gives the child a pipe as its stdin, for [`Process::take_stdin`]. Without it the child reads nothing.
    #[must_use]
    pub fn stdin_piped(mut self) -> Self {
        self.stdin_piped = true;
        self
    }

    /// Keeps the last `bytes` of stderr, in place of 8 KiB.
    #[must_use]
    pub fn stderr_tail(mut self, bytes: usize) -> Self {
        self.stderr_tail = bytes;
        self
    }

    /// What a [`Ledger`](crate::Ledger) says of the child beside its program, such as whom it works for. Not shown to
    /// the child.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// The secrets that the child is given: they are masked in its stderr.
    pub fn secrets(&self) -> Secrets {
        let passed = self.environment.pass.iter();
        let passed = passed.filter_map(|name| Some((name.clone(), std::env::var_os(name)?)));
        Secrets::of(self.environment.set.iter().cloned().chain(passed))
    }

    /// The value that the child is given for a variable, if it is given one.
    pub fn variable(&self, name: impl AsRef<OsStr>) -> Option<OsString> {
        let name = name.as_ref();
        let set =
            self.environment.set.iter().rev().find(|(set, _)| set == name).map(|(_, value)| value.clone());
        set.or_else(|| {
            let host = std::env::var_os(name).map(|value| (name.to_owned(), value));
            self.environment.resolve(host.into_iter()).remove(name)
        })
    }

    /// The program, as it was given.
    pub fn program(&self) -> &OsStr {
        &self.program
    }

    /// The working directory, as it was given.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// Starts the child, in a process group of its own, and returns once it runs the program.
    ///
    /// Must be called inside a tokio runtime with its I/O and time drivers on; outside of any runtime it is a
    /// [`SpawnError::SpawnFailed`]. It looks a few files up and blocks for the fork, some hundred microseconds.
    ///
    /// # Errors
    ///
    /// A [`SpawnError`]; then no process is left behind.
    pub fn spawn(&self) -> Result<Process, SpawnError> {
        let (file, environment) = self.resolve()?;
        Process::start(self, &file, environment)
    }

    /// Whether it could be started, as far as that can be known without doing it: the file that would be run. It looks a
    /// few files up and needs no runtime.
    ///
    /// # Errors
    ///
    /// What [`spawn`](Self::spawn) would say.
    pub fn check(&self) -> Result<PathBuf, SpawnError> {
        self.resolve().map(|(file, _)| file)
    }

    fn resolve(&self) -> Result<(PathBuf, BTreeMap<OsString, OsString>), SpawnError> {
        self.check_text()?;
        lookup::check_cwd(&self.cwd)?;
        let environment = self.environment.resolve(std::env::vars_os());
        let path = environment.get(OsStr::new("PATH")).map(OsString::as_os_str);
        let file = lookup::find_program(&self.program, &self.cwd, path)?;
        lookup::check_interpreter(&file, path)?;
        Ok((file, environment))
    }

    /// Refuses what no `exec` can take, with the place of it, which the kernel's own error does not tell.
    fn check_text(&self) -> Result<(), SpawnError> {
        let invalid = |what: String| SpawnError::SpawnFailed {
            program: PathBuf::from(&self.program),
            source: io::Error::new(io::ErrorKind::InvalidInput, what),
        };
        let has_nul = |text: &OsStr| text.as_bytes().contains(&0);
        if has_nul(&self.program) {
            return Err(invalid("the program's name contains a NUL byte".to_owned()));
        }
        for (index, arg) in self.args.iter().enumerate() {
            if has_nul(arg) {
                return Err(invalid(format!("argument {} contains a NUL byte", index + 1)));
            }
            if arg.len() >= LONGEST_ARGUMENT {
                return Err(SpawnError::PromptTooLong { bytes: arg.len() });
            }
        }
        for (name, value) in &self.environment.set {
            let shown = name.to_string_lossy();
            if name.is_empty() || has_nul(name) || name.as_bytes().contains(&b'=') {
                return Err(invalid(format!("{shown:?} cannot be the name of an environment variable")));
            }
            if has_nul(value) {
                return Err(invalid(format!("the environment variable {shown} contains a NUL byte")));
            }
        }
        Ok(())
    }
}
