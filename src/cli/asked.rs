//! What is asked of each child beside its prompt: a schema, a persona, a depth, a model.

use crate::cli::{args::RunArgs, output::one_line, plan::UsageError};
use serde_json::Value;
use std::{fs::File, io::Read, path::Path, sync::Arc};
use subagents::{
    AgentOption, AgentOptions, Capabilities, Capability, FailureCode, Name, StartError, StartRequest,
    acp::KnownAgent, config::FILE_NAME, schema,
};

/// The longest schema or persona that is read: what is longer is most likely another file.
const LONGEST: usize = 1024 * 1024;

/// What is asked of each child beside its prompt.
#[derive(Clone, Default)]
pub(crate) struct Asked {
    schema: Option<Arc<Value>>,
    persona: Option<Arc<str>>,
    max_depth: Option<u32>,
    model: Option<Arc<str>>,
}

impl Asked {
    /// Reads the files that are named.
    pub(crate) fn read(args: &RunArgs) -> Result<Self, UsageError> {
        Ok(Self {
            schema: args.schema.as_deref().map(read_schema).transpose()?.map(Into::into),
            persona: args.persona.as_deref().map(read_persona).transpose()?,
            max_depth: args.max_depth,
            model: args.model.as_deref().map(Into::into),
        })
    }

    /// The request with all of it.
    pub(crate) fn of(&self, mut request: StartRequest) -> StartRequest {
        if let Some(schema) = &self.schema {
            request = request.output_schema(schema.clone());
        }
        if let Some(persona) = &self.persona {
            request = request.persona(persona.clone());
        }
        if let Some(depth) = self.max_depth {
            request = request.max_depth(depth);
        }
        if let Some(model) = &self.model {
            request = request.agent_options(AgentOptions::new().model(model.clone()));
        }
        request
    }
}

/// What would help where a start failed, of what the program has options or knows agents for.
pub(crate) fn advice(error: &StartError, provider: &Name, here: &[(Name, Capabilities)]) -> Option<String> {
    match error {
        StartError::UnsupportedCapability { feature, .. } => unable(feature, here),
        StartError::ProviderFailed(failure) => {
            let agent = KnownAgent::named(provider)?;
            match failure.code() {
                FailureCode::NotOnPath => Some(format!("to get it: {}", agent.install)),
                FailureCode::AuthRequired => {
                    Some("or name another with -p; `subagents providers` tells which work".to_owned())
                }
                FailureCode::ProviderFailed | _ => None,
            }
        }
        StartError::Draining | _ => None,
    }
}

/// Who can do what an option asks for, and what would make others do it.
fn unable(feature: &str, here: &[(Name, Capabilities)]) -> Option<String> {
    type Can = fn(&Capabilities) -> bool;
    let options: [(&str, &str, Can, &str); 4] = [
        ("--schema", Capability::OutputSchema.as_str(), |can| can.has(Capability::OutputSchema), ""),
        (
            "--max-depth",
            Capability::DepthLimit.as_str(),
            |can| can.has(Capability::DepthLimit),
            "depth_limit",
        ),
        ("--persona", Capability::Persona.as_str(), |can| can.has(Capability::Persona), "persona"),
        ("--model", AgentOption::Model.as_str(), |can| can.honours(AgentOption::Model), ""),
    ];
    let (option, _, can, key) = options.into_iter().find(|(_, name, ..)| *name == feature)?;
    let able: Vec<_> =
        here.iter().filter(|(_, capabilities)| can(capabilities)).map(|(name, _)| &**name).collect();
    let which = match &*able {
        [] => "no provider here can; `subagents providers` tells what each can do".to_owned(),
        able => format!("here `{}` can: name it with -p", able.join("`, `")),
    };
    let set = if key.is_empty() {
        String::new()
    } else {
        format!("; one of kind acp can with `{key} = true` in its table of {FILE_NAME}")
    };
    Some(format!("{option}: {which}{set}"))
}

