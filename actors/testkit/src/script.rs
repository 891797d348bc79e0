//! What a scripted child does, from its start to its close.

use std::{sync::Arc, time::Duration};
use subagents_seam::{
    Diagnostic, FailureCode, ProviderFailure, StartError, StopReason, SubagentResult, Usage,
};

/// What one child does. It says how its run ends; the rest are additions, in the order in which they are made.
///
/// ```
/// use std::time::Duration;
/// use subagents_testkit::Script;
///
/// // Reports a tool, works for a minute, answers, and takes its time to close.
/// let script = Script::answer("done").tool("grep").pause(Duration::from_secs(60)).close_after(Duration::from_secs(1));
/// // Shows half an answer and ignores every cancel.
/// let stubborn = Script::hang().say("half").deaf();
/// # let _ = (script, stubborn);
/// ```
#[derive(Clone, Debug)]
#[must_use = "a script does nothing until a `Scripted` plays it"]
pub struct Script {
    pub(crate) start_delay: Duration,
    pub(crate) start: Start,
    pub(crate) steps: Vec<Step>,
    pub(crate) end: End,
    pub(crate) on_cancel: OnCancel,
    pub(crate) close_delay: Duration,
    pub(crate) close: Close,
    pub(crate) drop_panics: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Start {
    Ready,
    Fails(StartError),
    Panics(Arc<str>),
    Hangs { deaf: bool },
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Pause(Duration),
    Say(Arc<str>),
    Flood { bytes: usize, piece: usize },
    Message,
    Thought(Arc<str>),
    Tool(Arc<str>),
    ToolDone(Arc<str>),
    Denied { tool: Arc<str>, reason: Arc<str> },
    Plan,
    Permission(Arc<str>),
    Usage(Usage),
}

#[derive(Clone, Debug)]
pub(crate) enum End {
    Returns(Box<SubagentResult>),
    Echoes,
    WaitFails(Arc<str>),
    Hangs,
    Panics(Arc<str>),
    Delegates { provider: Arc<str>, prompts: Vec<Arc<str>> },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum OnCancel {
    Returns,
    ReturnsAfter(Duration),
    Deaf,
}

#[derive(Clone, Debug)]
pub(crate) enum Close {
    Clean,
    Leaks(Arc<str>),
    Hangs,
    Panics(Arc<str>),
}

/// How the run ends.
impl Script {
    fn ending(end: End) -> Self {
        Self {
            start_delay: Duration::ZERO,
            start: Start::Ready,
            steps: Vec::new(),
            end,
            on_cancel: OnCancel::Returns,
            close_delay: Duration::ZERO,
            close: Close::Clean,
            drop_panics: false,
        }
    }

    /// Completes with this answer. A blank one is what a child says that has nothing to say.
    pub fn answer(text: impl Into<Arc<str>>) -> Self {
        Self::result(SubagentResult::completed(text.into()))
    }

    /// Completes with the prompt as its answer.
    pub fn echo() -> Self {
        Self::ending(End::Echoes)
    }

    /// Fails with a diagnostic of this category and text.
    pub fn fail(category: &'static str, text: &str) -> Self {
        Self::result(SubagentResult::error(Diagnostic::new(category, text)))
    }

    /// Stops for this reason, with what it had said: `max-tokens`, `refusal`, or something that a newer peer says.
    pub fn stop(reason: impl Into<StopReason>, partial: impl Into<Arc<str>>) -> Self {
        Self::result(SubagentResult::new(reason.into(), partial.into()))
    }

    /// Returns exactly this result.
    pub fn result(result: SubagentResult) -> Self {
        Self::ending(End::Returns(Box::new(result)))
    }

    /// The provider's own wait fails: `run` gives [`ResultError::WaitFailed`](subagents_seam::ResultError).
    pub fn wait_fails(message: impl Into<Arc<str>>) -> Self {
        Self::ending(End::WaitFails(message.into()))
    }

    /// Runs until it is cancelled, and then returns what it had said.
    pub fn hang() -> Self {
        Self::ending(End::Hangs)
    }

    /// Panics with this message.
    pub fn panic(message: impl Into<Arc<str>>) -> Self {
        Self::ending(End::Panics(message.into()))
    }

