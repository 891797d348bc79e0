//! How the outcome of one prompt reads, for people and for programs. Pure.

use crate::cli::{
    asked::advice,
    deadlines::Limits,
    tally::{Ending, ending},
};
use serde::Serialize;
use serde_json::Value;
use std::{borrow::Cow, fmt::Write, sync::Arc, time::Duration};
use subagents::{
    BatchItem, Capabilities, DelegateError, Details, Diagnostic, Name, ResultError, RunId, StopReason,
    SubagentResult, Usage, bounded, sanitised,
};

/// The name of the provider behind `-- COMMAND`.
pub(crate) const EXEC: &str = "exec";
/// The same with `--acp`.
pub(crate) const ACP: &str = "acp";

/// As many denied calls are named on a line.
const DENIED: usize = 3;

/// What goes out for one prompt.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) out: String,
    pub(crate) err: String,
}

/// How outcomes are to be written.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    pub(crate) json: bool,
    /// Whether answers meet a terminal, which foreign text must not steer.
    pub(crate) terminal: bool,
    /// Whether a prompt's index says anything.
    pub(crate) many: bool,
    pub(crate) label: Option<Arc<str>>,
    /// The provider's name.
    pub(crate) provider: Name,
    /// Whose deadlines hold.
    pub(crate) limits: Limits,
    /// What each configured provider can do.
    pub(crate) able: Vec<(Name, Capabilities)>,
}

/// What is known of a prompt beside its outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Aside {
    /// Where it stood among the lines of its source.
    pub(crate) line: Option<u64>,
    /// It was cut short by a kill, and nothing of it is left.
    pub(crate) killed: bool,
}

impl Style {
    pub(crate) fn render(&self, item: &BatchItem, aside: Aside) -> Lines {
        if self.json {
            return Lines { out: self.json_line(item), err: String::new() };
        }
        let (mut lines, mut err) = (Lines::default(), String::new());
        let mut tell = |what: &str| self.tell(&mut err, item.index, aside.line, what);
        if let Ok(result) | Err(DelegateError::Dispose { result, .. }) = &item.outcome {
            if result.stop_reason.is_success() {
                lines.out = self.answer(result);
            } else {
                let killed = if aside.killed { "; killed" } else { "" };
                let (over, words) = (self.over(result), last_words(result));
                tell(&format!("{}{over}{}{words}{killed}", failure(result), again(result)));
            }
            if let Some(cut) = &result.details.truncated {
                let (kept, total) = (cut.kept_bytes, cut.total_bytes);
                tell(&format!("the answer is cut: {kept} of {total} bytes are kept"));
            }
            if let Some(denied) = denied(&result.details) {
                tell(&denied);
            }
        }
        if let Err(error) = &item.outcome {
            tell(&format!("{}: {}", error.code(), self.message(error)));
        }
        lines.err = err;
        lines
    }

    /// Whose time was over.
    fn over(&self, result: &SubagentResult) -> String {
        self.limits.over(result).map(|who| format!(" ({who})")).unwrap_or_default()
    }

    /// An error with what would help.
    fn message(&self, error: &DelegateError) -> String {
        let advice = match error {
            DelegateError::Start(error) => advice(error, &self.provider, &self.able),
            DelegateError::Result(_) | DelegateError::Dispose { .. } | _ => None,
        };
        advice.map_or_else(|| error.to_string(), |advice| format!("{error} ({advice})"))
    }

    fn answer(&self, result: &SubagentResult) -> String {
        if let Some(value) = &result.structured {
            return line(value);
        }
        let text = result.text();
        let mut text = if self.terminal { sanitised(&text) } else { text };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    }

    /// One line on stderr, whatever the message is made of.
    fn tell(&self, into: &mut String, index: usize, line: Option<u64>, what: &str) {
        into.push_str("subagents: ");
        if self.many {
            let _ = write!(into, "prompt {index}");
            let label = self.label.as_deref().map(one_line);
            let asides: Vec<_> = label.into_iter().chain(line.map(|line| format!("line {line}"))).collect();
            if !asides.is_empty() {
                let _ = write!(into, " ({})", asides.join(", "));
            }
            into.push_str(": ");
        } else if let Some(label) = &self.label {
            let _ = write!(into, "{}: ", one_line(label));
        }
        into.push_str(&one_line(what));
        into.push('\n');
    }

