//! `subagents.toml`: which providers there are, and the defaults. Behind the feature `config`.
//!
//! ```
//! use subagents::config::Config;
//!
//! let text = r#"
//! default_provider = "wc"
//!
//! [defaults]
//! timeout = "5m"                    # also idle_timeout, start_timeout, jobs
//!
//! [providers.wc]
//! kind = "exec"
//! command = ["wc", "-w"]            # directly, never through a shell; `{}` in an argument is the prompt
//! description = "counts words"
//! pass_env = ["WC_API_KEY"]         # a name that looks like a secret reaches a child only when listed here or in env
//! env = { NO_COLOR = "1" }
//! max_concurrent = 8
//! max_output = "1MiB"               # also max_total_output, cwd, allow_empty, and the three timeouts
//! "#;
//! let config = Config::parse("subagents.toml", text)?;
//! assert_eq!(config.select(None)?.name(), "wc");
//! assert_eq!(config.providers()[0].limit(), Some(8));
//!
//! // Whatever is not known is refused, with its place and what would be right.
//! let error = Config::parse("subagents.toml", &text.replace("pass_env", "pas_env")).unwrap_err();
//! assert_eq!(error.code(), "CONFIG_UNKNOWN_KEY");
//! assert_eq!(
//!     error.to_string(),
//!     "subagents.toml:11:1: unknown key `providers.wc.pas_env`; did you mean `pass_env`?"
//! );
//! # Ok::<(), subagents::config::ConfigError>(())
//! ```
//!
//! An agent that speaks the Agent Client Protocol is of the kind `acp`:
//!
//! ```
//! # use subagents::config::Config;
//! let text = r#"
//! [providers.gemini]                # an agent that is known by its name needs no command
//! kind = "acp"
//! permission = "allow"              # or "reject", the default
//! mode = "plan"                     # also model, auth_method, persona, depth_limit, schema_attempts
//!
//! [providers.gemini.mcp_servers.files]
//! command = ["/usr/local/bin/files-mcp", "/srv/repo"]     # or a url, with headers
//! "#;
//! let config = Config::parse("subagents.toml", text)?;
//! assert_eq!(config.select(None)?.command(), ["gemini", "--acp"]);
//! # Ok::<(), subagents::config::ConfigError>(())
//! ```
//!
//! A host takes all of it in one call:
//!
//! ```no_run
//! use subagents::{StartRequest, SubagentService, config::{Config, Lookup}};
//!
//! # async fn host() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::load(&Lookup::here())?;
//! let service = config.register(SubagentService::builder()).build()?;
//! let root = service.root("/srv/repo")?;
//!
//! let provider = config.select(None)?;
//! let request = StartRequest::new(&root, "Review the diff").deadlines(provider.deadlines().clone());
//! let answer = service.delegate(provider.name(), request).await?;
//! # let _ = answer;
//! # Ok(())
//! # }
//! ```
//!
//! # The environment
//!
//! `SUBAGENTS__SECTION__KEY=value` overrides a key, and needs no file: `SUBAGENTS__DEFAULTS__TIMEOUT=5m`,
//! `SUBAGENTS__PROVIDERS__WC__COMMAND='["wc", "-w"]'`. The segments are read in small letters, but for the name of a
//! child's variable, as in `SUBAGENTS__PROVIDERS__WC__ENV__NO_COLOR=1`. A value is read as TOML where it is TOML of the
//! right type, and is a string otherwise. `_` stands for `-` and `.` in the name of a provider of the file.
//! None of these variables reaches a child.

mod document;
mod duration;
mod error;
mod find;
mod provider;
mod section;
mod size;
mod tool;

pub use duration::parse_duration;
pub use error::{ConfigError, ConfigFault, ConfigFaultKind, ConfigPlace};
pub use find::{FILE_NAME, Lookup};
pub use provider::{Policy, ProviderConfig, ProviderKind};

use document::{Item, Value};
use error::Faults;
use section::{Section, Wrong, quoted};
use std::{
    ffi::OsString,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};
