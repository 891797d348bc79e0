//! What the four protocols have in common: reading a body, and writing an answer as one value or as a stream of events.

mod chat;
mod gemini;
mod messages;
mod responses;

use super::{
    Protocol, Reply,
    reply::Usage,
    request::{Asked, Tool, Turn},
};
use serde_json::Value;

/// A piece has so many characters, unless there would be more than [`PIECES`] of them.
const PIECE: usize = 12;
const PIECES: usize = 1000;

/// Reads a body, or says what is wrong with it and what would be right. Where the protocol has the model and the
/// manner in the address, they are in `target`.
pub(crate) fn read(protocol: Protocol, body: &Value, target: Option<(&str, bool)>) -> Result<Asked, String> {
    match protocol {
        Protocol::Responses => responses::read(body),
        Protocol::ChatCompletions => chat::read(body),
        Protocol::Messages => messages::read(body),
        Protocol::Gemini => {
            let (model, streaming) = target.unwrap_or_default();
            gemini::read(body, model, streaming)
        }
    }
}

/// An error as this protocol has it.
pub(crate) fn error(protocol: Protocol, status: u16, message: &str) -> Value {
    match protocol {
        Protocol::Responses | Protocol::ChatCompletions => chat::error(status, message),
        Protocol::Messages => messages::error(status, message),
        Protocol::Gemini => gemini::error(status, message),
    }
}

/// The answer as one value.
pub(crate) fn whole(voice: &Voice<'_>, reply: &Reply) -> Value {
    match voice.protocol {
        Protocol::Responses => responses::whole(voice, reply),
        Protocol::ChatCompletions => chat::whole(voice, reply),
        Protocol::Messages => messages::whole(voice, reply),
        Protocol::Gemini => gemini::whole(voice, reply),
    }
}

/// The answer as a stream of server-sent events.
pub(crate) fn stream(voice: &Voice<'_>, reply: &Reply) -> Vec<Piece> {
    match voice.protocol {
        Protocol::Responses => responses::stream(voice, reply),
        Protocol::ChatCompletions => chat::stream(voice, reply),
        Protocol::Messages => messages::stream(voice, reply),
        Protocol::Gemini => gemini::stream(voice, reply),
    }
}

/// Who answers what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voice<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) model: &'a str,
    pub(crate) offered: &'a [Tool],
    pub(crate) body: &'a Value,
    pub(crate) usage: Usage,
    /// The number of this answer on its server, of which its ids are made.
    pub(crate) number: u64,
    /// Seconds since 1970.
    pub(crate) created: u64,
}

impl Voice<'_> {
    /// An id that no other item on this server has, where `part` is its place in the answer.
    pub(crate) fn id(&self, kind: &str, part: usize) -> String {
        format!("{kind}_{:06}_{part}", self.number)
    }

    pub(crate) fn is_freeform(&self, tool: &str) -> bool {
        self.offered.iter().any(|offered| offered.name == tool && offered.freeform)
    }
}

/// What goes out at once.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: String,
    /// A piece of what the model says or calls, as opposed to what is around it: here a reply may pause or break.
    pub(crate) is_said: bool,
}

/// The events of one stream.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pieces: Vec<Piece>,
}

impl Events {
    pub(crate) fn frame(&mut self, data: &Value) {
        self.push(None, &data.to_string(), false);
    }

    pub(crate) fn said(&mut self, data: &Value) {
        self.push(None, &data.to_string(), true);
    }

    pub(crate) fn raw(&mut self, data: &str) {
        self.push(None, data, false);
    }

    /// An event that has its name in the field `type`, too.
    pub(crate) fn named(&mut self, data: &Value, is_said: bool) {
        self.push(data["type"].as_str(), &data.to_string(), is_said);
    }

    fn push(&mut self, name: Option<&str>, data: &str, is_said: bool) {
        let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
        self.pieces.push(Piece { bytes: format!("{name}data: {data}\n\n"), is_said });
    }

    pub(crate) fn into_pieces(self) -> Vec<Piece> {
        self.pieces
    }
}

/// A text in pieces: at least one, of which only that of an empty text is empty.
pub(crate) fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    if characters.is_empty() {
        return vec![String::new()];
    }
    let length = PIECE.max(characters.len().div_ceil(PIECES));
    characters.chunks(length).map(|piece| piece.iter().collect()).collect()
}

