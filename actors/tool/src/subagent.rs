//! The tool `subagent`: one provider under one name.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use subagents_runtime::WeakService;
use subagents_seam::{
    AgentOption, AgentOptions, Capabilities, Capability, Deadlines, Name, RunId, StartRequest, Tool,
    ToolContext, ToolDefinition, ToolError, ToolFilter, ToolOutput, schema,
};

use crate::answers::Answers;
use crate::arguments::Delegation;
use crate::error::ToolboxError;
use crate::frame::Mark;
use crate::outcome::{self, Teller};
use crate::output::OUTPUT_TOOL;
use crate::watch::Watch;
use crate::wording;

/// How deep in the tree a child may stand where nothing else is said and the provider can keep its children to it (SPEC 5.5).
pub const DEFAULT_MAX_DEPTH: u32 = 3;
/// How much of an answer is shown at once where nothing else is said.
pub const DEFAULT_ANSWER_BYTES: usize = 32 * 1024;

/// How deep in the tree a child may stand. It is judged at each call, against the place of the agent that calls (SPEC 5.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolDepth {
    /// At most at [`DEFAULT_MAX_DEPTH`] where the provider has the depth capability, else as [`ProviderManaged`](Self::ProviderManaged).
    #[default]
    Default,
    /// At most so deep, counted from the outermost host; 0 forbids all. A provider without the depth capability refuses it when
    /// the tool is made (SPEC 5.5).
    AtMost(u32),
    /// No cap goes with the request; those of the service and of the runs above hold all the same.
    ProviderManaged,
}

/// How to set up one tool (SPEC 12.1, 12.3): a [`Toolbox`](crate::Toolbox) makes it.
#[derive(Clone, Debug)]
pub struct SubagentTool {
    name: Name,
    provider: Name,
    description: Option<Arc<str>>,
    depth: ToolDepth,
    persona: Option<Arc<str>>,
    options: AgentOptions,
    filter: Option<ToolFilter>,
    schema: Option<Arc<Value>>,
    deadlines: Deadlines,
    answer_bytes: usize,
    read_only: bool,
}

impl SubagentTool {
    /// A tool of this name that delegates to this provider. The name has 1 to 64 bytes of `a-z`, `A-Z`, `0-9`, `_`, `-`.
    pub fn new(name: impl Into<Name>, provider: impl Into<Name>) -> Self {
        Self {
            name: name.into(),
            provider: provider.into(),
            description: None,
            depth: ToolDepth::Default,
            persona: None,
            options: AgentOptions::new(),
            filter: None,
            schema: None,
            deadlines: Deadlines::new(),
            answer_bytes: DEFAULT_ANSWER_BYTES,
            read_only: false,
        }
    }

