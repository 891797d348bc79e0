//! What a well-behaved client sees.

use crate::client::{Client, within};
use serde_json::json;
use std::time::Duration;
use subagents_runtime::SubagentService;
use subagents_testkit::{Script, Scripted};
use subagents_tool::SubagentTool;
use tokio::time::Instant;

#[tokio::test]
async fn every_version_of_the_protocol_is_spoken() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = Client::fresh(Scripted::obedient());
        let hello = client.hello(version).await;
        assert_eq!(hello["result"]["protocolVersion"], version);
        assert_eq!(hello["result"]["capabilities"]["tools"]["listChanged"], true);
        assert!(hello["result"]["instructions"].as_str().unwrap().contains("delegate work to subagents"));
        let id = client.call("echo hello").await;
        let (text, failed) = client.outcome(id).await;
        assert!(text.contains("\nhello\n") && !failed, "{text}");
        client.go().await;
    }
    // The one that is not known is answered with one that is.
    let mut client = Client::fresh(Scripted::obedient());
    let hello = client.hello("2099-01-01").await;
    assert_eq!(hello["result"]["protocolVersion"], "2025-11-25");
    client.go().await;
}

#[tokio::test]
async fn the_version_without_a_handshake_is_spoken_too() {
    let mut client = Client::fresh(Scripted::obedient());
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let arguments = json!({"description": "a short task", "prompt": "echo hello"});
    let id =
        client.ask("tools/call", json!({"name": "subagent", "arguments": arguments, "_meta": meta})).await;
    let (text, failed) = client.outcome(id).await;
    assert!(text.contains("\nhello\n") && !failed, "{text}");
    client.go().await;
}

#[tokio::test]
async fn a_call_has_a_text_and_a_value_and_a_failure_is_a_result() {
    let mut client = Client::of(Scripted::obedient()).await;
    let id = client.ask("tools/list", json!({})).await;
    let listed = client.answer(id).await["result"]["tools"].clone();
    let names: Vec<_> =
        listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["subagent", "subagent_output"]);
    assert_eq!(listed[0]["outputSchema"]["properties"]["kind"]["const"], "foreground");
    let id = client.call("echo hello").await;
    let answer = client.answer(id).await;
    let value = &answer["result"]["structuredContent"];
    assert_eq!(
        (&value["kind"], &value["output"]),
        (&json!("foreground"), &json!([{"type": "text", "text": "hello"}]))
    );
    let id = client.call("fail the model answers 529").await;
    let (text, failed) = client.outcome(id).await;
    assert!(failed && text.contains("model-error: the model answers 529"), "{text}");
    let id = client.ask("tools/call", json!({"name": "subagent", "arguments": {"prompt": "x"}})).await;
    let (text, failed) = client.outcome(id).await;
    assert!(failed && text.contains("`description` is missing"), "{text}");
    let id = client.ask("tools/call", json!({"name": "nobody", "arguments": {}})).await;
    let answer = client.answer(id).await;
    assert_eq!(answer["error"]["code"], -32602);
    assert!(answer["error"]["message"].as_str().unwrap().contains("there are: subagent, subagent_output"));
    client.go().await;
}

#[tokio::test]
async fn spec_12_10_calls_run_at_once_and_are_answered_as_they_end() {
    let mut client = Client::of(Scripted::obedient()).await;
    let begun = Instant::now();
    let mut ids = Vec::new();
    for ms in [500, 400, 300, 200, 100] {
        ids.push(client.call(&ms.to_string()).await);
    }
    let mut order = Vec::new();
    for _ in 0..5 {
        order.push(client.message().await.unwrap()["id"].as_u64().unwrap());
    }
    assert!(begun.elapsed() < Duration::from_millis(1000), "{:?}", begun.elapsed());
    ids.reverse();
    assert_eq!(order, ids);
    client.go().await;
}

#[tokio::test]
async fn c12_a_cancelled_call_ends_its_run_and_no_other() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let mut client = Client::of(provider).await;
    let hangs = client.call("hang").await;
    let works = client.call("400").await;
    while probe.alive() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client.say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": hangs, "reason": "x"}})).await;
    within(async {
        while probe.closes() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // What is cancelled is not answered, as the protocol wants it.
    let (text, failed) = client.outcome(works).await;
    assert!(text.contains("\n400\n") && !failed, "{text}");
    assert_eq!((probe.closes(), probe.alive()), (2, 0));
    client.go().await;
}

#[tokio::test]
async fn whoever_asks_for_progress_gets_it_and_it_rises() {
    let provider = Scripted::by(|_| Script::answer("done").tool("grep").pause(Duration::from_millis(2_500)));
    let mut client = Client::of(provider).await;
    let arguments = json!({"description": "a short task", "prompt": "x"});
    let params = json!({"name": "subagent", "arguments": arguments, "_meta": {"progressToken": "mine"}});
    let id = client.ask("tools/call", params).await;
    let mut told = Vec::new();
    loop {
        let message = client.message().await.unwrap();
        if message["id"] == json!(id) {
            break;
        }
        assert_eq!(
            (&message["method"], &message["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!("mine"))
        );
        told.push((
            message["params"]["progress"].as_f64().unwrap(),
            message["params"]["message"].as_str().unwrap().to_owned(),
        ));
    }
    assert!(!told.is_empty() && told.windows(2).all(|two| two[0].0 < two[1].0), "{told:?}");
    assert!(told.iter().any(|(_, message)| message.starts_with("in tool grep")), "{told:?}");
    client.go().await;
}

#[tokio::test]
async fn spec_2_4_the_client_is_told_when_the_tools_are_others() {
    let service = SubagentService::builder().build().unwrap();
    let mut client = Client::with(service.clone(), [SubagentTool::new("subagent", "late")]);
    let hello = client.hello("2025-06-18").await;
    assert!(
        hello["result"]["instructions"].as_str().unwrap().contains("needs the provider `late`"),
        "{hello}"
    );
    let id = client.ask("tools/list", json!({})).await;
    assert_eq!(client.answer(id).await["result"]["tools"], json!([]));
    let id = client.call("x").await;
    let answer = client.answer(id).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("needs the provider `late`"), "{answer}");
    let registration = service.register("late", Scripted::obedient()).unwrap();
    client.find(|message| message["method"] == "notifications/tools/list_changed").await;
    let id = client.call("echo here").await;
    assert!(client.outcome(id).await.0.contains("\nhere\n"));
    drop(registration);
    client.find(|message| message["method"] == "notifications/tools/list_changed").await;
    client.go().await;
}

#[tokio::test]
async fn a_hundred_calls_at_once_are_all_answered() {
    let mut client = Client::of(Scripted::obedient()).await;
    let mut ids = Vec::new();
    for n in 0..100 {
        ids.push(client.call(&format!("echo {n}")).await);
    }
    for (n, id) in ids.into_iter().enumerate() {
        assert!(client.outcome(id).await.0.contains(&format!("\n{n}\n")));
    }
    client.go().await;
}
