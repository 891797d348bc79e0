//! A running agent: its turns, its settlement, its end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::{
    CancelNotification, CloseSessionRequest, ContentBlock, PromptRequest, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, TextContent,
};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use serde_json::value::RawValue;
use subagents_external::closed;
use subagents_seam::provider::BoxFuture;
use subagents_seam::schema::{Cut, SchemaAsk, Verdict};
use subagents_seam::{
    Child, Closed, Details, Diagnostic, Instant, Progress, ResultError, RunContext, StopReason,
    SubagentResult, Waiting, bounded, sanitised,
};
use tokio::task::coop::consume_budget;

use crate::agent::AgentInfo;
use crate::answer::Answer;
use crate::connection::{Broken, Connection};
use crate::failure::RpcError;
use crate::permission::{self, Asker, Decision, Permission, PermissionRequest};
use crate::turn::{self, Turn};
use crate::wire::{INVALID_PARAMS, Incoming};

/// As many questions of one agent may be open at once.
const QUESTIONS: usize = 64;
/// How long an agent that is to be ended is given to end its turn, and then its session: at most, and of what there is.
const PARTING: Duration = Duration::from_millis(500);
const PARTING_SHARE: f64 = 0.2;

/// What a child is to do.
pub(crate) struct Order {
    pub(crate) prompt: String,
    pub(crate) persona: Option<Arc<str>>,
    pub(crate) ask: Option<SchemaAsk>,
    pub(crate) permission: Permission,
    pub(crate) asker: Asker,
    pub(crate) max_output: usize,
}

/// An agent that was started for one delegation. Dropping it kills its process group, and what has left the group.
pub struct AcpChild {
    connection: Connection,
    agent: AgentInfo,
    turn: Turn,
    /// Taken by the run.
    prompt: Option<Vec<ContentBlock>>,
    ask: Option<SchemaAsk>,
    permission: Permission,
    asker: Arc<Asker>,
    max_output: usize,
    /// Questions that a callback thinks about.
    open: FuturesUnordered<BoxFuture<'static, Question>>,
    /// How many permissions were refused.
    denied: u32,
    /// The prompt that is not answered yet.
    in_flight: Option<u64>,
    cancelled: bool,
}

/// A question with its answer.
struct Question {
    id: Box<RawValue>,
    request: Box<RequestPermissionRequest>,
    decision: Decision,
}

// Neither what is asked nor what is said.
impl fmt::Debug for AcpChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcpChild")
            .field("connection", &self.connection)
            .field("agent", &self.agent)
            .field("session", &self.turn.session())
            .finish_non_exhaustive()
    }
}

/// How a prompt ends.
enum End {
    Answered(Result<Value, RpcError>),
    Broken(Broken),
}

impl AcpChild {
    pub(crate) fn new(connection: Connection, agent: AgentInfo, turn: Turn, order: Order) -> Self {
        let Order { prompt, persona, ask, permission, asker, max_output } = order;
        let prompt = ask.as_ref().map_or_else(|| prompt.clone(), |ask| ask.ask(&prompt));
        let blocks = persona.into_iter().map(|persona| text(&persona)).chain([text(&prompt)]);
        Self {
            connection,
            agent,
            turn,
            prompt: Some(blocks.collect()),
            ask,
            permission,
            asker: Arc::new(asker),
            max_output,
            open: FuturesUnordered::new(),
            denied: 0,
            in_flight: None,
            cancelled: false,
        }
    }

    /// The agent's process id.
    pub fn pid(&self) -> u32 {
        self.connection.pid()
    }

    /// Who the agent is.
    pub fn agent(&self) -> &AgentInfo {
        &self.agent
    }

