//! What an agent says when a request of ours fails, made fit for people and for programs. Pure.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use subagents_external::shown;
use subagents_process::Secrets;
use subagents_seam::{Diagnostic, bounded, sanitised};

/// The agent wants a sign-in, by ACP.
const AUTH_REQUIRED: &str = "-32000";
/// A request was cancelled, by ACP.
const CANCELLED: &str = "-32800";

/// What is larger is not parsed.
const PARSED: usize = 64 * 1024;
/// As much of a message is kept.
const MESSAGE_BYTES: usize = 1500;
/// As much of what stands beside it.
const DATA_BYTES: usize = 1000;

/// An error of the agent's. Nothing in it is trusted to have its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RpcError {
    code: String,
    message: String,
    data: String,
}

#[derive(Deserialize)]
struct Lenient<'a> {
    #[serde(borrow, default)]
    code: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

impl RpcError {
    pub(crate) fn read(error: &RawValue, secrets: &Secrets) -> Self {
        let text = |value: Option<&RawValue>, limit| {
            value.map_or_else(String::new, |value| told(value, secrets, limit))
        };
        match serde_json::from_str::<Lenient<'_>>(error.get()) {
            Ok(Lenient { code, message, data }) if error.get().starts_with('{') => Self {
                code: text(code, 40),
                message: text(message, MESSAGE_BYTES),
                data: text(data, DATA_BYTES),
            },
            // No object at all.
            Ok(_) | Err(_) => {
                Self { code: String::new(), message: text(Some(error), MESSAGE_BYTES), data: String::new() }
            }
        }
    }

    pub(crate) fn wants_sign_in(&self) -> bool {
        self.code == AUTH_REQUIRED
    }

    /// What kind of failure it is, as far as it tells.
    pub(crate) fn category(&self) -> &'static str {
        match &*self.code {
            AUTH_REQUIRED => return "auth-required",
            CANCELLED => return "agent-cancelled",
            _ => {}
        }
        let text = format!("{} {} {}", self.code, self.message, self.data).to_ascii_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if says(&[
            "quota",
            "usage limit",
            "usage_limit",
            "spend limit",
            "spending limit",
            "credit balance",
            "billing",
        ]) {
            "quota"
        } else if self.code == "429"
            || says(&[
                "http 429",
                "status 429",
                "429 too many",
                "rate limit",
                "rate_limit",
                "too many requests",
                "overloaded",
            ])
        {
            "rate-limited"
        } else {
            "agent-error"
        }
    }

    /// Without what stands beside the message: of a sign-in, the ways are told anyway.
    pub(crate) fn brief(&self) -> String {
        Self { data: String::new(), ..self.clone() }.to_string()
    }

    /// For the result of a run that it ended.
    pub(crate) fn diagnostic(&self, program: &str) -> Diagnostic {
        Diagnostic::new(self.category(), &format!("{} answered with an error: {self}", bounded(program, 200)))
    }
}

/// A value as text. Secrets are masked before anything is escaped.
fn told(value: &RawValue, secrets: &Secrets, limit: usize) -> String {
    let raw = value.get();
    // A text of any length is a text; anything else that is large is shown as it stands, since as a value it would take a
    // hundred times its room.
    let value =
        if raw.len() <= PARSED || raw.starts_with('"') { serde_json::from_str(raw).ok() } else { None };
    let value = value.unwrap_or_else(|| Value::String(raw[..raw.floor_char_boundary(PARSED)].to_owned()));
    match masked(&value, secrets) {
        Value::Null => String::new(),
        Value::String(text) => shown(&text, secrets, limit),
        value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            shown(&value.to_string(), secrets, limit)
        }
    }
}

/// The value, clean, with every secret in it masked.
pub(crate) fn masked(value: &Value, secrets: &Secrets) -> Value {
    // Once more when it is clean, which may put one together.
    each_text(value, &|text| secrets.mask(&sanitised(&secrets.mask(text))).into_owned())
}

/// The value with every text in it, names among them, as `clean` gives it. What was parsed is not nested deeper than the parser
/// goes.
pub(crate) fn each_text(value: &Value, clean: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(clean(text)),
        Value::Array(items) => items.iter().map(|item| each_text(item, clean)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (clean(name), each_text(field, clean))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

impl std::fmt::Display for RpcError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let or = |text: &'_ str, none: &'static str| {
            if text.is_empty() { none.to_owned() } else { text.to_owned() }
        };
        write!(f, "{} (code {})", or(&self.message, "no message"), or(&self.code, "none"))?;
        if self.data.is_empty() { Ok(()) } else { write!(f, "; {}", self.data) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> RpcError {
        let secrets = Secrets::of([
            ("API_KEY".into(), "hunter2-hunter2".into()),
            ("PEM_KEY".into(), "hunter2\nhunter2".into()),
        ]);
        RpcError::read(&RawValue::from_string(json.to_owned()).unwrap(), &secrets)
    }

    #[test]
    fn l05_an_error_is_never_empty_and_never_a_placeholder() {
        for (json, wanted) in [
            (r#"{"code":-32603,"message":"boom"}"#, "boom (code -32603)"),
            (
                r#"{"code":-32603,"message":"","data":{"a":{"b":[1]}}}"#,
                r#"no message (code -32603); {"a":{"b":[1]}}"#,
            ),
            (r#"{"code":"x","message":{"why":"that"}}"#, r#"{"why":"that"} (code x)"#),
            (r#"{"message":"key hunter2-hunter2"}"#, "key [API_KEY] (code none)"),
            (
                r#"{"code":1,"data":{"pem":"hunter2\nhunter2"}}"#,
                r#"no message (code 1); {"pem":"[PEM_KEY]"}"#,
            ),
            (r#"{"code":1,"message":"\u001b[31mred\u0007","data":"plain"}"#, "red (code 1); plain"),
            (r#""just text""#, "just text (code none)"),
            ("null", "no message (code none)"),
            ("[1,2,3,4]", "[1,2,3,4] (code none)"),
            ("{}", "no message (code none)"),
        ] {
            assert_eq!(read(json).to_string(), wanted);
        }
        let long = read(&format!(
            r#"{{"code":1,"message":"{}","data":"{}"}}"#,
            "é".repeat(50_000),
            "d".repeat(100_000)
        ));
        let diagnostic = long.diagnostic("agent");
        assert!(diagnostic.text().starts_with("agent answered with an error: éé"), "{diagnostic}");
        assert!(diagnostic.text().contains("… (cut) (code 1); dd") && diagnostic.text().len() <= 4096);
    }

    #[test]
    fn k04_a_used_up_quota_is_no_plain_error() {
        for (json, category) in [
            (r#"{"code":-32603,"message":"429 insufficient quota"}"#, "quota"),
            (r#"{"code":-32603,"message":"x","data":{"codex_error_info":"usage_limit_exceeded"}}"#, "quota"),
            (r#"{"code":403,"message":"You exceeded your current quota, check your plan"}"#, "quota"),
            (r#"{"code":-32603,"message":"Your credit balance is too low"}"#, "quota"),
            (r#"{"code":429,"message":"slow down"}"#, "rate-limited"),
            (r#"{"code":-32603,"message":"Rate limit reached"}"#, "rate-limited"),
            (r#"{"code":-32603,"message":"API Error: 500"}"#, "agent-error"),
            (r#"{"code":-32000,"message":"Authentication required"}"#, "auth-required"),
            (r#"{"code":-32800,"message":"cancelled"}"#, "agent-cancelled"),
        ] {
            assert_eq!(read(json).category(), category, "{json}");
        }
    }
}