use subagents_acp::{KNOWN_AGENTS, KnownAgent};
use subagents_runtime::ServiceBuilder;
use subagents_seam::{Deadlines, Name, bounded, sanitised};
use subagents_tool::SubagentTool;
use tool::ToolConfig;

/// As many prompts may be under way at once.
const MOST_JOBS: usize = 65_535;

/// A configuration that is right: see the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Config {
    file: Option<Arc<Path>>,
    default_provider: Option<Name>,
    deadlines: Deadlines,
    jobs: Option<NonZeroUsize>,
    ledger: LedgerConfig,
    providers: Vec<ProviderConfig>,
    tools: Vec<SubagentTool>,
}

/// Whether, and where, the program keeps a [ledger](crate::process::Ledger) of the processes that it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LedgerConfig {
    /// Nothing is said: in the user's folder for state, where that is possible.
    #[default]
    Default,
    /// In the user's folder for state: `ledger = true`.
    On,
    /// None: `ledger = false`.
    Off,
    /// In this folder, absolute: `ledger = "DIR"`.
    Folder(PathBuf),
}

impl LedgerConfig {
    fn read(item: &Item, directory: Option<&Path>) -> Result<Self, Wrong> {
        if let Value::Boolean(kept) = item.value {
            return Ok(if kept { Self::On } else { Self::Off });
        }
        if !item.is_text() {
            return Err(item.expected("true, false or a folder in quotes"));
        }
        // A word is more likely a misspelt true or false.
        if section::text(item)?.contains('/') {
            return provider::absolute(item, directory).map(Self::Folder);
        }
        Err(item.wrong(
            "give a folder as a path with a slash in it, like \"./ledger\", or true or false without quotes",
        ))
    }
}

impl Config {
    /// Reads the text of a file; `file` is its name in messages. No variable overrides it, and a relative `cwd` in it is
    /// refused, since nothing says where it begins.
    ///
    /// # Errors
    /// Everything that is wrong in it.
    pub fn parse(file: impl AsRef<Path>, text: &str) -> Result<Self, ConfigError> {
        Self::from_parts(Some((file.as_ref(), text)), None, [])
    }

    /// Reads the text of a file, with these variables over it. Relative paths begin at `directory`.
    fn from_parts(
        file: Option<(&Path, &str)>,
        directory: Option<&Path>,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut root = match file {
            Some((file, text)) => document::read(file, text)?,
            None => document::empty(),
        };
        let mut faults = Faults::default();
        document::overridden(&mut root, variables, &mut faults);

        let mut config = Self { file: file.map(|(file, _)| file.into()), ..Self::default() };
        if let Some(mut table) = Section::open(String::new(), root.at.clone(), root, &mut faults) {
            let default = table
                .get("default_provider", &mut faults, |item| Ok((item.at.clone(), section::text(item)?)));
            if let Some(mut defaults) = table.section("defaults", &mut faults) {
                config.deadlines = provider::deadlines(&mut defaults, &mut faults);
                config.jobs = defaults.get("jobs", &mut faults, section::count(MOST_JOBS));
                defaults.close(&mut faults);
            }
            let ledger = table.get("ledger", &mut faults, |item| LedgerConfig::read(item, directory));
            config.ledger = ledger.unwrap_or_default();
            let providers = table.section("providers", &mut faults);
            for (path, entry) in providers.into_iter().flat_map(Section::into_named) {
                config.providers.extend(ProviderConfig::read(path, entry, directory, &mut faults));
            }
            let tools = table.section("tools", &mut faults);
            let tools = tools.into_iter().flat_map(Section::into_named);
            let tools: Vec<_> = tools
                .filter_map(|(path, entry)| ToolConfig::read(path, entry, directory, &mut faults))
                .collect();
            table.close(&mut faults);
            if let Some((at, name)) = default {
                if let (None, Some(agent)) = (config.provider(&name), KnownAgent::named(&name)) {
                    config.providers.push(ProviderConfig::of_known(agent));
                }
                if config.provider(&name).is_none() {
                    let why = format!("`default_provider`: {}", config.unknown(&name));
                    faults.push(ConfigFaultKind::InvalidValue, &at, why);
                }
                config.default_provider = Some(name.into());
            }
            config.bound();
            // An agent that is known may be a tool's provider without a table of its own.
            let known = config.clone().with_known_agents();
            for tool in tools {
                config.tools.extend(tool.judge(&known, &mut faults));
            }
            for agent in config.tools.iter().filter_map(|tool| KnownAgent::named(tool.provider())) {
                if config.provider(agent.name).is_none() {
                    config.providers.push(ProviderConfig::of_known(agent));
                }
            }
        }
        faults.into_result()?;
        config.bound();
        Ok(config)
    }

