//! OpenAI Responses.

use super::{Events, Piece, Turns, Voice, flag, list, pieces, result_text, string, texts};
use crate::model::{
    Reply,
    reply::Call,
    request::{Asked, Tool},
};
use serde_json::{Map, Value, json};

/// The tool by which a client lets its model look for the others; it has items of its own kind.
const SEARCH: &str = "tool_search";

pub(super) fn read(body: &Value) -> Result<Asked, String> {
    if !body["previous_response_id"].is_null() {
        return Err("this server keeps no responses: send the whole conversation as `input`, \
                    without `previous_response_id`"
            .to_owned());
    }
    let mut turns = Turns::default();
    match &body["input"] {
        input @ Value::String(_) => turns.user(input),
        Value::Array(items) => items.iter().for_each(|item| take(item, &mut turns)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err("the field `input` is missing: send a string or a list of items".to_owned());
        }
    }
    Ok(Asked {
        model: string(body, "model")?,
        streaming: flag(body, "stream")?,
        turns: turns.into_turns(),
        // What a search has found may be called from then on.
        tools: found(&body["input"]).chain([&body["tools"]]).flat_map(tools).collect(),
        wants_json: matches!(body["text"]["format"]["type"].as_str(), Some("json_schema" | "json_object")),
    })
}

fn take(item: &Value, turns: &mut Turns) {
    let name = || vec![item["name"].as_str().unwrap_or_default().to_owned()];
    match item["type"].as_str().unwrap_or("message") {
        "message" => match item["role"].as_str() {
            Some("user") => turns.user(&item["content"]),
            Some("assistant") => turns.assistant(&texts(&item["content"]).concat(), Vec::new()),
            // What the system and the developer say is no turn.
            _ => {}
        },
        "function_call" | "custom_tool_call" => turns.assistant("", name()),
        "tool_search_call" => turns.assistant("", vec![SEARCH.to_owned()]),
        "tool_search_output" => turns.tool(&item["call_id"], item["tools"].to_string()),
        kind if kind.ends_with("_call_output") => turns.tool(&item["call_id"], result_text(&item["output"])),
        // Thoughts, and the marks of tools that a real server runs by itself.
        _ => {}
    }
}

fn found(input: &Value) -> impl Iterator<Item = &Value> {
    list(input).iter().filter(|item| item["type"] == "tool_search_output").map(|item| &item["tools"])
}

fn tools(offered: &Value) -> Vec<Tool> {
    let mut tools = Vec::new();
    for tool in list(offered) {
        let name = tool["name"].as_str().unwrap_or_default();
        match tool["type"].as_str() {
            Some("namespace") => tools.extend(list(&tool["tools"]).iter().map(|inner| Tool {
                name: format!("{name}/{}", inner["name"].as_str().unwrap_or_default()),
                freeform: inner["type"] == "custom",
            })),
            // A tool without a name is one of the server's own: its type names it.
            Some(kind) if name.is_empty() => tools.push(Tool { name: kind.to_owned(), freeform: false }),
            kind => tools.push(Tool { name: name.to_owned(), freeform: kind == Some("custom") }),
        }
    }
    tools
}

fn items(voice: &Voice<'_>, reply: &Reply) -> Vec<Value> {
    let mut items = Vec::new();
    if let Some(thought) = &reply.think {
        items.push(json!({
            "type": "reasoning", "id": voice.id("rs", items.len()),
            "summary": [{"type": "summary_text", "text": thought}], "encrypted_content": null,
        }));
    }
    if let Some(text) = &reply.text {
        items.push(json!({
            "type": "message", "id": voice.id("msg", items.len()), "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
        }));
    }
    for call in &reply.calls {
        items.push(item_of(voice, call, items.len()));
    }
    items
}

fn item_of(voice: &Voice<'_>, Call { name, arguments }: &Call, part: usize) -> Value {
    let call_id = voice.id("call", part);
    if voice.is_freeform(name) {
        let input = arguments.as_str().or(arguments["input"].as_str()).unwrap_or_default();
        return json!({
            "type": "custom_tool_call", "id": voice.id("ctc", part), "call_id": call_id, "name": name,
            "input": input, "status": "completed",
        });
    }
    if name == SEARCH {
        return json!({
            "type": "tool_search_call", "id": voice.id("tsc", part), "call_id": call_id, "execution": "client",
            "arguments": arguments, "status": "completed",
        });
    }
    let (namespace, name) = name.rsplit_once('/').map_or((None, name.as_str()), |(n, name)| (Some(n), name));
    let mut item = json!({
        "type": "function_call", "id": voice.id("fc", part), "call_id": call_id, "name": name,
        "arguments": arguments.to_string(), "status": "completed",
    });
    if let Some(namespace) = namespace {
        item["namespace"] = namespace.into();
    }
    item
}