    fn json_line(&self, item: &BatchItem) -> String {
        let failed;
        let (result, leaked) = match &item.outcome {
            Ok(result) => (&**result, None),
            Err(DelegateError::Dispose { result, source }) => (&**result, Some(source.to_string())),
            Err(DelegateError::Result(error)) => {
                failed = no_result(error);
                (&failed, None)
            }
            // Also whatever comes later has a code and a message.
            Err(error @ DelegateError::Start(_) | error) => {
                return self.refusal(item.index, error.code(), &self.message(error));
            }
        };
        line(&ResultLine {
            r#type: "result",
            index: item.index,
            run: item.run,
            provider: &self.provider,
            label: self.label.as_deref(),
            stop_reason: &result.stop_reason,
            output: result.text(),
            structured: result.structured.as_ref(),
            diagnostic: result.diagnostic.as_ref(),
            details: DetailsLine { details: &result.details, leaked: leaked.as_deref() },
            usage: result.usage.as_deref(),
            elapsed_ms: millis(item.elapsed),
        })
    }

    fn refusal(&self, index: usize, code: &str, message: &str) -> String {
        let provider = &*self.provider;
        line(&StartErrorLine { r#type: "start_error", index, provider, code, message })
    }
}

#[derive(Serialize)]
struct ResultLine<'a> {
    r#type: &'static str,
    index: usize,
    run: Option<RunId>,
    provider: &'a str,
    label: Option<&'a str>,
    stop_reason: &'a StopReason,
    output: String,
    structured: Option<&'a Value>,
    diagnostic: Option<&'a Diagnostic>,
    details: DetailsLine<'a>,
    usage: Option<&'a Usage>,
    elapsed_ms: u64,
}

#[derive(Serialize)]
struct DetailsLine<'a> {
    #[serde(flatten)]
    details: &'a Details,
    #[serde(skip_serializing_if = "Option::is_none")]
    leaked: Option<&'a str>,
}

#[derive(Serialize)]
struct StartErrorLine<'a> {
    r#type: &'static str,
    index: usize,
    provider: &'a str,
    code: &'a str,
    message: &'a str,
}

/// A run that was published and whose result is not known: a failure like any other, to whoever reads the lines.
fn no_result(error: &ResultError) -> SubagentResult {
    let category = error.code().to_ascii_lowercase().replace('_', "-");
    SubagentResult::error(Diagnostic::new(category, &error.to_string()))
}

pub(crate) fn line(value: &impl Serialize) -> String {
    // Nothing in these lines can fail: the keys are text, and the writer is memory.
    let json = serde_json::to_string(value).unwrap_or_else(|error| format!("{:?}", error.to_string()));
    let mut line = inert(json);
    line.push('\n');
    line
}

/// JSON escapes only the lowest control characters. The others stand in strings only, and are escaped as well, so that
/// a line can be looked at anywhere.
fn inert(json: String) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    if !json.contains(steers) {
        return json;
    }
    let mut safe = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if steers(c) {
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

fn failure(result: &SubagentResult) -> String {
    let reason = &result.stop_reason;
    match &result.diagnostic {
        Some(diagnostic) if diagnostic.category() == reason.as_str() => {
            format!("{reason}: {}", diagnostic.text())
        }
        Some(diagnostic) => format!("{reason} [{}]: {}", diagnostic.category(), diagnostic.text()),
        None => match ending(result) {
            Ending::Cancelled => format!("{reason}: it was cancelled"),
            Ending::Completed | Ending::Failed | Ending::TimedOut | Ending::NeverStarted => {
                format!("{reason}: no details were given")
            }
        },
    }
}

/// What would help, of what went wrong in a run.
fn again(result: &SubagentResult) -> &'static str {
    match result.diagnostic.as_ref().map(Diagnostic::category) {
        Some("auth-required") => " (or name another with -p; `subagents providers` tells which are here)",
        _ => "",
    }
}

/// What a child said last that was cut short: often that something does not answer.
fn last_words(result: &SubagentResult) -> String {
    if result.stop_reason != StopReason::TimedOut {
        return String::new();
    }
    let text = result.text();
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.map(|last| format!("; it said last: {}", bounded(last, LAST_WORDS))).unwrap_or_default()
}

/// As many bytes of a child's last words.
const LAST_WORDS: usize = 200;

/// A child whose calls are denied may say that all went well.
fn denied(details: &Details) -> Option<String> {
    let calls = &details.denied_calls;
    let total = details.denied_total.map_or(calls.len(), |total| calls.len().max(total as usize));
    let shown: Vec<_> =
        calls.iter().take(DENIED).map(|denied| format!("{} ({})", denied.tool, denied.reason)).collect();
    let more = if total > shown.len() { ", …" } else { "" };
    let calls = if total == 1 { "tool call was" } else { "tool calls were" };
    let which = if shown.is_empty() { String::new() } else { format!(": {}{more}", shown.join(", ")) };
    (total > 0).then(|| format!("{total} {calls} denied{which}"))
}

