//! What is checked before a start touches anything, in the fixed order of SPEC 3.1. Pure; it runs in the caller's task.

use crate::providers::Entry;
use subagents_seam::{Capability, ContentBlock, PromptKind, StartError, StartRequest, schema};

/// Capabilities, agent options, the domain of the depth, the schema, the prompt. Returns the requested cap.
pub(crate) fn check(entry: &Entry, request: &StartRequest) -> Result<Option<u32>, StartError> {
    for capability in
        [Capability::OutputSchema, Capability::DepthLimit, Capability::ToolFilter, Capability::Persona]
    {
        if request.needs(capability) && !entry.capabilities.has(capability) {
            return Err(StartError::unsupported(&entry.name, capability));
        }
    }
    let missing = request
        .get_agent_options()
        .and_then(|options| options.set().find(|option| !entry.capabilities.honours(*option)));
    if let Some(option) = missing {
        return Err(StartError::UnsupportedCapability {
            provider: entry.name.clone(),
            feature: option.as_str(),
        });
    }
    let cap = request.get_max_depth().map(|depth| depth.get()).transpose();
    let cap = cap.map_err(|given| StartError::InvalidDepth { given: given.into() })?;
    if let Some(schema) = request.get_output_schema() {
        schema::check(schema).map_err(StartError::UnsupportedSchema)?;
    }
    check_prompt(entry, request)?;
    Ok(cap)
}

fn check_prompt(entry: &Entry, request: &StartRequest) -> Result<(), StartError> {
    let unsupported = |kind| StartError::UnsupportedPrompt { provider: entry.name.clone(), kind };
    if request.get_prompt().is_blank() {
        return Err(unsupported("blank"));
    }
    for block in request.get_prompt().blocks() {
        let kind = match block {
            ContentBlock::Text { .. } => continue,
            ContentBlock::Image { .. } => PromptKind::Image,
            ContentBlock::Link { .. } => PromptKind::Link,
            _ => return Err(unsupported("unknown")),
        };
        if !entry.capabilities.takes(kind) {
            return Err(unsupported(kind.as_str()));
        }
    }
    Ok(())
}
