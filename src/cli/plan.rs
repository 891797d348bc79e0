//! What the arguments mean.

use crate::cli::{
    args::RunArgs,
    prompts::{self, Source},
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    sync::Arc,
};
use subagents::{Deadlines, Exec};

/// What was typed, or the environment, makes no sense; says what would.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

/// Everything that is to be done, decided.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) provider: Exec,
    pub(crate) source: Source,
    pub(crate) jobs: usize,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) cwd: PathBuf,
    pub(crate) deadlines: Deadlines,
    pub(crate) depth: u32,
    pub(crate) max_depth: Option<u32>,
    pub(crate) json: bool,
    pub(crate) show: Show,
}

/// What is shown on stderr while it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Nothing,
    Bar,
    /// The tree, drawn in place.
    LiveTree,
    /// The tree, line by line.
    TreeLog,
}

/// How many prompts are under way at once where nothing else was said.
const JOBS: usize = 4;

type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl Plan {
    /// Reads a prompt from stdin where that is where it is.
    pub(crate) fn new(
        args: RunArgs,
        environment: Environment<'_>,
        logging: bool,
    ) -> Result<Self, UsageError> {
        let provider = exec(&args.command)?;
        let jobs = match (args.jobs, &args.each) {
            (Some(_), None) => {
                return Err(UsageError(
                    "--jobs is of use with --each only: there is but one prompt".to_owned(),
                ));
            }
            (jobs, _) => jobs.map_or(JOBS, usize::from),
        };
        let depth = number(environment, "SUBAGENTS_DEPTH")?.unwrap_or(0);
        let max_depth = number(environment, "SUBAGENTS_MAX_DEPTH")?;
        let cwd = absolute(args.cwd.as_deref())?;
        let mut deadlines = Deadlines::new();
        deadlines.total = args.timeout;
        deadlines.idle = args.idle_timeout;
        let terminal = io::stderr().is_terminal() && !logging;
        let show = match (args.tree, terminal, args.json) {
            (true, true, _) => Show::LiveTree,
            (true, false, _) => Show::TreeLog,
            (false, true, false) => Show::Bar,
            (false, ..) => Show::Nothing,
        };
        Ok(Self {
            provider,
            source: source(args.each, args.prompt)?,
            jobs,
            label: args.label.map(Into::into),
            cwd,
            deadlines,
            depth,
            max_depth,
            json: args.json,
            show,
        })
    }
}

fn exec(command: &[OsString]) -> Result<Exec, UsageError> {
    match command {
        [program, arguments @ ..] if !program.is_empty() => {
            Ok(Exec::new(program).args(arguments.iter().cloned()))
        }
        _ => Err(UsageError(
            "no command was given: name the program that does the work after `--`, for example\n  \
             subagents run 'Review the diff' -- some-agent --print {}"
                .to_owned(),
        )),
    }
}

fn source(each: Option<PathBuf>, prompt: Option<String>) -> Result<Source, UsageError> {
    if let Some(path) = each {
        if path.as_os_str() == "-" {
            return Ok(Source::Stdin);
        }
        let file = File::open(&path)
            .map_err(|error| UsageError(format!("cannot read the prompts in {}: {error}", path.display())))?;
        if file.metadata().is_ok_and(|data| data.is_dir()) {
            return Err(UsageError(format!(
                "cannot read the prompts in {}: it is a directory; name a file with one prompt per line",
                path.display()
            )));
        }
        return Ok(Source::File { path, file });
    }
    let none = |what: &str| {
        UsageError(format!(
            "{what}: give a PROMPT, pipe one to stdin, or give one per line with --each FILE, for example\n  \
             subagents run 'Review the diff' -- some-agent --print {{}}"
        ))
    };
    let prompt = match prompt {
        Some(prompt) => prompt,
        None if io::stdin().is_terminal() => {
            return Err(none("no prompt was given, and stdin is a terminal"));
        }
        None => prompts::whole(io::stdin().lock()).map_err(UsageError)?,
    };
    if prompt.trim().is_empty() {
        return Err(none("the prompt is empty"));
    }
    Ok(Source::One(prompt))
}

fn absolute(cwd: Option<&Path>) -> Result<PathBuf, UsageError> {
    let here = std::env::current_dir().map_err(|error| {
        UsageError(format!("the working directory cannot be used: {error}; give --cwd DIR"))
    });
    match cwd {
        Some(cwd) if cwd.is_absolute() => Ok(cwd.to_owned()),
        Some(cwd) => Ok(here?.join(cwd)),
        None => here,
    }
}

fn number(environment: Environment<'_>, name: &str) -> Result<Option<u32>, UsageError> {
    let Some(value) = environment(name) else { return Ok(None) };
    let digits =
        |value: &OsStr| value.to_str().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?.parse().ok();
    digits(&value).map(Some).ok_or_else(|| {
        let value = subagents::bounded(&subagents::sanitised(&value.to_string_lossy()), 40);
        UsageError(format!("{name} is `{value}`: set it to a whole number, like {name}=1, or unset it"))
    })
}

#[cfg(test)]
mod tests {
    use super::number;
    use std::ffi::OsString;

    #[test]
    fn a_depth_is_a_whole_number_or_absent() {
        let read = |value: Option<&str>| number(&|_| value.map(OsString::from), "SUBAGENTS_DEPTH");
        assert_eq!(read(None).expect("absent is fine"), None);
        for (value, depth) in [("0", 0), ("3", 3), ("4294967295", u32::MAX)] {
            assert_eq!(read(Some(value)).expect(value), Some(depth));
        }
        for value in ["", " 1", "-1", "+1", "1.0", "one", "4294967296", "0x1"] {
            let error = read(Some(value)).expect_err(value);
            assert!(error.0.contains("SUBAGENTS_DEPTH=1"), "{}", error.0);
        }
    }
}
