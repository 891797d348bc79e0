//! What real agents wrote, taken in by all that is pure here.
//!
//! `transcripts/AGENT-SCENARIO.wire` is what an agent at its pin and this provider said to each other, recorded by
//! `tests/peers` and cut to size by its `transcript.py`. What comes of it is a snapshot: `INSTA_UPDATE=always` writes those
//! that are new or different, and their diff is what an agent's new version changed. In `error` the model answers 500, but
//! to opencode and Qwen 400: at 500 they ask it again for longer than anybody waits.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use subagents_process::Secrets;
use subagents_seam::Progress;

use crate::agent::AgentInfo;
use crate::answer::Answer;
use crate::failure::RpcError;
use crate::handshake::Choice;
use crate::permission::Decision;
use crate::question::Question;
use crate::spent::Ending;
use crate::turn::Turn;
use crate::verdict::{self, Turned};
use crate::wire::{Incoming, Line};

/// In this order in a snapshot.
const SCENARIOS: [&str; 3] = ["answer", "tool", "error"];

#[derive(Default)]
struct Replay {
    secrets: Secrets,
    /// What we asked, by id.
    asked: HashMap<u64, String>,
    /// What it asked and was not answered yet, by the id as it stands in the line.
    questions: HashMap<String, Question>,
    session: String,
    /// From a prompt to its answer.
    turn: Option<Turn>,
    chunks: usize,
    /// Those of them that were not for the protocol's own types.
    at_once: usize,
    shown: Vec<String>,
    report: String,
}

impl Replay {
    fn tell(&mut self, what: &str) {
        self.report.push_str(what);
        self.report.push('\n');
    }

    fn sent(&mut self, line: &str) {
        let message: Value = serde_json::from_str(line).expect("what we sent is JSON");
        match (message["method"].as_str(), message["id"].as_u64()) {
            (Some(method), Some(id)) => {
                if method == "session/prompt" {
                    let answer = Answer::new(1 << 20, &self.secrets);
                    self.turn = Some(Turn::new(self.session.clone(), answer, self.secrets.clone()));
                }
                self.asked.insert(id, method.to_owned());
            }
            (Some(_), None) => {}
            (None, _) => {
                let id = message["id"].to_string();
                let question = self.questions.remove(&id).expect("nobody answers what is not asked");
                let answered = question.answer(&Decision::Allow);
                assert_eq!(message["result"], json!(answered.response), "it is what would be sent");
                assert_eq!(answered.denied, None);
                let refused = json!(question.answer(&Decision::reject("no")).response);
                let option = |response: &Value| {
                    let outcome = &response["outcome"];
                    outcome["optionId"].as_str().unwrap_or("(cancelled)").to_owned()
                };
                let (allowed, refused) = (option(&message["result"]), option(&refused));
                self.tell(&format!("  allowed: {allowed}; refused it would be: {refused}"));
            }
        }
    }

    fn came(&mut self, line: &str) {
        let line = Line::new(line.to_owned());
        let mut signs = Vec::new();
        let mut show = |progress: Progress<'_>| signs.push(format!("{progress:?}"));
        match line.read() {
            Incoming::Chunk(chunk) => {
                self.chunks += 1;
                self.at_once += 1;
                if let Some(turn) = &mut self.turn {
                    turn.chunk(&chunk, &mut show);
                }
            }
            Incoming::Notification { method, params } if method == "session/update" => {
                self.chunks += usize::from(line.text().contains("\"agent_message_chunk\""));
                // Before its prompt it is not listened to.
                if let Some(turn) = &mut self.turn {
                    turn.update(params, &mut show);
                }
            }
            Incoming::Request { id, method, params } if method == "session/request_permission" => {
                let question = Question::read(params).expect("a question");
                self.question(id, question);
            }
            Incoming::Response { id, outcome } => {
                let asked = self.asked.remove(&id).expect("it answers what was asked");
                let outcome = outcome
                    .map(|result| serde_json::from_str(result.get()).expect("JSON"))
                    .map_err(|error| RpcError::read(error, &self.secrets));
                self.answered(&asked, &outcome);
            }
            Incoming::Request { method, .. } => self.tell(&format!("asked for something else: {method}")),
            Incoming::Notification { method, .. } => self.tell(&format!("told something else: {method}")),
            Incoming::Unasked => self.tell("answered what nobody asked"),
            Incoming::Stray => self.tell(&format!("no message: {}", line.text())),
        }
        self.shown.extend(signs);
    }

    fn question(&mut self, id: &RawValue, question: Question) {
        let known = self.turn.as_ref().and_then(|turn| turn.known_tool(&question.call)).map(str::to_owned);
        self.shown.push("(asks for a permission)".to_owned());
        self.tell(&format!(
            "asks for {}: name {:?}, at work as {known:?}, kind {}, title {:?}, input {}",
            question.call,
            question.name,
            question.kind,
            question.title,
            question.input.as_ref().map_or_else(|| "none".to_owned(), keys),
        ));
        for option in &question.options {
            self.tell(&format!("  {}: {} ({})", option.kind, option.id, option.name));
        }
        self.questions.insert(id.to_string(), question);
    }

