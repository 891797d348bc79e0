//! What a provider can honour. A request that asks for more is refused before a child exists (SPEC 3.2).

use std::fmt;

/// A start-time capability, in the order in which a missing one is reported (SPEC 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// The answer is a value that matches a JSON Schema.
    OutputSchema,
    /// The child's own delegations stay under a depth.
    DepthLimit,
    /// The child's tools can be restricted.
    ToolFilter,
    /// The child can be given a persona.
    Persona,
}

impl Capability {
    /// The name on the wire (SPEC 1.2).
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OutputSchema => "outputSchema",
            Self::DepthLimit => "depthLimit",
            Self::ToolFilter => "toolFilter",
            Self::Persona => "persona",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An option of the child's agent that a request may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AgentOption {
    /// Which model provider.
    Provider,
    /// Which model.
    Model,
    /// How hard it thinks.
    Effort,
    /// How much it may write.
    MaxTokens,
}

impl AgentOption {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Provider => "agentOptions.provider",
            Self::Model => "agentOptions.model",
            Self::Effort => "agentOptions.effort",
            Self::MaxTokens => "agentOptions.maxTokens",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A kind of prompt block other than text, which every provider takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PromptKind {
    /// [`ContentBlock::Image`](crate::ContentBlock::Image).
    Image,
    /// [`ContentBlock::Link`](crate::ContentBlock::Link).
    Link,
}

impl PromptKind {
    /// The name in a refusal.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Link => "link",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What a provider can honour at the start of a child (SPEC 1.2), declared once and never per call.
///
/// ```
/// use subagents_seam::{Capabilities, Capability};
/// let can = Capabilities::NONE.with_output_schema().with_persona();
/// assert!(can.has(Capability::Persona) && !can.has(Capability::ToolFilter));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    flags: u8,
    options: u8,
    prompts: u8,
}

impl Capabilities {
    /// Text in, text out, and nothing else.
    pub const NONE: Self = Self { flags: 0, options: 0, prompts: 0 };

    /// The child answers with a value that matches the requested schema. Whether it matches is for the provider to see
    /// to (`schema::SchemaAsk` of the feature `schema` does); a success without a value is made an error.
    #[must_use]
    pub const fn with_output_schema(self) -> Self {
        self.with(Capability::OutputSchema)
    }

    /// The child's own delegations stay under the requested depth.
    #[must_use]
    pub const fn with_depth_limit(self) -> Self {
        self.with(Capability::DepthLimit)
    }

    /// The child's tools can be restricted.
    #[must_use]
    pub const fn with_tool_filter(self) -> Self {
        self.with(Capability::ToolFilter)
    }

    /// The child can be given a persona.
    #[must_use]
    pub const fn with_persona(self) -> Self {
        self.with(Capability::Persona)
    }

    /// Adds one capability.
    #[must_use]
    pub const fn with(mut self, capability: Capability) -> Self {
        self.flags |= 1 << capability as u8;
        self
    }

    /// Adds one option of the agent that a request may set.
    #[must_use]
    pub const fn with_agent_option(mut self, option: AgentOption) -> Self {
        self.options |= option.bit();
        self
    }

    /// Adds one kind of prompt block beside text.
    #[must_use]
    pub const fn with_prompt(mut self, kind: PromptKind) -> Self {
        self.prompts |= kind.bit();
        self
    }

    /// Whether a capability is there.
    pub const fn has(self, capability: Capability) -> bool {
        self.flags & (1 << capability as u8) != 0
    }

    /// Whether a request may set this option.
    pub const fn honours(self, option: AgentOption) -> bool {
        self.options & option.bit() != 0
    }

    /// Whether a prompt may hold this kind of block.
    pub const fn takes(self, kind: PromptKind) -> bool {
        self.prompts & kind.bit() != 0
    }
}
