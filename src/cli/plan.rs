//! What the arguments mean.

use crate::cli::{
    args::RunArgs,
    asked::Asked,
    deadlines::Limits,
    output::{ACP, EXEC},
    prompts::{self, Source},
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    sync::Arc,
};
use subagents::{
    Acp, Capabilities, Deadlines, DynProvider, Exec, Name,
    acp::{KnownAgent, Permission},
    config::{Config, ConfigError, ConfigFaultKind, LedgerConfig, Policy, ProviderConfig},
};

/// What was typed, or the environment, makes no sense; says what would.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl From<ConfigError> for UsageError {
    fn from(error: ConfigError) -> Self {
        let none = error.faults().any(|fault| fault.kind == ConfigFaultKind::NoProvider);
        let option = if none { "; on the command line it is -p NAME" } else { "" };
        Self(format!("{}{option}", error.to_string().replace('\n', "\nerror: ")))
    }
}

/// Everything that is to be done, decided.
pub(crate) struct Plan {
    pub(crate) provider: DynProvider,
    /// Its name.
    pub(crate) name: Name,
    /// How many of its runs may live at once.
    pub(crate) limit: Option<usize>,
    /// Whether, and where, the processes are recorded.
    pub(crate) ledger: LedgerConfig,
    /// What a person is told first.
    pub(crate) note: Option<String>,
    pub(crate) source: Source,
    pub(crate) asked: Asked,
    /// What each configured provider can do.
    pub(crate) able: Vec<(Name, Capabilities)>,
    pub(crate) jobs: usize,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) cwd: PathBuf,
    pub(crate) limits: Limits,
    pub(crate) depth: u32,
    pub(crate) max_depth: Option<u32>,
    pub(crate) json: bool,
    pub(crate) show: Show,
    /// Whether a person watches stderr.
    pub(crate) watched: bool,
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

/// How deep this delegates already, and how deep it may.
pub(crate) const DEPTH: &str = "SUBAGENTS_DEPTH";
pub(crate) const MAX_DEPTH: &str = "SUBAGENTS_MAX_DEPTH";

pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl Plan {
    /// Reads a prompt from stdin where that is where it is.
    pub(crate) fn new(
        args: RunArgs,
        config: &Config,
        environment: Environment<'_>,
        logging: bool,
    ) -> Result<Self, UsageError> {
        let cwd = absolute(args.cwd.as_deref())?;
        let configured = match &*args.command {
            [] => Some(configured(config, args.provider.as_deref(), &cwd)?),
            _ => None,
        };
        let (provider, unnamed) = match configured {
            Some(provider) => (configured_provider(provider, &args)?, provider.name().as_str()),
            None if args.acp => (agent(&args)?.into(), ACP),
            None => (program(&args)?.into(), EXEC),
        };
        let name = Name::from(unnamed);
        let jobs = match (args.jobs, &args.each) {
            (Some(_), None) => {
                return Err(UsageError(
                    "--jobs is of use with --each only: there is but one prompt".to_owned(),
                ));
            }
            (None, None) => 1,
            (jobs, Some(_)) => jobs.map(usize::from).or(config.jobs()).unwrap_or(JOBS),
        };
        let depth = number(environment, DEPTH)?.unwrap_or(0);
        let max_depth = number(environment, MAX_DEPTH)?;
        let mut typed = Deadlines::new();
        (typed.total, typed.idle, typed.start) = (args.timeout, args.idle_timeout, args.start_timeout);
        let started = known(&args).filter(|_| args.acp);
        let limits = Limits::new(&typed, configured, started, config.deadlines());
        let asked = Asked::read(&args)?;
        let here = |provider: &&ProviderConfig| !provider.is_known() || provider.check(&cwd).is_ok();
        let able = config.providers().iter().filter(here);
        let able: Vec<_> = able.map(|provider| (provider.name().clone(), provider.capabilities())).collect();
        let watched = io::stderr().is_terminal();
        let show =
            Show::new(args.tree, args.json, watched && !logging && draws(environment("TERM").as_deref()));
        // What nobody has written down is told in any case.
        let unnamed =
            configured.filter(|provider| args.provider.is_none() && (watched || provider.is_known()));
        Ok(Self {
            provider,
            name,
            limit: configured.and_then(ProviderConfig::limit),
            ledger: config.ledger().clone(),
            note: unnamed.map(|provider| which(config, provider)),
            asked,
            able,
            source: source(args.each, args.prompt)?,
            jobs,
            label: args.label.map(Into::into),
            cwd,
            limits,
            depth,
            max_depth,
            json: args.json,
            show,
            watched,
        })
    }
}

impl Show {
    fn new(tree: bool, json: bool, in_place: bool) -> Self {
        match (tree, in_place, json) {
            (true, true, _) => Self::LiveTree,
            (true, false, _) => Self::TreeLog,
            (false, true, false) => Self::Bar,
            (false, ..) => Self::Nothing,
        }
    }
}

/// Whether a terminal of this name can be drawn on in place.
fn draws(terminal: Option<&OsStr>) -> bool {
    terminal.is_some_and(|name| !name.is_empty() && name != "dumb")
}

