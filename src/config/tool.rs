//! One tool for models, as it is configured.

use super::{
    Config,
    document::{Entry, Item, Value as Toml},
    error::{ConfigFaultKind, ConfigPlace, Faults},
    provider,
    section::{self, Section, Wrong},
};
use serde_json::{Map, Value};
use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};
use subagents_seam::{AgentOptions, Deadlines, Name, ToolFilter, sanitised};
use subagents_tool::{OUTPUT_TOOL, SubagentTool, ToolDepth, ToolboxError};

/// A file that is longer is most likely no schema.
const LONGEST_SCHEMA: u64 = 1024 * 1024;

/// A table below `[tools]`, and where it stands.
pub(super) struct ToolConfig {
    at: ConfigPlace,
    path: String,
    tool: SubagentTool,
    deadlines: Deadlines,
}

impl ToolConfig {
    /// Reads one table below `[tools]`. Relative paths are relative to `directory`.
    pub(super) fn read(
        path: String,
        entry: Entry,
        directory: Option<&Path>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let at = entry.at.clone();
        let name = entry.key;
        let mut table = Section::open(path.clone(), entry.at, entry.item, faults)?;
        let provider = table.need("provider", "provider = \"some-agent\"", faults, section::text);
        let mut tool = SubagentTool::new(name, provider.clone().unwrap_or_default());
        if let Some(description) = table.get("description", faults, section::text) {
            tool = tool.description(description);
        }
        if let Some(depth) = table.get("max_depth", faults, depth) {
            tool = tool.max_depth(depth);
        }
        if let Some(persona) = table.get("persona", faults, section::text) {
            tool = tool.persona(persona);
        }
        let mut options = AgentOptions::new();
        options.model = table.get("model", faults, section::text).map(Into::into);
        tool = tool.agent_options(options);
        if let Some(schema) = table.get("schema", faults, |item| schema(item, directory)) {
            tool = tool.output_schema(schema);
        }
        if let Some(bytes) = table.get("max_answer", faults, section::size) {
            tool = tool.answer_bytes(bytes);
        }
        if let Some(read_only) = table.get("read_only", faults, section::boolean) {
            tool = tool.read_only(read_only);
        }
        let (allow, deny) = (table.get("allow", faults, names), table.get("deny", faults, names));
        if allow.is_some() || deny.is_some() {
            let mut filter = ToolFilter::default();
            (filter.allow, filter.deny) = (allow, deny);
            tool = tool.tool_filter(filter);
        }
        let deadlines = provider::deadlines(&mut table, faults);
        table.close(faults);
        // Without a provider nothing more can be said of it.
        provider.map(|_| Self { at, path, tool, deadlines })
    }

    /// The tool, with the deadlines of its provider where it has none of its own, and what is wrong with it.
    pub(super) fn judge(self, config: &Config, faults: &mut Faults) -> Option<SubagentTool> {
        let Self { at, path, tool, deadlines } = self;
        let Some(provider) = config.provider(tool.provider()) else {
            let why = format!("`{path}.provider`: {}", config.unknown(tool.provider()));
            faults.push(ConfigFaultKind::UnknownProvider, &at, why);
            return None;
        };
        let mut wrong =
            |why: String| faults.push(ConfigFaultKind::InvalidValue, &at, format!("`{path}`: {why}"));
        if *tool.name() == OUTPUT_TOOL {
            wrong(format!("`{OUTPUT_TOOL}` is the tool that reads long answers; choose another name"));
            return None;
        }
        match tool.check(provider.capabilities()) {
            Ok(()) => Some(tool.deadlines(over(deadlines, provider.deadlines()))),
            Err(error) => {
                wrong(advised(&error));
                None
            }
        }
    }
}