/// The conversation as it is read.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turns: Vec<Turn>,
}

impl Turns {
    /// Each text of a content is a part of its own.
    pub(crate) fn user(&mut self, content: &Value) {
        self.turns.extend(texts(content).into_iter().filter(|text| !text.trim().is_empty()).map(Turn::User));
    }

    pub(crate) fn tool(&mut self, id: &Value, text: String) {
        self.turns.push(Turn::Tool { id: id.as_str().unwrap_or_default().to_owned(), text });
    }

    /// What follows another answer immediately belongs to it: some protocols have an item for each part.
    pub(crate) fn assistant(&mut self, said: &str, called: Vec<String>) {
        if let Some(Turn::Assistant { text, calls }) = self.turns.last_mut() {
            text.push_str(said);
            calls.extend(called);
        } else {
            self.turns.push(Turn::Assistant { text: said.to_owned(), calls: called });
        }
    }

    pub(crate) fn into_turns(self) -> Vec<Turn> {
        self.turns
    }
}

/// The texts of a content, which is a string or a list of parts.
pub(crate) fn texts(content: &Value) -> Vec<String> {
    if let Some(text) = content.as_str() {
        return vec![text.to_owned()];
    }
    list(content)
        .iter()
        .filter_map(|part| part["text"].as_str().or(part.as_str()))
        .map(str::to_owned)
        .collect()
}

/// A tool's result as one text; what is neither text nor a list with texts in it stays JSON.
pub(crate) fn result_text(result: &Value) -> String {
    let texts = texts(result);
    if texts.is_empty() && !list(result).is_empty() || result.is_object() {
        return result.to_string();
    }
    texts.join("\n")
}

/// The items of a list; none where it is none.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A field that is there and a string.
pub(crate) fn string(value: &Value, field: &str) -> Result<String, String> {
    let text = value[field].as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned)
        .ok_or_else(|| format!("the field `{field}` is missing: send a string that is not empty"))
}

/// A field that is there and a list of something.
pub(crate) fn required<'a>(value: &'a Value, field: &str) -> Result<&'a [Value], String> {
    let found = list(&value[field]);
    if found.is_empty() {
        return Err(format!("the field `{field}` is missing: send a list that is not empty"));
    }
    Ok(found)
}

/// A flag that may be missing.
pub(crate) fn flag(value: &Value, field: &str) -> Result<bool, String> {
    let flag = &value[field];
    if flag.is_null() {
        return Ok(false);
    }
    flag.as_bool().ok_or_else(|| format!("the field `{field}` is neither true nor false"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_comes_in_pieces_and_a_long_one_in_a_thousand() {
        assert_eq!(pieces(""), [""]);
        assert_eq!(pieces("grüß Gott, du Welt"), ["grüß Gott, d", "u Welt"]);
        let long = "ab".repeat(100_000);
        assert_eq!(pieces(&long).len(), 1000);
        assert_eq!(pieces(&long).concat(), long);
    }

    #[test]
    fn a_result_is_text_whatever_its_form() {
        for (result, text) in [
            (json!("plain"), "plain"),
            (json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "a\nb"),
            (json!([{"type": "image"}]), "[{\"type\":\"image\"}]"),
            (json!({"code": 1}), "{\"code\":1}"),
            (json!([]), ""),
            (Value::Null, ""),
        ] {
            assert_eq!(result_text(&result), text, "{result}");
        }
    }

    #[test]
    fn parts_of_one_answer_are_one_turn() {
        let mut turns = Turns::default();
        turns.user(&json!([{"text": "a"}, {"image": 1}, {"text": " "}, {"text": "b"}]));
        turns.assistant("so ", Vec::new());
        turns.assistant("be it", vec!["t".into()]);
        turns.tool(&json!("id"), "out".into());
        turns.assistant("", Vec::new());
        assert_eq!(
            turns.into_turns(),
            [
                Turn::User("a".into()),
                Turn::User("b".into()),
                Turn::Assistant { text: "so be it".into(), calls: vec!["t".into()] },
                Turn::Tool { id: "id".into(), text: "out".into() },
                Turn::Assistant { text: String::new(), calls: Vec::new() },
            ]
        );
    }
}
