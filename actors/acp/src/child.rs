//! A running agent: its turns, its settlement, its end.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol_schema::v1::{
    AuthenticateRequest, CancelNotification, CloseSessionRequest, ContentBlock, PromptRequest, TextContent,
};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::value::RawValue;
use subagents_external::{Program, closed, shown};
use subagents_seam::provider::BoxFuture;
use subagents_seam::schema::{Cut, SchemaAsk, Verdict};
use subagents_seam::{
    Child, Closed, Details, Diagnostic, Instant, Progress, ResultError, RunContext, StopReason,
    SubagentResult, Waiting,
};
use tokio::task::coop::consume_budget;

use crate::agent::AgentInfo;
use crate::answer::Answer;
use crate::connection::{Broken, Connection};
use crate::failure::RpcError;
use crate::permission::{Asker, Decision, Permission, PermissionRequest};
use crate::question::{self, Question, cancelled};
use crate::sign_in;
use crate::spent::Ending;
use crate::turn::Turn;
use crate::verdict::{self, Turned};
use crate::wire::{INVALID_PARAMS, Incoming};

/// As many questions of one agent may be open at once,
const QUESTIONS: usize = 64;
/// and as many bytes of them.
const QUESTION_BYTES: usize = 1024 * 1024;
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
    /// The way to sign in that the environment satisfies, or is configured.
    pub(crate) sign_in: Option<String>,
    /// What is known of how to sign in.
    pub(crate) sign_in_hint: Option<&'static str>,
    /// How it was started, and where.
    pub(crate) program: Program,
    pub(crate) cwd: PathBuf,
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
    /// Taken by the one sign-in.
    sign_in: Option<String>,
    sign_in_hint: Option<&'static str>,
    program: Program,
    cwd: PathBuf,
    /// Questions that a callback thinks about, by a number of ours.
    open: HashMap<u64, Open>,
    thinking: FuturesUnordered<BoxFuture<'static, (u64, Decision)>>,
    questions: u64,
    /// Whether a permission was refused in this turn.
    denied: bool,
    /// The prompt that is not answered yet.
    in_flight: Option<u64>,
    cancelled: bool,
}

/// A question that waits for its answer.
struct Open {
    id: Box<RawValue>,
    question: Question,
    bytes: usize,
}

// Neither what is asked nor what is said.
impl fmt::Debug for AcpChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcpChild")
            .field("connection", &self.connection)
            .field("agent", &self.agent)
            .finish_non_exhaustive()
    }
}

/// How a request of ours ends.
enum End {
    Answered(Result<Box<RawValue>, RpcError>),
    Broken(Broken),
}

/// What comes first while a request is under way.
enum Next {
    Cancelled,
    Decided(u64, Decision),
    Said(Result<crate::wire::Line, Broken>),
}

