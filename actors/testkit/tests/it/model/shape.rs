//! The events of a stream in the order that real clients need.

use super::{
    client::{ask, post},
    dialect::{body, path, user},
};
use serde_json::{Value, json};
use subagents_testkit::model::{FakeModel, Protocol};

const PROMPT: &str = "[[think:hm]] [[reply:some fifteen ch]]";

async fn events(model: &FakeModel, protocol: Protocol, prompt: &str) -> Vec<(String, Value)> {
    post(model, &path(protocol, true), &body(protocol, true, &[user(prompt)])).await.events()
}

fn names(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test]
async fn responses_begins_and_ends_each_item_and_numbers_its_events() {
    let model = FakeModel::start().await.expect("a model");
    let said = events(&model, Protocol::Responses, PROMPT).await;
    assert_eq!(
        names(&said),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    for (number, (name, data)) in said.iter().enumerate() {
        assert_eq!((&data["type"], &data["sequence_number"]), (&json!(name), &json!(number)));
    }
    assert_eq!(said[8].1["item"]["content"], json!([]), "an item begins empty");
    assert_eq!(said[14].1["item"]["content"][0]["text"], "some fifteen ch");
    assert_eq!((&said[10].1["delta"], &said[10].1["output_index"]), (&json!("some fifteen"), &json!(1)));
    let ids =
        [&said[8].1["item"]["id"], &said[9].1["item_id"], &said[11].1["item_id"], &said[14].1["item"]["id"]];
    assert!(ids.iter().all(|id| id.is_string() && *id == ids[0]), "{ids:?}");
    assert_eq!(said[0].1["response"]["status"], "in_progress");
    assert_eq!(said[0].1["response"]["id"], said[15].1["response"]["id"]);

    let called = events(&model, Protocol::Responses, "[[tool:read {\"a\":1}]]").await;
    assert_eq!(
        names(&called)[2..6],
        [
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
        ]
    );
    assert_eq!((&called[2].1["item"]["arguments"], &called[3].1["delta"]), (&json!(""), &json!("{\"a\":1}")));
    assert_eq!(called[5].1["item"]["arguments"], "{\"a\":1}");
}

#[tokio::test]
async fn responses_knows_namespaces_and_tools_that_take_text() {
    let model = FakeModel::start().await.expect("a model");
    let prompt = "[[tool:mcp__x/read {\"a\":1} %% patch {\"input\":\"*** Begin\"}]]";
    let mut request = body(Protocol::Responses, true, &[user(prompt)]);
    request["tools"] = json!([
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "mcp__x", "tools": [{"type": "function", "name": "read"}]},
        {"type": "web_search"},
    ]);
    let answer = post(&model, "/v1/responses", &request).await;
    let items = answer.events().pop().expect("an event").1["response"]["output"].clone();
    assert_eq!((&items[0]["namespace"], &items[0]["name"]), (&json!("mcp__x"), &json!("read")));
    assert_eq!((&items[1]["type"], &items[1]["input"]), (&json!("custom_tool_call"), &json!("*** Begin")));
    assert!(answer.body.contains("event: response.custom_tool_call_input.delta"), "{}", answer.body);
    let asked = model.requests().pop().expect("a request");
    assert_eq!(asked.tools().collect::<Vec<_>>(), ["patch", "mcp__x/read", "web_search"]);
}

#[tokio::test]
async fn responses_lets_a_model_look_for_its_tools() {
    let model = FakeModel::start().await.expect("a model");
    let prompt = user("[[tool:tool_search {\"query\":\"read\"}]] [[tool:mcp__x/read {}]]");
    let mut request = body(Protocol::Responses, true, &[prompt]);
    request["tools"] = json!([{"type": "tool_search", "execution": "client"}]);
    let answer = post(&model, "/v1/responses", &request).await;
    let item = answer.events().pop().expect("an event").1["response"]["output"][0].clone();
    assert_eq!((&item["type"], &item["execution"]), (&json!("tool_search_call"), &json!("client")));
    assert_eq!(item["arguments"], json!({"query": "read"}));
    assert!(!answer.body.contains("function_call"), "{}", answer.body);
    assert!(!model.requests()[0].offers("mcp__x/read"));
    // What was found is offered.
    let found =
        json!([{"type": "namespace", "name": "mcp__x", "tools": [{"type": "function", "name": "read"}]}]);
    let output = json!({"type": "tool_search_output", "call_id": item["call_id"], "tools": found});
    request["input"].as_array_mut().expect("items").extend([item, output]);
    let answer = post(&model, "/v1/responses", &request).await;
    let call = answer.events().pop().expect("an event").1["response"]["output"][0].clone();
    assert_eq!((&call["namespace"], &call["name"]), (&json!("mcp__x"), &json!("read")));
    let asked = model.requests().pop().expect("a request");
    assert!(asked.offers("mcp__x/read") && asked.tool_results()[0].contains("\"mcp__x\""), "{asked:?}");
}

