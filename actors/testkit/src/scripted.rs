//! A provider whose children play a script.

use crate::{
    Probe, Script,
    probe::Counted,
    script::{Close, End, OnCancel, Start, Step},
};
use futures_util::future::join_all;
use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};
use subagents_runtime::WeakService;
use subagents_seam::{
    CancelCause, Capabilities, Child, Closed, Diagnostic, Instant, Progress, ResultError, RunContext,
    StartContext, StartError, StartRequest, SubagentProvider, SubagentResult, Waiting,
};
use tokio::time::sleep;

/// A flood makes room for others after so many pieces.
const BREATH: usize = 64;

/// A provider for tests: each of its children plays a [`Script`].
///
/// Clone shares the script, the probe and the service that was attached.
#[derive(Clone)]
pub struct Scripted {
    script: Arc<dyn Fn(&str) -> Script + Send + Sync>,
    probe: Probe,
    service: Arc<OnceLock<WeakService>>,
    capabilities: Capabilities,
    inherits: bool,
    blank: bool,
}

impl Scripted {
    /// Every child plays this script.
    pub fn new(script: Script) -> Self {
        Self::by(move |_| script.clone())
    }

    /// Each child plays the script that its prompt calls for. It is asked once per start.
    pub fn by(script: impl Fn(&str) -> Script + Send + Sync + 'static) -> Self {
        Self {
            script: Arc::new(script),
            probe: Probe::new(),
            service: Arc::default(),
            capabilities: Capabilities::NONE,
            inherits: false,
            blank: false,
        }
    }

    /// Each child does what its prompt says: `echo TEXT` is answered with the text, `hang` says `half` and comes to no end,
    /// `fail WHY` fails with `model-error`, `panic` panics, and a number is a pause in milliseconds, answered with itself.
    /// Anything else is answered with itself at once.
    pub fn obedient() -> Self {
        Self::by(|prompt| match prompt.split_once(' ').unwrap_or((prompt, "")) {
            ("echo", text) => Script::answer(text),
            ("hang", _) => Script::hang().say("half"),
            ("fail", why) => Script::fail("model-error", why),
            ("panic", _) => Script::panic("a fault"),
            (word, _) => {
                let answer = Script::answer(prompt);
                match word.parse() {
                    Ok(pause) => answer.pause(Duration::from_millis(pause)),
                    Err(_) => answer,
                }
            }
        })
    }

    /// Declares what it can honour. It then takes such requests; the script does not see what they ask for. Where that is
    /// a value, only a [`Script::result`] that has one completes.
    #[must_use]
    pub fn capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Declares that its children see the parent's conversation.
    #[must_use]
    pub fn inherits_parent_context(mut self, inherits: bool) -> Self {
        self.inherits = inherits;
        self
    }

    /// Declares that a blank answer is an answer.
    #[must_use]
    pub fn allow_blank_answer(mut self, allow: bool) -> Self {
        self.blank = allow;
        self
    }

    /// Counts on this probe, in place of one of its own.
    #[must_use]
    pub fn with_probe(mut self, probe: &Probe) -> Self {
        self.probe = probe.clone();
        self
    }

    /// The probe on which it counts.
    pub fn probe(&self) -> Probe {
        self.probe.clone()
    }

    /// Gives it, and every clone of it, the service that [`Script::delegate`] calls back into. The first one stays.
    ///
    /// ```
    /// # use subagents_runtime::SubagentService;
    /// # use subagents_seam::StartRequest;
    /// # use subagents_testkit::{Script, Scripted};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let lead = Scripted::new(Script::delegate("echo", ["one", "two"]));
    /// let service = SubagentService::builder()
    ///     .provider("lead", lead.clone())
    ///     .provider("echo", Scripted::new(Script::echo()))
    ///     .build()?;
    /// lead.attach(service.downgrade());
    /// let root = service.root(std::env::temp_dir())?;
    /// let result = service.delegate("lead", StartRequest::new(&root, "go")).await?;
    /// assert_eq!(result.text(), "one\ntwo");
    /// # Ok(())
    /// # }
    /// ```
    pub fn attach(&self, service: WeakService) {
        let _ = self.service.set(service);
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("counts", &self.probe.counts()).finish_non_exhaustive()
    }
}

impl SubagentProvider for Scripted {
    type Child = ScriptedChild;

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn inherits_parent_context(&self) -> bool {
        self.inherits
    }

    fn allows_blank_answer(&self) -> bool {
        self.blank
    }

    async fn start(&self, cx: StartContext) -> Result<ScriptedChild, StartError> {
        let _starting = self.probe.start();
        let script = (self.script)(&cx.prompt().to_text());
        let cancelled =
            || StartError::Cancelled { cause: cx.cancel_cause().unwrap_or(CancelCause::REQUESTED) };
        if !script.start_delay.is_zero() {
            tokio::select! {
                () = cx.cancelled() => return Err(cancelled()),
                () = sleep(script.start_delay) => {}
            }
        }
        match &script.start {
            Start::Ready => {}
            Start::Fails(error) => return Err(error.clone()),
            Start::Panics(message) => blow_up(message),
            Start::Hangs { deaf: true } => std::future::pending().await,
            Start::Hangs { deaf: false } => {
                cx.cancelled().await;
                return Err(cancelled());
            }
        }
        Ok(ScriptedChild {
            script,
            start: cx,
            service: self.service.clone(),
            probe: self.probe.clone(),
            _alive: self.probe.birth(),
        })
    }
}

