//! Clients over HTTP.

use crate::client::within;
use crate::guest::{Guest, Request, Server, Stream};
use futures_util::FutureExt;
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
/// One that has spoken so long ago can be made to give way.
const SETTLED: Duration = Duration::from_secs(11);
const HOUR: Duration = Duration::from_secs(3_601);

/// Lets time pass at once, for everything that waits.
async fn later(span: Duration) {
    pause();
    advance(span).await;
    resume();
}

/// Lets time pass until it is so. What the system does in between takes as long as it takes.
async fn until_later(span: Duration, mut holds: impl FnMut() -> bool) {
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
    let error =
        within(server.serve_http(listener, HttpToken::random(), std::future::pending())).await.unwrap_err();
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
async fn a_client_that_comes_back_hears_the_rest_and_the_answer_that_came_meanwhile() {
    let provider = Scripted::by(|_| Script::answer("done").tool("grep").pause(Duration::from_millis(1_500)));
    let probe = provider.probe();
    let server = Server::of(provider).await;
    // One version says from the beginning where to go on, the other with its first message.
    for (n, version) in ["2025-11-25", "2025-06-18"].into_iter().enumerate() {
        let guest = Guest::greets(&server, version).await;
        let arguments = json!({"description": "a short task", "prompt": "x"});
        let params = json!({"name": "subagent", "arguments": arguments, "_meta": {"progressToken": 1}});
        let mut stream = guest.request("tools/call", params).send().await;
        let last = stream.event_id().await;
        drop(stream);
        until(|| probe.closes() == n + 1).await;
        let mut again = guest.listen().header("last-event-id", &last).send().await;
        assert!(again.outcome().await.0.contains("\ndone\n"), "{version}");
        assert_eq!(again.message().await, None, "{version}");
        // As long as it may be away, and no longer.
        later(ABSENCE).await;
        within(async {
            loop {
                let mut late = guest.listen().header("last-event-id", &last).send().await;
                if late.message().await.is_none() {
                    break;
                }
            }
        })
        .await;
    }
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
    // Where all are busy, or have only just spoken, it is said so, and nobody has to go.
    let refused = Request::hello(&server, "2025-11-25").send().await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    later(SETTLED).await;
    // Also where many come at once.
    let entering: Vec<_> =
        (0..20).map(|_| tokio::spawn(Request::hello(&server, "2025-11-25").send())).collect();
    for entering in entering {
        assert_eq!(within(entering).await.unwrap().status, 200);
    }
    let status = async |guest: &Guest| guest.request("tools/list", json!({})).send().await.status;
    for guest in &idle[..20] {
        assert_eq!(status(guest).await, 404);
    }
    for guest in [&busy[0].1, &busy[1].1, &idle[20], &idle[253]] {
        assert_eq!(status(guest).await, 200);
    }
    server.close().await;
}

#[tokio::test]
async fn whoever_has_not_spoken_for_an_hour_is_gone() {
    let server = Server::of(Scripted::obedient()).await;
    let (idle, listens) =
        (Guest::greets(&server, "2025-11-25").await, Guest::greets(&server, "2025-11-25").await);
    let stream = listens.listen().send().await;
    let status = async |guest: &Guest| guest.request("tools/list", json!({})).send().await.status;
    later(HOUR - Duration::from_secs(5)).await;
    // The rounds come by in between.
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(status(&idle).await, 200);
    later(HOUR).await;
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!((status(&idle).await, status(&listens).await), (404, 200));
    drop(stream);
    server.close().await;
}

#[tokio::test]
async fn a_full_house_still_hears_who_cancels_and_who_goes() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let server = Server::of(provider).await;
    let (guest, other) =
        (Guest::greets(&server, "2025-11-25").await, Guest::greets(&server, "2025-11-25").await);
    let first = guest.call("hang").await;
    let mut kept = Vec::new();
    for n in 1..1_024 {
        let stream = guest.call("hang").await;
        // Most leave their calls, and never say so.
        if n % 16 == 0 {
            kept.push(stream);
        }
    }
    until(|| probe.alive() == 1_024).await;
    let refused = other.call("echo too many").await.message().await.unwrap();
    assert!(refused["error"]["message"].as_str().unwrap().contains("1024 requests are open"), "{refused}");
    let arguments = json!({"description": "a short task", "prompt": "echo x"});
    let call = json!({"name": "subagent", "arguments": arguments});
    // Whatever it says of sessions.
    let request = || Request::modern(&server, "tools/call", call.clone()).header("mcp-name", "subagent");
    let refused = request().send().await.message().await.unwrap();
    assert!(refused["error"]["message"].as_str().unwrap().contains("1024 requests are open"), "{refused}");
    assert_eq!(request().header("mcp-session-id", "x").send().await.status, 400);
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": first.id}});
    assert_eq!(guest.say(cancel).await, 202);
    until(|| probe.closes() == 1).await;
    assert!(other.call("echo there is room").await.outcome().await.0.contains("\nthere is room\n"));
    assert_eq!(guest.ends().await, 202);
    until(|| probe.alive() == 0).await;
    server.close().await;
}