    /// Reads until the prompt is answered. All that waits is kept in `self`, so that it may be dropped.
    async fn converse(&mut self, cx: &RunContext) -> End {
        enum Next {
            Cancelled,
            Decided(Question),
            Said(Result<crate::wire::Line, Broken>),
        }
        loop {
            // What is here already need not be waited for where nothing else can have happened; others have their turn as if
            // it had been.
            consume_budget().await;
            let quiet = self.open.is_empty() && !cx.is_cancelled();
            let here = if quiet { self.connection.ready() } else { None };
            let next = if let Some(line) = here {
                Next::Said(line)
            } else {
                tokio::select! {
                    biased;
                    () = cx.cancelled(), if !self.cancelled => Next::Cancelled,
                    Some(question) = self.open.next() => Next::Decided(question),
                    line = self.connection.next() => Next::Said(line),
                }
            };
            let line = match next {
                Next::Cancelled => {
                    self.cancel();
                    continue;
                }
                Next::Decided(Question { id, request, decision }) => {
                    self.decided(&id, &request, &decision, cx);
                    continue;
                }
                Next::Said(Ok(line)) => line,
                Next::Said(Err(broken)) => return End::Broken(broken),
            };
            match line.read() {
                Incoming::Chunk(chunk) => self.turn.chunk(&chunk, &mut |progress| cx.progress(progress)),
                Incoming::Response { id, outcome } if Some(id) == self.in_flight => {
                    self.in_flight = None;
                    let secrets = self.connection.secrets();
                    let answer = outcome.map_err(|error| RpcError::read(error, secrets));
                    return End::Answered(
                        answer.map(|result| serde_json::from_str(result.get()).unwrap_or_default()),
                    );
                }
                Incoming::Notification { method, params } if method == "session/update" => {
                    self.turn.update(params, &mut |progress| cx.progress(progress));
                }
                Incoming::Request { id, method, params } if method == "session/request_permission" => {
                    self.asked(id, params, cx);
                }
                Incoming::Request { id, method, .. } => {
                    self.connection.refuse_unknown(id, &method);
                    cx.progress(Progress::Alive);
                }
                Incoming::Response { .. } | Incoming::Unasked => {
                    tracing::debug!(run = %self.asker.run, "an agent answered what is not asked (any more)");
                }
                Incoming::Notification { .. } => cx.progress(Progress::Alive),
                Incoming::Stray => {
                    if let Err(broken) = self.connection.pass_over(&line) {
                        return End::Broken(broken);
                    }
                }
            }
        }
    }

    /// Tells the agent, once, and answers what it asks (`SPEC 18.5`).
    fn cancel(&mut self) {
        self.cancelled = true;
        if self.in_flight.is_some() {
            self.connection.notify("session/cancel", CancelNotification::new(self.turn.session().to_owned()));
        }
        // Whoever thinks about a permission need not go on; the agent takes its questions back itself.
        self.open = FuturesUnordered::new();
    }

    fn asked(&mut self, id: &RawValue, params: Option<&RawValue>, cx: &RunContext) {
        let request =
            params.and_then(|params| serde_json::from_str::<RequestPermissionRequest>(params.get()).ok());
        let Some(request) = request else {
            return self.connection.refuse(
                id,
                INVALID_PARAMS,
                "these parameters are none of a permission request",
            );
        };
        if self.cancelled {
            let cancelled = RequestPermissionResponse::new(RequestPermissionOutcome::Cancelled);
            return self.connection.reply(id, cancelled);
        }
        let question = PermissionRequest::new(self.asker.clone(), &request, self.tool(&request));
        let decision = if self.open.len() < QUESTIONS {
            self.permission.decide(question)
        } else {
            Ok(Decision::reject(format!("{QUESTIONS} questions are open already")))
        };
        match decision {
            Ok(decision) => self.decided(id, &request, &decision, cx),
            Err(thinking) => {
                cx.progress(Progress::Waiting(Some(Waiting::Permission(self.tool(&request).into()))));
                let (id, request) = (id.to_owned(), Box::new(request));
                self.open.push(Box::pin(async move { Question { id, request, decision: thinking.await } }));
            }
        }
    }

