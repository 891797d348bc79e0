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
use subagents_acp::{Acp, KNOWN_AGENTS, KnownAgent};
use subagents_exec::Exec;
use subagents_seam::{
    Capabilities, Deadlines, DynProvider, Name, ProviderFailure, SubagentProvider, bounded, sanitised,
};
use subagents_tool::SubagentTool;

mod acp;

use acp::AcpConfig;
pub use acp::Policy;

/// The kinds of provider that this version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProviderKind {
    /// Any program: prompt in, answer out.
    Exec,
    /// Any agent that speaks the Agent Client Protocol.
    Acp,
}

/// Kinds that are written about and are not here.
const LATER: [&str; 4] = ["claude-code", "codex", "fork", "spawn"];

impl ProviderKind {
    const ALL: [Self; 2] = [Self::Exec, Self::Acp];

    /// As it is written in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Acp => "acp",
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
    /// Of the kind `acp`.
    acp: AcpConfig,
    /// It is in no configuration: an agent that is known by name.
    known: bool,
    bounded_as_known: bool,
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
        // An agent that is known by its name, of which nothing else is said.
        let named = KnownAgent::named(&entry.key).filter(|_| !foreign && !table.has("command"));
        let kind = match named {
            Some(_) => Some(ProviderKind::Acp),
            None => table.need("kind", "kind = \"exec\" or kind = \"acp\"", faults, ProviderKind::read),
        };
        let is_acp = kind == Some(ProviderKind::Acp);
        let known = KnownAgent::named(&entry.key).filter(|_| is_acp && !table.has("command"));
        let names: Vec<_> = KNOWN_AGENTS.iter().map(|agent| agent.name).collect();
        let example = match (is_acp, nearest(&entry.key, &names)) {
            (true, Some(near)) => {
                format!("command = [\"some-agent\", \"--acp\"]; or did you mean `{near}`, which needs none?")
            }
            (true, None) => {
                format!("command = [\"some-agent\", \"--acp\"]; tables named {} need none", quoted(&names))
            }
            (false, _) => "command = [\"some-agent\", \"--print\", \"{}\"]".to_owned(),
        };
        let command = match known {
            Some(known) => Some(words(known.command)),
            // A kind that is not here may do without.
            None if kind.is_none() && foreign => table.get("command", faults, command),
            None => table.need("command", &example, faults, command),
        };
        let acp = if is_acp { AcpConfig::read(&mut table, faults) } else { AcpConfig::default() };
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
            acp,
            known: false,
            bounded_as_known: false,
        };
        // Keys of a kind that is not here are not known here, and not the fault.
        if kind.is_some() || !foreign {
            table.close(faults);
        }
        Some(read)
    }

    /// An agent that is known by name, as it is without configuration.
    pub(super) fn of_known(agent: &KnownAgent) -> Self {
        Self {
            name: agent.name.into(),
            kind: ProviderKind::Acp,
            description: Some(agent.title.to_owned()),
            command: words(agent.command),
            pass_env: Vec::new(),
            env: Vec::new(),
            cwd: None,
            allow_empty: false,
            max_output: None,
            max_total_output: None,
            limit: None,
            deadlines: Deadlines::new(),
            acp: AcpConfig::default(),
            known: true,
            bounded_as_known: false,
        }
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
        self.description.as_deref().or_else(|| self.agent().map(|agent| agent.title))
    }

    /// The program and its arguments.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// The variables that reach it although their names look like secrets: those that are listed, and those of the sign-in
    /// of an agent that is [known](Self::agent).
    pub fn pass_env(&self) -> Vec<&str> {
        let listed = self.pass_env.iter().map(String::as_str);
        let known = self.agent().into_iter().flat_map(|agent| agent.pass_env.iter().copied());
        let mut names: Vec<_> = listed.collect();
        for name in known {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The agent that it is, where its program is one that is known.
    pub fn agent(&self) -> Option<&'static KnownAgent> {
        let program = self.command.first().filter(|_| self.kind == ProviderKind::Acp)?;
        KnownAgent::of_program(program)
    }

    /// Gives a known agent the deadline of known agents, where neither it nor `[defaults]` has one.
    pub(super) fn bound(&mut self, defaults: &Deadlines) {
        if self.agent().is_some() && self.deadlines.idle.is_none() && defaults.idle.is_none() {
            self.deadlines.idle = Some(KnownAgent::IDLE_TIMEOUT);
            self.bounded_as_known = true;
        }
    }

    /// Whether nobody set its idle deadline, which is that of [known agents](KnownAgent::IDLE_TIMEOUT).
    pub fn is_bounded_as_known(&self) -> bool {
        self.bounded_as_known
    }

    /// Whether it is in no configuration: see [`Config::with_known_agents`](super::Config::with_known_agents).
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Who decides when an agent asks for a permission; none of a kind that does not ask.
    pub fn permission(&self) -> Option<Policy> {
        (self.kind == ProviderKind::Acp).then_some(self.acp.permission)
    }

    /// The mode and the model of an agent's sessions, where they are set.
    pub fn mode_and_model(&self) -> (Option<&str>, Option<&str>) {
        (self.acp.mode.as_deref(), self.acp.model.as_deref())
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

    /// Its own deadlines, with the [idle one of known agents](KnownAgent::IDLE_TIMEOUT) where nobody set another. For
    /// [`StartRequest::deadlines`](crate::StartRequest::deadlines): what they leave open, the service's decide.
    pub fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// A tool of this name that delegates to it.
    pub fn tool(&self, name: impl Into<Name>) -> SubagentTool {
        let tool = SubagentTool::new(name, &self.name).deadlines(self.deadlines.clone());
        match self.description() {
            Some(description) => tool.description(one_line(description)),
            None => tool,
        }
    }

    /// The provider, ready to be registered.
    pub fn provider(&self) -> DynProvider {
        match self.kind {
            ProviderKind::Exec => self.to_exec().into(),
            ProviderKind::Acp => self.to_acp().into(),
        }
    }

    /// What it can do.
    pub fn capabilities(&self) -> Capabilities {
        match self.kind {
            ProviderKind::Exec => self.to_exec().capabilities(),
            ProviderKind::Acp => self.to_acp().capabilities(),
        }
    }

    /// The same of the kind `exec`, to be changed first.
    pub fn exec(&self) -> Option<Exec> {
        (self.kind == ProviderKind::Exec).then(|| self.to_exec())
    }

    /// The same of the kind `acp`, to be changed first.
    pub fn acp(&self) -> Option<Acp> {
        (self.kind == ProviderKind::Acp).then(|| self.to_acp())
    }

    fn to_exec(&self) -> Exec {
        let (program, args) = self.program();
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

    fn to_acp(&self) -> Acp {
        let (program, args) = self.program();
        let mut acp = Acp::new(program).args(args).pass_env(&self.pass_env).allow_empty(self.allow_empty);
        if let Some(agent) = self.agent() {
            acp = acp.known(agent);
        }
        for (name, value) in &self.env {
            acp = acp.env(name, value);
        }
        if let Some(cwd) = &self.cwd {
            acp = acp.cwd(cwd);
        }
        if let Some(bytes) = self.max_output {
            acp = acp.max_output(bytes);
        }
        if let Some(bytes) = self.max_total_output {
            acp = acp.max_total_output(bytes as u64);
        }
        self.acp.apply(acp)
    }

    fn program(&self) -> (&str, &[String]) {
        self.command.split_first().map_or(("", &[]), |(first, rest)| (first, rest))
    }

    /// Whether a start could work, for a delegation in `cwd`: the program's file, or the error that a start would have.
    /// It looks a few files up and starts nothing.
    ///
    /// # Errors
    /// The failure, with its code and what to do next.
    pub fn check(&self, cwd: &Path) -> Result<PathBuf, ProviderFailure> {
        match self.kind {
            ProviderKind::Exec => self.to_exec().check(cwd),
            ProviderKind::Acp => self.to_acp().check(cwd),
        }
    }
}

/// Text that stands in a sentence.
fn one_line(text: &str) -> String {
    sanitised(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|word| (*word).to_owned()).collect()
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