    fn bound(&mut self) {
        let Self { deadlines, providers, .. } = self;
        for provider in providers {
            provider.bound(deadlines);
        }
    }

    /// Adds the agents that are known by name and not configured, so that they can be selected, registered and listed;
    /// whether one is here, [`ProviderConfig::check`] says.
    #[must_use]
    pub fn with_known_agents(mut self) -> Self {
        for agent in KNOWN_AGENTS {
            if self.provider(agent.name).is_none() {
                self.providers.push(ProviderConfig::of_known(agent));
            }
        }
        self.bound();
        self
    }

    /// The file that was read, as it was named.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether, and where, the program keeps a ledger. A host that embeds this decides by itself.
    pub fn ledger(&self) -> &LedgerConfig {
        &self.ledger
    }

    /// The providers, in the order of the file; known agents come last.
    pub fn providers(&self) -> &[ProviderConfig] {
        &self.providers
    }

    /// The provider of this name.
    pub fn provider(&self, name: &str) -> Option<&ProviderConfig> {
        self.providers.iter().find(|provider| provider.name() == name)
    }

    /// The provider that is meant where none is named.
    pub fn default_provider(&self) -> Option<&ProviderConfig> {
        self.provider(self.default_provider.as_ref()?)
    }

    /// The tools for models, in the order of the file: those of `[tools]`, or without any one for each provider that could work
    /// for a delegation in `cwd`, named `subagent_PROVIDER`. It looks a few files up and starts nothing.
    pub fn tools(&self, cwd: &Path) -> Vec<SubagentTool> {
        if !self.tools.is_empty() {
            return self.tools.clone();
        }
        Self::tools_of(self.providers.iter().filter(|provider| provider.check(cwd).is_ok()))
    }

