//! Clients over HTTP.

use crate::client::within;
use crate::guest::{Guest, Request, Server, Stream};
use serde_json::json;
use std::time::Duration;
use subagents_mcp::{HttpToken, McpError, McpServer};
use subagents_runtime::SubagentService;
use subagents_testkit::{Script, Scripted};
use subagents_tool::{SubagentTool, Toolbox};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, advance, pause, resume, sleep};

/// What the protocol calls an absent client: it has calls and does not listen.
const ABSENCE: Duration = Duration::from_secs(31);
const HOUR: Duration = Duration::from_secs(3_601);

/// Lets time pass at once, for everything that waits.
async fn later(span: Duration) {
    pause();
    advance(span).await;
    resume();
}

/// Lets time pass until it is so. What the system does in between takes as long as it takes.
async fn until_later(span: Duration, holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(90), "it comes in time");
        later(span).await;
        for _ in 0..50 {
            if !holds() {
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

async fn until(holds: impl Fn() -> bool) {
    within(async {
        while !holds() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn every_version_of_the_protocol_is_spoken_over_http() {
    let server = Server::of(Scripted::obedient()).await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let guest = Guest::greets(&server, version).await;
        assert_eq!(guest.hello["result"]["protocolVersion"], version);
        let mut stream = guest.call("echo hello").await;
        let (text, failed) = stream.outcome().await;
        assert!(text.contains("\nhello\n") && !failed, "{text}");
        assert_eq!(stream.message().await, None);
        // Only where it is known is an event without a message sent.
        assert_eq!(stream.primed, version == "2025-11-25", "{version}");
        assert_eq!(guest.ends().await, 202);
        let status = guest.request("tools/list", json!({})).send().await.status;
        assert_eq!(status, 404);
    }
    // The one without a handshake and without sessions.
    let arguments = json!({"description": "a short task", "prompt": "echo hello"});
    let mut answer =
        Request::modern(&server, "tools/call", json!({"name": "subagent", "arguments": arguments}))
            .header("mcp-name", "subagent")
            .send()
            .await;
    assert_eq!(answer.status, 200);
    assert!(answer.outcome().await.0.contains("\nhello\n"));
    server.close().await;
}

#[tokio::test]
async fn whoever_does_not_show_the_token_or_comes_from_elsewhere_is_not_let_in() {
    let server = Server::of(Scripted::obedient()).await;
    let hello = || Request::hello(&server, "2025-11-25");
    for (request, status) in [
        (hello(), 200),
        (hello().bare(), 401),
        (hello().bare().header("authorization", "Bearer 0123456789abcdef"), 401),
        (hello().bare().at("/mcp?token=0"), 401),
        (hello().bare().at(&server.path_with_token()), 200),
        (hello().at("/"), 404),
        (hello().at("/.well-known/oauth-protected-resource"), 404),
        (hello().header("origin", "http://localhost:3000"), 200),
        (hello().header("origin", "http://127.0.0.1:6274"), 200),
        (hello().header("origin", "https://evil.example"), 403),
        (hello().header("origin", "http://localhost.evil.example"), 403),
        (hello().header("origin", "null"), 403),
        (hello().host("evil.example"), 403),
        (hello().host("localhost:9"), 200),
    ] {
        let told = format!("{request:?}");
        let answer = request.send().await;
        assert_eq!(answer.status, status, "{told}");
    }
    let answer = hello().bare().send().await;
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    assert!(answer.text().await.contains("Authorization: Bearer TOKEN"));
    server.close().await;
    // Other machines are not served at all.
    let service = SubagentService::builder().build().unwrap();
    let server = McpServer::new(&service, Toolbox::new(&service, []).unwrap(), std::env::temp_dir());
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let error = within(server.serve_http(listener, HttpToken::random())).await.unwrap_err();
    assert!(matches!(error, McpError::NotLoopback(_)) && error.to_string().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn a_hundred_calls_of_ten_clients_run_at_once() {
    let server = Server::of(Scripted::obedient()).await;
    let begun = Instant::now();
    let mut streams = Vec::new();
    for _ in 0..10 {
        let guest = Guest::greets(&server, "2025-11-25").await;
        for _ in 0..10 {
            streams.push(guest.call("600").await);
        }
    }
    for mut stream in streams {
        assert!(stream.outcome().await.0.contains("\n600\n"));
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    server.close().await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_or_asks_for_progress_over_http_is_as_over_pipes() {
    let provider = Scripted::by(|prompt| match prompt {
        "hang" => Script::hang().say("half"),
        _ => Script::answer("done").tool("grep").pause(Duration::from_millis(2_500)),
    });
    let probe = provider.probe();
    let server = Server::of(provider).await;
    let guest = Guest::greets(&server, "2025-06-18").await;
    let arguments = json!({"description": "a short task", "prompt": "work"});
    let params = json!({"name": "subagent", "arguments": arguments, "_meta": {"progressToken": 7}});
    let mut works = guest.request("tools/call", params).send().await;
    let hangs = guest.call("hang").await;
    until(|| probe.alive() == 2).await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": hangs.id}});
    assert_eq!(guest.say(cancel).await, 202);
    until(|| probe.closes() == 1).await;
    let progress = works.message().await.unwrap();
    assert_eq!(
        (&progress["method"], &progress["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!(7))
    );
    assert!(works.outcome().await.0.contains("\ndone\n"));
    assert_eq!((probe.closes(), probe.alive()), (2, 0));
    server.close().await;
}

#[tokio::test]
async fn a_client_that_vanishes_in_mid_call_is_given_time_to_come_back_and_then_ended() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let server = Server::of(provider).await;
    let (stays, goes) =
        (Guest::greets(&server, "2025-11-25").await, Guest::greets(&server, "2025-11-25").await);
    let mut kept = stays.call("hang").await;
    drop(goes.call("hang").await);
    until(|| probe.alive() == 2).await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(probe.alive(), 2, "a break is no cancel");
    until_later(ABSENCE, || probe.closes() == 1).await;
    assert_eq!(probe.alive(), 1, "only what is gone is ended");
    assert_eq!(goes.request("tools/list", json!({})).send().await.status, 404);
    // The one that says that it goes, does so at once.
    assert_eq!(stays.ends().await, 202);
    until(|| probe.alive() == 0).await;
    while kept.message().await.is_some() {}
    server.close().await;
}

#[tokio::test]
async fn a_client_that_comes_back_hears_the_rest() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let server = Server::of(provider).await;
    let guest = Guest::greets(&server, "2025-11-25").await;
    let mut stream = guest.call("700").await;
    let last = within(stream.priming()).await;
    drop(stream);
    sleep(Duration::from_millis(100)).await;
    let mut again = guest.listen().header("last-event-id", &last).send().await;
    assert!(again.outcome().await.0.contains("\n700\n"));
    assert_eq!(probe.closes(), 1);
    server.close().await;
}

#[tokio::test]
async fn a_call_without_a_session_is_cancelled_by_leaving() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let server = Server::of(provider).await;
    let arguments = json!({"description": "a short task", "prompt": "hang"});
    let request = Request::modern(&server, "tools/call", json!({"name": "subagent", "arguments": arguments}))
        .header("mcp-name", "subagent");
    let asked = tokio::spawn(request.send());
    until(|| probe.alive() == 1).await;
    asked.abort();
    until(|| probe.closes() == 1 && probe.alive() == 0).await;
    server.close().await;
}

#[tokio::test]
async fn spec_2_4_a_client_over_http_is_told_when_the_tools_are_others() {
    let service = SubagentService::builder().build().unwrap();
    let server = Server::with(service.clone(), [SubagentTool::new("subagent", "late")]).await;
    let guest = Guest::greets(&server, "2025-06-18").await;
    let mut events = guest.listen().send().await;
    let registration = service.register("late", Scripted::obedient()).unwrap();
    let told = events.message().await.unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert!(guest.call("echo here").await.outcome().await.0.contains("\nhere\n"));
    drop(registration);
    server.close().await;
}

#[tokio::test]
async fn the_session_that_has_been_idle_for_longest_makes_room() {
    let server = Server::of(Scripted::obedient()).await;
    let mut busy = Vec::new();
    for _ in 0..2 {
        let guest = Guest::greets(&server, "2025-11-25").await;
        busy.push((guest.listen().send().await, guest));
    }
    let mut idle = Vec::new();
    for _ in 2..256 {
        idle.push(Guest::greets(&server, "2025-11-25").await);
    }
    let another = Guest::greets(&server, "2025-11-25").await;
    let status = async |guest: &Guest| guest.request("tools/list", json!({})).send().await.status;
    assert_eq!(status(&idle[0]).await, 404);
    for guest in [&busy[0].1, &idle[1], &idle[253], &another] {
        assert_eq!(status(guest).await, 200);
    }
    // Where all are busy it is said so, and nobody has to go.
    let mut listening = Vec::new();
    for guest in idle[1..].iter().chain([&another]) {
        listening.push(guest.listen().send().await);
    }
    let refused = Request::hello(&server, "2025-11-25").send().await;
    assert!(refused.status == 500 && refused.text().await.contains("256 sessions are busy"));
    drop(listening.remove(0));
    within(async {
        while Request::hello(&server, "2025-11-25").send().await.status != 200 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // Whoever has not spoken for an hour is gone.
    drop((busy, listening));
    sleep(Duration::from_millis(100)).await;
    later(HOUR).await;
    within(async {
        while status(&another).await != 404 {
            later(HOUR).await;
        }
    })
    .await;
    server.close().await;
}

#[tokio::test]
async fn what_is_no_request_is_answered_as_such_and_harms_nobody() {
    let server = Server::of(Scripted::obedient()).await;
    let guest = Guest::greets(&server, "2025-11-25").await;
    let mut call = guest.call("400").await;
    for (body, statuses) in [
        ("", &[400, 415, 422][..]),
        ("{", &[400, 415, 422]),
        ("[]", &[400, 415, 422]),
        (&"[".repeat(100_000), &[400, 415, 422]),
        (&"x".repeat((16 << 20) + 1), &[413]),
    ] {
        let status = guest.raw(body).send().await.status;
        assert!(statuses.contains(&status), "{status} for {}", &body[..body.len().min(20)]);
    }
    assert_eq!(guest.raw("{}").header("content-type", "text/plain").send().await.status, 415);
    for bytes in [&b"\0\0\0\0\r\n\r\n"[..], b"GET", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[b'x'; 100_000]] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut read = Vec::new();
        let _ = within(stream.read_to_end(&mut read)).await;
    }
    assert!(call.outcome().await.0.contains("\n400\n"));
    server.close().await;
}

#[tokio::test]
async fn whoever_holds_connections_and_sends_nothing_is_shown_out() {
    let server = Server::of(Scripted::obedient()).await;
    let mut held = Vec::new();
    for _ in 0..1_024 {
        held.push(TcpStream::connect(server.address).await.unwrap());
    }
    // A head without a body, too.
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n{{",
        server.path_with_token()
    );
    held[0].write_all(head.as_bytes()).await.unwrap();
    let asked = tokio::spawn(Request::hello(&server, "2025-11-25").send());
    sleep(Duration::from_millis(200)).await;
    assert!(!asked.is_finished(), "all places are taken");
    until_later(Duration::from_secs(31), || asked.is_finished()).await;
    assert_eq!(asked.await.unwrap().status, 200);
    let mut read = String::new();
    let _ = within(held[0].read_to_string(&mut read)).await;
    assert!(read.starts_with("HTTP/1.1 408 "), "{read}");
    server.close().await;
}

#[tokio::test]
async fn a_server_over_http_that_is_dropped_takes_its_runs_along_and_one_without_a_service_ends() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let server = Server::of(provider).await;
    let guest = Guest::greets(&server, "2025-11-25").await;
    let mut stream: Stream = guest.call("hang").await;
    until(|| probe.alive() == 1).await;
    server.served.abort();
    until(|| probe.closes() == 1 && probe.alive() == 0).await;
    while stream.message().await.is_some() {}
    assert!(TcpStream::connect(server.address).await.is_err());

    let Server { service, served, .. } = Server::of(Scripted::obedient()).await;
    drop(service);
    let error = within(served).await.unwrap().unwrap_err();
    assert!(matches!(error, McpError::ServiceGone), "{error}");
}

#[tokio::test]
async fn more_calls_of_one_session_than_may_be_open_are_refused() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let server = Server::of(provider).await;
    let guest = Guest::greets(&server, "2025-11-25").await;
    // A client that leaves each call, and never says so.
    for _ in 0..4_096 {
        drop(guest.call("hang").await);
    }
    let mut over = guest.call("echo too many").await;
    let refused = over.message().await.unwrap();
    assert!(refused["error"]["message"].as_str().unwrap().contains("4096 requests are open"), "{refused}");
    until_later(ABSENCE, || probe.alive() == 0).await;
    server.close().await;
}
