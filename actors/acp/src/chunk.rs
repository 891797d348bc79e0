//! A piece of an agent's answer: the message that comes most often by far, read in one go and without a copy. Pure.
//!
//! It is read so where there is nothing else in its line. Whatever is more, less or other is for the protocol's own types,
//! which are lenient in ways of their own; a property test holds the two readings to each other.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A `session/update` with an `agent_message_chunk` of text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    pub(crate) session: &'a str,
    pub(crate) text: Cow<'a, str>,
    pub(crate) message_id: Option<&'a str>,
}

impl<'a> Chunk<'a> {
    /// The chunk that a line is, if it is one and nothing else.
    pub(crate) fn read(line: &'a str) -> Option<Self> {
        let Object(Message { method, params }) = serde_json::from_str(line).ok()?;
        let Object(Params { session, update }) = params.filter(|_| method == Some("session/update"))?;
        let Object(Update { kind: _, content, message_id }) =
            update.filter(|Object(update)| update.kind.is_some())?;
        let Object(Content { kind, text }) = content?;
        let Text(text) = text.filter(|_| kind == Some("text"))?;
        Some(Self { session: session?, text, message_id: message_id.and_then(|MessageId(id)| id) })
    }
}

#[derive(Default)]
struct Message<'a> {
    method: Option<&'a str>,
    params: Option<Object<Params<'a>>>,
}

#[derive(Default)]
struct Params<'a> {
    session: Option<&'a str>,
    update: Option<Object<Update<'a>>>,
}

#[derive(Default)]
struct Update<'a> {
    kind: Option<MessageChunk>,
    content: Option<Object<Content<'a>>>,
    message_id: Option<MessageId<'a>>,
}

#[derive(Default)]
struct Content<'a> {
    kind: Option<&'a str>,
    text: Option<Text<'a>>,
}

/// Null is none.
#[derive(Deserialize)]
struct MessageId<'a>(#[serde(borrow)] Option<&'a str>);

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// What is no chunk ends the reading here, which is early in most lines.
struct MessageChunk;

impl<'de> Deserialize<'de> for MessageChunk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match <&str>::deserialize(deserializer)? {
            "agent_message_chunk" => Ok(Self),
            _ => Err(D::Error::custom("another update")),
        }
    }
}

/// What an object may hold.
trait Fields<'de>: Default {
    /// Takes the value of this key; an error where it is not to be there.
    fn take<A: MapAccess<'de>>(&mut self, key: &str, object: &mut A) -> Result<(), A::Error>;
}

impl<'de> Fields<'de> for Message<'de> {
    fn take<A: MapAccess<'de>>(&mut self, key: &str, object: &mut A) -> Result<(), A::Error> {
        match key {
            "jsonrpc" => object.next_value().map(|IgnoredAny| ()),
            "method" => once(&mut self.method, object),
            "params" => once(&mut self.params, object),
            // An id would make it a request.
            _ => Err(A::Error::custom("something else")),
        }
    }
}

impl<'de> Fields<'de> for Params<'de> {
    fn take<A: MapAccess<'de>>(&mut self, key: &str, object: &mut A) -> Result<(), A::Error> {
        match key {
            "sessionId" => once(&mut self.session, object),
            "update" => once(&mut self.update, object),
            _ => Err(A::Error::custom("something else")),
        }
    }
}

impl<'de> Fields<'de> for Update<'de> {
    fn take<A: MapAccess<'de>>(&mut self, key: &str, object: &mut A) -> Result<(), A::Error> {
        match key {
            "sessionUpdate" => once(&mut self.kind, object),
            "content" => once(&mut self.content, object),
            "messageId" => once(&mut self.message_id, object),
            _ => Err(A::Error::custom("something else")),
        }
    }
}

impl<'de> Fields<'de> for Content<'de> {
    fn take<A: MapAccess<'de>>(&mut self, key: &str, object: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => once(&mut self.kind, object),
            "text" => once(&mut self.text, object),
            _ => Err(A::Error::custom("something else")),
        }
    }
}

