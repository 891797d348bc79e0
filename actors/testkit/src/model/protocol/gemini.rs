//! Gemini.

use super::{Events, Piece, Turns, Voice, list, pieces, required};
use crate::model::{
    Reply,
    request::{Asked, Tool},
};
use serde_json::{Value, json};

pub(super) fn read(body: &Value, model: &str, streaming: bool) -> Result<Asked, String> {
    let mut turns = Turns::default();
    for content in required(body, "contents")? {
        let by_model = content["role"] == "model";
        for part in list(&content["parts"]) {
            if let Some(name) = part["functionCall"]["name"].as_str() {
                turns.assistant("", vec![name.to_owned()]);
            } else if part["functionResponse"].is_object() {
                let response = &part["functionResponse"];
                turns.tool(&response["id"], result(&response["response"]));
            } else if by_model {
                let thought = part["thought"] == true;
                turns.assistant(part["text"].as_str().filter(|_| !thought).unwrap_or_default(), Vec::new());
            } else {
                turns.user(&part["text"]);
            }
        }
    }
    let declared = list(&body["tools"]).iter().flat_map(|tool| list(&tool["functionDeclarations"]));
    let config = &body["generationConfig"];
    Ok(Asked {
        model: model.to_owned(),
        streaming,
        turns: turns.into_turns(),
        tools: declared
            .filter_map(|tool| tool["name"].as_str())
            .map(|name| Tool { name: name.to_owned(), freeform: false })
            .collect(),
        wants_json: config["responseMimeType"] == "application/json"
            || config["responseSchema"].is_object()
            || config["responseJsonSchema"].is_object(),
    })
}

/// A response is an object; its text is usually under `output`.
fn result(response: &Value) -> String {
    response["output"].as_str().map_or_else(|| response.to_string(), str::to_owned)
}

pub(super) fn error(status: u16, message: &str) -> Value {
    let name = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        500 => "INTERNAL",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "UNKNOWN",
    };
    json!({"error": {"code": status, "message": message, "status": name}})
}

fn part_of_thought(thought: &str) -> Value {
    json!({"text": thought, "thought": true})
}

fn calls(voice: &Voice<'_>, reply: &Reply) -> Vec<Value> {
    let calls = reply.calls.iter().enumerate();
    calls
        .map(|(index, call)| {
            json!({"functionCall": {"id": voice.id("fc", index), "name": call.name, "args": call.arguments}})
        })
        .collect()
}

fn candidate(voice: &Voice<'_>, parts: &[Value], finish: Option<&str>) -> Value {
    let usage = voice.usage;
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": {"promptTokenCount": usage.input, "candidatesTokenCount": usage.output,
            "totalTokenCount": usage.input.saturating_add(usage.output)},
        "modelVersion": voice.model, "responseId": voice.id("gem", 0),
    })
}

pub(super) fn whole(voice: &Voice<'_>, reply: &Reply) -> Value {
    let mut parts: Vec<_> = reply.think.iter().map(|thought| part_of_thought(thought)).collect();
    parts.extend(reply.text.iter().map(|text| json!({"text": text})));
    parts.extend(calls(voice, reply));
    candidate(voice, &parts, Some("STOP"))
}

pub(super) fn stream(voice: &Voice<'_>, reply: &Reply) -> Vec<Piece> {
    let mut to = Events::default();
    if let Some(thought) = &reply.think {
        to.frame(&candidate(voice, &[part_of_thought(thought)], None));
    }
    for piece in reply.text.iter().flat_map(|text| pieces(text)) {
        to.said(&candidate(voice, &[json!({"text": piece})], None));
    }
    if !reply.calls.is_empty() {
        to.said(&candidate(voice, &calls(voice, reply), None));
    }
    to.frame(&candidate(voice, &[json!({"text": ""})], Some("STOP")));
    to.into_pieces()
}
