//! Why a tool is not there.

use subagents_seam::{Name, UnsupportedSchema};

/// Why a toolbox was not made, or why one of its tools is absent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolboxError {
    /// The name is outside the rule of every host.
    #[error("`{0}` is no name of a tool; use 1 to 64 bytes of a-z, A-Z, 0-9, `_`, `-`")]
    InvalidName(Box<str>),
    /// Two tools have this name.
    #[error("two tools are named `{0}`; choose another name for one")]
    DuplicateTool(Name),
    /// Its provider is not registered, or not any more.
    #[error("tool `{tool}` needs the provider `{provider}`, which is not here")]
    NoProvider {
        /// The tool.
        tool: Name,
        /// Its provider.
        provider: Name,
    },
    /// It is set up for what its provider cannot do (SPEC 5.5).
    #[error(
        "tool `{tool}` needs `{feature}`, which its provider `{provider}` cannot honour; leave it out or choose another \
         provider"
    )]
    Unsupported {
        /// The tool.
        tool: Name,
        /// Its provider.
        provider: Name,
        /// The first capability, or agent option, that is missing.
        feature: &'static str,
    },
    /// A filter that says nothing (SPEC 12.3).
    #[error("the tool filter of `{0}` is empty; name tools in it, or leave it out")]
    EmptyFilter(Name),
    /// Its output schema is outside the enforced subset.
    #[error("tool `{tool}`: {source}")]
    UnsupportedSchema {
        /// The tool.
        tool: Name,
        /// What is wrong with it.
        source: UnsupportedSchema,
    },
}

impl ToolboxError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidName(_) => "INVALID_TOOL_NAME",
            Self::DuplicateTool(_) => "DUPLICATE_TOOL",
            Self::NoProvider { .. } => "NO_PROVIDER",
            Self::Unsupported { .. } => "UNSUPPORTED_CAPABILITY",
            Self::EmptyFilter(_) => "EMPTY_TOOL_FILTER",
            Self::UnsupportedSchema { .. } => "UNSUPPORTED_SCHEMA",
        }
    }
}