    /// A tool for each of these providers, named `subagent_PROVIDER`; where two would have one name, the second has a number.
    pub fn tools_of<'a>(providers: impl IntoIterator<Item = &'a ProviderConfig>) -> Vec<SubagentTool> {
        let mut tools: Vec<SubagentTool> = Vec::new();
        for provider in providers {
            // `a.b` and `a_b` are two providers.
            let is_taken = |name: &Name| tools.iter().any(|tool| tool.name() == name);
            let name = tool::name_of(provider.name(), &is_taken);
            tools.push(provider.tool(name));
        }
        tools
    }

    /// The deadlines of `[defaults]`.
    pub fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// How many prompts are to be under way at once, by `[defaults]`.
    pub fn jobs(&self) -> Option<usize> {
        self.jobs.map(NonZeroUsize::get)
    }

    /// The provider of this name, or where none is given the default one, or else the only one.
    ///
    /// # Errors
    /// `CONFIG_UNKNOWN_PROVIDER` with the nearest name and all there are; `CONFIG_NO_PROVIDER` where none was named and
    /// there is none, or more than one and no default.
    pub fn select(&self, name: Option<&str>) -> Result<&ProviderConfig, ConfigError> {
        let place = || self.file.clone().map_or(ConfigPlace::Whole, ConfigPlace::File);
        if let Some(name) = name {
            return self.provider(name).ok_or_else(|| {
                ConfigError::new(ConfigFaultKind::UnknownProvider, place(), self.unknown(name))
            });
        }
        let mut configured = self.configured();
        let only = configured.next().filter(|_| configured.next().is_none());
        self.default_provider().or(only).ok_or_else(|| {
            let why = if self.configured().next().is_none() {
                none()
            } else {
                let names: Vec<_> = self.configured().map(ProviderConfig::name).collect();
                format!(
                    "no provider was named, and there is no default; name one of {}, or set `default_provider`",
                    quoted(&names)
                )
            };
            ConfigError::new(ConfigFaultKind::NoProvider, place(), why)
        })
    }

    /// Registers every provider, with its limit. The deadlines of `[defaults]`, where there are any, become those of the
    /// service; a provider's own go with each request.
    pub fn register(&self, mut builder: ServiceBuilder) -> ServiceBuilder {
        for provider in &self.providers {
            builder = builder.provider(provider.name().as_str(), provider.provider());
            if let Some(limit) = provider.limit() {
                builder = builder.limit(provider.name().as_str(), limit);
            }
        }
        if self.deadlines == Deadlines::new() { builder } else { builder.deadlines(self.deadlines.clone()) }
    }

    /// Those that somebody wrote down.
    pub fn configured(&self) -> impl Iterator<Item = &ProviderConfig> {
        self.providers.iter().filter(|provider| !provider.is_known())
    }

    fn names(&self) -> Vec<&Name> {
        self.providers.iter().map(ProviderConfig::name).collect()
    }

    /// That nobody has this name, and what would help.
    fn unknown(&self, name: &str) -> String {
        let shown = bounded(&sanitised(name).replace(['\n', '\t'], " "), 80);
        let names = self.names();
        // `qwen-code` is more likely `qwen` than something that is spelt like it.
        let family = |name: &str| name.to_lowercase().split(['-', '_', '.']).next().map(str::to_owned);
        let kin: Vec<_> =
            names.iter().filter(|other| name.len() >= 4 && family(other) == family(name)).collect();
        let near = match &*kin {
            [one] => Some(one.as_str()),
            _ => nearest(name, &names),
        };
        let configured: Vec<_> = self.configured().map(ProviderConfig::name).collect();
        let mut told = Vec::new();
        if !configured.is_empty() {
            told.push(format!("configured: {}", quoted(&configured)));
        } else if near.is_none() {
            told.push(none());
        }
        if near.is_none() && names.len() > configured.len() {
            let known = self.providers.iter().filter(|provider| provider.is_known());
            let known: Vec<_> = known.map(ProviderConfig::name).collect();
            told.push(format!("known without configuration: {}", quoted(&known)));
        }
        let joint = if configured.is_empty() && near.is_none() { ":" } else { ";" };
        let near = near.map(|near| format!(" did you mean `{near}`?")).unwrap_or_default();
        let told = if told.is_empty() { String::new() } else { format!(" {}", told.join("; ")) };
        format!("no provider is named `{shown}`{joint}{near}{told}")
    }
}

fn none() -> String {
    format!(
        "no provider is configured; write a table [providers.NAME] with `kind` and `command` into {FILE_NAME}"
    )
}

/// The name that is most likely meant, if one is near enough.
fn nearest<'a>(typed: &str, known: &'a [impl AsRef<str>]) -> Option<&'a str> {
    // Nobody's slip is this long, and the comparison takes the square of it.
    if typed.len() > 100 {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace(['-', '.', ' '], "_");
    let typed = plain(typed);
    let most = (typed.chars().count() / 3).max(1);
    let known = known.iter().map(AsRef::as_ref);
    let distances = known.clone().map(|known| (strsim::osa_distance(&typed, &plain(known)), known));
    let near = distances.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance);
    // A part of the name, or more than it.
    let part = |known: &&str| {
        let (known, least) = (plain(known), 3);
        (typed.len() >= least && known.contains(&typed)) || (known.len() >= least && typed.contains(&known))
    };
    near.map(|(_, known)| known).or_else(|| known.clone().find(part))
}

#[cfg(test)]
mod tests;
