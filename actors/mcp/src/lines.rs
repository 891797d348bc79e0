//! Lines of a client, and the messages in them. Pure, but for the reading.

use std::borrow::Cow;

use rmcp::RoleServer;
use rmcp::model::{ErrorCode, ErrorData, RequestId};
use rmcp::service::RxJsonRpcMessage;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// So much of a line that is too long is kept, to find out whose it is.
const BEGINNING: usize = 4096;

/// Lines of bounded length.
pub(crate) struct Lines<R> {
    read: BufReader<R>,
    longest: usize,
    line: Vec<u8>,
    too_long: bool,
}

/// One line, without its end.
pub(crate) enum Line<'a> {
    Whole(&'a [u8]),
    /// The beginning of one that is too long.
    TooLong(&'a [u8]),
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(read: R, longest: usize) -> Self {
        Self { read: BufReader::new(read), longest, line: Vec::new(), too_long: false }
    }

    /// Reads to the end of a line; false at the end of everything, and what is there of a line then is none. Cancel-safe.
    pub(crate) async fn advance(&mut self) -> std::io::Result<bool> {
        loop {
            let portion = self.read.fill_buf().await?;
            if portion.is_empty() {
                return Ok(false);
            }
            let end = portion.iter().position(|byte| *byte == b'\n');
            let text = portion.get(..end.unwrap_or(portion.len())).unwrap_or_default();
            if !self.too_long {
                self.line.extend_from_slice(text);
                if self.line.len() > self.longest {
                    self.too_long = true;
                    self.line.truncate(BEGINNING);
                    self.line.shrink_to_fit();
                }
            }
            let read = end.map_or(portion.len(), |end| end + 1);
            self.read.consume(read);
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    /// The line that was read.
    pub(crate) fn line(&self) -> Line<'_> {
        if self.too_long { Line::TooLong(&self.line) } else { Line::Whole(&self.line) }
    }

    /// Goes on to the next.
    pub(crate) fn clear(&mut self) {
        self.line.clear();
        self.too_long = false;
    }
}

/// What a line is.
pub(crate) enum Parsed {
    Message(Box<RxJsonRpcMessage<RoleServer>>),
    /// No message, which somebody waits for the answer to.
    Refused(Option<RequestId>, ErrorData),
    /// Nothing that anybody waits for.
    Nothing,
}

pub(crate) fn parse(line: &Line<'_>) -> Parsed {
    let line = match *line {
        Line::Whole(line) => line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line).trim_ascii(),
        Line::TooLong(beginning) => {
            return match id_in(beginning) {
                Some(id) => refused(
                    Some(id),
                    ErrorCode::INVALID_REQUEST,
                    "the message is too long: it may have 16 MiB",
                ),
                None => Parsed::Nothing,
            };
        }
    };
    if line.is_empty() {
        return Parsed::Nothing;
    }
    if let Ok(message) = serde_json::from_slice(line) {
        return Parsed::Message(Box::new(message));
    }
    let mended = mended(line);
    if let Ok(message) = serde_json::from_slice(&mended) {
        return Parsed::Message(Box::new(message));
    }
    match serde_json::from_slice::<Value>(&mended) {
        // One of another protocol, as some hosts send; nobody waits for an answer.
        Ok(value) if value["method"].is_string() && value.get("id").is_none() => Parsed::Nothing,
        Ok(value) => {
            let id = serde_json::from_value(value["id"].clone()).ok();
            refused(
                id,
                ErrorCode::INVALID_REQUEST,
                "this is no message of JSON-RPC 2.0 as the protocol has it",
            )
        }
        Err(error) => match id_in(&mended) {
            Some(id) => refused(Some(id), ErrorCode::PARSE_ERROR, &format!("this is no JSON: {error}")),
            // Whatever writes such lines would only be told so again and again.
            None => Parsed::Nothing,
        },
    }
}

fn refused(id: Option<RequestId>, code: ErrorCode, why: &str) -> Parsed {
    Parsed::Refused(id, ErrorData::new(code, why.to_owned(), None))
}

/// The text with U+FFFD for what is no text: bytes that are no UTF-8, and halves of a surrogate pair in an escape, as a
/// program leaves them that cuts a string in the middle of a character.
pub(crate) fn mended(line: &[u8]) -> Cow<'_, [u8]> {
    let text = String::from_utf8_lossy(line);
    let mut halves = Vec::new();
    let mut at = 0;
    let bytes = text.as_bytes();
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\\')) {
        at += found;
        let unit = |at: usize| {
            let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
            u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        at += match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                halves.push(at);
                6
            }
            Some(_) => 6,
            None => 2,
        };
    }
    if halves.is_empty() {
        return match text {
            Cow::Borrowed(_) => Cow::Borrowed(line),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
    }
    let mut bytes = text.into_owned().into_bytes();
    for at in halves {
        if let Some(half) = bytes.get_mut(at..at + 6) {
            half.copy_from_slice(b"\\ufffd");
        }
    }
    Cow::Owned(bytes)
}