fn response(voice: &Voice<'_>, status: &str, output: &[Value]) -> Value {
    json!({
        "id": voice.id("resp", 0), "object": "response", "created_at": voice.created, "status": status,
        "model": voice.model, "output": output, "error": null, "incomplete_details": null,
    })
}

fn completed(voice: &Voice<'_>, items: &[Value]) -> Value {
    let usage = voice.usage;
    let mut response = response(voice, "completed", items);
    response["usage"] = json!({
        "input_tokens": usage.input, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input.saturating_add(usage.output),
    });
    response
}

pub(super) fn whole(voice: &Voice<'_>, reply: &Reply) -> Value {
    completed(voice, &items(voice, reply))
}

/// Numbers its events.
#[derive(Default)]
struct Numbered {
    events: Events,
    number: u64,
}

impl Numbered {
    fn send(&mut self, kind: &str, data: Value, is_said: bool) {
        let mut event = Map::new();
        event.insert("type".to_owned(), kind.into());
        event.insert("sequence_number".to_owned(), self.number.into());
        if let Value::Object(fields) = data {
            event.extend(fields);
        }
        self.number += 1;
        self.events.named(&Value::Object(event), is_said);
    }
}

pub(super) fn stream(voice: &Voice<'_>, reply: &Reply) -> Vec<Piece> {
    let mut to = Numbered::default();
    let items = items(voice, reply);
    let begun = json!({"response": response(voice, "in_progress", &[])});
    to.send("response.created", begun.clone(), false);
    to.send("response.in_progress", begun, false);
    for (index, item) in items.iter().enumerate() {
        let id = &item["id"];
        let begins = |emptied: Value| {
            let mut item = item.clone();
            if let (Value::Object(item), Value::Object(emptied)) = (&mut item, emptied) {
                item.extend(emptied);
            }
            json!({"output_index": index, "item": item})
        };
        match item["type"].as_str().unwrap_or_default() {
            "message" => {
                let text = reply.text.as_deref().unwrap_or_default();
                let part = |text: &str| {
                    json!({"item_id": id, "output_index": index, "content_index": 0,
                    "part": {"type": "output_text", "text": text, "annotations": [], "logprobs": []}})
                };
                to.send(
                    "response.output_item.added",
                    begins(json!({"status": "in_progress", "content": []})),
                    false,
                );
                to.send("response.content_part.added", part(""), false);
                for piece in pieces(text) {
                    let delta = json!({"item_id": id, "output_index": index, "content_index": 0, "delta": piece,
                        "logprobs": []});
                    to.send("response.output_text.delta", delta, true);
                }
                let done = json!({"item_id": id, "output_index": index, "content_index": 0, "text": text,
                    "logprobs": []});
                to.send("response.output_text.done", done, false);
                to.send("response.content_part.done", part(text), false);
            }
            "reasoning" => {
                let text = reply.think.as_deref().unwrap_or_default();
                let part = |text: &str| {
                    json!({"item_id": id, "output_index": index, "summary_index": 0,
                    "part": {"type": "summary_text", "text": text}})
                };
                let with = |field: &str| json!({"item_id": id, "output_index": index, "summary_index": 0, field: text});
                to.send("response.output_item.added", begins(json!({"summary": []})), false);
                to.send("response.reasoning_summary_part.added", part(""), false);
                to.send("response.reasoning_summary_text.delta", with("delta"), false);
                to.send("response.reasoning_summary_text.done", with("text"), false);
                to.send("response.reasoning_summary_part.done", part(text), false);
            }
            "tool_search_call" => {
                to.send("response.output_item.added", begins(json!({"status": "in_progress"})), true);
            }
            kind => {
                let (field, event) = match kind {
                    "custom_tool_call" => ("input", "response.custom_tool_call_input"),
                    _ => ("arguments", "response.function_call_arguments"),
                };
                let with = |name: &str| json!({"item_id": id, "output_index": index, name: item[field]});
                let added = begins(json!({"status": "in_progress", field: ""}));
                to.send("response.output_item.added", added, true);
                to.send(&format!("{event}.delta"), with("delta"), false);
                to.send(&format!("{event}.done"), with(field), false);
            }
        }
        to.send("response.output_item.done", json!({"output_index": index, "item": item}), false);
    }
    to.send("response.completed", json!({"response": completed(voice, &items)}), false);
    to.events.into_pieces()
}