/// The provider that is meant: the one that is named, the default one or the only one; where nothing is configured, the
/// first known agent that is here.
fn configured<'a>(
    config: &'a Config,
    name: Option<&str>,
    cwd: &Path,
) -> Result<&'a ProviderConfig, UsageError> {
    if name.is_some() || config.default_provider().is_some() || config.configured().next().is_some() {
        return Ok(config.select(name)?);
    }
    let found = config.providers().iter().find(|provider| provider.check(cwd).is_ok());
    found.ok_or_else(|| {
        let known: Vec<_> = config.providers().iter().map(|provider| provider.name().as_str()).collect();
        UsageError(format!(
            "no command was given, no provider is configured, and no known agent is on PATH ({}): name the program that \
             does the work after `--`, for example\n  subagents run 'Review the diff' -- some-agent --print {{}}\n\
             or see 'subagents providers' for how to get an agent, or to configure one",
            known.join(", ")
        ))
    })
}

/// Which provider it is, where nobody named it.
fn which(config: &Config, provider: &ProviderConfig) -> String {
    if provider.is_known() {
        return format!("subagents: provider {}, found on PATH", provider.name());
    }
    let of = config
        .file()
        .map_or_else(|| "the environment".to_owned(), |file| subagents::sanitised(&file.to_string_lossy()));
    format!("subagents: provider {}, of {of}", provider.name())
}

pub(super) fn permission(policy: Policy) -> Permission {
    match policy {
        Policy::Allow => Permission::Allow,
        Policy::Reject | _ => Permission::Reject,
    }
}

fn configured_provider(provider: &ProviderConfig, args: &RunArgs) -> Result<DynProvider, UsageError> {
    let kind = || format!("provider {} is of kind {}", provider.name(), provider.kind().as_str());
    match (provider.acp(), provider.exec(), args.permission) {
        (Some(acp), _, policy) => {
            let acp = acp.pass_env(&args.pass_env);
            Ok(policy.map_or_else(|| acp.clone(), |policy| acp.clone().permission(permission(policy))).into())
        }
        (None, _, Some(_)) => Err(no_permission(&kind())),
        (None, Some(exec), None) => Ok(exec.pass_env(&args.pass_env).into()),
        (None, None, None) => Ok(provider.provider()),
    }
}

pub(super) fn no_permission(why: &str) -> UsageError {
    UsageError(format!("--permission is for agents that ask, of kind acp, and {why}: leave it out"))
}

fn agent(args: &RunArgs) -> Result<Acp, UsageError> {
    let (program, arguments) = split(&args.command)?;
    let acp = Acp::new(program).args(arguments.iter().cloned()).pass_env(&args.pass_env);
    // As it is where it is configured by its command.
    let acp = match known(args) {
        Some(known) => acp.known(known),
        None => acp,
    };
    Ok(acp.permission(args.permission.map_or_else(Permission::default, permission)))
}

/// The known agent that COMMAND starts.
fn known(args: &RunArgs) -> Option<&'static KnownAgent> {
    KnownAgent::of_program(args.command.first()?.to_str()?)
}

fn program(args: &RunArgs) -> Result<Exec, UsageError> {
    if args.permission.is_some() {
        return Err(no_permission("COMMAND without --acp is any program"));
    }
    let (program, arguments) = split(&args.command)?;
    Ok(Exec::new(program).args(arguments.iter().cloned()).pass_env(&args.pass_env))
}

fn split(command: &[OsString]) -> Result<(&OsString, &[OsString]), UsageError> {
    match command {
        [program, arguments @ ..] if !program.is_empty() => Ok((program, arguments)),
        _ => Err(UsageError(
            "the command has no name: name the program that does the work after `--`, for example\n  \
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

pub(super) fn absolute(cwd: Option<&Path>) -> Result<PathBuf, UsageError> {
    let here = std::env::current_dir().map_err(|error| {
        UsageError(format!("the working directory cannot be used: {error}; give --cwd DIR"))
    });
    match cwd {
        Some(cwd) if cwd.is_absolute() => Ok(cwd.to_owned()),
        Some(cwd) => Ok(here?.join(cwd)),
        None => here,
    }
}

pub(super) fn number(environment: Environment<'_>, name: &str) -> Result<Option<u32>, UsageError> {
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
    use super::{Show, draws, number};
    use std::ffi::OsString;

    #[test]
    fn what_is_shown_depends_on_who_watches() {
        for (tree, json, in_place, show) in [
            (false, false, true, Show::Bar),
            (false, true, true, Show::Nothing),
            (true, true, true, Show::LiveTree),
            (true, false, false, Show::TreeLog),
            (false, false, false, Show::Nothing),
        ] {
            assert_eq!(Show::new(tree, json, in_place), show);
        }
        for (terminal, drawn) in
            [(Some("xterm"), true), (Some("dumb"), false), (Some(""), false), (None, false)]
        {
            assert_eq!(draws(terminal.map(AsRef::as_ref)), drawn, "{terminal:?}");
        }
    }

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
