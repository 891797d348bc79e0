//! What an agent tells while it works on a prompt, folded into what is kept of it. Pure.

use std::borrow::Cow;
use std::collections::HashMap;

use agent_client_protocol_schema::v1::{
    ContentBlock, ContentChunk, Meta, SessionNotification, SessionUpdate, ToolCallStatus, ToolKind,
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use subagents_external::shown;
use subagents_process::Secrets;
use subagents_seam::{Progress, Waiting};

use crate::answer::{Answer, Show};
use crate::chunk::Chunk;
use crate::spent::Spent;

/// As many tools of a turn are known by their ids, done ones among them; what is beyond is a
/// sign of life, no more.
const TOOLS: usize = 4096;
/// An update that is larger is not read by the protocol's types.
const LARGE: usize = 256 * 1024;
/// As much of an id is kept.
const ID_BYTES: usize = 256;
/// As much of a tool's name is kept.
const NAME_BYTES: usize = 100;

/// What is read of a large update.
#[derive(Deserialize)]
struct Large<'a> {
    #[serde(borrow, rename = "sessionId")]
    session: Cow<'a, str>,
    #[serde(borrow)]
    update: LargeUpdate<'a>,
}

#[derive(Deserialize)]
struct LargeUpdate<'a> {
    #[serde(borrow, rename = "sessionUpdate")]
    kind: Cow<'a, str>,
    #[serde(borrow, default, rename = "toolCallId")]
    call: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "kind")]
    tool_kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    status: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "messageId")]
    message_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct LargeText<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Cow<'a, str>,
}

/// The state of one session, over all of its prompts.
#[derive(Debug)]
pub(crate) struct Turn {
    session: String,
    pub(crate) answer: Answer,
    pub(crate) spent: Spent,
    /// By id: the name of one that is at work, none of one that is done.
    tools: HashMap<String, Option<String>>,
    secrets: Secrets,
    /// The agent says, beside the protocol, that its model failed.
    failed: bool,
}

impl Turn {
    pub(crate) fn new(session: String, answer: Answer, secrets: Secrets) -> Self {
        Self { session, answer, spent: Spent::default(), tools: HashMap::new(), secrets, failed: false }
    }

    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// The name of a tool that is at work.
    pub(crate) fn known_tool(&self, id: &str) -> Option<&str> {
        self.tools.get(&id[id.ceil_char_boundary(id.len().saturating_sub(ID_BYTES))..])?.as_deref()
    }

    /// Whether the model failed although the agent's stop reason does not say so.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Another prompt follows in the same session.
    pub(crate) fn again(&mut self, answer: Answer) {
        self.answer = answer;
        self.failed = false;
        self.tools.clear();
    }

    /// Takes a piece of the answer.
    pub(crate) fn chunk(&mut self, chunk: &Chunk<'_>, show: &mut Show<'_>) {
        if *chunk.session != *self.session {
            return show(Progress::Alive);
        }
        self.answer.chunk(&chunk.text, chunk.message_id.filter(|id| id.len() <= ID_BYTES), show);
    }

    /// Takes a `session/update`. What is not known, or not as it should be, is a sign of life.
    pub(crate) fn update(&mut self, params: Option<&RawValue>, show: &mut Show<'_>) {
        if let Some(params) = params.filter(|params| params.get().len() > LARGE) {
            return self.large(params, show);
        }
        let update = params.and_then(|params| serde_json::from_str::<SessionNotification>(params.get()).ok());
        let Some(SessionNotification { session_id, update, .. }) = update else {
            // The protocol's types may stumble over something that nobody needs.
            return match params {
                Some(params) => self.large(params, show),
                None => show(Progress::Alive),
            };
        };
        // Agents have sessions of their own below ours.
        if *session_id.0 != *self.session {
            return show(Progress::Alive);
        }
        match update {
            SessionUpdate::AgentMessageChunk(ContentChunk { content, message_id, meta, .. }) => {
                if let Some(usage) = meta.as_ref().and_then(|meta| meta.get("usage")) {
                    self.spent.call(usage);
                    if let Some(usage) = self.spent.usage() {
                        show(Progress::Usage(usage));
                    }
                }
                let ContentBlock::Text(text) = content else { return show(Progress::Alive) };
                let id = message_id.as_ref().map(|id| &*id.0);
                self.answer.chunk(&text.text, id.filter(|id| id.len() <= ID_BYTES), show);
            }
            SessionUpdate::AgentThoughtChunk(chunk) => {
                self.answer.interrupt();
                let text = if let ContentBlock::Text(text) = &chunk.content { &*text.text } else { "" };
                show(Progress::Thought(text));
            }
            SessionUpdate::ToolCall(call) => {
                let name = tool_name(call.name.as_deref(), call.meta.as_ref(), Some(&call.kind));
                self.tool(&call.tool_call_id.0, name, call.status, show);
            }
            SessionUpdate::ToolCallUpdate(call) => {
                let fields = &call.fields;
                let name = tool_name(fields.name.as_deref(), call.meta.as_ref(), fields.kind.as_ref());
                self.tool(&call.tool_call_id.0, name, fields.status.unwrap_or_default(), show);
            }
            SessionUpdate::Plan(_) => show(Progress::Plan),
            SessionUpdate::UsageUpdate(usage) => {
                if let Some(cost) = usage.cost {
                    self.spent.cost(cost.amount, &cost.currency);
                }
                match self.spent.usage() {
                    Some(usage) => show(Progress::Usage(usage)),
                    None => show(Progress::Alive),
                }
            }
            SessionUpdate::SessionInfoUpdate(info) => {
                self.heed(info.meta.as_ref());
                show(Progress::Alive);
            }
            SessionUpdate::UserMessageChunk(_)
            | SessionUpdate::AvailableCommandsUpdate(_)
            | SessionUpdate::CurrentModeUpdate(_)
            | SessionUpdate::ConfigOptionUpdate(_)
            | _ => show(Progress::Alive),
        }
    }

