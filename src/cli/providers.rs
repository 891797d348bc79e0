//! `subagents providers`: what is configured here, and whether it can work.

use crate::cli::{
    EXIT_CLOSED, EXIT_FAILED,
    output::{line, millis, one_line},
};
use futures_util::future::join_all;
use serde::Serialize;
use std::{
    fmt::Write as _,
    io::{self, ErrorKind, IsTerminal, Write as _},
    path::Path,
    time::Duration,
};
use subagents::{
    AgentOption, Capabilities, Capability, Deadlines, FailureCode, PromptKind, ProviderFailure,
    acp::AgentInfo,
    config::{Config, FILE_NAME, Policy, ProviderConfig},
};

/// How to begin.
const BEGIN: &str = "\
[providers.wc]
kind = \"exec\"
command = [\"wc\", \"-w\"]
max_concurrent = 4
";

/// How long an agent may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(30);

/// Prints what there is; gives the exit code. Agents are asked who they are where `start` says so.
///
/// # Errors
/// What makes it impossible to look.
pub(crate) fn tell(config: &Config, json: bool, start: bool) -> Result<u8, String> {
    let here = std::env::current_dir()
        .map_err(|error| format!("the working directory cannot be used: {error}; go to another"))?;
    let mut all: Vec<_> =
        config.providers().iter().map(|provider| Known::new(config, provider, &here)).collect();
    // Where nothing is configured, the first agent that is here does the work.
    let none_is = config.configured().next().is_none() && config.default_provider().is_none();
    if let Some(first) = all.iter_mut().find(|known| none_is && known.file.is_some()) {
        first.default = true;
    }
    if start {
        ask(&mut all, &here)?;
    }
    let text = if json {
        if none_is && !all.iter().any(|known| known.default) {
            let _ = write!(io::stderr(), "{}", none(config));
        }
        all.iter().map(|known| if known.is_missing() { known.json_missing() } else { known.json() }).collect()
    } else {
        told(config, &all)
    };
    let mut stdout = io::stdout().lock();
    Ok(match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => 0,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => EXIT_CLOSED,
        Err(error) => {
            let _ = writeln!(io::stderr(), "subagents: stdout cannot be written: {error}");
            EXIT_FAILED
        }
    })
}

