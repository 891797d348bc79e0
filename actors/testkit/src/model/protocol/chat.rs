//! OpenAI Chat Completions.

use super::{Events, Piece, Turns, Voice, flag, list, pieces, required, result_text, string, texts};
use crate::model::{
    Reply,
    request::{Asked, Tool},
};
use serde_json::{Value, json};

pub(super) fn read(body: &Value) -> Result<Asked, String> {
    let mut turns = Turns::default();
    for message in required(body, "messages")? {
        match message["role"].as_str() {
            Some("user") => turns.user(&message["content"]),
            Some("tool") => turns.tool(&message["tool_call_id"], result_text(&message["content"])),
            Some("assistant") => {
                let calls = list(&message["tool_calls"]).iter();
                let names = calls.filter_map(|call| call["function"]["name"].as_str()).map(str::to_owned);
                turns.assistant(&texts(&message["content"]).concat(), names.collect());
            }
            Some(_) => {}
            None => {
                return Err(
                    "a message has no `role`: write `user`, `assistant`, `tool` or `system`".to_owned()
                );
            }
        }
    }
    let names = list(&body["tools"]).iter().filter_map(|tool| tool["function"]["name"].as_str());
    Ok(Asked {
        model: string(body, "model")?,
        streaming: flag(body, "stream")?,
        turns: turns.into_turns(),
        tools: names.map(|name| Tool { name: name.to_owned(), freeform: false }).collect(),
        wants_json: matches!(body["response_format"]["type"].as_str(), Some("json_schema" | "json_object")),
    })
}

/// Responses has the same errors.
pub(super) fn error(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        401 => ("authentication_error", Some("invalid_api_key")),
        429 => ("rate_limit_error", Some("rate_limit_exceeded")),
        500.. => ("server_error", None),
        _ => ("invalid_request_error", None),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

fn usage(voice: &Voice<'_>) -> Value {
    let usage = voice.usage;
    json!({
        "prompt_tokens": usage.input, "completion_tokens": usage.output,
        "total_tokens": usage.input.saturating_add(usage.output),
    })
}

fn finish(reply: &Reply) -> &'static str {
    if reply.calls.is_empty() { "stop" } else { "tool_calls" }
}

pub(super) fn whole(voice: &Voice<'_>, reply: &Reply) -> Value {
    let mut message = json!({"role": "assistant", "content": reply.text, "refusal": null});
    if let Some(thought) = &reply.think {
        message["reasoning_content"] = thought.as_str().into();
    }
    if !reply.calls.is_empty() {
        let calls = reply.calls.iter().enumerate().map(|(index, call)| {
            json!({"id": voice.id("call", index), "type": "function",
                "function": {"name": call.name, "arguments": call.arguments.to_string()}})
        });
        message["tool_calls"] = calls.collect();
    }
    json!({
        "id": voice.id("chatcmpl", 0), "object": "chat.completion", "created": voice.created, "model": voice.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish(reply)}],
        "usage": usage(voice),
    })
}

pub(super) fn stream(voice: &Voice<'_>, reply: &Reply) -> Vec<Piece> {
    let mut to = Events::default();
    let chunk = |choices: Value| {
        json!({"id": voice.id("chatcmpl", 0), "object": "chat.completion.chunk", "created": voice.created,
            "model": voice.model, "choices": choices})
    };
    let delta = |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]));
    to.frame(&delta(json!({"role": "assistant", "content": ""})));
    if let Some(thought) = &reply.think {
        to.frame(&delta(json!({"reasoning_content": thought})));
    }
    for piece in reply.text.iter().flat_map(|text| pieces(text)) {
        to.said(&delta(json!({"content": piece})));
    }
    for (index, call) in reply.calls.iter().enumerate() {
        to.said(&delta(
            json!({"tool_calls": [{"index": index, "id": voice.id("call", index), "type": "function",
            "function": {"name": call.name, "arguments": ""}}]}),
        ));
        to.frame(&delta(json!({"tool_calls": [{"index": index,
            "function": {"arguments": call.arguments.to_string()}}]})));
    }
    to.frame(&chunk(json!([{"index": 0, "delta": {}, "finish_reason": finish(reply)}])));
    // Only who asks for it gets the usage of a stream, as with the real one.
    if voice.body["stream_options"]["include_usage"] == true {
        let mut last = chunk(json!([]));
        last["usage"] = usage(voice);
        to.frame(&last);
    }
    to.raw("[DONE]");
    to.into_pieces()
}