    /// Takes an update that is large, most likely for what a tool was given or has found, or odd: of a tool its state is read, of the
    /// answer its text, and nothing else. As a value it would take a hundred times its room.
    fn large(&mut self, params: &RawValue, show: &mut Show<'_>) {
        let update = match serde_json::from_str::<Large<'_>>(params.get()) {
            Ok(Large { session, update }) if session == self.session => update,
            Ok(_) | Err(_) => return show(Progress::Alive),
        };
        match &*update.kind {
            "tool_call" | "tool_call_update" if !update.call.is_empty() => {
                let status = match update.status.as_deref() {
                    Some("completed") => ToolCallStatus::Completed,
                    Some("failed") => ToolCallStatus::Failed,
                    Some(_) | None => ToolCallStatus::InProgress,
                };
                let name = update.name.or(update.tool_kind).map(Cow::into_owned);
                self.tool(&update.call, name, status, show);
            }
            "agent_message_chunk" => {
                let text = update
                    .content
                    .and_then(|content| serde_json::from_str::<LargeText<'_>>(content.get()).ok());
                match text.filter(|text| text.kind == "text") {
                    Some(text) => self.answer.chunk(&text.text, update.message_id.as_deref(), show),
                    None => show(Progress::Alive),
                }
            }
            _ => show(Progress::Alive),
        }
    }

    /// Whether the agent has neither said nor done anything yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.tools.is_empty() && self.answer.text().is_empty()
    }

    /// A tool is waited for from its first word on, until it is done.
    fn tool(&mut self, id: &str, name: Option<String>, status: ToolCallStatus, show: &mut Show<'_>) {
        let over = matches!(status, ToolCallStatus::Completed | ToolCallStatus::Failed);
        // The end of a longer id tells calls apart as well as the whole does.
        let id = &id[id.ceil_char_boundary(id.len().saturating_sub(ID_BYTES))..];
        if self.tools.len() >= TOOLS && !self.tools.contains_key(id) {
            // Which it is cannot be told any more.
            return show(Progress::Alive);
        }
        if !self.tools.contains_key(id) {
            self.answer.interrupt();
            let name = name.map_or_else(|| "tool".to_owned(), |name| shown(&name, &self.secrets, NAME_BYTES));
            show(Progress::ToolStarted(&name));
            self.tools.insert(id.to_owned(), Some(name));
        }
        // One that is done may be told of again.
        let Some(name) = self.tools.get_mut(id).filter(|_| over).and_then(Option::take) else {
            return show(Progress::Alive);
        };
        show(Progress::ToolFinished(&name));
        let next = self.tools.values().flatten().next();
        show(Progress::Waiting(Some(next.map_or(Waiting::Model, |name| Waiting::Tool((&**name).into())))));
    }

    /// codex-acp tells a failed model beside the protocol only, in the status of its thread: the turn ends as if nothing
    /// had happened.
    fn heed(&mut self, meta: Option<&Meta>) {
        let Some(status) =
            meta.and_then(|meta| meta.get("codex")).map(|codex| &codex["threadStatus"]["type"])
        else {
            return;
        };
        match status.as_str() {
            Some("systemError") => self.failed = true,
            Some("active") => self.failed = false,
            // After an error it goes idle all the same.
            Some(_) | None => {}
        }
    }
}