/// What is configured, which known agents are here, and how to get the others.
fn told(config: &Config, all: &[Known<'_>]) -> String {
    let is_here = |known: &&Known<'_>| known.provider.is_known() && known.file.is_some();
    let configured: Vec<_> = all.iter().filter(|known| !known.provider.is_known()).map(Known::text).collect();
    let found: Vec<_> = all.iter().filter(is_here).map(Known::text).collect();
    let missing = all.iter().filter(|known| known.is_missing());
    let missing = missing.filter_map(|known| known.provider.agent());
    let missing: Vec<_> =
        missing.map(|agent| format!("  {:<18}{:<34}{}\n", agent.name, agent.title, agent.install)).collect();
    let missing = missing.concat();
    let mut parts = Vec::new();
    if !configured.is_empty() {
        parts.push(format!("{}\n\n{}", source(config), configured.join("\n")));
    }
    if !found.is_empty() {
        parts.push(format!("Found on PATH:\n\n{}", found.join("\n")));
    }
    if parts.is_empty() {
        parts.push(none(config));
    }
    if !missing.is_empty() {
        parts.push(format!("Known, and not on PATH:\n\n{missing}"));
    }
    parts.join("\n")
}

/// Asks each agent that is here who it is, all at once: they take seconds to start.
fn ask(all: &mut [Known<'_>], here: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("the agents cannot be asked: {error}");
    let asked: Vec<_> =
        all.iter_mut().filter(|known| known.file.is_some() && known.provider.acp().is_some()).collect();
    if asked.is_empty() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    if io::stderr().is_terminal() {
        let names: Vec<_> = asked.iter().map(|known| known.provider.name().as_str()).collect();
        let _ = writeln!(io::stderr(), "subagents: asking {}", names.join(", "));
    }
    runtime.block_on(async {
        let asking = asked.into_iter().map(|known| async {
            let Some(acp) = known.provider.acp() else { return };
            match acp.probe(here, PATIENCE).await {
                Ok(agent) => known.agent = Some(agent),
                Err(failure) => known.failure = Some(failure),
            }
        });
        join_all(asking).await;
    });
    Ok(())
}

/// The configuration that was read.
fn source(config: &Config) -> String {
    config
        .file()
        .map_or_else(|| "no file; the environment".to_owned(), |file| one_line(&file.to_string_lossy()))
}

fn none(config: &Config) -> String {
    let what = match config.file() {
        Some(_) => format!("No provider is configured in {}", source(config)),
        None => format!(
            "No provider is configured: there is no {FILE_NAME} here, in a directory above, or in the user's \
             configuration folder"
        ),
    };
    let example: Vec<_> = BEGIN.lines().map(|line| format!("  {line}\n")).collect();
    format!(
        "{what}.\n\nTo begin, write this into {FILE_NAME}:\n\n{}\nand try it:\n\n  subagents run -p wc 'three short words'\n",
        example.concat()
    )
}

/// What is known of one provider.
struct Known<'a> {
    config: &'a Config,
    provider: &'a ProviderConfig,
    default: bool,
    /// The file of the program, where it is here.
    file: Option<String>,
    /// Why it cannot work.
    failure: Option<ProviderFailure>,
    /// Who it says it is, where it was asked.
    agent: Option<AgentInfo>,
    deadlines: Deadlines,
    capabilities: Vec<&'static str>,
    prompts: Vec<&'static str>,
}

impl<'a> Known<'a> {
    fn new(config: &'a Config, provider: &'a ProviderConfig, here: &Path) -> Self {
        let mut deadlines = provider.deadlines().clone();
        deadlines.total = deadlines.total.or(config.deadlines().total);
        deadlines.idle = deadlines.idle.or(config.deadlines().idle);
        deadlines.start = deadlines.start.or(config.deadlines().start);
        let check = provider.check(here);
        Self {
            config,
            provider,
            file: check.as_ref().ok().map(|file| file.to_string_lossy().into_owned()),
            failure: check.err(),
            default: config.select(None).is_ok_and(|default| default.name() == provider.name()),
            agent: None,
            deadlines,
            capabilities: capabilities(provider.capabilities()),
            prompts: prompts(provider.capabilities()),
        }
    }

    fn text(&self) -> String {
        let provider = self.provider;
        let default = if self.default { " (default)" } else { "" };
        let description =
            provider.description().map(|text| format!(": {}", one_line(text))).unwrap_or_default();
        let mut text = format!("{}{default}{description}\n", provider.name());
        let mut fact = |what: &str, how: &str| {
            // A fact that is empty is none.
            let _ = if how.is_empty() { Ok(()) } else { writeln!(text, "  {what:<10}{}", one_line(how)) };
        };
        fact("kind", provider.kind().as_str());
        let named = || provider.command().first().map_or("", String::as_str);
        fact("program", self.file.as_deref().unwrap_or_else(named));
        fact("agent", &self.agent.as_ref().map(ToString::to_string).unwrap_or_default());
        if let Some(error) = &self.failure {
            fact("fails", &format!("{}: {error}", error.code().as_str()));
            let told = error.to_string();
            fact("next", self.next_step().filter(|next| !told.contains(next)).unwrap_or_default());
        }
        let can: Vec<_> = self.prompts.iter().map(|kind| format!("prompts of {kind}")).collect();
        let more = self.capabilities.iter().map(|name| (*name).to_owned());
        fact("can", &can.into_iter().chain(more).collect::<Vec<_>>().join(", "));
        let (mode, model) = provider.mode_and_model();
        let permission = provider.permission().map(|policy| format!("permission {policy}"));
        let set = [mode.map(|mode| format!("mode {mode}")), model.map(|model| format!("model {model}"))];
        fact(
            "works by",
            &permission.into_iter().chain(set.into_iter().flatten()).collect::<Vec<_>>().join(", "),
        );
        fact("cwd", &provider.cwd().map(|cwd| cwd.to_string_lossy()).unwrap_or_default());
        fact("limits", &self.limits());
        fact("sets", &provider.env_names().collect::<Vec<_>>().join(", "));
        let passed = provider.pass_env().into_iter().map(|name| match std::env::var_os(name) {
            Some(_) => name.to_owned(),
            None => format!("{name} (not set here)"),
        });
        fact("passes", &passed.collect::<Vec<_>>().join(", "));
        text
    }

    /// Whether nobody has written it down and it is not here.
    fn is_missing(&self) -> bool {
        self.provider.is_known() && self.file.is_none()
    }

    fn json_missing(&self) -> String {
        self.provider.agent().map_or_else(String::new, |agent| {
            line(&KnownAgentLine {
                r#type: "known_agent",
                name: agent.name,
                title: agent.title,
                install: agent.install,
                sign_in: agent.sign_in,
            })
        })
    }

    /// What would make a known agent work.
    fn next_step(&self) -> Option<&'static str> {
        let (agent, failure) = (self.provider.agent()?, self.failure.as_ref()?);
        match failure.code() {
            FailureCode::AuthRequired => Some(agent.sign_in),
            FailureCode::NotOnPath | FailureCode::ProgramNotFound => Some(agent.install),
            FailureCode::ProviderFailed | _ => None,
        }
    }

    fn limits(&self) -> String {
        let at_once = self.provider.limit().map(|runs| format!("{runs} at once"));
        let output = self.provider.max_output().map(|bytes| format!("{bytes} bytes of an answer"));
        let total_output = self.provider.max_total_output().map(|bytes| format!("{bytes} bytes in all"));
        let Deadlines { total, idle, start, .. } = &self.deadlines;
        let times = [("timeout", total), ("idle_timeout", idle), ("start_timeout", start)];
        let times = times.into_iter().filter_map(|(key, time)| Some(format!("{key} {:?}", (*time)?)));
        at_once.into_iter().chain(output).chain(total_output).chain(times).collect::<Vec<_>>().join(", ")
    }

    fn json(&self) -> String {
        let provider = self.provider;
        let time = |time: Option<Duration>| time.map(millis);
        let failure = self.failure.as_ref();
        line(&ProviderLine {
            r#type: "provider",
            name: provider.name(),
            kind: provider.kind().as_str(),
            default: self.default,
            description: provider.description(),
            source: if provider.is_known() { "path" } else { "config" },
            works: failure.is_none(),
            program: self.file.as_deref(),
            code: failure.map(|failure| failure.code().as_str()),
            message: failure.map(ToString::to_string),
            agent: self
                .agent
                .as_ref()
                .map(|agent| AgentLine { name: agent.name(), version: agent.version() }),
            install: provider.agent().map(|agent| agent.install),
            sign_in: provider.agent().map(|agent| agent.sign_in),
            capabilities: &self.capabilities,
            prompts: &self.prompts,
            permission: provider.permission().map(Policy::as_str),
            mode: provider.mode_and_model().0,
            model: provider.mode_and_model().1,
            max_concurrent: provider.limit(),
            max_output: provider.max_output(),
            max_total_output: provider.max_total_output(),
            allow_empty: provider.allow_empty(),
            timeout_ms: time(self.deadlines.total),
            idle_timeout_ms: time(self.deadlines.idle),
            start_timeout_ms: time(self.deadlines.start),
            cwd: provider.cwd().map(|cwd| cwd.to_string_lossy().into_owned()),
            env: provider.env_names().collect(),
            pass_env: provider.pass_env(),
            config: self.config.file().map(|file| file.to_string_lossy().into_owned()),
        })
    }
}

