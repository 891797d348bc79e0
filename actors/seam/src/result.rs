//! What came of a run.

use crate::{Content, text};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{borrow::Cow, convert::Infallible, fmt, str::FromStr, sync::Arc};

/// Why a run ended (SPEC 1.6). An open set: what is unknown here counts as a failure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The child did what it was asked. The only success.
    Completed,
    /// It was cancelled.
    Aborted,
    /// It failed.
    Error,
    /// It hit its token limit before finishing.
    MaxTokens,
    /// It declined.
    Refusal,
    /// A deadline passed.
    TimedOut,
    /// Something a newer peer said.
    Other(Arc<str>),
}

impl StopReason {
    /// Whether the run did what it was asked: `Completed` alone.
    pub fn is_success(&self) -> bool {
        *self == Self::Completed
    }

    /// The name on the wire, in kebab case.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::Error => "error",
            Self::MaxTokens => "max-tokens",
            Self::Refusal => "refusal",
            Self::TimedOut => "timed-out",
            Self::Other(other) => other,
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<&str> for StopReason {
    fn from(text: &str) -> Self {
        match text {
            "completed" => Self::Completed,
            "aborted" => Self::Aborted,
            "error" => Self::Error,
            "max-tokens" => Self::MaxTokens,
            "refusal" => Self::Refusal,
            "timed-out" => Self::TimedOut,
            other => Self::Other(text::bounded(&text::sanitised(other), 100).into()),
        }
    }
}

impl FromStr for StopReason {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.into())
    }
}

impl Serialize for StopReason {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for StopReason {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer).map(|text| Self::from(&*text))
    }
}

/// The outcome of a run (SPEC 1.5). A child's failure is a value, told by the stop reason, not an `Err`.
///
/// Everything that is unknown is `None`, never zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use = "a run's failure is told by its stop reason"]
pub struct SubagentResult {
    /// What the child said; partial where the stop reason is no success.
    pub output: Content,
    /// The value asked for by an output schema.
    pub structured: Option<Value>,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// What went wrong, in few words; `None` on success.
    pub diagnostic: Option<Diagnostic>,
    /// What it used up.
    pub usage: Option<Box<Usage>>,
    /// Facts beside the answer, also on success.
    pub details: Details,
}

impl SubagentResult {
    /// A success with this answer. The runtime turns a blank one into an error unless the provider allows it.
    pub fn completed(output: impl Into<Content>) -> Self {
        Self::new(StopReason::Completed, output)
    }

    /// The answer of a cancelled child, as far as it came. The runtime adds the cause.
    pub fn aborted(partial: impl Into<Content>) -> Self {
        Self::new(StopReason::Aborted, partial)
    }

    /// A failure, with a diagnostic.
    pub fn error(diagnostic: Diagnostic) -> Self {
        Self { diagnostic: Some(diagnostic), ..Self::new(StopReason::Error, Content::EMPTY) }
    }

    /// Any other end.
    pub fn new(stop_reason: StopReason, output: impl Into<Content>) -> Self {
        Self {
            output: output.into(),
            structured: None,
            stop_reason,
            diagnostic: None,
            usage: None,
            details: Details::default(),
        }
    }

    /// Sets the output.
    pub fn with_output(mut self, output: impl Into<Content>) -> Self {
        self.output = output.into();
        self
    }

    /// Sets the structured value.
    pub fn with_structured(mut self, value: Value) -> Self {
        self.structured = Some(value);
        self
    }

    /// Sets the diagnostic.
    pub fn with_diagnostic(mut self, diagnostic: Diagnostic) -> Self {
        self.diagnostic = Some(diagnostic);
        self
    }

    /// Sets the usage.
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = Some(Box::new(usage));
        self
    }

    /// Sets the details.
    pub fn with_details(mut self, details: Details) -> Self {
        self.details = details;
        self
    }

    /// The text of the output.
    pub fn text(&self) -> String {
        self.output.to_text()
    }

    /// The output as the last assistant message of an `Ended` event: absent when empty (SPEC 2.5).
    pub fn last_assistant_message(&self) -> Option<&Content> {
        (!self.output.blocks().is_empty()).then_some(&self.output)
    }
}

/// What went wrong, for people: a category for programs and a short clean text.
///
/// At most 4096 UTF-8 bytes, cut visibly, without control characters, never empty (SPEC 17.6). Authors put no
/// prompt, no tool input, no secret and no raw payload into it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RawDiagnostic")]
pub struct Diagnostic {
    category: Cow<'static, str>,
    text: Cow<'static, str>,
}

/// What comes off a wire is bounded and cleaned like all else.
#[derive(Deserialize)]
struct RawDiagnostic {
    category: String,
    text: String,
}

impl From<RawDiagnostic> for Diagnostic {
    fn from(raw: RawDiagnostic) -> Self {
        Self::new(raw.category, &raw.text)
    }
}

impl Diagnostic {
    /// A diagnostic of `category` (kebab case, like `empty-answer`) with `text`, sanitised and bounded.
    pub fn new(category: impl Into<Cow<'static, str>>, text: &str) -> Self {
        // What lies far beyond the bound is not even looked at.
        let clean = text::sanitised(&text[..text.floor_char_boundary(text::DIAGNOSTIC_BYTES * 4)]);
        let clean = clean.trim();
        let clean = if clean.is_empty() { "no details were given" } else { clean };
        let mut category = category.into();
        if category.len() > 100 || text::sanitised(&category) != category {
            category = text::bounded(&text::sanitised(&category), 100).into();
        }
        Self { category, text: text::bounded(clean, text::DIAGNOSTIC_BYTES).into() }
    }

