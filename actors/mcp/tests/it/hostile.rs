//! Clients that go, that do not read, that send what is no message.

use crate::client::{Client, within};
use serde_json::json;
use std::time::Duration;
use subagents_mcp::{McpError, PATIENCE};
use subagents_testkit::Scripted;
use tokio::{io::AsyncWriteExt, time::Instant};

#[tokio::test]
async fn what_a_client_owned_is_gone_when_it_is() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let mut client = Client::of(provider).await;
    for _ in 0..5 {
        client.call("hang").await;
    }
    within(async {
        while probe.alive() < 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let begun = Instant::now();
    client.go().await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!((probe.closes(), probe.alive()), (5, 0));
}

#[tokio::test]
async fn a_server_that_is_dropped_takes_its_runs_along() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let mut client = Client::of(provider).await;
    client.call("hang").await;
    within(async {
        while probe.alive() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        client.served.abort();
        while probe.closes() == 0 || probe.alive() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_that_goes_before_it_has_said_anything_is_no_fault() {
    Client::fresh(Scripted::obedient()).go().await;
    // Whoever asks before it has said hello is told, and may still say it.
    let mut client = Client::fresh(Scripted::obedient());
    let id = client.ask("tools/list", json!({})).await;
    assert!(client.answer(id).await["error"]["message"].is_string());
    client.go().await;
    let mut client = Client::fresh(Scripted::obedient());
    client.say(json!({"jsonrpc": "2.0", "id": 7, "result": {}})).await;
    let served = within(&mut client.served).await.unwrap();
    let error = served.expect_err("it did not say hello");
    assert!(matches!(error, McpError::Handshake(_)) && error.to_string().contains("initialize"), "{error}");
}

#[tokio::test]
async fn what_is_no_message_is_passed_over() {
    let mut client = Client::of(Scripted::obedient()).await;
    for line in [
        "",
        "Welcome!",
        "{",
        "[]",
        "17",
        "{\"jsonrpc\":\"2.0\"}",
        &"[".repeat(100_000),
        &"x".repeat(17 << 20),
    ] {
        client.line(line).await;
    }
    let id = client.call("echo still here").await;
    assert!(client.outcome(id).await.0.contains("\nstill here\n"));
    client.go().await;
}

#[tokio::test]
async fn more_requests_than_may_be_open_are_refused_and_a_cancel_still_comes_through() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let mut client = Client::of(provider).await;
    let mut ids = Vec::new();
    for _ in 0..4_096 {
        ids.push(client.call("hang").await);
    }
    let mut over = Vec::new();
    for _ in 0..200 {
        over.push(client.call("echo too many").await);
    }
    for over in over {
        let refused = client.answer(over).await;
        assert!(
            refused["error"]["message"].as_str().unwrap().contains("4096 requests are open"),
            "{refused}"
        );
    }
    client
        .say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ids[0]}}))
        .await;
    within(async {
        while probe.closes() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    client.go().await;
    assert_eq!(probe.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_given_up_with_what_it_owned() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let mut client = Client::of(provider).await;
    client.call("hang").await;
    let begun = Instant::now();
    // Answers of 4 KiB each, until no more fit.
    let long = "x".repeat(4_000);
    for _ in 0..100 {
        client.call(&format!("echo {long}")).await;
    }
    within(&mut client.served).await.unwrap().unwrap();
    assert!(begun.elapsed() >= PATIENCE, "{:?}", begun.elapsed());
    assert_eq!(probe.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_no_answer_to_its_garbage_and_goes_is_noticed() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let mut client = Client::of(provider).await;
    client.call("hang").await;
    while probe.alive() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Well-formed, and no message: each is answered, and nobody reads that.
    let mut write = client.write.take().expect("it is open");
    let garbage = "17\n".repeat(64 * 1024);
    let _ = tokio::time::timeout(Duration::from_secs(5), write.write_all(garbage.as_bytes())).await;
    drop(write);
    within(&mut client.served).await.unwrap().unwrap();
    assert_eq!((probe.closes(), probe.alive()), (1, 0));
}

#[tokio::test]
async fn whoever_waits_for_an_answer_to_what_cannot_be_read_gets_one() {
    let mut client = Client::of(Scripted::obedient()).await;
    let call = |id: u64, prompt: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"subagent","arguments":{{"description":"x","prompt":"{prompt}"}}}}}}"#
        )
    };
    // Half a character, as a program leaves it that cuts a text.
    client.line(&call(71, "echo half \\ud83d")).await;
    assert!(client.outcome(71).await.0.contains("\nhalf \u{fffd}\n"));
    client.line(&call(72, &"x".repeat(17 << 20))).await;
    assert!(client.answer(72).await["error"]["message"].as_str().unwrap().contains("too long"));
    client.line(&call(73, "x")[..90]).await;
    assert_eq!(client.answer(73).await["error"]["code"], -32700);
    client.line(&call(74, "hang")).await;
    client.line(&call(74, "echo twice")).await;
    assert!(
        client.answer(74).await["error"]["message"].as_str().unwrap().contains("this id is open already")
    );
    client
        .line(
            r#"{"jsonrpc":"2.0","id":75,"method":"tools/call","params":{"name":"subagent","arguments":[]}}"#,
        )
        .await;
    assert_eq!(client.answer(75).await["error"]["code"], -32602);
    let long = "m".repeat(1 << 20);
    client.line(&format!(r#"{{"jsonrpc":"2.0","id":76,"method":"{long}"}}"#)).await;
    assert!(client.answer(76).await.to_string().len() < 400);
    client.go().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_is_not_given_up() {
    let mut client = Client::of(Scripted::obedient()).await;
    let long = "x".repeat(4_000);
    let mut ids = Vec::new();
    for _ in 0..60 {
        ids.push(client.call(&format!("echo {long}")).await);
    }
    // One answer in twenty seconds: half an hour in all.
    for id in ids {
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(client.outcome(id).await.0.contains("xxx"));
    }
    client.go().await;
}