    /// Who the subagent is, in few words for the model: it stands in the tool's description.
    #[must_use]
    pub fn description(mut self, description: impl Into<Arc<str>>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// How deep in the tree a child may stand.
    #[must_use]
    pub fn max_depth(mut self, depth: ToolDepth) -> Self {
        self.depth = depth;
        self
    }

    /// Who each child is to be.
    #[must_use]
    pub fn persona(mut self, persona: impl Into<Arc<str>>) -> Self {
        self.persona = Some(persona.into());
        self
    }

    /// Options of each child's agent, such as its model.
    #[must_use]
    pub fn agent_options(mut self, options: AgentOptions) -> Self {
        self.options = options;
        self
    }

    /// Restricts the tools of each child. A filter that names none is an error when the tool is made (SPEC 12.3).
    #[must_use]
    pub fn tool_filter(mut self, filter: ToolFilter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Asks each child for a value that matches this schema. It is in the tool's value as `structured`.
    #[must_use]
    pub fn output_schema(mut self, schema: impl Into<Arc<Value>>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// The deadlines of each child; what they leave open, the service's decide.
    #[must_use]
    pub fn deadlines(mut self, deadlines: Deadlines) -> Self {
        self.deadlines = deadlines;
        self
    }

    /// The total deadline of each child, in place of the one of [`deadlines`](Self::deadlines).
    #[must_use]
    pub fn timeout(mut self, total: Duration) -> Self {
        self.deadlines.total = Some(total);
        self
    }

    /// How much of an answer is shown at once, in bytes; the rest is read with `subagent_output`.
    #[must_use]
    pub fn answer_bytes(mut self, bytes: usize) -> Self {
        self.answer_bytes = bytes;
        self
    }

    /// Says that each child only reads, which nobody here sees to: a host then need not ask people before a call, and some run
    /// the calls of one turn side by side only then.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// The name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The provider.
    pub fn provider(&self) -> &Name {
        &self.provider
    }

    /// Whether a provider that can do this can be the tool's, and whether the tool makes sense by itself.
    ///
    /// # Errors
    /// The first thing that is wrong, in the order of SPEC 3.1.
    pub fn check(&self, can: Capabilities) -> Result<(), ToolboxError> {
        let named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if self.name.is_empty() || self.name.len() > 64 || !self.name.bytes().all(named) {
            let shown = subagents_seam::bounded(&subagents_seam::sanitised(&self.name), 80);
            return Err(ToolboxError::InvalidName(shown.into()));
        }
        let names = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|names| !names.is_empty());
        if self.filter.as_ref().is_some_and(|filter| !names(&filter.allow) && !names(&filter.deny)) {
            return Err(ToolboxError::EmptyFilter(self.name.clone()));
        }
        let needed = [
            (Capability::OutputSchema, self.schema.is_some()),
            (Capability::DepthLimit, matches!(self.depth, ToolDepth::AtMost(_))),
            (Capability::ToolFilter, self.filter.is_some()),
            (Capability::Persona, self.persona.is_some()),
        ];
        let missing = needed.into_iter().find(|(capability, needed)| *needed && !can.has(*capability));
        let missing = missing.map(|(capability, _)| capability.as_str());
        let option = || self.options.set().find(|option| !can.honours(*option)).map(AgentOption::as_str);
        if let Some(feature) = missing.or_else(option) {
            let (tool, provider) = (self.name.clone(), self.provider.clone());
            return Err(ToolboxError::Unsupported { tool, provider, feature });
        }
        if let Some(schema) = &self.schema {
            schema::check(schema)
                .map_err(|source| ToolboxError::UnsupportedSchema { tool: self.name.clone(), source })?;
        }
        Ok(())
    }

    fn request(&self, can: Capabilities, cx: &ToolContext, delegation: Delegation) -> StartRequest {
        let mut request = StartRequest::new(cx.caller(), delegation.prompt)
            .label(delegation.description)
            .token(cx.token().clone())
            .deadlines(self.deadlines.clone());
        match self.depth {
            ToolDepth::AtMost(depth) => request = request.max_depth(depth),
            ToolDepth::Default if can.has(Capability::DepthLimit) => {
                request = request.max_depth(DEFAULT_MAX_DEPTH);
            }
            ToolDepth::Default | ToolDepth::ProviderManaged => {}
        }
        if let Some(persona) = &self.persona {
            request = request.persona(persona.clone());
        }
        if let Some(filter) = &self.filter {
            request = request.tool_filter(filter.clone());
        }
        if let Some(schema) = &self.schema {
            request = request.output_schema(schema.clone());
        }
        request.agent_options(self.options.clone())
    }
}

/// A tool whose provider is here.
pub(crate) struct Mounted {
    pub(crate) tool: Arc<SubagentTool>,
    pub(crate) inherits: bool,
    pub(crate) can: Capabilities,
    /// Not the service itself: it may hold the provider that holds this.
    pub(crate) service: WeakService,
    pub(crate) answers: Arc<Answers>,
}

impl Tool for Mounted {
    fn definition(&self) -> ToolDefinition {
        let SubagentTool { name, provider, description, schema, read_only, .. } = &*self.tool;
        let about = wording::description(provider, description.as_deref(), self.inherits);
        let definition = ToolDefinition::new(name, about, Delegation::schema(wording::prompt(self.inherits)))
            .with_title(format!("Delegate to {provider}"))
            .with_output_schema(outcome::schema(schema.as_deref()));
        if *read_only { definition.read_only() } else { definition }
    }

    /// Starts, awaits the result, and always awaits the disposal (SPEC 12.6).
    ///
    /// Dropping the future cancels the delegation; it is disposed in the background.
    async fn call(&self, cx: ToolContext, input: Value) -> Result<ToolOutput, ToolError> {
        let delegation = Delegation::read(input)?;
        let starting = match self.service.upgrade() {
            Some(service) => {
                let request = self.tool.request(self.can, &cx, delegation);
                service.start(&self.tool.provider, request)
            }
            None => return Err(ToolError::new("The host of the subagents is gone; nothing was started.")),
        };
        let run = starting.id();
        let owner = cx.caller().agent_id();
        let keep = |text: &str| self.keep(owner, run, text);
        let told = Teller {
            provider: &self.tool.provider,
            run,
            limit: self.tool.answer_bytes,
            mark: Mark::fresh(),
            keep: &keep,
        };
        let mut watch = Watch::new(&cx, self.service.clone(), run);
        let run = watch.during(starting).await.map_err(|error| told.refused(&error))?;
        let result = watch.during(run.result()).await;
        let disposed = run.dispose().await;
        let disposed = match &disposed {
            Ok(()) => Ok(()),
            Err(left) => Err(left),
        };
        told.ended(result.as_deref().map_err(Clone::clone), disposed)
    }
}

impl Mounted {
    fn keep(&self, owner: subagents_seam::AgentId, run: RunId, text: &str) -> &'static str {
        self.answers.keep(owner, run, text);
        OUTPUT_TOOL
    }
}
