//! JSON-RPC 2.0, one message a line. Pure.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::chunk::Chunk;

/// The method is not there, by JSON-RPC.
pub(crate) const METHOD_NOT_FOUND: i32 = -32601;
/// The parameters cannot be read, by JSON-RPC.
pub(crate) const INVALID_PARAMS: i32 = -32602;

/// A line of an agent's output.
#[derive(Debug)]
pub(crate) struct Line(String);

/// What a line is.
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    /// The notification that comes most often: a piece of the agent's answer. One that is not plain comes as any other.
    Chunk(Chunk<'a>),
    /// The answer to a request of ours: its result, or its error.
    Response { id: u64, outcome: Result<&'a RawValue, &'a RawValue> },
    /// The agent asks something. Its id is its own business: a number, a string, even null.
    Request { id: &'a RawValue, method: Cow<'a, str>, params: Option<&'a RawValue> },
    /// The agent tells something.
    Notification { method: Cow<'a, str>, params: Option<&'a RawValue> },
    /// A response to something that we never asked.
    Unasked,
    /// No message at all.
    Stray,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// An `id` of null is an id; a missing one is none.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Line {
    pub(crate) fn new(text: String) -> Self {
        // A byte order mark is no part of a message.
        let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
        Self(whole(mended(text)))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// What it is. A message that has a method is never an answer, whatever its id (a request of the agent's may bear
    /// the number of one of ours).
    pub(crate) fn read(&self) -> Incoming<'_> {
        Chunk::read(&self.0).map_or_else(|| self.envelope(), Incoming::Chunk)
    }

    /// The same without a look at what it is about.
    pub(crate) fn envelope(&self) -> Incoming<'_> {
        // An array or a string would be taken for the fields of an envelope in their order, or for nothing.
        if !self.0.trim_start().starts_with('{') {
            return Incoming::Stray;
        }
        let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(&self.0) else { return Incoming::Stray };
        match envelope {
            Envelope { method: Some(method), id: Some(id), params, .. } => {
                Incoming::Request { id, method, params }
            }
            Envelope { method: Some(method), id: None, params, .. } => {
                Incoming::Notification { method, params }
            }
            Envelope { id: Some(id), result, error, .. } => match id.get().parse() {
                // A result that is undefined is left out by some.
                Ok(id) => {
                    let outcome = error.map_or_else(|| Ok(result.unwrap_or(RawValue::NULL)), Err);
                    Incoming::Response { id, outcome }
                }
                // That no request of ours could be made out: nobody waits for it, and it may tell why nothing comes.
                Err(_) if id.get() == "null" && error.is_some() => Incoming::Stray,
                Err(_) => Incoming::Unasked,
            },
            Envelope { .. } => Incoming::Stray,
        }
    }
}

/// Puts U+FFFD in place of each half of a pair that stands alone, as an agent writes one that cuts text by the units of
/// UTF-16. No text can hold one, and the message would be lost for it.
fn whole(text: String) -> String {
    if !text.as_bytes().contains(&b'\\') {
        return text;
    }
    let half = |at: usize| {
        let escape = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(escape, 16).ok().filter(|unit| (0xd800..0xe000).contains(unit))
    };
    let (mut whole, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = text.as_bytes()[at..].iter().position(|byte| *byte == b'\\') {
        let begin = at + found;
        at = match half(begin) {
            Some(unit) if unit < 0xdc00 && half(begin + 6).is_some_and(|other| other >= 0xdc00) => begin + 12,
            Some(_) => {
                whole.push_str(&text[copied..begin]);
                whole.push_str("\\ufffd");
                copied = begin + 6;
                copied
            }
            // Whatever is escaped, it is one byte of one's own.
            None => (begin + 2).min(text.len()),
        };
    }
    if copied == 0 {
        return text;
    }
    whole.push_str(&text[copied..]);
    whole
}

/// Escapes control characters inside of strings, which JSON wants escaped and some agents pass on as they are.
fn mended(text: String) -> String {
    // Counted, and in portions: without a way out in between many bytes are looked at at once.
    let controls = |portion: &[u8]| portion.iter().filter(|byte| **byte < b' ').count();
    if text.as_bytes().chunks(256).all(|portion| controls(portion) == 0) {
        return text;
    }
    let mut mended = String::with_capacity(text.len() + 16);
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        if in_string && c < ' ' {
            // Into a string it cannot fail.
            let _ = write!(mended, "\\u{:04x}", u32::from(c));
            escaped = false;
            continue;
        }
        match c {
            '"' if !escaped => in_string = !in_string,
            '\\' if in_string && !escaped => {
                escaped = true;
                mended.push(c);
                continue;
            }
            _ => {}
        }
        escaped = false;
        mended.push(c);
    }
    mended
}

#[derive(Serialize)]
struct Outgoing<'a, P: Serialize> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: P,
}

#[derive(Serialize)]
struct Reply<'a, R: Serialize> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ReplyError<'a>>,
}

#[derive(Serialize)]
struct ReplyError<'a> {
    code: i32,
    message: &'a str,
}

/// A request of ours.
pub(crate) fn request(id: u64, method: &str, params: impl Serialize) -> String {
    line(&Outgoing { jsonrpc: "2.0", id: Some(id), method, params })
}

/// Something that we tell.
pub(crate) fn notification(method: &str, params: impl Serialize) -> String {
    line(&Outgoing { jsonrpc: "2.0", id: None, method, params })
}

/// Our answer.
pub(crate) fn reply(id: &RawValue, result: impl Serialize) -> String {
    line(&Reply { jsonrpc: "2.0", id, result: Some(result), error: None })
}

