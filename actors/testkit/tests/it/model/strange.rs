//! Requests that are refused before the model sees them, and what they are told.

use super::{
    client::{Answer, ask, post},
    dialect::{ALL, body, both, path, user},
};
use serde_json::{Value, json};
use subagents_testkit::model::{FakeModel, Protocol, Turn};

fn message(answer: &Answer) -> String {
    answer.json()["error"]["message"].as_str().expect("a message").to_owned()
}

#[tokio::test]
async fn a_malformed_body_is_a_400_that_says_what_would_be_right() {
    let model = FakeModel::start().await.expect("a model");
    for protocol in ALL {
        let line = format!("POST {} HTTP/1.1", path(protocol, false));
        for (body, hint) in
            [("", "send one JSON object"), ("{", "send one JSON object"), ("[]", "is missing")]
        {
            let answer = ask(&model, &line, body).await;
            assert_eq!(answer.status, 400, "{protocol} {body}");
            assert!(message(&answer).contains(hint), "{protocol} {body}: {answer:?}");
        }
    }
    for (path, body, hint) in [
        ("/v1/responses", json!({"model": "m"}), "`input` is missing"),
        ("/v1/responses", json!({"input": "x"}), "`model` is missing"),
        (
            "/v1/responses",
            json!({"model": "m", "input": "x", "previous_response_id": "r"}),
            "whole conversation",
        ),
        ("/v1/chat/completions", json!({"model": "m", "messages": []}), "`messages` is missing"),
        ("/v1/chat/completions", json!({"model": "m", "messages": [{}]}), "no `role`"),
        ("/v1/messages", json!({"messages": [{"role": "user"}]}), "`model` is missing"),
        (
            "/v1/messages",
            json!({"model": "m", "messages": [{"role": "user"}], "stream": 1}),
            "neither true nor",
        ),
        ("/v1beta/models/m:generateContent", json!({"model": "m"}), "`contents` is missing"),
    ] {
        let answer = post(&model, path, &body).await;
        assert_eq!(answer.status, 400, "{path} {body}");
        assert!(message(&answer).contains(hint), "{path} {body}: {answer:?}");
    }
    assert_eq!(model.traffic().asked, 0);
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_malformed_directive_is_a_400_that_says_what_would_be_right() {
    let model = FakeModel::start().await.expect("a model");
    for manner in both() {
        let answer = super::dialect::ask(&model, manner, &[user("do [[http:fine]] now")]).await;
        assert_eq!(answer.status, 400, "{manner:?}");
        let told = message(&answer);
        assert!(told.contains("`[[http:fine]] now`") && told.contains("as in [[http:429:2]]"), "{told}");
    }
}

#[tokio::test]
async fn a_body_over_the_bound_is_a_413_and_one_below_it_is_not() {
    let model = FakeModel::builder().max_body(2000).start().await.expect("a model");
    for protocol in ALL {
        let long = |length: usize| body(protocol, false, &[user(&"x".repeat(length))]);
        let answer = post(&model, &path(protocol, false), &long(2000)).await;
        assert_eq!(answer.status, 413, "{protocol}");
        assert!(message(&answer).contains("`max_body`"), "{answer:?}");
        assert_eq!(post(&model, &path(protocol, false), &long(1000)).await.status, 200, "{protocol}");
    }
}

#[tokio::test]
async fn a_packed_body_and_an_unknown_address_are_told_what_there_is() {
    let model = FakeModel::start().await.expect("a model");
    let packed = ask(&model, "POST /v1/responses HTTP/1.1\r\ncontent-encoding: zstd", "{}").await;
    assert_eq!(packed.status, 415);
    assert!(message(&packed).contains("Content-Encoding"), "{packed:?}");
    for line in ["GET /v1/nowhere HTTP/1.1", "GET /v1/responses HTTP/1.1", "POST /v1beta/nowhere HTTP/1.1"] {
        let lost = ask(&model, line, "").await;
        assert_eq!(lost.status, 404, "{line}");
        assert!(message(&lost).contains("POST /v1/responses"), "{lost:?}");
    }
    let verb = post(&model, "/v1beta/models/m:embedContent", &json!({})).await;
    assert_eq!(verb.status, 404);
    assert!(message(&verb).contains("`embedContent`"), "{verb:?}");
}

#[tokio::test]
async fn clients_that_have_the_version_in_neither_or_another_place_are_answered() {
    let model = FakeModel::start().await.expect("a model");
    for (path, protocol) in [
        ("/responses", Protocol::Responses),
        ("/chat/completions", Protocol::ChatCompletions),
        ("/messages", Protocol::Messages),
        ("/v1/messages?beta=true", Protocol::Messages),
        ("/v1/models/m-1:generateContent", Protocol::Gemini),
        ("/models/m-1:streamGenerateContent?key=k&alt=sse", Protocol::Gemini),
    ] {
        let answer = post(&model, path, &body(protocol, false, &[user("hi")])).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn parts_that_are_no_text_are_passed_over() {
    let model = FakeModel::start().await.expect("a model");
    let picture = json!({"type": "image", "source": {"data": "AA=="}});
    let content = json!([picture, {"type": "text", "text": "[[reply:seen]]"},
        {"type": "text", "text": "<system-reminder>\nbe kind\n</system-reminder>"}]);
    let request =
        json!({"model": "m", "system": "[[reply:no]]", "messages": [{"role": "user", "content": content}]});
    assert_eq!(post(&model, "/v1/messages", &request).await.json()["content"][0]["text"], "seen");
    let request = json!({"model": "m", "instructions": "[[reply:no]]", "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "[[reply:no]]"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_image"}, {"type": "input_text", "text": "hi"}]},
        {"type": "item_of_tomorrow", "content": 1},
    ]});
    let answer = post(&model, "/v1/responses", &request).await.json();
    assert_eq!(answer["output"][0]["content"][0]["text"], Value::from("echo: hi"));
    let thought = json!({"text": "hm", "thought": true});
    let request = json!({"contents": [{"role": "model", "parts": [thought, {"text": "said"}, {"inlineData": {}}]},
        {"role": "user", "parts": [{"inlineData": {}}, {"text": "hi"}]}]});
    assert_eq!(post(&model, "/v1beta/models/m:generateContent", &request).await.status, 200);
    let turns = [Turn::Assistant { text: "said".into(), calls: Vec::new() }, Turn::User("hi".into())];
    assert_eq!(model.requests().pop().expect("a request").turns(), turns);
}
