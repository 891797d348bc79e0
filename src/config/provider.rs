//! One provider, as it is configured.

use super::{
    document::{Entry, Item},
    error::{ConfigFaultKind, Faults},
    nearest,
    section::{self, Section, Wrong, quoted},
};
use std::{
    fmt,
    num::NonZeroUsize,
    path::{Path, PathBuf},
};
use subagents_exec::Exec;
use subagents_seam::{
    Capabilities, Deadlines, DynProvider, Name, ProviderFailure, SubagentProvider, bounded, sanitised,
};

/// The kinds of provider that this version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProviderKind {
    /// Any program: prompt in, answer out.
    Exec,
}

/// Kinds that are written about and are not here.
const LATER: [&str; 5] = ["acp", "claude-code", "codex", "fork", "spawn"];

impl ProviderKind {
    const ALL: [Self; 1] = [Self::Exec];

    /// As it is written in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
        }
    }

    fn read(item: &Item) -> Result<Self, Wrong> {
        let text = section::text(item)?;
        if let Some(kind) = Self::ALL.into_iter().find(|kind| kind.as_str() == text) {
            return Ok(kind);
        }
        let names = Self::ALL.map(Self::as_str);
        let here = quoted(&names);
        if LATER.contains(&&*text) {
            return Err(
                item.wrong(format!("providers of kind `{text}` are not in this version, which has {here}"))
            );
        }
        let near = nearest(&text, &names);
        let advice =
            near.map_or_else(|| format!("this version has {here}"), |near| format!("did you mean `{near}`?"));
        Err(item.wrong(format!("there is no kind `{}`; {advice}", bounded(&sanitised(&text), 80))))
    }
}

/// One provider of a [`Config`](super::Config).
#[derive(Clone)]
pub struct ProviderConfig {
    name: Name,
    kind: ProviderKind,
    description: Option<String>,
    command: Vec<String>,
    pass_env: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    cwd: Option<PathBuf>,
    allow_empty: bool,
    max_output: Option<usize>,
    max_total_output: Option<usize>,
    limit: Option<NonZeroUsize>,
    deadlines: Deadlines,
}

// No values of `env`: they may be secrets, and a Debug output ends in logs.
impl fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderConfig")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("command", &self.command)
            .field("pass_env", &self.pass_env)
            .field("env", &self.env_names().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .field("limit", &self.limit)
            .field("deadlines", &self.deadlines)
            .finish_non_exhaustive()
    }
}

impl ProviderConfig {
    /// Reads one table below `[providers]`. Relative paths are relative to `directory`.
    pub(super) fn read(
        path: String,
        entry: Entry,
        directory: Option<&Path>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let name = Name::of_provider(&entry.key).map_err(|error| {
            faults.push(ConfigFaultKind::InvalidValue, &entry.at, error.to_string());
        });
        let mut table = Section::open(path, entry.at, entry.item, faults)?;
        let foreign = table.has("kind");
        let kind = table.need("kind", "kind = \"exec\"", faults, ProviderKind::read);
        let example = "command = [\"some-agent\", \"--print\", \"{}\"]";
        let command = table.need("command", example, faults, command);
        let read = Self {
            name: name.ok().unwrap_or_default(),
            kind: kind.unwrap_or(ProviderKind::Exec),
            description: table.get("description", faults, section::text),
            command: command.unwrap_or_default(),
            pass_env: table.get("pass_env", faults, section::variable_names).unwrap_or_default(),
            env: table.get("env", faults, section::variables).unwrap_or_default(),
            cwd: table.get("cwd", faults, |item| absolute(item, directory)),
            allow_empty: table.get("allow_empty", faults, section::boolean).unwrap_or_default(),
            max_output: table.get("max_output", faults, section::size),
            max_total_output: table.get("max_total_output", faults, section::size),
            limit: table.get("max_concurrent", faults, section::count(usize::MAX)),
            deadlines: deadlines(&mut table, faults),
        };
        // Keys of a kind that is not here are not known here, and not the fault.
        if kind.is_some() || !foreign {
            table.close(faults);
        }
        Some(read)
    }