fn read_schema(path: &Path) -> Result<Value, UsageError> {
    let text = read("schema", path)?;
    let name = shown(path);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let schema: Value = serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let why = error.to_string();
        let why = why.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&why);
        UsageError(format!(
            "{name}:{line}:{column}: the schema is no JSON: {why}; correct it, to something like \
             {{\"type\": \"object\", \"properties\": {{\"n\": {{\"type\": \"integer\"}}}}, \"required\": [\"n\"]}}"
        ))
    })?;
    schema::check(&schema).map_err(|error| {
        let all: Vec<_> = error.violations.iter().map(|violation| one_line(&violation.to_string())).collect();
        let all = all.join("\n  ");
        UsageError(format!(
            "{name}: the schema is outside the supported subset of JSON Schema; correct each of these places:\n  {all}"
        ))
    })?;
    Ok(schema)
}

/// The text itself, or the file after an `@`, unchanged.
fn read_persona(given: &str) -> Result<Arc<str>, UsageError> {
    match given.strip_prefix('@') {
        None => Ok(given.into()),
        Some("") => Err(UsageError(
            "--persona: after `@` there is the name of a file; a text that begins with `@` can be put into one".to_owned(),
        )),
        Some(path) => read("persona", Path::new(path)).map(Into::into),
    }
}

fn read(what: &str, path: &Path) -> Result<String, UsageError> {
    let name = shown(path);
    if path.as_os_str() == "-" {
        return Err(UsageError(format!(
            "the {what} is not read from stdin, where prompts come from; name a file, which may be /dev/stdin or `./-`"
        )));
    }
    let failed = |why: String| UsageError(format!("cannot read the {what} in {name}: {why}"));
    let file = File::open(path).map_err(|error| failed(format!("{error}; name a file that is there")))?;
    let mut bytes = Vec::new();
    let read = file.take(LONGEST as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| failed(format!("{error}; name a file")))?;
    if bytes.len() > LONGEST {
        return Err(failed(format!("it is longer than {} MiB; name a smaller one", LONGEST >> 20)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good =
            String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned();
        let line = good.matches('\n').count() + 1;
        let column = good.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        UsageError(format!(
            "{name}:{line}:{column}: the {what} is not UTF-8; convert it, for example with iconv"
        ))
    })
}

fn shown(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::advice;
    use subagents::{Capabilities, Capability, FailureCode, ProviderFailure, StartError};

    #[test]
    fn a_provider_that_can_is_named() {
        let refused = |capability| StartError::unsupported(&"exec".into(), capability);
        let able =
            [("wc".into(), Capabilities::NONE), ("agent".into(), Capabilities::NONE.with_output_schema())];
        let advice = |error: &StartError| advice(error, &"exec".into(), &able);
        assert_eq!(
            advice(&refused(Capability::OutputSchema)).expect("some"),
            "--schema: here `agent` can: name it with -p"
        );
        for (capability, option, key) in [
            (Capability::Persona, "--persona", "`persona = true`"),
            (Capability::DepthLimit, "--max-depth", "`depth_limit = true`"),
        ] {
            let none = advice(&refused(capability)).expect("some");
            assert!(
                none.starts_with(&format!("{option}: no provider here can; `subagents providers`")),
                "{none}"
            );
            assert!(none.contains(key), "{none}");
        }
        assert_eq!(advice(&StartError::Draining), None);
    }

    #[test]
    fn a_known_agent_that_is_not_here_is_told_with_how_to_get_it() {
        let absent = StartError::from(ProviderFailure::new(FailureCode::NotOnPath, "gemini is not on PATH"));
        let told = advice(&absent, &"gemini".into(), &[]).expect("some");
        assert_eq!(told, "to get it: npm install -g @google/gemini-cli");
        assert_eq!(advice(&absent, &"mine".into(), &[]), None);
    }
}