fn once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    field: &mut Option<T>,
    object: &mut A,
) -> Result<(), A::Error> {
    match field.replace(object.next_value()?) {
        None => Ok(()),
        Some(_) => Err(A::Error::custom("the same twice")),
    }
}

/// An object and never an array, which a derived reading would take as well.
struct Object<T>(T);

impl<'de, T: Fields<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);

        impl<'de, T: Fields<'de>> Visitor<'de> for Reader<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Object<T>, A::Error> {
                let mut fields = T::default();
                while let Some(key) = object.next_key::<&str>()? {
                    fields.take(key, &mut object)?;
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(Reader(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol_schema::v1::{ContentBlock, ContentChunk, SessionNotification, SessionUpdate};
    use proptest::prelude::*;
    use proptest::strategy::ValueTree as _;
    use serde_json::Value;

    use super::*;
    use crate::wire::{Incoming, Line};

    const PLAIN: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\n\"b\""}}}}"#;

    #[test]
    fn a_plain_chunk_is_read_at_once_and_what_is_odd_is_not() {
        let chunk = Chunk::read(PLAIN).unwrap();
        assert_eq!(chunk, Chunk { session: "s", text: "a\n\"b\"".into(), message_id: None });
        let with_id = PLAIN.replace("\"content\"", "\"messageId\":\"m\",\"content\"");
        assert_eq!(Chunk::read(&with_id).unwrap().message_id, Some("m"));
        for (part, odd) in [
            ("agent_message_chunk", "agent_thought_chunk"),
            ("session/update", "session/other"),
            (r#""type":"text""#, r#""type":"image""#),
            (r#""type":"text","#, ""),
            (r#""jsonrpc":"2.0","#, r#""id":null,"#),
            (r#""sessionId":"s","#, ""),
            (r#""sessionId":"s","#, r#""sessionId":"s","sessionId":"s","#),
            (r#""content":{"#, r#""messageId":7,"content":{"#),
            (r#""content":{"#, r#""_meta":{},"content":{"#),
            (r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\n\"b\""}}"#, "[]"),
            ("{\"jsonrpc", "[{\"jsonrpc"),
            ("}}}}", "}}}} x"),
            ("}}}}", "}}}"),
        ] {
            let line = PLAIN.replace(part, odd);
            assert_ne!(line, PLAIN);
            assert_eq!(Chunk::read(&line), None, "{line}");
        }
    }

    /// The same by the protocol's own types.
    fn officially(line: &Line) -> Option<(String, String, Option<String>)> {
        let Incoming::Notification { method, params: Some(params) } = line.envelope() else { return None };
        let notification = (method == "session/update").then_some(params.get())?;
        let SessionNotification { session_id, update, .. } = serde_json::from_str(notification).ok()?;
        let SessionUpdate::AgentMessageChunk(ContentChunk { content, message_id, .. }) = update else {
            return None;
        };
        let ContentBlock::Text(text) = content else { return None };
        Some((session_id.0.to_string(), text.text, message_id.map(|id| id.0.to_string())))
    }

    /// JSON as it stands in a line, most of it as a chunk has it.
    fn json(usual: &'static str) -> impl Strategy<Value = String> {
        let odd = prop::sample::select(vec![
            "null",
            "7",
            "-1e400",
            "true",
            "[]",
            "{}",
            r#""\ud83d""#,
            r#""\ud83d\ude00""#,
            r#""s\u0073""#,
            "\"\u{1}\"",
            r#"["agent_message_chunk"]"#,
            r#"{"agent_message_chunk":null}"#,
            r#"["text","t"]"#,
            r#"{"text":null}"#,
            "",
        ]);
        prop_oneof![
            80 => Just(usual.to_owned()),
            1 => odd.prop_map(str::to_owned),
            1 => any::<String>().prop_map(|text| Value::from(text).to_string()),
        ]
    }

    /// An object of these fields, in any order, of which one may be missing, there twice, or with company.
    fn object(fields: Vec<(&'static str, BoxedStrategy<String>)>) -> impl Strategy<Value = String> {
        let count = fields.len();
        let fields: Vec<_> = fields
            .into_iter()
            .map(|(key, value)| value.prop_map(move |value| format!("{key}:{value}")).boxed())
            .collect();
        let also = prop_oneof![
            60 => Just(String::new()),
            1 => Just(r#""_meta":{"a":1}"#.to_owned()),
            1 => Just(r#""id":1"#.to_owned()),
            1 => Just(r#""messageId":"m""#.to_owned()),
            1 => Just(r#""annotations":7"#.to_owned()),
            1 => Just(r#""t\u0065xt":"x""#.to_owned()),
            1 => Just(r#""sessionId":"x""#.to_owned()),
        ];
        let left_out = prop_oneof![60 => Just(usize::MAX), 1 => 0..count];
        (fields, also, left_out, 0..count, prop::bool::weighted(0.02)).prop_map(
            |(mut fields, also, left_out, turned, seq)| {
                if left_out < fields.len() {
                    fields.remove(left_out);
                }
                fields.push(also);
                fields.retain(|field| !field.is_empty());
                let turned = turned % fields.len().max(1);
                fields.rotate_left(turned);
                if seq {
                    let values: Vec<_> = fields
                        .iter()
                        .map(|field| field.split_once(':').map_or("", |(_, value)| value))
                        .collect();
                    return format!("[{}]", values.join(","));
                }
                format!("{{{}}}", fields.join(","))
            },
        )
    }

    fn line() -> impl Strategy<Value = String> {
        let id = prop_oneof![3 => Just(String::new()), 1 => json(r#""m-1""#)];
        let text = prop_oneof![json(r#""a plain word""#), json(r#""\"\\\n\u00e9漢""#)];
        let content = object(vec![("\"type\"", json("\"text\"").boxed()), ("\"text\"", text.boxed())]);
        let content = prop_oneof![60 => content, 1 => json("{}")];
        let update = object(vec![
            ("\"sessionUpdate\"", json("\"agent_message_chunk\"").boxed()),
            ("\"content\"", content.boxed()),
        ]);
        let update = (update, id).prop_map(|(update, id)| match update.strip_suffix('}') {
            Some(open) if !id.is_empty() => format!("{open},\"messageId\":{id}}}"),
            _ => update,
        });
        let params = object(vec![("\"sessionId\"", json("\"s\"").boxed()), ("\"update\"", update.boxed())]);
        object(vec![
            ("\"jsonrpc\"", json("\"2.0\"").boxed()),
            ("\"method\"", json("\"session/update\"").boxed()),
            ("\"params\"", params.boxed()),
        ])
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

        /// Where it is read at once, the protocol's own types read the same; where not, they are asked anyway.
        #[test]
        fn read_at_once_it_is_what_the_protocols_types_read(line in line()) {
            let line = Line::new(line);
            if let Incoming::Chunk(Chunk { session, text, message_id }) = line.read() {
                let chunk = (session.to_owned(), text.into_owned(), message_id.map(str::to_owned));
                prop_assert_eq!(Some(chunk), officially(&line));
            }
        }
    }

    #[test]
    fn most_of_what_is_compared_is_read_at_once() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let lines: Vec<_> = (0..400).map(|_| line().new_tree(&mut runner).unwrap().current()).collect();
        let at_once = lines.iter().filter(|line| Chunk::read(line).is_some()).count();
        let officially =
            lines.iter().filter(|line| officially(&Line::new((*line).clone())).is_some()).count();
        assert!((100..380).contains(&at_once) && officially > at_once, "{at_once} and {officially} of 400");
    }
}
