//! The four protocols from the client's side, as far as one behaviour is to be tested in all of them.

use super::client::{Answer, post};
use serde_json::{Value, json};
use subagents_testkit::model::{FakeModel, Protocol};

pub(super) const ALL: [Protocol; 4] =
    [Protocol::Responses, Protocol::ChatCompletions, Protocol::Messages, Protocol::Gemini];

/// Each protocol, streamed and not.
pub(super) fn both() -> impl Iterator<Item = (Protocol, bool)> + Clone {
    ALL.into_iter().flat_map(|protocol| [(protocol, true), (protocol, false)])
}

/// A part of a conversation.
#[derive(Clone, Debug)]
pub(super) enum Said {
    User(String),
    Assistant(String),
    /// A call that was made, and its result.
    Tool {
        call: Called,
        result: String,
    },
}

pub(super) fn user(text: &str) -> Said {
    Said::User(text.to_owned())
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Called {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Value,
}

/// What an answer says, in whichever protocol.
#[derive(Debug, PartialEq)]
pub(super) struct Heard {
    pub(super) text: String,
    pub(super) thought: String,
    pub(super) calls: Vec<Called>,
    pub(super) usage: (u64, u64),
    pub(super) stop: String,
}

pub(super) fn path(protocol: Protocol, streaming: bool) -> String {
    match protocol {
        Protocol::Responses => "/v1/responses".into(),
        Protocol::ChatCompletions => "/v1/chat/completions".into(),
        Protocol::Messages => "/v1/messages".into(),
        Protocol::Gemini | _ if streaming => "/v1beta/models/m-1:streamGenerateContent?alt=sse".into(),
        Protocol::Gemini | _ => "/v1beta/models/m-1:generateContent".into(),
    }
}

/// A request that offers the tools `read` and `write`.
pub(super) fn body(protocol: Protocol, streaming: bool, said: &[Said]) -> Value {
    let mut list = Vec::new();
    for said in said {
        match (protocol, said) {
            (Protocol::Gemini, Said::User(text)) => {
                list.push(json!({"role": "user", "parts": [{"text": text}]}));
            }
            (Protocol::Gemini, Said::Assistant(text)) => {
                list.push(json!({"role": "model", "parts": [{"text": text}]}));
            }
            (Protocol::Gemini, Said::Tool { call, result }) => {
                let Called { id, name, arguments } = call;
                list.push(json!({"role": "model",
                    "parts": [{"functionCall": {"id": id, "name": name, "args": arguments}}]}));
                list.push(json!({"role": "user",
                    "parts": [{"functionResponse": {"id": id, "name": name, "response": {"output": result}}}]}));
            }
            (_, Said::User(text)) => list.push(json!({"role": "user", "content": text})),
            (_, Said::Assistant(text)) => list.push(json!({"role": "assistant", "content": text})),
            (Protocol::Responses, Said::Tool { call, result }) => {
                let arguments = call.arguments.to_string();
                list.push(json!({"type": "function_call", "call_id": call.id, "name": call.name,
                    "arguments": arguments}));
                list.push(json!({"type": "function_call_output", "call_id": call.id, "output": result}));
            }
            (Protocol::ChatCompletions, Said::Tool { call, result }) => {
                list.push(json!({"role": "assistant", "content": null, "tool_calls": [{"id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments.to_string()}}]}));
                list.push(json!({"role": "tool", "tool_call_id": call.id, "content": result}));
            }
            (_, Said::Tool { call, result }) => {
                list.push(json!({"role": "assistant", "content": [{"type": "tool_use", "id": call.id,
                    "name": call.name, "input": call.arguments}]}));
                list.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id,
                    "content": [{"type": "text", "text": result}]}]}));
            }
        }
    }
    match protocol {
        Protocol::Responses => json!({"model": "m-1", "stream": streaming, "input": list,
            "tools": [{"type": "function", "name": "read"}, {"type": "function", "name": "write"}]}),
        Protocol::ChatCompletions => json!({"model": "m-1", "stream": streaming, "messages": list,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {"name": "read"}},
                {"type": "function", "function": {"name": "write"}}]}),
        Protocol::Messages => {
            json!({"model": "m-1", "max_tokens": 100, "stream": streaming, "messages": list,
            "tools": [{"name": "read", "input_schema": {}}, {"name": "write", "input_schema": {}}]})
        }
        Protocol::Gemini | _ => json!({"contents": list,
            "tools": [{"functionDeclarations": [{"name": "read"}, {"name": "write"}]}]}),
    }
}

pub(super) async fn ask(model: &FakeModel, (protocol, streaming): (Protocol, bool), said: &[Said]) -> Answer {
    post(model, &path(protocol, streaming), &body(protocol, streaming, said)).await
}