#[derive(Serialize)]
struct ProviderLine<'a> {
    r#type: &'static str,
    name: &'a str,
    kind: &'a str,
    default: bool,
    description: Option<&'a str>,
    source: &'static str,
    works: bool,
    program: Option<&'a str>,
    code: Option<&'a str>,
    message: Option<String>,
    agent: Option<AgentLine<'a>>,
    install: Option<&'static str>,
    sign_in: Option<&'static str>,
    capabilities: &'a [&'static str],
    prompts: &'a [&'static str],
    permission: Option<&'static str>,
    mode: Option<&'a str>,
    model: Option<&'a str>,
    max_concurrent: Option<usize>,
    max_output: Option<usize>,
    max_total_output: Option<usize>,
    allow_empty: bool,
    timeout_ms: Option<u64>,
    idle_timeout_ms: Option<u64>,
    start_timeout_ms: Option<u64>,
    cwd: Option<String>,
    env: Vec<&'a str>,
    pass_env: Vec<&'a str>,
    config: Option<String>,
}

/// One that is not here.
#[derive(Serialize)]
struct KnownAgentLine {
    r#type: &'static str,
    name: &'static str,
    title: &'static str,
    install: &'static str,
    sign_in: &'static str,
}

#[derive(Serialize)]
struct AgentLine<'a> {
    name: Option<&'a str>,
    version: Option<&'a str>,
}

fn capabilities(can: Capabilities) -> Vec<&'static str> {
    let all = [Capability::OutputSchema, Capability::DepthLimit, Capability::ToolFilter, Capability::Persona];
    let options = [AgentOption::Provider, AgentOption::Model, AgentOption::Effort, AgentOption::MaxTokens];
    let options = options.into_iter().filter(|option| can.honours(*option)).map(AgentOption::as_str);
    all.into_iter().filter(|capability| can.has(*capability)).map(Capability::as_str).chain(options).collect()
}

fn prompts(can: Capabilities) -> Vec<&'static str> {
    let more = [PromptKind::Image, PromptKind::Link].into_iter().filter(|kind| can.takes(*kind));
    std::iter::once("text").chain(more.map(PromptKind::as_str)).collect()
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, capabilities, none, prompts};
    use subagents::{Capabilities, PromptKind, config::Config};

    #[test]
    fn the_beginning_is_right() {
        let config = Config::parse("x", BEGIN).expect("it is right");
        assert_eq!(config.select(None).expect("the only one").name(), "wc");
        assert_eq!(BEGIN.lines().count(), 4);
        let empty = Config::parse("/a/b.toml", "").expect("it is right");
        assert!(none(&empty).starts_with("No provider is configured in /a/b.toml.\n"));
    }

    #[test]
    fn what_a_provider_can_do_is_listed() {
        let can = Capabilities::NONE.with_persona().with_output_schema().with_prompt(PromptKind::Image);
        assert_eq!(capabilities(can), ["outputSchema", "persona"]);
        assert_eq!(prompts(can), ["text", "image"]);
    }
}