    /// A diagnostic that is known beforehand: nothing is copied. The text is taken as it is.
    pub const fn fixed(category: &'static str, text: &'static str) -> Self {
        Self { category: Cow::Borrowed(category), text: Cow::Borrowed(text) }
    }

    /// The category, in kebab case.
    pub fn category(&self) -> &str {
        &self.category
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.category, self.text)
    }
}

/// What a run used up. Unknown stays `None`, never zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: Option<u64>,
    /// Tokens written.
    pub output_tokens: Option<u64>,
    /// Tokens read from a cache.
    pub cached_tokens: Option<u64>,
    /// Tokens in all.
    pub total_tokens: Option<u64>,
    /// Cost in US dollars.
    pub cost_usd: Option<f64>,
}

/// Facts beside the answer. What a provider leaves out here and has told as [`Progress`](crate::Progress) is added by the
/// runtime, also where the run was cut short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Details {
    /// How many messages the answer was made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<u32>,
    /// How many tool calls the child made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u32>,
    /// How many pieces of thought it showed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thoughts: Option<u32>,
    /// How often it made a plan or changed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plans: Option<u32>,
    /// How many lines it wrote among its protocol's messages that are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stray_lines: Option<u32>,
    /// Each attempt at the output schema with what was wrong with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schema_attempts: Vec<SchemaAttempt>,
    /// Tool calls that were denied, in order. A child may say that its work is done all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied_calls: Vec<DeniedCall>,
    /// How many were denied in all, where not all of them are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denied_total: Option<u32>,
    /// Set when the output is not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<Truncation>,
}

/// One attempt at an output schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SchemaAttempt {
    /// Why it did not match; empty for the one that did.
    pub errors: Vec<String>,
}

/// A tool call that was denied: by a policy, by a person, or because nobody was there to ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeniedCall {
    /// The tool, by name or as the child calls it.
    pub tool: String,
    /// Who denied it, or what.
    pub reason: String,
}

impl DeniedCall {
    /// A call of `tool`, denied for `reason`: both cleaned and cut, to 200 and 500 bytes. Authors put no tool input
    /// into either.
    pub fn new(tool: &str, reason: &str) -> Self {
        let clean = |text: &str, limit: usize| {
            // What lies far beyond the bound is not even looked at.
            let near = &text[..text.floor_char_boundary(limit * 4)];
            text::bounded(text::sanitised(near).trim(), limit)
        };
        Self { tool: clean(tool, 200), reason: clean(reason, 500) }
    }
}

/// How much of an output was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Truncation {
    /// Bytes that were kept.
    pub kept_bytes: u64,
    /// Bytes that the child said in all.
    pub total_bytes: u64,
}

impl Truncation {
    /// `kept` of `total` bytes.
    pub const fn new(kept: u64, total: u64) -> Self {
        Self { kept_bytes: kept, total_bytes: total }
    }
}

#[cfg(test)]
mod tests {
    use super::{DeniedCall, Details, Diagnostic, StopReason, SubagentResult};

    #[test]
    fn spec_1_6_an_unknown_stop_reason_is_a_failure() {
        for (wire, success) in
            [("completed", true), ("paused", false), ("Completed", false), ("timed-out", false), ("", false)]
        {
            let reason = StopReason::from(wire);
            assert_eq!(reason.is_success(), success, "{wire}");
            assert_eq!(reason.as_str(), wire);
        }
    }

    #[test]
    fn spec_17_6_a_diagnostic_is_bounded_clean_and_never_empty() {
        let long = Diagnostic::new("x", &"é".repeat(1_000_000));
        assert!(long.text().len() <= 4096 && long.text().ends_with("(cut)"));
        assert_eq!(Diagnostic::new("x", "\u{1b}[2Ja\u{7}").text(), "a");
        assert_eq!(Diagnostic::new("x", " \n").text(), "no details were given");
    }

    #[test]
    fn f02_denied_calls_have_tool_and_reason_and_read_well() {
        let mut details = Details::default();
        assert_eq!(serde_json::to_string(&details).expect("JSON"), "{}");
        assert_eq!(serde_json::from_str::<Details>("{}").expect("nothing is needed"), details);
        details.tool_calls = Some(0);
        details.denied_calls = vec![DeniedCall::new("ba\u{1b}[31msh\n", &"no ".repeat(1_000_000))];
        let json = serde_json::to_value(&details).expect("JSON");
        assert_eq!((&json["tool_calls"], &json["denied_calls"][0]["tool"]), (&0.into(), &"bash".into()));
        assert!(details.denied_calls[0].reason.len() <= 500);
        assert_eq!(serde_json::from_value::<Details>(json).expect("what was written is readable"), details);
    }

    #[test]
    fn spec_1_5_a_result_round_trips_and_keeps_the_unknown_unknown() {
        let result = SubagentResult::completed("hi");
        let json = serde_json::to_value(&result).expect("a result is JSON");
        assert_eq!(json["usage"], serde_json::Value::Null);
        assert_eq!(json["stop_reason"], "completed");
        assert_eq!(
            serde_json::from_value::<SubagentResult>(json).expect("what was written is readable"),
            result
        );
        assert!(SubagentResult::completed("").last_assistant_message().is_none());
    }
}