#[tokio::test]
async fn messages_begins_and_ends_each_block_by_its_index() {
    let model = FakeModel::start().await.expect("a model");
    let said = events(&model, Protocol::Messages, PROMPT).await;
    assert_eq!(
        names(&said),
        [
            "message_start",
            "ping",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    assert!(said.iter().all(|(name, data)| data["type"] == name.as_str()));
    let kinds = |range: std::ops::Range<usize>| -> Vec<_> {
        said[range].iter().map(|(_, data)| data["delta"]["type"].as_str().unwrap_or_default()).collect()
    };
    assert_eq!(kinds(3..5), ["thinking_delta", "signature_delta"]);
    assert_eq!(kinds(7..9), ["text_delta", "text_delta"]);
    assert!(said[2..6].iter().all(|(_, data)| data["index"] == 0));
    assert!(said[6..10].iter().all(|(_, data)| data["index"] == 1));
    let message = &said[0].1["message"];
    assert_eq!(
        (&message["content"], &message["stop_reason"], &message["role"]),
        (&json!([]), &Value::Null, &json!("assistant"))
    );
    assert_eq!(said[10].1["delta"]["stop_reason"], "end_turn");

    let called = events(&model, Protocol::Messages, "[[tool:read {\"a\":1}]]").await;
    assert_eq!(called[2].1["content_block"]["input"], json!({}), "arguments come as deltas");
    assert_eq!(called[3].1["delta"], json!({"type": "input_json_delta", "partial_json": "{\"a\":1}"}));
}

#[tokio::test]
async fn chat_completions_ends_with_usage_where_it_was_asked_for_and_done() {
    let model = FakeModel::start().await.expect("a model");
    let said = events(&model, Protocol::ChatCompletions, PROMPT).await;
    let data: Vec<_> = said.iter().map(|(name, data)| (name.as_str(), data)).collect();
    assert_eq!(data.len(), 7);
    let delta = |at: usize| &data[at].1["choices"][0]["delta"];
    assert_eq!(delta(0), &json!({"role": "assistant", "content": ""}));
    assert_eq!(delta(1), &json!({"reasoning_content": "hm"}));
    assert_eq!((delta(2), delta(3)), (&json!({"content": "some fifteen"}), &json!({"content": " ch"})));
    assert_eq!((delta(4), &data[4].1["choices"][0]["finish_reason"]), (&json!({}), &json!("stop")));
    assert_eq!((&data[5].1["choices"], data[5].1["usage"].is_object()), (&json!([]), true));
    assert_eq!(data[6], ("", &json!("[DONE]")));

    let mut request = body(Protocol::ChatCompletions, true, &[user("hi")]);
    request.as_object_mut().expect("an object").remove("stream_options");
    let without = post(&model, "/v1/chat/completions", &request).await;
    assert!(without.complete && !without.body.contains("usage"), "{}", without.body);

    let called = events(&model, Protocol::ChatCompletions, "[[tool:read %% write {\"a\":1}]]").await;
    let call = |at: usize| &called[at].1["choices"][0]["delta"]["tool_calls"][0];
    assert_eq!((&call(1)["index"], &call(1)["function"]["name"]), (&json!(0), &json!("read")));
    assert_eq!((&call(3)["index"], &call(3)["function"]["name"]), (&json!(1), &json!("write")));
    assert_eq!(call(4), &json!({"index": 1, "function": {"arguments": "{\"a\":1}"}}));
}

#[tokio::test]
async fn gemini_finishes_with_its_last_event_only() {
    let model = FakeModel::start().await.expect("a model");
    let said = events(&model, Protocol::Gemini, PROMPT).await;
    let finishes: Vec<_> = said.iter().map(|(_, data)| &data["candidates"][0]["finishReason"]).collect();
    assert_eq!(finishes, [&Value::Null, &Value::Null, &Value::Null, &json!("STOP")]);
    assert_eq!(said[0].1["candidates"][0]["content"]["parts"], json!([{"text": "hm", "thought": true}]));
    assert!(said.iter().all(|(name, data)| name.is_empty() && data["modelVersion"] == "m-1"));
    let whole = post(&model, "/v1beta/models/m-1:streamGenerateContent", &json!({"contents": [{}]})).await;
    assert_eq!(whole.status, 400);
    assert!(whole.body.contains("?alt=sse"), "{whole:?}");
}

#[tokio::test]
async fn a_structured_answer_is_a_tool_of_claude_code_or_json() {
    let model = FakeModel::start().await.expect("a model");
    let prompt = "[[structured:{\"answer\": 42}]]";
    let mut request = body(Protocol::Messages, false, &[user(prompt)]);
    let plain = post(&model, "/v1/messages", &request).await.json();
    assert_eq!(plain["content"], json!([{"type": "text", "text": "{\"answer\": 42}"}]));
    request["tools"] = json!([{"name": "StructuredOutput"}]);
    let by_tool = post(&model, "/v1/messages", &request).await.json();
    let block = &by_tool["content"][0];
    assert_eq!((&block["name"], &block["input"]), (&json!("StructuredOutput"), &json!({"answer": 42})));

    // By a schema, where the protocols have one: nobody who asks by the way is left with a text.
    for (protocol, field, format) in [
        (Protocol::Responses, "text", json!({"format": {"type": "json_schema", "schema": {}}})),
        (Protocol::ChatCompletions, "response_format", json!({"type": "json_schema"})),
        (Protocol::Messages, "output_config", json!({"format": {"type": "json_schema"}})),
        (Protocol::Gemini, "generationConfig", json!({"responseMimeType": "application/json"})),
    ] {
        let mut request = body(protocol, false, &[user("no directive")]);
        request[field] = format;
        let answer = post(&model, &path(protocol, false), &request).await;
        assert!(answer.body.contains("\"{}\""), "{protocol}: {}", answer.body);
        assert!(model.requests().pop().is_some_and(|asked| asked.wants_json()), "{protocol}");
    }
}

#[tokio::test]
async fn models_are_listed_and_tokens_counted_for_each_client() {
    let model = FakeModel::start().await.expect("a model");
    let openai = ask(&model, "GET /v1/models HTTP/1.1", "").await.json();
    assert_eq!((&openai["object"], &openai["data"][0]["id"]), (&json!("list"), &json!("fake-model")));
    let anthropic = ask(&model, "GET /v1/models HTTP/1.1\r\nanthropic-version: 2023-06-01", "").await.json();
    assert_eq!((&anthropic["has_more"], &anthropic["data"][0]["type"]), (&json!(false), &json!("model")));
    for line in ["GET /v1beta/models HTTP/1.1", "GET /v1/models HTTP/1.1\r\nx-goog-api-key: k"] {
        assert_eq!(ask(&model, line, "").await.json()["models"][0]["name"], "models/fake-model", "{line}");
    }
    let one = ask(&model, "GET /v1/models/some-model HTTP/1.1", "").await.json();
    assert_eq!(one["id"], "some-model");
    assert_eq!(ask(&model, "HEAD / HTTP/1.1", "").await.status, 200);

    let counted =
        post(&model, "/v1/messages/count_tokens?beta=true", &json!({"messages": "x".repeat(400)})).await;
    assert!(counted.json()["input_tokens"].as_u64().is_some_and(|tokens| (100..120).contains(&tokens)));
    let counted = post(&model, "/v1beta/models/m:countTokens", &json!({"contents": "x".repeat(400)})).await;
    assert!(counted.json()["totalTokens"].as_u64().is_some_and(|tokens| (100..120).contains(&tokens)));
    assert_eq!(model.traffic().asked, 0, "none of these asks the model");
}

#[tokio::test]
async fn results_are_in_the_order_of_their_calls_whatever_order_they_are_sent_in() {
    let model = FakeModel::start().await.expect("a model");
    let mut request = body(Protocol::Messages, false, &[user("[[tool:a {} %% b {} %% c {}]]")]);
    let asked = post(&model, "/v1/messages", &request).await.json()["content"].clone();
    let result =
        |n: usize| json!({"type": "tool_result", "tool_use_id": asked[n]["id"], "content": n.to_string()});
    let results = json!({"role": "user", "content": [result(2), result(0), result(1)]});
    let turns = request["messages"].as_array_mut().expect("turns");
    turns.extend([json!({"role": "assistant", "content": asked}), results]);
    post(&model, "/v1/messages", &request).await;
    assert_eq!(model.requests().pop().expect("a request").tool_results(), ["0", "1", "2"]);
}