/// The `id` of an object of which this is the beginning, or which is broken further on.
fn id_in(text: &[u8]) -> Option<RequestId> {
    let mut rest = text.trim_ascii_start().strip_prefix(b"{")?;
    loop {
        let (key, after) = value_in(rest)?;
        rest = after.trim_ascii_start().strip_prefix(b":")?;
        let (value, after) = value_in(rest)?;
        if key == b"\"id\"" {
            return serde_json::from_slice(value).ok();
        }
        rest = after.trim_ascii_start().strip_prefix(b",")?;
    }
}

/// The value at the beginning, if all of it is there, and what follows.
fn value_in(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => {
                quoted = !quoted;
                if !quoted && depth == 0 {
                    return text.split_at_checked(at + 1);
                }
            }
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    return text.split_at_checked(at + 1);
                }
            }
            b',' | b':' | b'}' | b']' if depth == 0 => return text.split_at_checked(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::JsonRpcMessage;

    fn whole(text: &str) -> Parsed {
        parse(&Line::Whole(text.as_bytes()))
    }

    #[test]
    fn half_a_character_is_none_and_the_rest_is_read() {
        for (text, mended_to) in [
            (&br#""plain \u00e9 \\ud83d \ud83d\ude00""#[..], &br#""plain \u00e9 \\ud83d \ud83d\ude00""#[..]),
            (br#""\ud83d""#, br#""\ufffd""#),
            (br#""\ude00 \ud83d\ud83d\ude00""#, br#""\ufffd \ufffd\ud83d\ude00""#),
            (br#""\uD83D\n\\\uDE00\u12""#, br#""\ufffd\n\\\ufffd\u12""#),
            (b"\"\xff\"", "\"\u{fffd}\"".as_bytes()),
            (b"\\", b"\\"),
            (b"", b""),
        ] {
            assert_eq!(&*mended(text), mended_to);
        }
        let Parsed::Message(message) =
            whole(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"p":"half \ud83d"}}"#)
        else {
            panic!("it is a message");
        };
        assert!(matches!(*message, JsonRpcMessage::Request(_)));
    }

    #[test]
    fn whoever_waits_for_an_answer_is_told_what_is_wrong() {
        let deep =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":\"d\",\"method\":\"x\",\"params\":{}", "[".repeat(1_000));
        for (text, id, code) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"#,
                Some(RequestId::Number(7)),
                ErrorCode::PARSE_ERROR,
            ),
            (&*deep, Some(RequestId::String("d".into())), ErrorCode::PARSE_ERROR),
            (
                r#"{"a":[{"id":1}],"b":"\"id\":2","id":3,x}"#,
                Some(RequestId::Number(3)),
                ErrorCode::PARSE_ERROR,
            ),
            (r#"{"jsonrpc":"2.0","id":7}"#, Some(RequestId::Number(7)), ErrorCode::INVALID_REQUEST),
            (
                r#"{"jsonrpc":"1.0","id":7,"method":"x"}"#,
                Some(RequestId::Number(7)),
                ErrorCode::INVALID_REQUEST,
            ),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, None, ErrorCode::INVALID_REQUEST),
            ("[]", None, ErrorCode::INVALID_REQUEST),
        ] {
            let Parsed::Refused(told, error) = whole(text) else { panic!("{text}") };
            assert_eq!((told, error.code), (id, code), "{text}");
        }
        for nothing in
            ["", "  \r", "Welcome!", "{", "{\"id\":", "{\"id\":1", r#"{"method":"textDocument/x"}"#]
        {
            assert!(matches!(whole(nothing), Parsed::Nothing), "{nothing}");
        }
        let long = parse(&Line::TooLong(br#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"#));
        assert!(matches!(long, Parsed::Refused(Some(RequestId::Number(9)), _)));
        assert!(matches!(parse(&Line::TooLong(b"xxx")), Parsed::Nothing));
    }

    #[tokio::test]
    async fn lines_are_read_to_their_ends_and_long_ones_are_passed_over() {
        let text = format!("one\n\n{}\nthree\nno end", "x".repeat(20_000));
        let mut lines = Lines::new(text.as_bytes(), 10_000);
        let mut read = Vec::new();
        while lines.advance().await.expect("it can be read") {
            read.push(match lines.line() {
                Line::Whole(line) => String::from_utf8_lossy(line).into_owned(),
                Line::TooLong(line) => format!("{} of a long one", line.len()),
            });
            lines.clear();
        }
        assert_eq!(read, ["one", "", "4096 of a long one", "three"]);
    }
}