/// What is wrong, and which key of the provider's would make it right.
fn advised(error: &ToolboxError) -> String {
    let key = match error {
        ToolboxError::Unsupported { feature: "depthLimit", .. } => "depth_limit",
        ToolboxError::Unsupported { feature: "persona", .. } => "persona",
        ToolboxError::InvalidName(_) | _ => return error.to_string(),
    };
    format!("{error}; one of kind acp can with `{key} = true` in its table")
}

/// Deadlines over others.
fn over(mut own: Deadlines, below: &Deadlines) -> Deadlines {
    own.total = own.total.or(below.total);
    own.idle = own.idle.or(below.idle);
    own.start = own.start.or(below.start);
    own
}

fn depth(item: &Item) -> Result<ToolDepth, Wrong> {
    let wrong = || item.wrong("give a whole number from 0 on, or \"provider-managed\"");
    match &item.value {
        Toml::Integer(depth) => u32::try_from(*depth).map(ToolDepth::AtMost).map_err(|_| wrong()),
        _ if item.is_text() && section::text(item)? == "provider-managed" => Ok(ToolDepth::ProviderManaged),
        Toml::Text(_) | Toml::Float | Toml::Boolean(_) | Toml::Datetime | Toml::Array(_) | Toml::Table(_) => {
            Err(wrong())
        }
    }
}

fn names(item: &Item) -> Result<Vec<String>, Wrong> {
    section::texts(item)?
        .into_iter()
        .map(
            |(item, name)| {
                if name.trim().is_empty() { Err(item.wrong("it is empty; name a tool")) } else { Ok(name) }
            },
        )
        .collect()
}

/// The schema itself, or the name of a file with it.
fn schema(item: &Item, directory: Option<&Path>) -> Result<Arc<Value>, Wrong> {
    if let Toml::Table(_) = item.value {
        return json(item).map(Into::into);
    }
    let path = provider::absolute(item, directory)?;
    let shown = || sanitised(&path.to_string_lossy());
    let text = read(&path).map_err(|why| item.wrong(format!("cannot read {}: {why}", shown())))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let schema: Value = serde_json::from_str(text)
        .map_err(|error| item.wrong(format!("{}: it is no JSON: {error}", shown())))?;
    Ok(schema.into())
}

fn read(path: &PathBuf) -> Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(LONGEST_SCHEMA + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LONGEST_SCHEMA {
        return Err("it is longer than 1 MiB; name a smaller one".to_owned());
    }
    Ok(text)
}

/// A value of TOML as one of JSON.
fn json(item: &Item) -> Result<Value, Wrong> {
    Ok(match &item.value {
        Toml::Text(text) => Value::from(text.as_str()),
        Toml::Boolean(boolean) => Value::from(*boolean),
        Toml::Integer(number) => {
            Value::from(i64::try_from(*number).map_err(|_| item.wrong("this number is too large"))?)
        }
        Toml::Array(items) => Value::Array(items.iter().map(json).collect::<Result<_, _>>()?),
        Toml::Table(entries) => {
            let entries = entries.iter().map(|entry| Ok((entry.key.clone(), json(&entry.item)?)));
            Value::Object(entries.collect::<Result<Map<_, _>, Wrong>>()?)
        }
        Toml::Float | Toml::Datetime => {
            return Err(item.expected("a string, a whole number, true, false, an array or a table"));
        }
    })
}

/// The name of the tool of a provider that has none of its own: a name that every host takes.
pub(super) fn name_of(provider: &Name, is_taken: &dyn Fn(&Name) -> bool) -> Name {
    let names = (1_u32..).map(|n| numbered(provider, n));
    names.into_iter().find(|name| !is_taken(name)).unwrap_or_default()
}

fn numbered(provider: &str, n: u32) -> Name {
    let number = if n > 1 { format!("_{n}") } else { String::new() };
    // A name of a provider has nothing else that a tool's may not have.
    let name = format!("subagent_{}", provider.replace('.', "_"));
    let name: String = name.chars().take(64 - number.len()).collect();
    format!("{name}{number}").into()
}