impl AcpChild {
    pub(crate) fn new(connection: Connection, agent: AgentInfo, turn: Turn, order: Order) -> Self {
        let Order {
            prompt,
            persona,
            ask,
            permission,
            asker,
            max_output,
            sign_in,
            sign_in_hint,
            program,
            cwd,
        } = order;
        let prompt = match &ask {
            Some(ask) => ask.ask(&prompt),
            None => prompt,
        };
        // An empty persona is none to send: models refuse empty blocks.
        let persona = persona.filter(|persona| !persona.trim().is_empty());
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
            sign_in,
            sign_in_hint,
            program,
            cwd,
            open: HashMap::new(),
            thinking: FuturesUnordered::new(),
            questions: 0,
            denied: false,
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

    /// Sends a prompt and reads until it is answered. All that waits is kept in `self`, so that it may be dropped.
    async fn prompt(&mut self, blocks: Vec<ContentBlock>, cx: &RunContext) -> End {
        let request = PromptRequest::new(self.turn.session().to_owned(), blocks);
        let asked = self.connection.request("session/prompt", request);
        self.in_flight = Some(asked);
        cx.progress(Progress::Waiting(Some(Waiting::Model)));
        let end = self.answer_to(asked, cx).await;
        self.in_flight = None;
        // Whoever still decides would decide about a turn that is over.
        self.drop_questions();
        self.turn.answer.finish(&mut |progress| cx.progress(progress));
        end
    }

    async fn answer_to(&mut self, asked: u64, cx: &RunContext) -> End {
        loop {
            // What is here already need not be waited for where nothing else can have happened; others have their turn as if
            // it had been.
            consume_budget().await;
            let quiet = self.thinking.is_empty() && (self.cancelled || !cx.is_cancelled());
            let here = if quiet { self.connection.ready() } else { None };
            let next = if let Some(line) = here {
                Next::Said(line)
            } else {
                tokio::select! {
                    biased;
                    () = cx.cancelled(), if !self.cancelled => Next::Cancelled,
                    Some((question, decision)) = self.thinking.next() => Next::Decided(question, decision),
                    line = self.connection.next() => Next::Said(line),
                }
            };
            let line = match next {
                Next::Cancelled => {
                    self.cancel();
                    continue;
                }
                Next::Decided(question, decision) => {
                    if let Some(Open { id, question, .. }) = self.open.remove(&question) {
                        self.decided(&id, &question, &decision, cx);
                    }
                    continue;
                }
                Next::Said(Ok(line)) => line,
                Next::Said(Err(broken)) => return End::Broken(broken),
            };
            match line.read() {
                Incoming::Chunk(chunk) => self.turn.chunk(&chunk, &mut |progress| cx.progress(progress)),
                Incoming::Response { id, outcome } if id == asked => {
                    let secrets = self.connection.secrets();
                    let answer = outcome.map_err(|error| RpcError::read(error, secrets));
                    return End::Answered(answer.map(ToOwned::to_owned));
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
            if let Some(times) = self.turn.answer.repeats() {
                return End::Broken(Broken::Repeats { times });
            }
        }
    }

    /// Tells the agent, once, and answers each question of its that is open, as the protocol wants it (`SPEC 18.5`).
    fn cancel(&mut self) {
        self.cancelled = true;
        if self.in_flight.is_some() {
            self.connection.notify("session/cancel", CancelNotification::new(self.turn.session().to_owned()));
        }
        self.drop_questions();
    }

    /// Answers each question that is open as the protocol wants it of a turn that is over.
    fn drop_questions(&mut self) {
        self.thinking = FuturesUnordered::new();
        for (_, Open { id, .. }) in self.open.drain() {
            self.connection.reply(&id, cancelled());
        }
    }

    fn asked(&mut self, id: &RawValue, params: Option<&RawValue>, cx: &RunContext) {
        if self.cancelled {
            return self.connection.reply(id, cancelled());
        }
        let Some(question) = Question::read(params) else {
            self.connection.refuse(id, INVALID_PARAMS, "these parameters are none of a permission request");
            return self.refused("tool", "its question could not be read", cx);
        };
        self.questions += 1;
        // Where message ids do not tell, what follows is another message.
        self.turn.answer.interrupt();
        // Of a large one little is kept.
        let bytes = params.map_or(0, |params| params.get().len()).min(question::LONGEST) + id.get().len();
        let waiting: usize = self.open.values().map(|open| open.bytes).sum();
        let (asker, tool) = (self.asker.clone(), self.tool(&question));
        let decision = if self.open.len() >= QUESTIONS || waiting + bytes > QUESTION_BYTES {
            let open = self.open.len();
            Ok(Decision::reject(format!("{open} of its questions are open already, of {waiting} bytes")))
        } else if question.is_large && matches!(self.permission, Permission::Ask(_)) {
            Ok(Decision::reject("what it asks is too large to be decided by a callback"))
        } else {
            self.permission.decide(|| PermissionRequest::new(asker, &question, tool.clone()))
        };
        match decision {
            Ok(decision) => self.decided(id, &question, &decision, cx),
            Err(thinking) => {
                cx.progress(Progress::Waiting(Some(Waiting::Permission(tool.into()))));
                let number = self.questions;
                let question = Question { input: None, ..question };
                self.open.insert(number, Open { id: id.to_owned(), question, bytes });
                self.thinking.push(Box::pin(async move { (number, thinking.await) }));
            }
        }
    }

    fn decided(&mut self, id: &RawValue, question: &Question, decision: &Decision, cx: &RunContext) {
        let answered = question.answer(decision);
        self.connection.reply(id, &answered.response);
        let tool = self.tool(question);
        let waits = match (self.open.values().next(), &answered.denied) {
            (Some(open), _) => Waiting::Permission(self.tool(&open.question).into()),
            (None, Some(_)) => Waiting::Model,
            (None, None) => Waiting::Tool((&*tool).into()),
        };
        cx.progress(Progress::Waiting(Some(waits)));
        if let Some(reason) = answered.denied {
            let reason = shown(&reason, self.connection.secrets(), 500);
            self.refused(&tool, &reason, cx);
        }
    }

    fn refused(&mut self, tool: &str, reason: &str, cx: &RunContext) {
        tracing::info!(run = %self.asker.run, agent = %self.asker.agent, tool, reason, "a permission was denied");
        cx.progress(Progress::Denied { tool, reason });
        self.denied = true;
    }

    fn tool(&self, question: &Question) -> String {
        let known = || self.turn.known_tool(&question.call).map(str::to_owned);
        let kind = || Some(&question.kind).filter(|kind| *kind != "other").cloned();
        let name = question.name.clone().or_else(known).or_else(kind);
        let name = name.unwrap_or_else(|| "tool".to_owned());
        shown(&name, self.connection.secrets(), 100)
    }

    /// What a turn that ended came to: the result, or what is asked next.
    fn judge(&mut self, ending: &Ending, cx: &RunContext) -> Result<SubagentResult, Vec<ContentBlock>> {
        let stop = shown(&ending.stop, self.connection.secrets(), 100);
        let said = shown(self.turn.answer.last_message(), self.connection.secrets(), 500);
        let (reason, diagnostic) = verdict::of_turn(Turned {
            program: self.connection.program(),
            stop: &stop,
            cancelled: self.cancelled,
            denied: self.denied,
            failed: self.turn.has_failed(),
            said: &said,
        });
        let cut = match reason {
            StopReason::Completed => self.turn.answer.truncation().map(|_| Cut::OutputBound),
            StopReason::MaxTokens => Some(Cut::TokenLimit),
            StopReason::Aborted | StopReason::Error | StopReason::Refusal | _ => {
                return Ok(self.result(reason, diagnostic));
            }
        };
        let Some(ask) = &mut self.ask else { return Ok(self.result(reason, diagnostic)) };
        // What stands before the last message is talk.
        match ask.submit(self.turn.answer.last_message(), cut) {
            Verdict::Accepted(value) => Ok(self.result(StopReason::Completed, None).with_structured(value)),
            Verdict::Failed(diagnostic) => {
                let reason = if reason == StopReason::MaxTokens { reason } else { StopReason::Error };
                Ok(self.result(reason, Some(diagnostic)))
            }
            Verdict::Again(prompt) => {
                if let Some(attempt) = ask.attempts().last() {
                    cx.progress(Progress::SchemaAttempt(attempt));
                }
                self.denied = false;
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
        result.diagnostic =
            diagnostic.map(|diagnostic| match self.program.withheld(diagnostic.text(), &self.cwd) {
                Some(advice) => {
                    let category = diagnostic.category().to_owned();
                    Diagnostic::new(category, &format!("{}; {advice}", diagnostic.text()))
                }
                None => diagnostic,
            });
        result.usage = self.turn.spent.usage().map(Box::new);
        result
    }

    /// The result of an agent whose connection broke.
    async fn broken(&mut self, broken: Broken) -> SubagentResult {
        if self.cancelled {
            return self.result(StopReason::Aborted, None);
        }
        let words = self.connection.last_words(&broken).await;
        let program = self.connection.program();
        let diagnostic = verdict::of_break(program, &broken, words.exit, &words.to_string());
        self.result(StopReason::Error, Some(diagnostic))
    }

    /// The result of an agent that answered with an error.
    fn failed(&self, error: &RpcError) -> SubagentResult {
        if self.cancelled {
            return self.result(StopReason::Aborted, None);
        }
        let program = self.connection.program();
        let diagnostic = if error.wants_sign_in() {
            let advice = sign_in::advice(self.agent.auth_methods(), self.sign_in_hint);
            Diagnostic::new(
                error.category(),
                &format!("{program} wants a sign-in ({}); {advice}", error.brief()),
            )
        } else {
            error.diagnostic(program)
        };
        self.result(StopReason::Error, Some(diagnostic))
    }

    /// Signs in where an agent that has made a session wants it all the same: once, and only where it has done nothing yet that
    /// would be done again. `None` where that is not so; otherwise how it went.
    async fn sign_in(&mut self, error: &RpcError, cx: &RunContext) -> Option<End> {
        let fresh = self.turn.is_untouched() && self.questions == 0 && !self.denied;
        if !error.wants_sign_in() || self.cancelled || !fresh {
            return None;
        }
        let method = self.sign_in.take()?;
        let asked = self.connection.request("authenticate", AuthenticateRequest::new(method));
        Some(self.answer_to(asked, cx).await)
    }
}

impl Child for AcpChild {
    async fn run(&mut self, cx: RunContext) -> Result<SubagentResult, ResultError> {
        let Some(mut blocks) = self.prompt.take() else {
            return Err(ResultError::wait_failed("the agent was run twice"));
        };
        loop {
            // Only a first prompt can find that nobody has signed in.
            let again = self.sign_in.as_ref().map(|_| blocks.clone());
            match (self.prompt(blocks, &cx).await, again) {
                (End::Answered(Ok(answer)), _) => {
                    self.sign_in = None;
                    let ending = Ending::read(&answer);
                    self.turn.spent.turn(&ending);
                    if let Some(usage) = self.turn.spent.usage() {
                        cx.progress(Progress::Usage(usage));
                    }
                    match self.judge(&ending, &cx) {
                        Ok(result) => return Ok(result),
                        Err(again) => blocks = again,
                    }
                }
                (End::Answered(Err(error)), Some(again)) => match self.sign_in(&error, &cx).await {
                    // Whoever cancels meanwhile wants no other prompt.
                    Some(End::Answered(Ok(_))) if !self.cancelled => blocks = again,
                    Some(End::Answered(Ok(_))) | None => return Ok(self.failed(&error)),
                    Some(End::Answered(Err(error))) => return Ok(self.failed(&error)),
                    Some(End::Broken(broken)) => return Ok(self.broken(broken).await),
                },
                (End::Answered(Err(error)), None) => return Ok(self.failed(&error)),
                (End::Broken(broken), _) => return Ok(self.broken(broken).await),
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
            self.connection.drain(Instant::now() + parting, prompt).await;
        }
        if self.agent.closes_sessions() {
            let session = self.turn.session().to_owned();
            let asked = self.connection.request("session/close", CloseSessionRequest::new(session));
            self.connection.drain(Instant::now() + parting, asked).await;
        }
        let program = self.connection.program().to_owned();
        closed(&program, self.connection.end(deadline).await)
    }
}

fn text(text: &str) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text))
}
