//! One error type per phase. Each has a stable `code()` for programs and a message that says what to do next.

use crate::{Capability, Diagnostic, Name, RunId, SubagentResult, UnsupportedSchema};
use std::{error::Error, fmt, path::PathBuf, sync::Arc, time::Duration};

/// Why a run was cancelled. The first cause wins and stays; a token carries none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelCause {
    /// A caller asked for it, with a reason in its own words.
    Requested(Option<Arc<str>>),
    /// The token of the request was cancelled.
    Token,
    /// The parent ended or was cancelled.
    Parent,
    /// The handle was dropped without `dispose` or `detach`.
    Dropped,
    /// It was disposed before it had settled.
    Disposed,
    /// The last handle of the service was dropped without a shutdown.
    ServiceDropped,
    /// The root above was dropped.
    RootDropped,
    /// A deadline passed.
    Deadline(DeadlineKind),
    /// The batch it belongs to stopped on its condition.
    Batch,
    /// The service shuts down.
    Shutdown,
    /// The actor that owned the run failed or was killed.
    OwnerLost,
}

impl CancelCause {
    /// A request without a reason.
    pub const REQUESTED: Self = Self::Requested(None);

    /// A request with a reason.
    pub fn requested(reason: impl Into<Arc<str>>) -> Self {
        Self::Requested(Some(reason.into()))
    }
}

impl CancelCause {
    /// The cause in words, where it has none of its own.
    const fn words(&self) -> Option<&'static str> {
        Some(match self {
            Self::Requested(None) => "a caller cancelled it",
            Self::Requested(Some(_)) => return None,
            Self::Token => "the token of its request was cancelled",
            Self::Parent => "its parent ended or was cancelled",
            Self::Dropped => "its handle was dropped",
            Self::Disposed => "it was disposed before it had settled",
            Self::ServiceDropped => "the service was dropped",
            Self::RootDropped => "the root above it was dropped",
            Self::Deadline(DeadlineKind::Idle) => "its idle deadline passed",
            Self::Deadline(DeadlineKind::Start) => "its start deadline passed",
            Self::Deadline(DeadlineKind::Total) => "its total deadline passed",
            Self::Deadline(DeadlineKind::Batch) => "the deadline of its batch passed",
            Self::Batch => "its batch stopped",
            Self::Shutdown => "the service shuts down",
            Self::OwnerLost => "the actor that owned it failed",
        })
    }

    /// The cause as a diagnostic of `category`.
    pub fn diagnostic(&self, category: &'static str) -> Diagnostic {
        match self.words() {
            Some(words) => Diagnostic::fixed(category, words),
            None => Diagnostic::new(category, &self.to_string()),
        }
    }
}

impl fmt::Display for CancelCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.words(), self) {
            (Some(words), _) => f.write_str(words),
            (None, Self::Requested(Some(reason))) => write!(f, "a caller cancelled it: {reason}"),
            (None, _) => f.write_str("it was cancelled"),
        }
    }
}

/// Which deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadlineKind {
    /// No sign of life for too long.
    Idle,
    /// Too long before it was published.
    Start,
    /// Too long in all.
    Total,
    /// The deadline of the whole batch.
    Batch,
}

/// Why a start was refused or failed: no handle, no lifecycle event, nothing left of it (SPEC 3.3).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The service shuts down and admits nothing more.
    #[error("the service shuts down; start nothing more on it")]
    Draining,
    /// The registry failed, which is a fault of the runtime.
    #[error("the service failed and is closed; build a new one")]
    ServiceFailed,
    /// No provider of that name.
    #[error("no provider is named `{name}`; known: {}", list(known))]
    NoProvider {
        /// The name asked for.
        name: Name,
        /// The names there are, in the order of registration.
        known: Vec<Name>,
    },
    /// The request needs what the provider cannot do (SPEC 3.1).
    #[error("provider `{provider}` cannot honour `{feature}`; leave it out or choose another provider")]
    UnsupportedCapability {
        /// The provider.
        provider: Name,
        /// The first missing capability, or the agent option.
        feature: &'static str,
    },
    /// A depth outside the domain (SPEC 5.3).
    #[error("`{given}` is no depth; give a whole number from 0 to 4294967295")]
    InvalidDepth {
        /// What was given.
        given: Box<str>,
    },
    /// A schema outside the enforced subset (SPEC 8.1).
    #[error(transparent)]
    UnsupportedSchema(UnsupportedSchema),
    /// A prompt that the provider cannot take.
    #[error("provider `{provider}` cannot take this prompt: {}", prompt_advice(kind))]
    UnsupportedPrompt {
        /// The provider.
        provider: Name,
        /// The first kind it cannot take; `blank` for a prompt without content.
        kind: &'static str,
    },
    /// Cancelled before publication.
    #[error("the start was cancelled: {cause}")]
    Cancelled {
        /// Why.
        cause: CancelCause,
    },
    /// The tree would become too deep (SPEC 5.2).
    #[error("depth {attempted} is over the limit of {max}; do the work here instead of delegating it")]
    DepthExceeded {
        /// The depth that the child would have.
        attempted: u32,
        /// The smallest cap of the request and of the runs above.
        max: u32,
    },
    /// The waiting line is full.
    #[error(
        "{queued} starts wait already, as many as may; retry when some of the {active} active runs have ended"
    )]
    QueueFull {
        /// How many wait.
        queued: usize,
        /// How many runs hold a slot.
        active: usize,
    },
    /// It waited too long for a slot.
    #[error("no slot became free in {after:?}; raise the limit or the queue deadline")]
    QueueTimeout {
        /// How long it waited.
        after: Duration,
    },
    /// The provider took too long to publish a child.
    #[error(
        "provider `{provider}` had no child ready in {after:?}{}; see whether it hangs, or raise the start deadline",
        reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default()
    )]
    StartTimeout {
        /// The provider.
        provider: Name,
        /// The deadline.
        after: Duration,
        /// What the provider said of it when it was told to give up, if it said something within the grace.
        reason: Option<Box<str>>,
    },
    /// The parent has ended, or is not of this service.
    #[error("the parent has ended or is unknown here; delegate from a live one")]
    ParentGone,
    /// Too many starts below one root.
    #[error("{cap} starts were made below this root, as many as may; go on without delegating")]
    StartLimitExceeded {
        /// The cap.
        cap: u64,
    },
    /// The provider needs the parent's conversation and there is none.
    #[error("the parent has no history to fork; use a provider that starts fresh")]
    NoParentHistory,
    /// The provider failed to start a child.
    #[error(transparent)]
    ProviderFailed(ProviderFailure),
    /// The provider panicked while starting a child.
    #[error("provider `{provider}` panicked while starting: {message}")]
    ProviderPanicked {
        /// The provider.
        provider: Name,
        /// The message of the panic, bounded.
        message: Box<str>,
    },
}