    /// Delegates each prompt to `provider`, all at once, as children of its own, and answers with their answers, one a
    /// line. It fails with category `nested` where one of them does.
    ///
    /// The provider needs the service: [`Scripted::attach`](crate::Scripted::attach).
    pub fn delegate<T: Into<Arc<str>>>(
        provider: impl Into<Arc<str>>,
        prompts: impl IntoIterator<Item = T>,
    ) -> Self {
        let prompts = prompts.into_iter().map(Into::into).collect();
        Self::ending(End::Delegates { provider: provider.into(), prompts })
    }
}

/// What comes before that end.
impl Script {
    fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Lets time pass.
    pub fn pause(self, time: Duration) -> Self {
        self.step(Step::Pause(time))
    }

    /// Shows text of the answer.
    pub fn say(self, text: impl Into<Arc<str>>) -> Self {
        self.step(Step::Say(text.into()))
    }

    /// Shows `bytes` of text in pieces of `piece` bytes, as fast as it can.
    pub fn flood(self, bytes: usize, piece: usize) -> Self {
        self.step(Step::Flood { bytes, piece: piece.max(1) })
    }

    /// Begins a new message of the answer.
    pub fn message(self) -> Self {
        self.step(Step::Message)
    }

    /// Thinks.
    pub fn think(self, text: impl Into<Arc<str>>) -> Self {
        self.step(Step::Thought(text.into()))
    }

    /// Starts a tool, and waits for it from then on.
    pub fn tool(self, name: impl Into<Arc<str>>) -> Self {
        self.step(Step::Tool(name.into()))
    }

    /// Is done with a tool.
    pub fn tool_done(self, name: impl Into<Arc<str>>) -> Self {
        self.step(Step::ToolDone(name.into()))
    }

    /// Has a tool call denied.
    pub fn denied(self, tool: impl Into<Arc<str>>, reason: impl Into<Arc<str>>) -> Self {
        self.step(Step::Denied { tool: tool.into(), reason: reason.into() })
    }

    /// Makes a plan, or changes it.
    pub fn plan(self) -> Self {
        self.step(Step::Plan)
    }

    /// Waits for the answer to a permission request, by its id.
    pub fn permission(self, id: impl Into<Arc<str>>) -> Self {
        self.step(Step::Permission(id.into()))
    }

    /// Says what it used up so far.
    pub fn usage(self, usage: Usage) -> Self {
        self.step(Step::Usage(usage))
    }

    /// Does not hear a cancel while it runs.
    pub fn deaf(mut self) -> Self {
        self.on_cancel = OnCancel::Deaf;
        self
    }

    /// Returns only so long after a cancel. Within the grace that is its right.
    pub fn settle_late(mut self, after: Duration) -> Self {
        self.on_cancel = OnCancel::ReturnsAfter(after);
        self
    }
}

/// How the child comes to be.
impl Script {
    fn starting(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Takes so long to start. A cancel ends it before.
    pub fn start_after(mut self, delay: Duration) -> Self {
        self.start_delay = delay;
        self
    }

    /// Fails to start, with this message.
    pub fn start_fails(self, code: FailureCode, message: &str) -> Self {
        self.start_error(ProviderFailure::new(code, message).into())
    }

    /// Fails to start with exactly this error.
    pub fn start_error(self, error: StartError) -> Self {
        self.starting(Start::Fails(error))
    }

    /// Panics while it starts.
    pub fn start_panics(self, message: impl Into<Arc<str>>) -> Self {
        self.starting(Start::Panics(message.into()))
    }

    /// Starts until it is cancelled, and then says so.
    pub fn start_hangs(self) -> Self {
        self.starting(Start::Hangs { deaf: false })
    }

    /// Starts for ever, whatever it is told.
    pub fn start_hangs_deaf(self) -> Self {
        self.starting(Start::Hangs { deaf: true })
    }
}

/// How the child goes.
impl Script {
    fn closing(mut self, close: Close) -> Self {
        self.close = close;
        self
    }

    /// Takes so long to close.
    pub fn close_after(mut self, delay: Duration) -> Self {
        self.close_delay = delay;
        self
    }

    /// Leaves something behind when it closes.
    pub fn close_leaks(self, what: impl Into<Arc<str>>) -> Self {
        self.closing(Close::Leaks(what.into()))
    }

    /// Never ends its close.
    pub fn close_hangs(self) -> Self {
        self.closing(Close::Hangs)
    }

    /// Panics while it closes.
    pub fn close_panics(self, message: impl Into<Arc<str>>) -> Self {
        self.closing(Close::Panics(message.into()))
    }

    /// Panics when it is dropped.
    pub fn drop_panics(mut self) -> Self {
        self.drop_panics = true;
        self
    }
}