/// Asks, and reads the answer as a client does.
pub(super) async fn hear(model: &FakeModel, (protocol, streaming): (Protocol, bool), said: &[Said]) -> Heard {
    let answer = ask(model, (protocol, streaming), said).await;
    assert!(answer.status == 200 && answer.complete, "{answer:?}");
    let kind = answer.header("content-type").expect("a content type");
    assert_eq!(kind, if streaming { "text/event-stream" } else { "application/json" });
    let values = if streaming {
        answer.events().into_iter().map(|(_, data)| data).collect()
    } else {
        vec![answer.json()]
    };
    match protocol {
        Protocol::Responses => responses(&values),
        Protocol::ChatCompletions => chat(&values),
        Protocol::Messages if streaming => messages_streamed(&values),
        Protocol::Messages => messages(&values[0]),
        Protocol::Gemini | _ => gemini(&values),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a number")
}

fn called(id: &Value, name: &Value, arguments: Value) -> Called {
    let string = |value: &Value| value.as_str().expect("a string").to_owned();
    Called { id: string(id), name: string(name), arguments }
}

fn parsed(arguments: &str) -> Value {
    serde_json::from_str(arguments).expect("arguments are JSON")
}

fn join(list: &Value, field: &str) -> String {
    list.as_array().into_iter().flatten().filter_map(|part| part[field].as_str()).collect()
}

/// The last event has the whole response; the deltas before it must come to the same.
fn responses(values: &[Value]) -> Heard {
    let last = values.last().expect("an event");
    let response = if last["type"] == "response.completed" { &last["response"] } else { last };
    let items = response["output"].as_array().expect("items");
    let of = |kind: &'static str| items.iter().filter(move |item| item["type"] == kind);
    let text: String = of("message").map(|item| join(&item["content"], "text")).collect();
    if values.len() > 1 {
        let deltas = values.iter().filter(|event| event["type"] == "response.output_text.delta");
        assert_eq!(deltas.filter_map(|event| event["delta"].as_str()).collect::<String>(), text);
    }
    Heard {
        text,
        thought: of("reasoning").map(|item| join(&item["summary"], "text")).collect(),
        calls: of("function_call")
            .map(|item| {
                let arguments = item["arguments"].as_str().expect("arguments");
                called(&item["call_id"], &item["name"], parsed(arguments))
            })
            .collect(),
        usage: (number(&response["usage"]["input_tokens"]), number(&response["usage"]["output_tokens"])),
        stop: response["status"].as_str().expect("a status").to_owned(),
    }
}

fn chat(values: &[Value]) -> Heard {
    let mut heard = Heard {
        text: String::new(),
        thought: String::new(),
        calls: Vec::new(),
        usage: (0, 0),
        stop: String::new(),
    };
    let mut arguments = Vec::<String>::new();
    for value in values {
        if value["usage"].is_object() {
            heard.usage =
                (number(&value["usage"]["prompt_tokens"]), number(&value["usage"]["completion_tokens"]));
        }
        let choice = &value["choices"][0];
        let said = if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
        heard.text.push_str(said["content"].as_str().unwrap_or_default());
        heard.thought.push_str(said["reasoning_content"].as_str().unwrap_or_default());
        for call in said["tool_calls"].as_array().into_iter().flatten() {
            if call["id"].is_string() {
                heard.calls.push(called(&call["id"], &call["function"]["name"], Value::Null));
                arguments.push(String::new());
            }
            arguments
                .last_mut()
                .expect("a call")
                .push_str(call["function"]["arguments"].as_str().expect("text"));
        }
        heard.stop.push_str(choice["finish_reason"].as_str().unwrap_or_default());
    }
    for (call, arguments) in heard.calls.iter_mut().zip(arguments) {
        call.arguments = parsed(&arguments);
    }
    heard
}

fn messages(message: &Value) -> Heard {
    let blocks = message["content"].as_array().expect("blocks");
    let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
    Heard {
        text: join(&message["content"], "text"),
        thought: join(&message["content"], "thinking"),
        calls: calls.map(|block| called(&block["id"], &block["name"], block["input"].clone())).collect(),
        usage: (number(&message["usage"]["input_tokens"]), number(&message["usage"]["output_tokens"])),
        stop: message["stop_reason"].as_str().expect("a reason").to_owned(),
    }
}

/// Puts the message together from its events, and hears that.
fn messages_streamed(events: &[Value]) -> Heard {
    let mut message = Value::Null;
    let mut arguments = String::new();
    for event in events {
        let index = event["index"].as_u64().map(|index| usize::try_from(index).expect("an index"));
        match event["type"].as_str().expect("a type") {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => {
                let blocks = message["content"].as_array_mut().expect("blocks");
                assert_eq!(index, Some(blocks.len()), "blocks come in order");
                blocks.push(event["content_block"].clone());
                arguments.clear();
            }
            "content_block_delta" => {
                let block = &mut message["content"][index.expect("an index")];
                let delta = &event["delta"];
                for field in ["text", "thinking"] {
                    if let Some(more) = delta[field].as_str() {
                        let before = block[field].as_str().expect("text");
                        block[field] = format!("{before}{more}").into();
                    }
                }
                arguments.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" if !arguments.is_empty() => {
                message["content"][index.expect("an index")]["input"] = parsed(&arguments);
            }
            "message_delta" => {
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                message["usage"]["output_tokens"] = event["usage"]["output_tokens"].clone();
            }
            _ => {}
        }
    }
    messages(&message)
}

fn gemini(values: &[Value]) -> Heard {
    let parts = || {
        let parts = values.iter().filter_map(|value| value["candidates"][0]["content"]["parts"].as_array());
        parts.flatten()
    };
    let texts = |thought: bool| {
        let of = parts().filter(move |part| (part["thought"] == true) == thought);
        of.filter_map(|part| part["text"].as_str()).collect()
    };
    let calls = parts().map(|part| &part["functionCall"]).filter(|call| call.is_object());
    let last = values.last().expect("a value");
    let usage = &last["usageMetadata"];
    Heard {
        text: texts(false),
        thought: texts(true),
        calls: calls.map(|call| called(&call["id"], &call["name"], call["args"].clone())).collect(),
        usage: (number(&usage["promptTokenCount"]), number(&usage["candidatesTokenCount"])),
        stop: last["candidates"][0]["finishReason"].as_str().expect("a reason").to_owned(),
    }
}