    fn decided(
        &mut self,
        id: &RawValue,
        request: &RequestPermissionRequest,
        decision: &Decision,
        cx: &RunContext,
    ) {
        let answered = permission::answer(request, decision);
        self.connection.reply(id, &answered.response);
        let tool = self.tool(request);
        cx.progress(Progress::Waiting(Some(Waiting::Tool((&*tool).into()))));
        let Some(reason) = answered.denied else { return };
        let secrets = self.connection.secrets();
        let reason = bounded(&sanitised(&secrets.mask(&bounded(&reason, 2000))), 500);
        tracing::info!(run = %self.asker.run, agent = %self.asker.agent, tool, reason, "a permission was denied");
        cx.progress(Progress::Denied { tool: &tool, reason: &reason });
        self.denied = self.denied.saturating_add(1);
    }

    fn tool(&self, request: &RequestPermissionRequest) -> String {
        let call = &request.tool_call;
        let known = || self.turn.known_tool(&call.tool_call_id.0).map(str::to_owned);
        turn::tool_name(call.fields.name.as_deref(), call.meta.as_ref(), None)
            .or_else(known)
            .or_else(|| turn::tool_name(None, None, call.fields.kind.as_ref()))
            .unwrap_or_else(|| "tool".to_owned())
    }

    /// What a turn that ended came to: the result, or what is asked next.
    fn judge(&mut self, answer: &Value) -> Result<SubagentResult, Vec<ContentBlock>> {
        let stop = answer["stopReason"].as_str().unwrap_or_default();
        let program = self.connection.program();
        let fail = |category: &'static str, what: &str| {
            Some(Diagnostic::new(category, &format!("{program} {what}")))
        };
        let (reason, diagnostic) = match stop {
            _ if self.cancelled => (StopReason::Aborted, None),
            "end_turn" if self.turn.has_failed() => {
                let said = bounded(&sanitised(self.turn.answer.last_message().trim()), 500);
                let what = format!(
                    "ended its turn as if nothing had happened, but its model failed; it said: {said}"
                );
                (StopReason::Error, fail("model-error", &what))
            }
            "end_turn" => (StopReason::Completed, None),
            "max_tokens" => (StopReason::MaxTokens, None),
            "refusal" => (StopReason::Refusal, None),
            "cancelled" if self.denied > 0 => (
                StopReason::Aborted,
                fail("permission-denied", "ended its turn when a permission was denied; the details name it"),
            ),
            "cancelled" => (
                StopReason::Aborted,
                fail("agent-cancelled", "says that its turn was cancelled, which nobody asked for"),
            ),
            "max_turn_requests" => (
                StopReason::Error,
                fail(
                    "max-turn-requests",
                    "made as many model requests as it may in one turn; split the task",
                ),
            ),
            other => {
                let other = bounded(&sanitised(other), 100);
                let what = format!("ended its turn for a reason that is not known here, `{other}`");
                (StopReason::Error, fail("unknown-stop-reason", &what))
            }
        };
        let Some(ask) = self.ask.as_mut().filter(|_| !self.cancelled) else {
            return Ok(self.result(reason, diagnostic));
        };
        let answer = &self.turn.answer;
        let cut = match reason {
            StopReason::Completed => answer.truncation().map(|_| Cut::OutputBound),
            StopReason::MaxTokens => Some(Cut::TokenLimit),
            StopReason::Aborted | StopReason::Error | StopReason::Refusal | _ => {
                return Ok(self.result(reason, diagnostic));
            }
        };
        // What stands before the last message is talk.
        match ask.submit(answer.last_message(), cut) {
            Verdict::Accepted(value) => Ok(self.result(StopReason::Completed, None).with_structured(value)),
            Verdict::Failed(diagnostic) => {
                let reason = if reason == StopReason::MaxTokens { reason } else { StopReason::Error };
                Ok(self.result(reason, Some(diagnostic)))
            }
            Verdict::Again(prompt) => {
                self.turn.again(Answer::new(self.max_output, self.connection.secrets()));
                Err(vec![text(&prompt)])
            }
        }
    }

    /// The runtime adds what was told as progress: the counts and the refusals.
    fn result(&self, reason: StopReason, diagnostic: Option<Diagnostic>) -> SubagentResult {
        let answer = &self.turn.answer;
        let mut details = Details::default();
        details.stray_lines = Some(self.connection.stray_lines()).filter(|lines| *lines > 0);
        details.truncated = answer.truncation();
        details.schema_attempts = self.ask.as_ref().map_or_else(Vec::new, |ask| ask.attempts().to_vec());
        let mut result = SubagentResult::new(reason, answer.text()).with_details(details);
        result.diagnostic = diagnostic;
        result.usage = self.turn.spent.usage().map(Box::new);
        result
    }

    /// The result of an agent whose connection broke.
    async fn broken(&mut self, broken: Broken) -> SubagentResult {
        if self.cancelled {
            return self.result(StopReason::Aborted, None);
        }
        let words = self.connection.last_words().await;
        let program = self.connection.program();
        let effects = "what it has done until then may have had effects";
        let (category, what) = match (broken, words.exit) {
            (Broken::Ended, Some(exit)) => {
                ("exited", format!("{program} ended with {exit} before its turn ended; {effects}"))
            }
            (Broken::Ended, None) => (
                "transport-closed",
                format!("{program} closed its stdout before its turn ended, and is still running; {effects}"),
            ),
            (Broken::TooMuch { limit }, _) => (
                "output-limit",
                format!(
                    "{program} wrote more than {limit} bytes in all; raise max_total_output, or see what it does"
                ),
            ),
            (broken, _) => ("protocol-error", format!("{program} {broken}; {effects}")),
        };
        let text = format!("{what}; {words}");
        self.result(StopReason::Error, Some(Diagnostic::new(category, &text)))
    }
}