#[tokio::test]
async fn what_is_no_request_is_answered_as_such_and_harms_nobody() {
    let server = Server::of(Scripted::obedient()).await;
    let guest = Guest::greets(&server, "2025-11-25").await;
    let mut call = guest.call("400").await;
    for (body, statuses) in [
        ("", &[400][..]),
        ("{", &[400]),
        ("[]", &[400]),
        (&"[".repeat(100_000), &[400]),
        (&"x".repeat((16 << 20) + 1), &[413]),
        (&"x".repeat(48 << 20), &[413]),
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
async fn whoever_holds_connections_and_does_not_show_the_token_disturbs_nobody() {
    let server = Server::of(Scripted::obedient()).await;
    let guest = Guest::greets(&server, "2025-11-25").await;
    let mut known = guest.listen().send().await;
    // A head with the token, and not all of its body.
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    let path = server.path_with_token();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n{{");
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..300 {
        held.push(TcpStream::connect(server.address).await.unwrap());
    }
    assert!(guest.call("echo here").await.outcome().await.0.contains("\nhere\n"));
    assert_eq!(Request::hello(&server, "2025-11-25").send().await.status, 200);
    // The oldest have given way, the newest have as long as a request may take.
    let mut read = Vec::new();
    let _ = within(held[0].read_to_end(&mut read)).await;
    let mut newest = std::pin::pin!(held[299].read_u8());
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut newest).await.is_err());
    until_later(Duration::from_secs(31), || newest.as_mut().now_or_never().is_some()).await;
    let mut read = String::new();
    let _ = slow.read_to_string(&mut read).await;
    assert!(read.starts_with("HTTP/1.1 408 "), "{read}");
    assert!(known.silence().await, "it is open still");
    server.close().await;
}

#[tokio::test]
async fn a_call_without_a_session_has_signs_of_life_and_its_end_is_seen_by_the_server() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let server = Server::of(provider).await;
    let arguments = json!({"description": "a short task", "prompt": "4000"});
    let call = json!({"name": "subagent", "arguments": arguments});
    let request = Request::modern(&server, "tools/call", call).header("mcp-name", "subagent");
    let mut answer = request.send().await;
    assert_eq!((answer.header("content-type"), probe.closes()), (Some("text/event-stream"), 0));
    assert!(answer.outcome().await.0.contains("\n4000\n"));
    // Something that follows the request keeps the server from seeing that nobody is there any more; its signs of life do not.
    let arguments = json!({"description": "a short task", "prompt": "hang"});
    let call = json!({"name": "subagent", "arguments": arguments});
    let request = Request::modern(&server, "tools/call", call).header("mcp-name", "subagent");
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.plain().as_bytes()).await.unwrap();
    stream.write_all(b"\r\n").await.unwrap();
    until(|| probe.alive() == 1).await;
    drop(stream);
    until_later(Duration::from_secs(16), || probe.closes() == 2).await;
    server.close().await;
}

