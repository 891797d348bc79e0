//! `subagents providers`: what is configured here, and whether it can work.

use crate::cli::output::{line, millis, one_line};
use serde::Serialize;
use std::{
    fmt::Write as _,
    io::{self, ErrorKind, Write as _},
    path::Path,
    time::Duration,
};
use subagents::{
    Capabilities, Capability, Deadlines, PromptKind, ProviderFailure,
    config::{Config, FILE_NAME, ProviderConfig},
};

/// Stdout was closed: what a shell says of a program that SIGPIPE ended.
const EXIT_CLOSED: u8 = 141;
const EXIT_FAILED: u8 = 1;

/// How to begin.
const BEGIN: &str = "\
[providers.wc]
kind = \"exec\"
command = [\"wc\", \"-w\"]
max_concurrent = 4
";

/// Prints what there is; gives the exit code.
///
/// # Errors
/// What makes it impossible to look.
pub(crate) fn tell(config: &Config, json: bool) -> Result<u8, String> {
    let here = std::env::current_dir()
        .map_err(|error| format!("the working directory cannot be used: {error}; go to another"))?;
    let text = match (config.providers(), json) {
        ([], false) => none(config),
        ([], true) => {
            let _ = write!(io::stderr(), "{}", none(config));
            String::new()
        }
        (providers, json) => {
            let known = providers.iter().map(|provider| Known::new(config, provider, &here));
            let told: Vec<_> = known.map(|known| if json { known.json() } else { known.text() }).collect();
            if json { told.concat() } else { format!("{}\n\n{}", source(config), told.join("\n")) }
        }
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
    /// The file of the program, or why it cannot be run.
    check: Result<String, ProviderFailure>,
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
        Self {
            config,
            provider,
            default: config.select(None).is_ok_and(|default| default.name() == provider.name()),
            check: provider.check(here).map(|program| program.to_string_lossy().into_owned()),
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
        match &self.check {
            Ok(program) => fact("program", program),
            Err(error) => {
                fact("program", provider.command().first().map_or("", String::as_str));
                fact("fails", &format!("{}: {error}", error.code().as_str()));
            }
        }
        let can: Vec<_> = self.prompts.iter().map(|kind| format!("prompts of {kind}")).collect();
        let more = self.capabilities.iter().map(|name| (*name).to_owned());
        fact("can", &can.into_iter().chain(more).collect::<Vec<_>>().join(", "));
        fact("cwd", &provider.cwd().map(|cwd| cwd.to_string_lossy()).unwrap_or_default());
        fact("limits", &self.limits());
        fact("sets", &provider.env_names().collect::<Vec<_>>().join(", "));
        let passed = provider.pass_env().iter().map(|name| match std::env::var_os(name) {
            Some(_) => name.clone(),
            None => format!("{name} (not set here)"),
        });
        fact("passes", &passed.collect::<Vec<_>>().join(", "));
        text
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
        let failure = self.check.as_ref().err();
        line(&ProviderLine {
            r#type: "provider",
            name: provider.name(),
            kind: provider.kind().as_str(),
            default: self.default,
            description: provider.description(),
            works: failure.is_none(),
            program: self.check.as_deref().ok(),
            code: failure.map(|failure| failure.code().as_str()),
            message: failure.map(ToString::to_string),
            capabilities: &self.capabilities,
            prompts: &self.prompts,
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
    works: bool,
    program: Option<&'a str>,
    code: Option<&'a str>,
    message: Option<String>,
    capabilities: &'a [&'static str],
    prompts: &'a [&'static str],
    max_concurrent: Option<usize>,
    max_output: Option<usize>,
    max_total_output: Option<usize>,
    allow_empty: bool,
    timeout_ms: Option<u64>,
    idle_timeout_ms: Option<u64>,
    start_timeout_ms: Option<u64>,
    cwd: Option<String>,
    env: Vec<&'a str>,
    pass_env: &'a [String],
    config: Option<String>,
}

fn capabilities(can: Capabilities) -> Vec<&'static str> {
    let all = [Capability::OutputSchema, Capability::DepthLimit, Capability::ToolFilter, Capability::Persona];
    all.into_iter().filter(|capability| can.has(*capability)).map(Capability::as_str).collect()
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