/// Our refusal.
pub(crate) fn refusal(id: &RawValue, code: i32, message: &str) -> String {
    line(&Reply::<()> { jsonrpc: "2.0", id, result: None, error: Some(ReplyError { code, message }) })
}

/// What is written here has string keys and no floats that are none: it is always JSON.
fn line(message: &impl Serialize) -> String {
    serde_json::to_string(message)
        .map(|mut line| {
            line.push('\n');
            line
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> String {
        match Line::new(line.to_owned()).read() {
            Incoming::Response { id, outcome: Ok(result) } => format!("{id} ok {result}"),
            Incoming::Response { id, outcome: Err(error) } => format!("{id} failed {error}"),
            Incoming::Request { id, method, params } => {
                format!("{id} asks {method} {}", params.map_or("-", RawValue::get))
            }
            Incoming::Notification { method, params } => {
                format!("tells {method} {}", params.map_or("-", RawValue::get))
            }
            Incoming::Chunk(chunk) => format!("{chunk:?}"),
            Incoming::Unasked => "unasked".to_owned(),
            Incoming::Stray => "stray".to_owned(),
        }
    }

    #[test]
    fn b20_a_message_with_a_method_is_never_an_answer() {
        for (line, wanted) in [
            (r#"{"jsonrpc":"2.0","id":3,"result":{"a":1}}"#, r#"3 ok {"a":1}"#),
            (r#"{"id":3,"method":"m","params":{}}"#, "3 asks m {}"),
            (r#"{"id":"x","method":"m"}"#, r#""x" asks m -"#),
            (r#"{"id":0,"method":"m"}"#, "0 asks m -"),
            (r#"{"id":null,"method":"m"}"#, "null asks m -"),
            (r#"{"id":3,"method":"m","result":{}}"#, "3 asks m -"),
            (r#"{"method":"m","params":null}"#, "tells m -"),
            (r#"{"id":3,"error":{"code":1}}"#, r#"3 failed {"code":1}"#),
            (r#"{"id":3,"error":null,"result":7}"#, "3 ok 7"),
            (r#"{"id":3}"#, "3 ok null"),
            (r#"{"id":3,"result":null}"#, "3 ok null"),
            (r#"{"id":"3","result":1}"#, "unasked"),
            (r#"{"id":null,"result":1}"#, "unasked"),
            (r#"{"id":null,"error":{"code":-32700,"message":"no"}}"#, "stray"),
            (r#"{"id":-1,"result":1}"#, "unasked"),
        ] {
            assert_eq!(kind(line), wanted, "{line}");
        }
    }

    #[test]
    fn d07_what_is_no_message_is_stray() {
        for line in [
            "",
            "Welcome!",
            "\u{1b}]0;title\u{7}",
            "\"hi\"",
            "[]",
            "[1]",
            r#"["1","m",null,null,null]"#,
            "17",
            "null",
            "{}",
            r#"{"params":{}}"#,
            r#"{"method":7}"#,
            r#"{"id":1,"id":2,"result":3}"#,
            "{",
        ] {
            assert_eq!(kind(line), "stray", "{line:?}");
        }
    }

    #[test]
    fn d15_control_characters_and_foreign_line_ends_within_strings_are_text() {
        let text = "a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f\tg";
        let line = format!("{{\t\"method\":\"m\",\"params\":[\"{text}\\\"\\\\\",\"\u{7}\"]}}");
        let line = Line::new(line);
        let Incoming::Notification { params: Some(params), .. } = line.read() else {
            panic!("no notification: {line:?}")
        };
        let params: Vec<String> = serde_json::from_str(params.get()).unwrap();
        assert_eq!(params, [format!("{text}\"\\"), "\u{7}".to_owned()]);
    }

    #[test]
    fn half_of_a_pair_alone_is_no_reason_to_lose_a_message() {
        for (line, wanted) in [
            (r#"["a\ud83d"]"#, Some("a\u{fffd}")),
            (r#"["\ude00b"]"#, Some("\u{fffd}b")),
            (r#"["\uD83D\uDE00"]"#, Some("\u{1f600}")),
            (r#"["\ud83d\ud83d\ude00"]"#, Some("\u{fffd}\u{1f600}")),
            (r#"["\ude00\ud83d"]"#, Some("\u{fffd}\u{fffd}")),
            (r#"["\\ud83d é\\"]"#, Some(r"\ud83d é\")),
            (r#"["\\\ud83d\n"]"#, Some("\\\u{fffd}\n")),
            (r#"["\u00e9\""]"#, Some("é\"")),
            (r#"["\ud83"]"#, None),
            ("[\"\\", None),
        ] {
            let read = serde_json::from_str::<Vec<String>>(&whole(line.to_owned())).ok();
            assert_eq!(read.map(|mut read| read.remove(0)).as_deref(), wanted, "{line}");
        }
        let line = "\u{feff}{\"id\":3,\"result\":\"\\ud83d\"}";
        assert_eq!(kind(line), "3 ok \"\\ufffd\"");
    }

    #[test]
    fn what_we_write_is_one_line_each() {
        assert_eq!(
            request(1, "m", ["a\nb"]),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":[\"a\\nb\"]}\n"
        );
        assert_eq!(notification("m", ()), "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":null}\n");
        let id = serde_json::value::to_raw_value("x").unwrap();
        assert_eq!(reply(&id, 7), "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":7}\n");
        assert_eq!(
            refusal(&id, -32601, "no"),
            "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"error\":{\"code\":-32601,\"message\":\"no\"}}\n"
        );
    }
}