#[tokio::test]
async fn what_a_client_gets_wrong_is_told_as_what_it_is() {
    let server = Server::of(Scripted::obedient()).await;
    let guest = Guest::greets(&server, "2025-11-25").await;
    // Half a character, as a program leaves it that cuts a text.
    let body = r#"{"jsonrpc":"2.0","id":70,"method":"tools/call","params":{"name":"subagent","arguments":{"description":"x","prompt":"echo half \ud83d"}}}"#;
    assert!(guest.raw(body).send().await.outcome().await.0.contains("\nhalf \u{fffd}\n"));
    for (method, params, code, words) in [
        ("tools/call", json!({"name": "subagent", "arguments": "x"}), -32602, "`arguments` is an object"),
        ("tools/call", json!({"name": 7}), -32602, "`arguments` is an object"),
        ("nobody/knows", json!({}), -32601, "there is no method `nobody/knows`"),
    ] {
        let answer = guest.request(method, params).send().await.message().await.unwrap();
        assert_eq!(answer["error"]["code"], code, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{answer}");
    }
    let first = guest.call("hang").await;
    let body = json!({"jsonrpc": "2.0", "id": first.id, "method": "ping"});
    let answer = guest.raw(&body.to_string()).send().await.message().await.unwrap();
    assert!(answer["error"]["message"].as_str().unwrap().contains("this id is open already"), "{answer}");
    // A call that is cancelled has no answer, and whoever comes back for it does not wait for one.
    let mut stream = guest.call("hang").await;
    let last = stream.event_id().await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": stream.id}});
    assert_eq!(guest.say(cancel).await, 202);
    assert_eq!(stream.message().await, None);
    let again = tokio::spawn(guest.listen().header("last-event-id", &last).send());
    let mut again = within(again).await.unwrap();
    assert_eq!(again.message().await, None);
    drop(first);
    assert_eq!(guest.ends().await, 202);
    server.close().await;
}

#[tokio::test]
async fn what_changes_is_told_once_however_often_a_client_says_that_it_is_ready() {
    let service = SubagentService::builder().build().unwrap();
    let server = Server::with(service.clone(), [SubagentTool::new("subagent", "late")]).await;
    let guest = Guest::greets(&server, "2025-06-18").await;
    for _ in 0..300 {
        assert_eq!(guest.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await, 202);
    }
    let mut events = guest.listen().send().await;
    let registration = service.register("late", Scripted::obedient()).unwrap();
    assert_eq!(events.message().await.unwrap()["method"], "notifications/tools/list_changed");
    assert!(events.silence().await);
    drop(registration);
    server.close().await;
}

#[tokio::test]
async fn spec_2_4_a_client_without_a_session_asks_to_be_told_when_the_tools_are_others() {
    let service = SubagentService::builder().build().unwrap();
    let server = Server::with(service.clone(), [SubagentTool::new("subagent", "late")]).await;
    let wanted = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let mut events = Request::modern(&server, "subscriptions/listen", wanted).send().await;
    let acknowledged = events.message().await.unwrap();
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], json!({"toolsListChanged": true}));
    let registration = service.register("late", Scripted::obedient()).unwrap();
    assert_eq!(events.message().await.unwrap()["method"], "notifications/tools/list_changed");
    drop((events, registration));
    server.close().await;
}

#[tokio::test]
async fn every_address_of_the_loopback_is_served_by_its_own_name() {
    for address in ["127.0.0.2:0", "[::1]:0"] {
        let service = SubagentService::builder().provider("p", Scripted::obedient()).build().unwrap();
        let Ok(listener) = TcpListener::bind(address).await else { continue };
        let server = Server::on(listener, service, [SubagentTool::new("subagent", "p")]);
        let guest = Guest::greets(&server, "2025-11-25").await;
        assert!(guest.call("echo here").await.outcome().await.0.contains("\nhere\n"), "{address}");
        server.close().await;
    }
}

#[tokio::test]
async fn a_server_that_is_told_to_end_returns_when_nothing_is_left() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let server = Server::of(provider).await;
    let (guest, other) =
        (Guest::greets(&server, "2025-11-25").await, Guest::greets(&server, "2025-06-18").await);
    let _streams = [guest.call("hang").await, other.call("hang").await];
    until(|| probe.alive() == 2).await;
    let Server { service, served, shutdown, address, .. } = server;
    shutdown.cancel();
    within(served).await.unwrap().unwrap();
    assert_eq!((probe.closes(), probe.alive()), (2, 0));
    assert!(TcpStream::connect(address).await.is_err());
    assert!(within(service.shutdown(Duration::from_secs(1))).await.is_clean());
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
    assert!(matches!(error, McpError::ServiceGone) && error.code() == "SERVICE_GONE", "{error}");
    let Server { service, served, .. } = Server::of(Scripted::obedient()).await;
    assert!(within(service.shutdown(Duration::from_secs(1))).await.is_clean());
    assert!(within(served).await.unwrap().is_err());
}
