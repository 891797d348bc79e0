//! What the model is to answer to one request, and how.

use super::{ModelRequest, directives};
use serde_json::Value;
use std::time::Duration;

/// An answer of the model, or a failure, and the manner in which it comes. The default one says nothing.
///
/// ```
/// use serde_json::json;
/// use std::time::Duration;
/// use subagents_testkit::model::Reply;
///
/// let answer = Reply::text("done").usage(120, 7);
/// let tools = Reply::call("read", json!({"path": "a"})).and_call("read", json!({"path": "b"}));
/// let limited = Reply::http(429).retry_after(Duration::from_secs(2));
/// let flaky = Reply::text("at last").fail_first(2, 503);
/// # let _ = (answer, tools, limited, flaky);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a reply does nothing until a script returns it"]
pub struct Reply {
    pub(crate) think: Option<String>,
    pub(crate) text: Option<String>,
    pub(crate) calls: Vec<Call>,
    pub(crate) usage: Option<Usage>,
    pub(crate) failure: Option<Failure>,
    pub(crate) stall: Duration,
    pub(crate) stall_midway: Duration,
    pub(crate) pace: Duration,
    pub(crate) drops: Option<Times>,
    pub(crate) cut: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: u16,
    pub(crate) message: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) times: Times,
}

/// How often something befalls the same request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    Always,
    First(u64),
}

/// What it says.
impl Reply {
    /// This text. A stream brings it in pieces of 12 characters, and a long one in a thousand.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// This JSON as its text, and nothing around it.
    pub fn json(value: &Value) -> Self {
        Self::text(value.to_string())
    }

    /// A call of this tool. The arguments are an object; a tool that takes text gets the field `input` of it, or a
    /// string. A tool in a namespace is `namespace/name`. It may be one that nobody offered: models do that.
    pub fn call(tool: impl Into<String>, arguments: Value) -> Self {
        Self::default().and_call(tool, arguments)
    }

    /// What the directives in the prompt say, see [the module](super); a directive that cannot be read is a 400 that
    /// says why. For a script that decides some requests by code and leaves the others to their prompts.
    pub fn from_prompt(request: &ModelRequest) -> Self {
        directives::reply(request).unwrap_or_else(|error| Self::http(400).message(error.to_string()))
    }

    /// One more call in the same answer.
    pub fn and_call(mut self, tool: impl Into<String>, arguments: Value) -> Self {
        self.calls.push(Call { name: tool.into(), arguments });
        self
    }

    /// Comes after this thought: a reasoning item, a thinking block, a part that is a thought; in Chat Completions,
    /// which has no place for it, the field `reasoning_content` that many servers have.
    pub fn think(mut self, thought: impl Into<String>) -> Self {
        self.think = Some(thought.into());
        self
    }

    /// Reports this usage, in tokens. Without it: a quarter of the bytes that came, and of those that go.
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage = Some(Usage { input, output });
        self
    }
}

/// How it fails.
impl Reply {
    /// This HTTP status, 400 to 599, with an error as the protocol has it. Any other number is a 500 that says so.
    pub fn http(status: u16) -> Self {
        Self::default().failing(status, Times::Always)
    }

    /// The first `times` times that this very conversation asks, it fails with this HTTP status; from then on it is
    /// what the rest of the reply says. Conversations are told apart by what is said in them, nothing else.
    pub fn fail_first(self, times: u64, status: u16) -> Self {
        self.failing(status, Times::First(times))
    }

    pub(crate) fn failing(mut self, status: u16, times: Times) -> Self {
        let (status, message) = match status {
            400..=599 => (status, None),
            _ => (500, Some(format!("the script failed with status {status}: give one from 400 to 599"))),
        };
        self.failure = Some(Failure { status, message, retry_after: None, times });
        self
    }

    /// Says this in the failure. Without one it changes nothing.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        if let Some(failure) = &mut self.failure {
            failure.message = Some(message.into());
        }
        self
    }

    /// Sends `Retry-After` with the failure, in whole seconds, rounded up. Without a failure it changes nothing.
    pub fn retry_after(mut self, after: Duration) -> Self {
        if let Some(failure) = &mut self.failure {
            failure.retry_after = Some(after);
        }
        self
    }

    /// The connection breaks after the first piece of the answer; of one that is not streamed, in the middle.
    pub fn drop_midway(mut self) -> Self {
        self.drops = Some(Times::Always);
        self
    }

    /// A stream ends after its first piece as if it were whole: nothing breaks, and the model's last words are missing, as
    /// behind a proxy that gave up. An answer that is not streamed is whole.
    pub fn cut_midway(mut self) -> Self {
        self.cut = true;
        self
    }

    /// As [`drop_midway`](Self::drop_midway), the first `times` times that this very conversation asks.
    pub fn drop_first(mut self, times: u64) -> Self {
        self.drops = Some(Times::First(times));
        self
    }
}

/// When it comes.
impl Reply {
    /// Nothing comes before this time, not even a status.
    pub fn stall(mut self, time: Duration) -> Self {
        self.stall = time;
        self
    }

    /// After the first piece nothing comes for this time.
    pub fn stall_midway(mut self, time: Duration) -> Self {
        self.stall_midway = time;
        self
    }

    /// This time passes after each piece of a text.
    pub fn pace(mut self, time: Duration) -> Self {
        self.pace = time;
        self
    }
}
