//! The tools that are here now, and why the others are not.

use std::collections::HashSet;
use std::sync::Arc;

use subagents_runtime::{EventStream, SubagentService, WeakService};
use subagents_seam::{AgentId, AgentOption, Capabilities, DynTool, Event, Name, ToolDefinition};

use crate::answers::Answers;
use crate::error::ToolboxError;
use crate::output::{OUTPUT_TOOL, OutputTool};
use crate::subagent::{Mounted, SubagentTool};
use crate::wording;

/// What a provider can do that is not here.
const ANYTHING: Capabilities = Capabilities::NONE
    .with_output_schema()
    .with_depth_limit()
    .with_tool_filter()
    .with_persona()
    .with_agent_option(AgentOption::Provider)
    .with_agent_option(AgentOption::Model)
    .with_agent_option(AgentOption::Effort)
    .with_agent_option(AgentOption::MaxTokens);

/// The tools of one service, for any number of callers. Clone shares it; it does not keep the service.
#[derive(Clone, Debug)]
pub struct Toolbox(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    service: WeakService,
    tools: Vec<Arc<SubagentTool>>,
    answers: Arc<Answers>,
}

impl Toolbox {
    /// These tools, in this order. A provider that is not registered yet is no fault: its tool is here as soon as it is
    /// (SPEC 2.4).
    ///
    /// # Errors
    /// Two tools of one name, or one that its provider cannot be the provider of.
    pub fn new(
        service: &SubagentService,
        tools: impl IntoIterator<Item = SubagentTool>,
    ) -> Result<Self, ToolboxError> {
        let tools: Vec<_> = tools.into_iter().map(Arc::new).collect();
        let mut names = HashSet::from([OUTPUT_TOOL]);
        if let Some(twice) = tools.iter().find(|tool| !names.insert(tool.name())) {
            return Err(ToolboxError::DuplicateTool(twice.name().clone()));
        }
        for tool in &tools {
            let can = service.capabilities(tool.provider());
            // Of one that is not here everything else is checked.
            tool.check(can.unwrap_or(ANYTHING))?;
        }
        Ok(Self(Arc::new(Parts { service: service.downgrade(), tools, answers: Arc::default() })))
    }

    /// What a model is told of each tool that is here now.
    pub fn tools(&self) -> Vec<ToolDefinition> {
        self.here().map(|tool| tool.definition()).collect()
    }

    /// The tool of this name, if it is here now.
    pub fn tool(&self, name: &str) -> Option<DynTool> {
        if name == OUTPUT_TOOL {
            return Some(self.output());
        }
        self.0.tools.iter().find(|tool| *tool.name() == name).and_then(|tool| self.mount(tool).ok())
    }

    /// Each tool that is not here, and why.
    pub fn absent(&self) -> Vec<(Name, ToolboxError)> {
        let tools = self.0.tools.iter();
        tools.filter_map(|tool| Some((tool.name().clone(), self.mount(tool).err()?))).collect()
    }

    /// What a host may tell its model: when to delegate, and how; or why there is nothing to delegate to.
    pub fn instructions(&self) -> String {
        if self.0.tools.iter().any(|tool| self.mount(tool).is_ok()) {
            return wording::INSTRUCTIONS.to_owned();
        }
        let absent = self.absent().into_iter().map(|(_, why)| format!("\n- {why}"));
        let absent: String = absent.collect();
        let why = if absent.is_empty() { " no tool is configured, and no provider is here" } else { &absent };
        format!("{}{why}", wording::NO_TOOLS)
    }

    /// Tells when to look again. Made before [`tools`](Self::tools) is called, nothing is missed (SPEC 2.4). None where the
    /// service is gone.
    pub fn changes(&self) -> Option<ToolboxChanges> {
        self.0.service.upgrade().map(|service| ToolboxChanges(service.events()))
    }

    /// Drops what was kept for a caller that is gone: the long answers that it might have read on in.
    pub fn forget(&self, caller: AgentId) {
        self.0.answers.forget(caller);
    }

    fn here(&self) -> impl Iterator<Item = DynTool> {
        let tools: Vec<_> = self.0.tools.iter().filter_map(|tool| self.mount(tool).ok()).collect();
        let output = (!tools.is_empty()).then(|| self.output());
        tools.into_iter().chain(output)
    }

    fn output(&self) -> DynTool {
        OutputTool { answers: self.0.answers.clone() }.into()
    }

    fn mount(&self, tool: &Arc<SubagentTool>) -> Result<DynTool, ToolboxError> {
        let service = &self.0.service;
        let provider = service.upgrade().and_then(|service| service.provider(tool.provider()));
        let provider = provider.ok_or_else(|| ToolboxError::NoProvider {
            tool: tool.name().clone(),
            provider: tool.provider().clone(),
        })?;
        let can = provider.capabilities();
        tool.check(can)?;
        let mounted = Mounted {
            tool: tool.clone(),
            inherits: provider.inherits_parent_context(),
            can,
            service: service.clone(),
            answers: self.0.answers.clone(),
        };
        Ok(mounted.into())
    }
}

/// Tells when the tools that are here may have changed.
#[derive(Debug)]
pub struct ToolboxChanges(EventStream);

impl ToolboxChanges {
    /// Waits for a provider to come or to go; none once the service has ended. Cancel-safe.
    pub async fn next(&mut self) -> Option<()> {
        loop {
            match self.0.next().await? {
                // What was lost may have been one.
                Ok(Event::ProviderAdded { .. } | Event::ProviderRemoved { .. }) | Err(_) => return Some(()),
                Ok(_) => {}
            }
        }
    }
}