    /// The name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The kind.
    pub fn kind(&self) -> ProviderKind {
        self.kind
    }

    /// What somebody wrote about it, for people.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The program and its arguments.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// The variables that reach it although their names look like secrets.
    pub fn pass_env(&self) -> &[String] {
        &self.pass_env
    }

    /// The names of the variables that are set for it. Their values are not shown.
    pub fn env_names(&self) -> impl Iterator<Item = &str> {
        self.env.iter().map(|(name, _)| &**name)
    }

    /// Where it works, in place of the delegation's directory. Absolute.
    pub fn cwd(&self) -> Option<&Path> {
        self.cwd.as_deref()
    }

    /// Whether a blank answer is an answer.
    pub fn allow_empty(&self) -> bool {
        self.allow_empty
    }

    /// How much of an answer is kept, where it says so.
    pub fn max_output(&self) -> Option<usize> {
        self.max_output
    }

    /// How much it may write in all, where it says so.
    pub fn max_total_output(&self) -> Option<usize> {
        self.max_total_output
    }

    /// How many of its runs may live at once.
    pub fn limit(&self) -> Option<usize> {
        self.limit.map(NonZeroUsize::get)
    }

    /// Its own deadlines. For [`StartRequest::deadlines`](crate::StartRequest::deadlines): what they leave open, the
    /// service's decide.
    pub fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// The provider, ready to be registered.
    pub fn provider(&self) -> DynProvider {
        self.exec().into()
    }

    /// What it can do.
    pub fn capabilities(&self) -> Capabilities {
        self.exec().capabilities()
    }

    /// The same, to be changed first.
    pub fn exec(&self) -> Exec {
        let (program, args) = self.command.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
        let mut exec = Exec::new(program).args(args).pass_env(&self.pass_env).allow_empty(self.allow_empty);
        for (name, value) in &self.env {
            exec = exec.env(name, value);
        }
        if let Some(cwd) = &self.cwd {
            exec = exec.cwd(cwd);
        }
        if let Some(bytes) = self.max_output {
            exec = exec.max_output(bytes);
        }
        if let Some(bytes) = self.max_total_output {
            exec = exec.max_total_output(bytes as u64);
        }
        exec
    }

    /// Whether a start could work, for a delegation in `cwd`: the program's file, or the error that a start would have.
    /// It looks a few files up and starts nothing.
    ///
    /// # Errors
    /// The failure, with its code and what to do next.
    pub fn check(&self, cwd: &Path) -> Result<PathBuf, ProviderFailure> {
        self.exec().check(cwd)
    }
}

/// The deadlines that a table sets.
pub(super) fn deadlines(table: &mut Section, faults: &mut Faults) -> Deadlines {
    let mut deadlines = Deadlines::new();
    deadlines.total = table.get("timeout", faults, section::duration);
    deadlines.idle = table.get("idle_timeout", faults, section::duration);
    deadlines.start = table.get("start_timeout", faults, section::duration);
    deadlines
}

fn command(item: &Item) -> Result<Vec<String>, Wrong> {
    let command: Vec<_> = section::texts(item)?.into_iter().map(|(_, text)| text).collect();
    if command.first().is_none_or(String::is_empty) {
        return Err(
            item.wrong("it names no program; put one first, like [\"some-agent\", \"--print\", \"{}\"]")
        );
    }
    Ok(command)
}

/// SPEC 17.2: made absolute when it is loaded.
pub(super) fn absolute(item: &Item, directory: Option<&Path>) -> Result<PathBuf, Wrong> {
    let path = PathBuf::from(section::text(item)?);
    if path.as_os_str().is_empty() {
        return Err(item.wrong("it is empty; name a directory, or leave it out"));
    }
    match directory {
        _ if path.is_absolute() => Ok(path),
        Some(directory) => Ok(directory.join(path)),
        None => {
            Err(item.wrong("it is relative, and there is no working directory to begin at; make it absolute"))
        }
    }
}
