//! One request to a model, whichever protocol it came in.

use serde_json::Value;
use std::{fmt, sync::Arc, time::Instant};

/// The protocol that a request was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// OpenAI Responses, `POST /v1/responses`.
    Responses,
    /// OpenAI Chat Completions, `POST /v1/chat/completions`.
    ChatCompletions,
    /// Anthropic Messages, `POST /v1/messages`.
    Messages,
    /// Gemini, `POST /v1beta/models/M:generateContent` and `:streamGenerateContent`.
    Gemini,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Responses => "responses",
            Self::ChatCompletions => "chat-completions",
            Self::Messages => "messages",
            Self::Gemini => "gemini",
        })
    }
}

/// A part of the conversation that a request carries, in its order. System and developer messages are not among them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Turn {
    /// One text part of a user's message: an agent adds parts of its own to what the user typed.
    User(String),
    /// One answer of the model: its text, and the names of the tools that it called.
    Assistant {
        /// What it said; empty where it only called.
        text: String,
        /// The tools that it called, in order.
        calls: Vec<String>,
    },
    /// The result of one tool call.
    Tool {
        /// The id of the call; empty where the protocol does not demand one.
        id: String,
        /// The result as text.
        text: String,
    },
}

/// A tool that a request offers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tool {
    /// `namespace/name` where it stands in a namespace.
    pub(crate) name: String,
    /// It takes text in place of JSON arguments.
    pub(crate) freeform: bool,
}

/// What a protocol's reader found in a body.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) model: String,
    pub(crate) streaming: bool,
    pub(crate) turns: Vec<Turn>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) wants_json: bool,
}

/// What a client asked of the model.
///
/// Clone shares it. It carries no header, hence no key.
#[derive(Clone)]
pub struct ModelRequest {
    inner: Arc<Inner>,
}

struct Inner {
    protocol: Protocol,
    asked: Asked,
    body: Value,
    bytes: usize,
    at: Instant,
}

impl ModelRequest {
    pub(crate) fn new(protocol: Protocol, asked: Asked, body: Value, bytes: usize) -> Self {
        Self { inner: Arc::new(Inner { protocol, asked, body, bytes, at: Instant::now() }) }
    }

    /// The protocol that it was made in.
    pub fn protocol(&self) -> Protocol {
        self.inner.protocol
    }

    /// The model that was asked for.
    pub fn model(&self) -> &str {
        &self.inner.asked.model
    }

    /// Whether the answer is to be streamed.
    pub fn is_streaming(&self) -> bool {
        self.inner.asked.streaming
    }

    /// Whether the answer is to be JSON, by a schema or without.
    pub fn wants_json(&self) -> bool {
        self.inner.asked.wants_json
    }

    /// The conversation so far.
    pub fn turns(&self) -> &[Turn] {
        &self.inner.asked.turns
    }

    /// The last text of the user, without what agents put around it: a part that is one `<element>` as a whole counts
    /// only where there is no other. Empty where the user said nothing.
    pub fn prompt(&self) -> &str {
        let texts = || self.turns().iter().rev().filter_map(user_text);
        texts().find(|text| !is_context(text)).or_else(|| texts().next()).unwrap_or_default()
    }

    /// The results of the tools that were called last, as text: those that no answer came after. They are in the order of the
    /// calls, as the client's ids say it, in whatever order it has sent them.
    pub fn tool_results(&self) -> Vec<&str> {
        let answered = |turn: &Turn| matches!(turn, Turn::Assistant { .. });
        let from = self.turns().iter().rposition(answered).map_or(0, |at| at + 1);
        let results = self.turns()[from..].iter().filter_map(|turn| match turn {
            Turn::Tool { id, text } => Some((place(id), text.as_str())),
            Turn::User(_) | Turn::Assistant { .. } => None,
        });
        let mut results: Vec<_> = results.collect();
        results.sort_by_key(|(place, _)| *place);
        results.into_iter().map(|(_, text)| text).collect()
    }

    /// The names of the tools that are offered, in order. A tool in a namespace is `namespace/name`.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.inner.asked.tools.iter().map(|tool| tool.name.as_str())
    }

    /// Whether a tool of this name is offered.
    pub fn offers(&self, tool: &str) -> bool {
        self.tools().any(|name| name == tool)
    }

    /// The body as it came.
    pub fn body(&self) -> &Value {
        &self.inner.body
    }

    /// When it had arrived as a whole.
    pub fn at(&self) -> Instant {
        self.inner.at
    }

    /// The length of the body as it came, in bytes.
    pub fn bytes(&self) -> usize {
        self.inner.bytes
    }

    pub(crate) fn offered(&self) -> &[Tool] {
        &self.inner.asked.tools
    }
}

/// Without the body, which is long, and the user's business.
impl fmt::Debug for ModelRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelRequest")
            .field("protocol", &self.protocol())
            .field("model", &self.model())
            .field("is_streaming", &self.is_streaming())
            .field("turns", &self.turns().len())
            .field("tools", &self.inner.asked.tools.len())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// A call's place in its answer, by its id. None where the client has made an id of its own.
fn place(id: &str) -> Option<usize> {
    id.rsplit_once('_')?.1.parse().ok()
}

pub(crate) fn user_text(turn: &Turn) -> Option<&str> {
    match turn {
        Turn::User(text) => Some(text),
        Turn::Assistant { .. } | Turn::Tool { .. } => None,
    }
}

/// `<system-reminder>…</system-reminder>` and the like.
fn is_context(text: &str) -> bool {
    let text = text.trim();
    let Some((name, _)) = text.strip_prefix('<').and_then(|rest| rest.split_once('>')) else { return false };
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !name.is_empty() && name.chars().all(named) && text.ends_with(&format!("</{name}>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(turns: Vec<Turn>) -> ModelRequest {
        let asked =
            Asked { model: "m".into(), streaming: false, turns, tools: Vec::new(), wants_json: false };
        ModelRequest::new(Protocol::Messages, asked, Value::Null, 0)
    }

    #[test]
    fn the_prompt_is_what_the_user_typed() {
        let said = |texts: &[&str]| {
            request(texts.iter().map(|text| Turn::User((*text).into())).collect()).prompt().to_owned()
        };
        assert_eq!(said(&["typed", "<system-reminder>\nx</system-reminder>\n"]), "typed");
        assert_eq!(said(&["old", "<b>bold</b> word"]), "<b>bold</b> word");
        assert_eq!(said(&["<only>x</only>"]), "<only>x</only>");
        assert_eq!(said(&[]), "");
    }

    #[test]
    fn only_the_last_results_count() {
        let tool = |text: &str| Turn::Tool { id: String::new(), text: text.into() };
        let call = || Turn::Assistant { text: String::new(), calls: vec!["t".into()] };
        let turns = vec![call(), tool("old"), call(), tool("a"), Turn::User("hm".into()), tool("b")];
        assert_eq!(request(turns).tool_results(), ["a", "b"]);
    }
}
