//! What a model may call: how a tool describes itself, and what a call of it is and gives.

use crate::{CancellationToken, Content, Name, Parent, provider::BoxFuture};
use serde_json::Value;
use std::{fmt, sync::Arc};

/// What a model is told of a tool.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolDefinition {
    /// What it is called by.
    pub name: Name,
    /// What people see.
    pub title: Option<String>,
    /// What it does, and when to call it.
    pub description: String,
    /// A JSON Schema of its arguments, an object at its root.
    pub input_schema: Arc<Value>,
    /// A JSON Schema of the value that a success has, where it has one.
    pub output_schema: Option<Arc<Value>>,
    /// Whether it only reads what is here already: whoever asks people before a call need not ask before this one.
    pub read_only: bool,
}

impl ToolDefinition {
    /// A tool of this name, with arguments of this schema.
    pub fn new(
        name: impl Into<Name>,
        description: impl Into<String>,
        input_schema: impl Into<Arc<Value>>,
    ) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: description.into(),
            input_schema: input_schema.into(),
            output_schema: None,
            read_only: false,
        }
    }

    /// Sets what people see.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the schema of the value that a success has.
    #[must_use]
    pub fn with_output_schema(mut self, schema: impl Into<Arc<Value>>) -> Self {
        self.output_schema = Some(schema.into());
        self
    }

    /// Says that it only reads what is here already.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }
}

/// Something that a model may call. Any number of calls may be under way at once (SPEC 12.10); they share nothing but
/// `&self`.
pub trait Tool: Send + Sync + 'static {
    /// What a model is told of it, as of now.
    fn definition(&self) -> ToolDefinition;

    /// Carries one call out. `input` is what the model gave, and unchecked.
    ///
    /// # Errors
    /// What the model is to read of a call that failed.
    ///
    /// # Cancellation safety
    /// Must be safe to drop: what the call began is then ended, in the background.
    fn call(
        &self,
        cx: ToolContext,
        input: Value,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send;
}

/// A tool of any type, as a host holds it. Clone shares it.
#[derive(Clone)]
pub struct DynTool(Arc<dyn Erased>);

impl<T: Tool> From<T> for DynTool {
    fn from(tool: T) -> Self {
        Self(Arc::new(tool))
    }
}

impl DynTool {
    /// See [`Tool::definition`].
    pub fn definition(&self) -> ToolDefinition {
        self.0.definition()
    }

    /// See [`Tool::call`].
    pub fn call(&self, cx: ToolContext, input: Value) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        self.0.call(cx, input)
    }
}

impl fmt::Debug for DynTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynTool").field("name", &self.definition().name).finish_non_exhaustive()
    }
}

trait Erased: Send + Sync {
    fn definition(&self) -> ToolDefinition;
    fn call(&self, cx: ToolContext, input: Value) -> BoxFuture<'_, Result<ToolOutput, ToolError>>;
}

impl<T: Tool> Erased for T {
    fn definition(&self) -> ToolDefinition {
        Tool::definition(self)
    }

    fn call(&self, cx: ToolContext, input: Value) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(Tool::call(self, cx, input))
    }
}

/// One call of a tool: who calls, and how it is told of what happens.
///
/// A tool needs a calling agent (SPEC 12.5), so that there is no context without one.
#[derive(Clone)]
pub struct ToolContext {
    caller: Parent,
    token: CancellationToken,
    progress: Option<Told>,
}

/// Who is told what happens.
type Told = Arc<dyn Fn(&str) + Send + Sync>;

impl ToolContext {
    /// A call by this agent, which `token` cancels.
    pub fn new(caller: impl Into<Parent>, token: CancellationToken) -> Self {
        Self { caller: caller.into(), token, progress: None }
    }

    /// Sets who is told what happens meanwhile: one short line at a time, safe to show. It is called from the call's own
    /// task and must not block.
    #[must_use]
    pub fn with_progress(mut self, progress: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    /// The agent that calls.
    pub fn caller(&self) -> &Parent {
        &self.caller
    }

    /// Cancelled when the caller does not want the call any more.
    pub fn token(&self) -> &CancellationToken {
        &self.token
    }

    /// Whether anybody is told what happens.
    pub fn is_watched(&self) -> bool {
        self.progress.is_some()
    }

    /// Tells what happens, in few words.
    pub fn progress(&self, line: &str) {
        if let Some(progress) = &self.progress {
            progress(line);
        }
    }
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext").field("caller", &self.caller).finish_non_exhaustive()
    }
}

/// What a call gave.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolOutput {
    /// For the model to read.
    pub content: Content,
    /// The value that the [output schema](ToolDefinition::output_schema) describes, where there is one.
    pub structured: Option<Value>,
}

impl ToolOutput {
    /// A success with this to read.
    pub fn new(content: impl Into<Content>) -> Self {
        Self { content: content.into(), structured: None }
    }

    /// Sets the value.
    #[must_use]
    pub fn with_structured(mut self, value: Value) -> Self {
        self.structured = Some(value);
        self
    }
}

/// What a model is to read of a call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ToolError {
    text: Arc<str>,
}

impl ToolError {
    /// A failure with this to read: what failed, and what to do next.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into() }
    }

    /// What there is to read.
    pub fn text(&self) -> &str {
        &self.text
    }
}