impl StartError {
    /// The stable code, for wires and programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Draining => "DRAINING",
            Self::ServiceFailed => "SERVICE_FAILED",
            Self::NoProvider { .. } => "NO_PROVIDER",
            Self::UnsupportedCapability { .. } => "UNSUPPORTED_CAPABILITY",
            Self::InvalidDepth { .. } => "INVALID_DEPTH",
            Self::UnsupportedSchema(_) => "UNSUPPORTED_SCHEMA",
            Self::UnsupportedPrompt { .. } => "UNSUPPORTED_PROMPT",
            Self::Cancelled { .. } => "CANCELLED",
            Self::DepthExceeded { .. } => "DEPTH_EXCEEDED",
            Self::QueueFull { .. } => "QUEUE_FULL",
            Self::QueueTimeout { .. } => "QUEUE_TIMEOUT",
            Self::StartTimeout { .. } => "START_TIMEOUT",
            Self::ParentGone => "PARENT_GONE",
            Self::StartLimitExceeded { .. } => "START_LIMIT_EXCEEDED",
            Self::NoParentHistory => "NO_PARENT_HISTORY",
            Self::ProviderFailed(failure) => failure.code().as_str(),
            Self::ProviderPanicked { .. } => "PROVIDER_PANICKED",
        }
    }

    /// The refusal of a missing capability.
    pub fn unsupported(provider: &Name, capability: Capability) -> Self {
        Self::UnsupportedCapability { provider: provider.clone(), feature: capability.as_str() }
    }
}

impl From<ProviderFailure> for StartError {
    fn from(failure: ProviderFailure) -> Self {
        Self::ProviderFailed(failure)
    }
}

fn prompt_advice(kind: &str) -> String {
    if kind == "blank" {
        "it is blank; say what is to be done".to_owned()
    } else {
        format!("it has a block of kind `{kind}`; send text")
    }
}

fn list(names: &[Name]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The kinds of failure by which a provider fails to start a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureCode {
    /// Anything without a code of its own.
    ProviderFailed,
    /// The program is not at its path.
    ProgramNotFound,
    /// The program is not on the `PATH`.
    NotOnPath,
    /// The file may not be executed.
    NotExecutable,
    /// The interpreter named in the script's first line is missing.
    InterpreterNotFound,
    /// The working directory does not exist or may not be entered.
    CwdNotUsable,
    /// The prompt is too long for a command line.
    PromptTooLong,
    /// The operating system refused to start the process.
    SpawnFailed,
    /// The process ended before it was ready.
    ExitedBeforeReady,
    /// The peer broke its protocol.
    ProtocolError,
    /// The peer speaks another version.
    UnsupportedProtocolVersion,
    /// The peer wants a sign-in.
    AuthRequired,
}

impl FailureCode {
    /// The stable code.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ProviderFailed => "PROVIDER_FAILED",
            Self::ProgramNotFound => "PROGRAM_NOT_FOUND",
            Self::NotOnPath => "NOT_ON_PATH",
            Self::NotExecutable => "NOT_EXECUTABLE",
            Self::InterpreterNotFound => "INTERPRETER_NOT_FOUND",
            Self::CwdNotUsable => "CWD_NOT_USABLE",
            Self::PromptTooLong => "PROMPT_TOO_LONG",
            Self::SpawnFailed => "SPAWN_FAILED",
            Self::ExitedBeforeReady => "EXITED_BEFORE_READY",
            Self::ProtocolError => "PROTOCOL_ERROR",
            Self::UnsupportedProtocolVersion => "UNSUPPORTED_PROTOCOL_VERSION",
            Self::AuthRequired => "AUTH_REQUIRED",
        }
    }
}