/// Clean text on one line.
pub(crate) fn one_line(text: &str) -> String {
    let clean: Cow<'_, str> = sanitised(text).into();
    let parts: Vec<_> = clean.lines().map(str::trim).filter(|part| !part.is_empty()).collect();
    parts.join(" | ").replace('\t', " ")
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Aside, Limits, Style, denied, inert, one_line};
    use serde_json::Value;
    use subagents::{BatchItem, Capabilities, DeniedCall, Details, SubagentResult, SubagentService};
    use subagents_testkit::{Script, Scripted};

    fn style(terminal: bool) -> Style {
        Style {
            json: false,
            terminal,
            many: false,
            label: None,
            provider: "p".into(),
            limits: Limits::default(),
            able: Vec::new(),
        }
    }

    #[test]
    fn an_answer_is_clean_on_a_terminal_and_unchanged_elsewhere() {
        let raw = SubagentResult::completed("\u{1b}[31mred\u{1b}[0m\u{7}\r\nnext");
        assert_eq!(style(true).answer(&raw), "red\nnext\n");
        assert_eq!(style(false).answer(&raw), "\u{1b}[31mred\u{1b}[0m\u{7}\r\nnext\n");
        assert_eq!(style(false).answer(&SubagentResult::completed("one\n")), "one\n");
    }

    #[test]
    fn f02_denied_calls_are_told_also_of_a_success() {
        let mut details = Details::default();
        assert_eq!(denied(&details), None);
        details.denied_calls = vec![DeniedCall::new("bash", "the policy says no")];
        assert_eq!(denied(&details).as_deref(), Some("1 tool call was denied: bash (the policy says no)"));
        details.denied_calls = vec![DeniedCall::new("edit", "no"); 3];
        let three = "3 tool calls were denied: edit (no), edit (no), edit (no)";
        assert_eq!(denied(&details).as_deref(), Some(three));
        details.denied_total = Some(200);
        assert_eq!(denied(&details), Some(three.replacen('3', "200", 1) + ", …"));
    }

    /// What a child that plays this script comes to.
    async fn item(script: Script) -> BatchItem {
        let provider = Scripted::new(script).capabilities(Capabilities::NONE.with_output_schema());
        let service = SubagentService::builder().provider("p", provider).build().expect("a service");
        let root = service.root(std::env::temp_dir()).expect("a root");
        let item = service.batch(&root, "p").requests(["go"]).next().await.expect("one item");
        drop(root);
        item
    }

    #[tokio::test]
    async fn f02_a_success_with_denied_calls_has_a_line_and_details() {
        let script = Script::result(SubagentResult::completed("done"));
        let item = item(script.tool("bash").denied("bash", "the policy\nsays no").tool_done("bash")).await;
        let lines = style(false).render(&item, Aside::default());
        assert_eq!(lines.out, "done\n");
        assert_eq!(lines.err, "subagents: 1 tool call was denied: bash (the policy | says no)\n");
        let json = Style { json: true, ..style(false) };
        let line: Value = serde_json::from_str(&json.render(&item, Aside::default()).out).expect("JSON");
        let denied = serde_json::json!([{"tool": "bash", "reason": "the policy\nsays no"}]);
        assert_eq!((&line["details"]["denied_calls"], &line["details"]["tool_calls"]), (&denied, &1.into()));
    }

    #[tokio::test]
    async fn spec_8_a_value_is_one_line_of_json_whatever_the_child_said_around_it() {
        let value = serde_json::json!({"text": "a\n\u{9b}b", "list": [1, null]});
        let said = SubagentResult::completed("Here:\n```json\n…\n```").with_structured(value.clone());
        let item = item(Script::result(said)).await;
        for terminal in [true, false] {
            let out = style(terminal).render(&item, Aside::default()).out;
            assert_eq!((out.lines().count(), out.contains('\u{9b}')), (1, false), "{out:?}");
            assert_eq!(serde_json::from_str::<Value>(&out).expect("JSON"), value);
        }
        let json = Style { json: true, ..style(false) };
        let line: Value = serde_json::from_str(&json.render(&item, Aside::default()).out).expect("JSON");
        assert_eq!((&line["structured"], line["output"].as_str()), (&value, Some("Here:\n```json\n…\n```")));
    }

    #[test]
    fn a_message_is_one_clean_line() {
        assert_eq!(one_line("it failed:\n\n  \u{1b}[1mwhy\u{1b}[0m\tso\r\n"), "it failed: | why so");
    }

    #[test]
    fn json_steers_no_terminal_and_means_the_same() {
        let text = "a\u{9b}31m\u{7f}\u{202e}é\n\u{1b}";
        let json = inert(serde_json::to_string(text).expect("text is JSON"));
        assert!(json.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{json:?}");
        assert_eq!(serde_json::from_str::<String>(&json).expect("it is JSON still"), text);
    }
}
