//! Anthropic Messages.

use super::{Events, Piece, Turns, Voice, flag, list, pieces, required, result_text, string, texts};
use crate::model::{
    Reply,
    request::{Asked, Tool},
};
use serde_json::{Value, json};

pub(super) fn read(body: &Value) -> Result<Asked, String> {
    let mut turns = Turns::default();
    for message in required(body, "messages")? {
        let content = &message["content"];
        match message["role"].as_str() {
            Some("user") if content.is_string() => turns.user(content),
            Some("user") => {
                for block in list(content) {
                    match block["type"].as_str() {
                        Some("tool_result") => {
                            turns.tool(&block["tool_use_id"], result_text(&block["content"]));
                        }
                        Some("text") => turns.user(&block["text"]),
                        // Pictures and documents are no text.
                        _ => {}
                    }
                }
            }
            Some("assistant") => {
                let calls = list(content).iter().filter(|block| block["type"] == "tool_use");
                let names = calls.filter_map(|call| call["name"].as_str()).map(str::to_owned).collect();
                turns.assistant(&texts(content).concat(), names);
            }
            Some(_) => {}
            None => return Err("a message has no `role`: write `user` or `assistant`".to_owned()),
        }
    }
    let names = list(&body["tools"]).iter().filter_map(|tool| tool["name"].as_str());
    let formats = [&body["output_config"]["format"], &body["output_format"]];
    Ok(Asked {
        model: string(body, "model")?,
        streaming: flag(body, "stream")?,
        turns: turns.into_turns(),
        tools: names.map(|name| Tool { name: name.to_owned(), freeform: false }).collect(),
        wants_json: formats.iter().any(|format| format["type"] == "json_schema"),
    })
}

pub(super) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

fn blocks(voice: &Voice<'_>, reply: &Reply) -> Vec<Value> {
    let mut blocks = Vec::new();
    if let Some(thought) = &reply.think {
        // Whatever it is, clients only carry it back.
        blocks.push(json!({"type": "thinking", "thinking": thought, "signature": "c2lnbmVk"}));
    }
    if let Some(text) = &reply.text {
        blocks.push(json!({"type": "text", "text": text}));
    }
    for (index, call) in reply.calls.iter().enumerate() {
        let id = voice.id("toolu", index);
        blocks.push(json!({"type": "tool_use", "id": id, "name": call.name, "input": call.arguments}));
    }
    blocks
}

fn stop(reply: &Reply) -> &'static str {
    if reply.calls.is_empty() { "end_turn" } else { "tool_use" }
}

fn message(voice: &Voice<'_>, content: &[Value], stop: Option<&str>, output: u64) -> Value {
    json!({
        "id": voice.id("msg", 0), "type": "message", "role": "assistant", "model": voice.model, "content": content,
        "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": voice.usage.input, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens": output},
    })
}

pub(super) fn whole(voice: &Voice<'_>, reply: &Reply) -> Value {
    message(voice, &blocks(voice, reply), Some(stop(reply)), voice.usage.output)
}

pub(super) fn stream(voice: &Voice<'_>, reply: &Reply) -> Vec<Piece> {
    let mut to = Events::default();
    to.named(&json!({"type": "message_start", "message": message(voice, &[], None, 1)}), false);
    to.named(&json!({"type": "ping"}), false);
    for (index, block) in blocks(voice, reply).iter().enumerate() {
        let begins =
            |block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
        let delta = |delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        match block["type"].as_str().unwrap_or_default() {
            "text" => {
                to.named(&begins(json!({"type": "text", "text": ""})), false);
                for piece in pieces(block["text"].as_str().unwrap_or_default()) {
                    to.named(&delta(json!({"type": "text_delta", "text": piece})), true);
                }
            }
            "thinking" => {
                to.named(&begins(json!({"type": "thinking", "thinking": "", "signature": ""})), false);
                to.named(&delta(json!({"type": "thinking_delta", "thinking": block["thinking"]})), false);
                to.named(&delta(json!({"type": "signature_delta", "signature": block["signature"]})), false);
            }
            _ => {
                let emptied =
                    json!({"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}});
                to.named(&begins(emptied), true);
                let arguments = block["input"].to_string();
                to.named(&delta(json!({"type": "input_json_delta", "partial_json": arguments})), false);
            }
        }
        to.named(&json!({"type": "content_block_stop", "index": index}), false);
    }
    let end = json!({
        "type": "message_delta", "delta": {"stop_reason": stop(reply), "stop_sequence": null},
        "usage": {"output_tokens": voice.usage.output},
    });
    to.named(&end, false);
    to.named(&json!({"type": "message_stop"}), false);
    to.into_pieces()
}
