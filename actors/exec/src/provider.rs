//! How to run a program as a child.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use subagents_external::{Place, Program, failure};
use subagents_process::SpawnError;
use subagents_seam::{Progress, ProviderFailure, StartContext, StartError, SubagentProvider};

use crate::answer::Answer;
use crate::child::ExecChild;
use crate::prompt;

/// The most text of an answer that is kept unless [`Exec::max_output`] says otherwise.
const MAX_OUTPUT: usize = 16 * 1024 * 1024;

/// The most that a program may write in all unless [`Exec::max_total_output`] says otherwise.
const MAX_TOTAL_OUTPUT: u64 = 256 * 1024 * 1024;

/// How much of stderr a diagnostic can hold beside its own words.
const STDERR_TAIL: usize = 3 * 1024;

/// Runs a program for each delegation. See the [crate](crate) for what it makes of prompt, stdout and exit.
///
/// It can honour nothing beyond a prompt of text: no schema, no depth limit, no tool filter, no persona, no agent
/// option (`SPEC 17.1`).
#[derive(Clone, Debug)]
pub struct Exec {
    program: Program,
    allow_empty: bool,
    max_output: usize,
    max_total_output: u64,
}

impl Exec {
    /// Runs `program`: a path (a relative one is relative to the working directory), or a name that is looked for
    /// on the child's `PATH`.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: Program::new(program),
            allow_empty: false,
            max_output: MAX_OUTPUT,
            max_total_output: MAX_TOTAL_OUTPUT,
        }
    }

    /// Adds an argument. `{}` in it is replaced by the prompt, which then does not go to stdin; a prompt that makes
    /// an argument of more than 64 KiB is refused with `PROMPT_TOO_LONG`, one that holds a NUL with `SPAWN_FAILED`.
    /// Linux takes twice as much, but a program that hands its arguments on to another with something around them
    /// (npx, uvx, a shell) would fail where nobody can tell why.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.program.arg(arg);
        self
    }

    /// Adds arguments, as [`arg`](Self::arg) does one.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        args.into_iter().for_each(|arg| self.program.arg(arg));
        self
    }

    /// Lets these variables reach the program although their names look like secrets (`SPEC 17.3`). Their values are
    /// masked in what the program says, from six bytes on.
    #[must_use]
    pub fn pass_env(mut self, names: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        names.into_iter().for_each(|name| self.program.pass_env(name));
        self
    }

    /// Sets a variable of the program. `SUBAGENTS_DEPTH`, `SUBAGENTS_MAX_DEPTH` and `SUBAGENTS_SCOPE` are ours to set. A
    /// value whose name looks like a secret is masked in what the program says, from six bytes on.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.program.env(name, value);
        self
    }

    /// Runs the program in this directory, in place of the delegation's. Absolute (`SPEC 17.2`).
    #[must_use]
    pub fn cwd(mut self, path: impl Into<PathBuf>) -> Self {
        self.program.cwd(path);
        self
    }

    /// Whether a blank answer is an answer. By default it is an error of category `empty-answer`.
    #[must_use]
    pub fn allow_empty(mut self, allow: bool) -> Self {
        self.allow_empty = allow;
        self
    }

    /// Keeps at most `bytes` of an answer, in place of 16 MiB. What is beyond is read and counted, and the result's
    /// details say so.
    #[must_use]
    pub fn max_output(mut self, bytes: usize) -> Self {
        self.max_output = bytes;
        self
    }

    /// Ends a program that writes more than `bytes` in all, in place of 256 MiB: it settles as an error of category
    /// `output-limit`, with what was kept of its answer.
    #[must_use]
    pub fn max_total_output(mut self, bytes: u64) -> Self {
        self.max_total_output = bytes;
        self
    }

    /// Whether a delegation in `cwd` could start, as far as that can be known without starting it: the file that would
    /// be run. It looks a few files up, starts nothing, and needs no runtime.
    ///
    /// # Errors
    ///
    /// What a start would say.
    pub fn check(&self, cwd: &Path) -> Result<PathBuf, ProviderFailure> {
        // Its arguments are known when there is a prompt.
        self.program.check(cwd, &[])
    }

    /// Starts the program for one prompt. `note` is for the ledger, where one is kept.
    pub(crate) fn launch(
        &self,
        prompt: String,
        cwd: &Path,
        place: Place,
        note: &str,
    ) -> Result<ExecChild, ProviderFailure> {
        self.program.hold_host();
        let args = self.program.args();
        let in_arguments = prompt::in_arguments(args);
        let args = if in_arguments { prompt::substituted(args, &prompt)? } else { args.to_vec() };
        let command = self.program.command(cwd).args(args).stderr_tail(STDERR_TAIL).note(note);
        let mut command = command.envs(place.variables());
        if !in_arguments {
            command = command.stdin_piped();
        }
        let secrets = command.secrets();
        let process = command.spawn().map_err(|error| {
            if let (SpawnError::PromptTooLong { bytes }, true) = (&error, in_arguments) {
                return prompt::too_long(*bytes).with_source(error);
            }
            failure(error, &secrets)
        })?;
        let prompt = if in_arguments { String::new() } else { prompt };
        let answer = Answer::new(self.max_output, self.max_total_output, &secrets);
        Ok(ExecChild::new(process, self.program.name().to_string_lossy().into(), prompt, answer))
    }
}

impl SubagentProvider for Exec {
    type Child = ExecChild;

    fn allows_blank_answer(&self) -> bool {
        self.allow_empty
    }

    async fn start(&self, cx: StartContext) -> Result<ExecChild, StartError> {
        let child = self.launch(cx.prompt().to_text(), cx.cwd(), Place::of(&cx), &Program::note(&cx))?;
        cx.progress(Progress::Process { pid: child.pid(), program: child.program() });
        Ok(child)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_failed_start_keeps_the_code_and_the_words_of_the_process() {
        let place = Place { depth: 1, max_depth: None };
        let cases = [
            (Exec::new("/no/such"), "x".to_owned(), "PROGRAM_NOT_FOUND", "/no/such"),
            (Exec::new("no-such").env("PATH", "/x"), "x".to_owned(), "NOT_ON_PATH", "/x"),
            (Exec::new("/"), "x".to_owned(), "NOT_EXECUTABLE", "directory"),
            (Exec::new("sh").cwd("relative"), "x".to_owned(), "CWD_NOT_USABLE", "absolute"),
            (Exec::new("sh").arg("{}"), "x".repeat(65_537), "PROMPT_TOO_LONG", "drop {}"),
            (Exec::new("no-such").env("PATH", "/x").arg("{}"), "x".repeat(65_536), "NOT_ON_PATH", "/x"),
            (Exec::new("sh").args(["{}"; 100]), "x".repeat(1 << 16), "PROMPT_TOO_LONG", "drop {}"),
            (
                Exec::new("sh").arg("{}"),
                "\0".to_owned(),
                "SPAWN_FAILED",
                "NUL byte, which no argument can; drop {}",
            ),
        ];
        for (exec, prompt, code, part) in cases {
            let failure = exec.launch(prompt, Path::new("/"), place, "").unwrap_err();
            assert_eq!(failure.code().as_str(), code, "{failure}");
            assert!(failure.to_string().contains(part), "{failure}");
        }
    }
}
