//! What holds in every protocol, streamed and not.

use super::dialect::{Called, Said, both, hear, user};
use serde_json::json;
use subagents_testkit::model::{FakeModel, ModelRequest, Protocol, Reply, Turn};

fn stop(protocol: Protocol, calls: bool) -> &'static str {
    match (protocol, calls) {
        (Protocol::ChatCompletions, false) => "stop",
        (Protocol::ChatCompletions, true) => "tool_calls",
        (Protocol::Messages, false) => "end_turn",
        (Protocol::Messages, true) => "tool_use",
        (Protocol::Gemini, _) => "STOP",
        (Protocol::Responses | _, _) => "completed",
    }
}

#[tokio::test]
async fn a_prompt_without_directives_is_echoed() {
    let model = FakeModel::start().await.expect("a model");
    for manner in both() {
        let heard = hear(&model, manner, &[user("über den Wolken, weit")]).await;
        assert_eq!(heard.text, "echo: über den Wolken, weit", "{manner:?}");
        assert_eq!((heard.thought.as_str(), heard.calls.len()), ("", 0), "{manner:?}");
        assert_eq!(heard.stop, stop(manner.0, false), "{manner:?}");
        assert!(heard.usage.0 > 1 && heard.usage.1 > 1, "{manner:?}: {:?}", heard.usage);
    }
}

#[tokio::test]
async fn a_tool_is_called_and_its_result_is_answered() {
    let model = FakeModel::start().await.expect("a model");
    let prompt =
        "[[tool:read {\"path\": \"a\"}]] [[tool:read {\"path\": \"b\"} %% write]] [[reply:got {{tool}}]]";
    for manner in both() {
        let mut said = vec![user("earlier"), Said::Assistant("echo: earlier".into()), user(prompt)];
        let first = hear(&model, manner, &said).await;
        let [call] = &first.calls[..] else { panic!("{manner:?}: {first:?}") };
        assert_eq!((call.name.as_str(), &call.arguments), ("read", &json!({"path": "a"})), "{manner:?}");
        assert_eq!((first.text.as_str(), first.stop.as_str()), ("", stop(manner.0, true)), "{manner:?}");

        said.push(Said::Tool { call: call.clone(), result: "one".into() });
        let second = hear(&model, manner, &said).await;
        let [b, write] = &second.calls[..] else { panic!("{manner:?}: {second:?}") };
        assert_eq!((&b.arguments, write.name.as_str()), (&json!({"path": "b"}), "write"), "{manner:?}");
        assert_eq!(write.arguments, json!({}), "{manner:?}");
        assert!(call.id != b.id && b.id != write.id && !b.id.is_empty(), "{manner:?}: ids are of one call");

        said.push(Said::Tool { call: b.clone(), result: "two".into() });
        let third = hear(&model, manner, &said).await;
        assert_eq!((third.text.as_str(), third.calls.len()), ("got two", 0), "{manner:?}");

        said.push(Said::Tool { call: b.clone(), result: "three".into() });
        assert_eq!(hear(&model, manner, &said).await.text, "tool said: three", "{manner:?}");
        said.push(Said::Assistant("tool said: three".into()));
        said.push(user("thanks"));
        assert_eq!(hear(&model, manner, &said).await.text, "echo: thanks", "{manner:?}");
    }
}

#[tokio::test]
async fn thoughts_usage_and_json_come_as_they_were_asked_for() {
    let model = FakeModel::start().await.expect("a model");
    let prompt = "[[think:hm, so]] [[usage:120:7]] [[json:{\"b\":  1, \"a\": [[2]]}]]";
    for manner in both() {
        let heard = hear(&model, manner, &[user(prompt)]).await;
        assert_eq!(heard.text, "{\"b\":  1, \"a\": [[2]]}", "{manner:?}");
        assert_eq!((heard.thought.as_str(), heard.usage), ("hm, so", (120, 7)), "{manner:?}");
    }
}

#[tokio::test]
async fn a_closure_decides_by_the_request() {
    let model = FakeModel::builder()
        .script(|request| match request.tool_results().first() {
            Some(result) => Reply::text(format!("{} read {result}", request.model())).usage(3, 4),
            None if request.prompt() == "panic" => panic!("out of ideas"),
            None if request.prompt().starts_with("by prompt") => Reply::from_prompt(request),
            None if request.offers("read") => {
                Reply::text("first").think("hm").and_call("read", json!({"n": 1}))
            }
            None => Reply::http(500),
        })
        .start()
        .await
        .expect("a model");
    for manner in both() {
        let first = hear(&model, manner, &[user("go")]).await;
        assert_eq!((first.text.as_str(), first.thought.as_str()), ("first", "hm"), "{manner:?}");
        let [call] = &first.calls[..] else { panic!("{manner:?}: {first:?}") };
        assert_eq!(call, &Called { id: call.id.clone(), name: "read".into(), arguments: json!({"n": 1}) });
        let then = Said::Tool { call: call.clone(), result: "it".into() };
        let second = hear(&model, manner, &[user("go"), then]).await;
        assert_eq!((second.text.as_str(), second.usage), ("m-1 read it", (3, 4)), "{manner:?}");
        assert_eq!(hear(&model, manner, &[user("by prompt [[reply:x]]")]).await.text, "x", "{manner:?}");
        let panicked = super::dialect::ask(&model, manner, &[user("panic")]).await;
        assert_eq!(panicked.status, 500, "{manner:?}");
        assert!(panicked.body.contains("the script panicked: out of ideas"), "{panicked:?}");
    }
}

#[tokio::test]
async fn what_was_asked_is_kept() {
    let model = FakeModel::start().await.expect("a model");
    for manner in both() {
        let call = Called { id: "c1".into(), name: "read".into(), arguments: json!({}) };
        let said = [
            user("old"),
            Said::Assistant("fine".into()),
            user("new"),
            Said::Tool { call, result: "r".into() },
        ];
        hear(&model, manner, &said).await;
        let asked = model.requests().pop().expect("a request");
        assert_eq!((asked.protocol(), asked.is_streaming()), manner);
        assert_eq!((asked.model(), asked.prompt()), ("m-1", "new"));
        assert_eq!(asked.tools().collect::<Vec<_>>(), ["read", "write"]);
        assert_eq!(asked.tool_results(), ["r"], "{manner:?}");
        let [Turn::User(old), Turn::Assistant { text, .. }, Turn::User(_), Turn::Assistant { calls, .. }, _] =
            asked.turns()
        else {
            panic!("{manner:?}: {:?}", asked.turns())
        };
        assert_eq!((old.as_str(), text.as_str(), &calls[..]), ("old", "fine", &["read".to_owned()][..]));
        assert_eq!(asked.body(), &super::dialect::body(manner.0, manner.1, &said));
        assert!(!format!("{asked:?}").contains("old"), "what was said is not in the log");
    }
    let times: Vec<_> = model.requests().iter().map(ModelRequest::at).collect();
    assert!(times.len() == 8 && times.is_sorted(), "{times:?}");
}