/// A provider's own failure to start a child.
#[derive(Clone)]
pub struct ProviderFailure {
    code: FailureCode,
    message: Box<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl ProviderFailure {
    /// A failure with a message for people: what failed, and what to do next. Sanitised and bounded.
    pub fn new(code: FailureCode, message: impl AsRef<str>) -> Self {
        Self { code, message: Diagnostic::new("start", message.as_ref()).text().into(), source: None }
    }

    /// Adds the error underneath.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Its code.
    pub fn code(&self) -> FailureCode {
        self.code
    }
}

impl fmt::Debug for ProviderFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderFailure")
            .field("code", &self.code)
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ProviderFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ProviderFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Why a published run has no result. A child's failure is *not* here: it is a [`SubagentResult`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// The provider's own wait failed.
    #[error("the provider could not wait for its child: {message}")]
    WaitFailed {
        /// What it said, sanitised and bounded.
        message: Box<str>,
        /// The error underneath.
        #[source]
        source: Option<Arc<dyn Error + Send + Sync>>,
    },
    /// The tokio runtime that ran the service is gone.
    #[error("the async runtime of the service is gone; keep it alive until shutdown has returned")]
    RuntimeGone,
}

impl ResultError {
    /// A provider's wait that failed, in few words.
    pub fn wait_failed(message: impl AsRef<str>) -> Self {
        Self::WaitFailed { message: Diagnostic::new("wait", message.as_ref()).text().into(), source: None }
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::WaitFailed { .. } => "WAIT_FAILED",
            Self::RuntimeGone => "RUNTIME_GONE",
        }
    }
}

/// Why a disposal did not end in *gone*.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DisposeError {
    /// Something of the child may be left: the ladder is bounded and ends in this fact, not in a hang.
    #[error("run {run} may have left something behind: {what}")]
    Leaked {
        /// The run.
        run: RunId,
        /// What, in few words.
        what: Arc<str>,
    },
}

impl DisposeError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Leaked { .. } => "LEAKED",
        }
    }
}

/// Why a whole delegation (start, result, dispose) gave no clean result.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DelegateError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It has no result.
    #[error(transparent)]
    Result(#[from] ResultError),
    /// It has a result, and left something behind.
    #[error("{source}")]
    Dispose {
        /// The result, kept.
        result: Arc<SubagentResult>,
        /// What was left.
        source: DisposeError,
    },
}

impl DelegateError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Start(error) => error.code(),
            Self::Result(error) => error.code(),
            Self::Dispose { source, .. } => source.code(),
        }
    }
}

/// Why a provider was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Another provider has this name.
    #[error("a provider is named `{0}` already; choose another name")]
    DuplicateProvider(Name),
    /// The name is outside the rule.
    #[error(
        "`{0}` is no provider name; use 1 to 64 bytes of a-z, 0-9, `.`, `_`, `-`, a letter or digit first"
    )]
    InvalidName(Box<str>),
}

impl RegisterError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::DuplicateProvider(_) => "DUPLICATE_PROVIDER",
            Self::InvalidName(_) => "INVALID_NAME",
        }
    }
}

/// Why a service was not built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A provider could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A limit names a provider that is not there.
    #[error("a limit names the provider `{name}`, which is not registered; known: {}", list(known))]
    NoProvider {
        /// The name.
        name: Name,
        /// The names there are.
        known: Vec<Name>,
    },
    /// A limit of zero would let nothing start, ever.
    #[error("the limit of {0} is zero; give at least one slot")]
    ZeroLimit(Box<str>),
    /// There is no tokio runtime to live on.
    #[error("no tokio runtime is running here; build the service inside one")]
    NoRuntime,
}

impl BuildError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Register(error) => error.code(),
            Self::NoProvider { .. } => "NO_PROVIDER",
            Self::ZeroLimit(_) => "ZERO_LIMIT",
            Self::NoRuntime => "NO_RUNTIME",
        }
    }
}

/// Why a parent was not given out.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RootError {
    /// The working directory cannot be used.
    #[error("the working directory {} cannot be used: {reason}; give an absolute path to a directory that may be entered", path.display())]
    CwdNotUsable {
        /// The path.
        path: PathBuf,
        /// Why not.
        reason: Box<str>,
    },
    /// The service shut down.
    #[error("the service is closed; build a new one")]
    Closed,
    /// The service failed.
    #[error("the service failed and is closed; build a new one")]
    ServiceFailed,
}

impl RootError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::CwdNotUsable { .. } => "CWD_NOT_USABLE",
            Self::Closed => "DRAINING",
            Self::ServiceFailed => "SERVICE_FAILED",
        }
    }
}