/// What a tool may be called where people see it. A title is none: it holds what the tool was given.
fn tool_name(name: Option<&str>, meta: Option<&Meta>, kind: Option<&ToolKind>) -> Option<String> {
    // Claude Code's and Qwen's own places.
    let beside = || {
        let meta = meta?;
        meta.get("claudeCode").and_then(|claude| claude.get("toolName")).or(meta.get("toolName"))?.as_str()
    };
    let told = name.or_else(beside).map(str::to_owned);
    // The kind as the protocol writes it.
    let kind = || match serde_json::to_value(kind?) {
        Ok(Value::String(kind)) if kind != "other" => Some(kind),
        _ => None,
    };
    told.or_else(kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn played(updates: &[Value]) -> (Turn, Vec<String>) {
        let secrets = Secrets::default();
        let mut turn = Turn::new("s".to_owned(), Answer::new(1000, &secrets), secrets.clone());
        let mut shown = Vec::new();
        for update in updates {
            let params = if update.get("sessionId").is_some() || !update.is_object() {
                update.clone()
            } else {
                json!({"sessionId": "s", "update": update})
            };
            let params = serde_json::value::to_raw_value(&params).unwrap();
            turn.update(Some(&params), &mut |progress| shown.push(format!("{progress:?}")));
        }
        (turn, shown)
    }

    fn chunk(text: &str) -> Value {
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
    }

    #[test]
    fn spec_18_2_the_answer_is_the_text_of_the_messages_alone() {
        let (turn, shown) = played(&[
            json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "you said"}}),
            json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}}),
            json!({"sessionUpdate": "plan", "entries": []}),
            chunk("one "),
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "", "mimeType": "image/png"}}),
            json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "touch /secret", "kind": "execute", "status": "pending"}),
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress", "content": [{"type": "content", "content": {"type": "text", "text": "no answer"}}]}),
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"}),
            chunk("two"),
        ]);
        assert_eq!(turn.answer.text(), "one \n\ntwo");
        assert_eq!(
            shown,
            [
                "Alive",
                r#"Thought("hm")"#,
                "Plan",
                "Message",
                r#"Text("one ")"#,
                "Alive",
                r#"ToolStarted("execute")"#,
                "Alive",
                "Alive",
                r#"ToolFinished("execute")"#,
                "Waiting(Some(Model))",
                "Message",
                r#"Text("\n\n")"#,
                r#"Text("two")"#,
            ]
        );
    }

    #[test]
    fn what_is_unknown_or_odd_is_a_sign_of_life() {
        let (turn, shown) = played(&[
            json!({"sessionUpdate": "quantum_update", "x": 1}),
            json!({"sessionUpdate": 7}),
            json!(null),
            json!([1, 2]),
            json!({"sessionUpdate": "agent_message_chunk", "content": "text"}),
            json!({"sessionUpdate": "tool_call"}),
            json!({"sessionId": "another", "update": chunk("not ours")}),
        ]);
        assert_eq!(turn.answer.text(), "");
        assert_eq!(shown, ["Alive"; 7]);
    }

    #[test]
    fn a_tool_is_named_without_what_it_was_given() {
        let tool = |more: Value| {
            let mut call = json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "rm -rf /"});
            call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            played(&[call]).1[0].clone()
        };
        for (more, name) in [
            (json!({"kind": "execute"}), "execute"),
            (json!({"kind": "execute", "name": "bash"}), "bash"),
            (json!({"kind": "execute", "_meta": {"claudeCode": {"toolName": "Bash"}}}), "Bash"),
            (json!({"kind": "other"}), "tool"),
            (json!({}), "tool"),
        ] {
            assert_eq!(tool(more), format!("ToolStarted({name:?})"));
        }
    }

    #[test]
    fn of_a_large_update_the_state_of_its_tool_is_read() {
        let tool = |status: &str| {
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "kind": "edit", "status": status,
                   "rawInput": "x".repeat(LARGE), "content": [{"type": "content"}]})
        };
        let (_, shown) = played(&[tool("in_progress"), tool("completed")]);
        let wanted = [r#"ToolStarted("edit")"#, "Alive", r#"ToolFinished("edit")"#, "Waiting(Some(Model))"];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn a_large_piece_of_an_answer_is_no_less_of_it() {
        let text = "y".repeat(LARGE);
        let (turn, _) = played(&[json!({"sessionUpdate": "agent_message_chunk", "_meta": {"a": 1},
                                        "content": {"type": "text", "text": text, "annotations": {}}})]);
        assert_eq!(turn.answer.truncation().map(|cut| cut.total_bytes), Some(LARGE as u64));
    }

    #[test]
    fn with_two_tools_at_once_the_other_is_still_waited_for() {
        let tool = |id: &str, status: &str| json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "kind": "read", "status": status});
        let (turn, shown) = played(&[
            tool("a", "in_progress"),
            tool("b", "in_progress"),
            tool("a", "failed"),
            tool("b", "completed"),
            tool("b", "completed"),
        ]);
        let of_it: Vec<_> = shown.iter().map(String::as_str).filter(|shown| *shown != "Alive").collect();
        assert_eq!(
            of_it,
            [
                r#"ToolStarted("read")"#,
                r#"ToolStarted("read")"#,
                r#"ToolFinished("read")"#,
                r#"Waiting(Some(Tool("read")))"#,
                r#"ToolFinished("read")"#,
                "Waiting(Some(Model))",
            ]
        );
        assert_eq!(turn.known_tool("b"), None);
    }

    #[test]
    fn b06_a_failed_model_is_seen_where_only_the_status_of_a_thread_tells_it() {
        let status = |status: &str| json!({"sessionUpdate": "session_info_update", "_meta": {"codex": {"threadStatus": {"type": status}}}});
        assert!(!played(&[status("active"), status("idle")]).0.has_failed());
        assert!(played(&[status("active"), status("systemError"), chunk("We are busy")]).0.has_failed());
        assert!(played(&[status("systemError"), status("idle")]).0.has_failed());
        assert!(!played(&[status("systemError"), status("active")]).0.has_failed());
    }
}