    fn answered(&mut self, asked: &str, outcome: &Result<Value, RpcError>) {
        match (asked, outcome) {
            ("initialize", Ok(answer)) => {
                let agent = AgentInfo::read(answer, &self.secrets);
                self.tell(&format!(
                    "{agent}, version {} of the protocol; closes sessions: {}, MCP by HTTP: {}, images: {}",
                    answer["protocolVersion"],
                    agent.closes_sessions(),
                    agent.connects_to_mcp(),
                    agent.takes_images()
                ));
                for method in agent.auth_methods() {
                    self.tell(&format!("  signs in by {method}"));
                }
            }
            ("session/new", Ok(answer)) => {
                answer["sessionId"].as_str().expect("a session").clone_into(&mut self.session);
                self.tell(&format!("session {}", self.session));
                for choice in [Choice::Mode, Choice::Model] {
                    let (option, ids) = choice.ids(answer);
                    self.tell(&format!("  {choice:?} {option:?}: {}", ids.join(", ")));
                }
            }
            ("session/prompt", outcome) => self.turned(outcome),
            (asked, Ok(_)) => self.tell(&format!("{asked}: done")),
            (asked, Err(error)) => self.tell(&format!("{asked}: {error}")),
        }
    }

    fn turned(&mut self, outcome: &Result<Value, RpcError>) {
        let mut turn = self.turn.take().expect("it was prompted");
        turn.answer.finish(&mut |progress| self.shown.push(format!("{progress:?}")));
        let (stop, diagnostic) = match outcome {
            Ok(answer) => {
                let raw = serde_json::value::to_raw_value(answer).expect("it is JSON");
                turn.spent.turn(&Ending::read(&raw));
                let (stop, diagnostic) = verdict::of_turn(Turned {
                    program: "agent",
                    stop: answer["stopReason"].as_str().unwrap_or_default(),
                    cancelled: false,
                    denied: false,
                    failed: turn.has_failed(),
                    said: turn.answer.last_message(),
                });
                (stop.to_string(), diagnostic)
            }
            Err(error) => ("error".to_owned(), Some(error.diagnostic("agent"))),
        };
        for sign in runs(&std::mem::take(&mut self.shown)) {
            self.tell(&format!("  . {sign}"));
        }
        let (chunks, at_once) = (self.chunks, self.at_once);
        self.tell(&format!("{stop}: {:?}, {chunks} chunks, {at_once} read at once", turn.answer.text()));
        if let Some(diagnostic) = diagnostic {
            self.tell(&format!("  {diagnostic}"));
        }
        if let Some(usage) = turn.spent.usage() {
            self.tell(&format!("  {usage:?}"));
        }
    }
}

/// What a tool would be given is the agent's business; that it can be seen is ours.
fn keys(input: &Value) -> String {
    let keys: Vec<_> = input.as_object().into_iter().flatten().map(|(key, _)| &**key).collect();
    keys.join(" ")
}

/// The same again and again is told once.
fn runs(signs: &[String]) -> Vec<String> {
    let runs = signs.chunk_by(|a, b| a == b);
    runs.map(|run| if run.len() == 1 { run[0].clone() } else { format!("{} × {}", run[0], run.len()) })
        .collect()
}

fn replayed(agent: &str, scenario: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/transcripts");
    let transcript =
        fs::read_to_string(folder.join(format!("{agent}-{scenario}.wire"))).expect("a transcript");
    assert!(transcript.len() <= 40 * 1024, "cut it");
    let mut replay = Replay::default();
    for line in transcript.lines() {
        match line.split_at(2) {
            ("> ", line) => replay.sent(line),
            ("< ", line) => replay.came(line),
            (other, _) => panic!("a line begins with {other:?}"),
        }
    }
    assert!(replay.turn.is_none() && replay.questions.is_empty(), "all was answered");
    replay.report
}

fn check(agent: &str) {
    let mut all = String::new();
    for scenario in SCENARIOS {
        write!(all, "== {scenario}\n{}\n", replayed(agent, scenario)).expect("a string");
    }
    insta::assert_snapshot!(agent, all);
}

#[test]
fn claude_agent_acp_0_49_0() {
    check("claude");
}

#[test]
fn codex_acp_2_6_0() {
    check("codex");
}

#[test]
fn codex_acp_of_zed_0_16_0() {
    check("codex-zed");
}

#[test]
fn gemini_cli_0_61_0() {
    check("gemini");
}

#[test]
fn opencode_1_18_33() {
    check("opencode");
}

#[test]
fn python_sdk_0_12_1() {
    check("python");
}

#[test]
fn qwen_code_0_15_10() {
    check("qwen");
}

#[test]
fn every_transcript_is_replayed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/transcripts");
    let agents = ["claude", "codex", "codex-zed", "gemini", "opencode", "python", "qwen"];
    let count = fs::read_dir(folder).expect("a folder").count();
    assert_eq!(count, agents.len() * SCENARIOS.len());
}