impl Child for AcpChild {
    async fn run(&mut self, cx: RunContext) -> Result<SubagentResult, ResultError> {
        let Some(mut blocks) = self.prompt.take() else {
            return Err(ResultError::wait_failed("the agent was run twice"));
        };
        loop {
            let request = PromptRequest::new(self.turn.session().to_owned(), blocks);
            self.in_flight = Some(self.connection.request("session/prompt", request));
            cx.progress(Progress::Waiting(Some(Waiting::Model)));
            let end = self.converse(&cx).await;
            self.turn.answer.finish(&mut |progress| cx.progress(progress));
            match end {
                End::Answered(Ok(answer)) => {
                    self.turn.spent.turn(&answer);
                    match self.judge(&answer) {
                        Ok(result) => return Ok(result),
                        Err(again) => blocks = again,
                    }
                }
                End::Answered(Err(error)) => {
                    let diagnostic = (!self.cancelled).then(|| error.diagnostic(self.connection.program()));
                    let reason = if self.cancelled { StopReason::Aborted } else { StopReason::Error };
                    return Ok(self.result(reason, diagnostic));
                }
                End::Broken(broken) => return Ok(self.broken(broken).await),
            }
        }
    }

    async fn close(mut self, deadline: Instant) -> Closed {
        let left = deadline.saturating_duration_since(Instant::now());
        let parting = PARTING.min(left.mul_f64(PARTING_SHARE));
        if let Some(prompt) = self.in_flight {
            // It was cut, by a deadline or after the grace: what it has started is ended best by itself.
            if !self.cancelled {
                self.cancel();
            }
            let answered =
                |incoming: &Incoming<'_>| matches!(incoming, Incoming::Response { id, .. } if *id == prompt);
            self.connection.drain(Instant::now() + parting, answered).await;
        }
        if self.agent.closes_sessions() {
            let session = self.turn.session().to_owned();
            let asked = self.connection.request("session/close", CloseSessionRequest::new(session));
            let answered =
                |incoming: &Incoming<'_>| matches!(incoming, Incoming::Response { id, .. } if *id == asked);
            self.connection.drain(Instant::now() + parting, answered).await;
        }
        let program = self.connection.program().to_owned();
        closed(&program, self.connection.end(deadline).await)
    }
}

fn text(text: &str) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text))
}