/// A child of [`Scripted`].
pub struct ScriptedChild {
    script: Script,
    start: StartContext,
    service: Arc<OnceLock<WeakService>>,
    probe: Probe,
    _alive: Counted,
}

impl Child for ScriptedChild {
    async fn run(&mut self, cx: RunContext) -> Result<SubagentResult, ResultError> {
        let _running = self.probe.run();
        let mut said = String::new();
        let late = match self.script.on_cancel {
            OnCancel::Deaf => return self.play(&cx, &mut said).await,
            OnCancel::Returns => None,
            OnCancel::ReturnsAfter(time) => Some(time),
        };
        let ended = tokio::select! {
            biased;
            ended = self.play(&cx, &mut said) => Some(ended),
            () = cx.cancelled() => None,
        };
        if let Some(ended) = ended {
            return ended;
        }
        if let Some(time) = late {
            sleep(time).await;
        }
        Ok(SubagentResult::aborted(said))
    }

    async fn close(self, _deadline: Instant) -> Closed {
        self.probe.close();
        if !self.script.close_delay.is_zero() {
            sleep(self.script.close_delay).await;
        }
        match &self.script.close {
            Close::Clean => Closed::Clean,
            Close::Leaks(what) => Closed::Leaked(what.clone()),
            Close::Hangs => std::future::pending().await,
            Close::Panics(message) => blow_up(message),
        }
    }
}

impl ScriptedChild {
    async fn play(&self, cx: &RunContext, said: &mut String) -> Result<SubagentResult, ResultError> {
        for step in &self.script.steps {
            match step {
                Step::Pause(time) => sleep(*time).await,
                Step::Say(text) => {
                    said.push_str(text);
                    cx.progress(Progress::Text(text));
                }
                Step::Flood { bytes, piece } => flood(cx, *bytes, *piece).await,
                Step::Message => cx.progress(Progress::Message),
                Step::Thought(text) => cx.progress(Progress::Thought(text)),
                Step::Tool(name) => cx.progress(Progress::ToolStarted(name)),
                Step::ToolDone(name) => cx.progress(Progress::ToolFinished(name)),
                Step::Denied { tool, reason } => cx.progress(Progress::Denied { tool, reason }),
                Step::Plan => cx.progress(Progress::Plan),
                Step::Permission(id) => {
                    cx.progress(Progress::Waiting(Some(Waiting::Permission(id.clone()))));
                }
                Step::Usage(usage) => cx.progress(Progress::Usage(usage.clone())),
            }
        }
        match &self.script.end {
            End::Returns(result) => Ok((**result).clone()),
            End::Echoes => Ok(SubagentResult::completed(self.start.prompt().to_text())),
            End::WaitFails(message) => Err(ResultError::wait_failed(message)),
            End::Hangs => std::future::pending().await,
            End::Panics(message) => blow_up(message),
            End::Delegates { provider, prompts } => Ok(self.delegate(provider, prompts).await),
        }
    }

    async fn delegate(&self, provider: &str, prompts: &[Arc<str>]) -> SubagentResult {
        let Some(service) = self.service.get().and_then(WeakService::upgrade) else {
            return SubagentResult::error(Diagnostic::new("nested", "no service is attached, or it is gone"));
        };
        let outcomes = join_all(prompts.iter().map(|prompt| {
            service.delegate(provider, StartRequest::new(self.start.as_parent(), prompt.clone()))
        }))
        .await;
        let mut answers = Vec::with_capacity(outcomes.len());
        for (index, outcome) in outcomes.into_iter().enumerate() {
            let failure = match outcome {
                Ok(result) if result.stop_reason.is_success() => {
                    answers.push(result.text());
                    continue;
                }
                Ok(result) => result.stop_reason.to_string(),
                Err(error) => error.code().to_owned(),
            };
            return SubagentResult::error(Diagnostic::new("nested", &format!("child {index}: {failure}")));
        }
        SubagentResult::completed(answers.join("\n"))
    }
}

impl Drop for ScriptedChild {
    fn drop(&mut self) {
        // A second panic while the first unwinds would end the process.
        if self.script.drop_panics && !std::thread::panicking() {
            blow_up("the script panics in drop");
        }
    }
}

impl fmt::Debug for ScriptedChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedChild").field("run", &self.start.run_id()).finish_non_exhaustive()
    }
}

async fn flood(cx: &RunContext, bytes: usize, piece: usize) {
    let text = "flood ".repeat(piece.div_ceil(6));
    let (mut left, mut pieces) = (bytes, 0_usize);
    while left > 0 {
        let size = left.min(piece);
        cx.progress(Progress::Text(&text[..size]));
        left -= size;
        pieces += 1;
        if pieces.is_multiple_of(BREATH) {
            tokio::task::yield_now().await;
        }
    }
}

#[expect(clippy::panic, reason = "that is what the script asks for")]
fn blow_up(message: &str) -> ! {
    panic!("{message}")
}
