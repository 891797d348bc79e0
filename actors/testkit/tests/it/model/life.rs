//! The server's own life: many at once, what is under way, and its end.

use super::{
    client::{read, read_until, send},
    dialect::{ALL, Said, body, both, hear, path, user},
    soon,
};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use subagents_testkit::model::{FakeModel, Protocol, Reply};
use tokio::{io::AsyncReadExt, net::TcpStream, task::JoinSet};

/// As many conversations, each with a tool of its own, none of which may see another's.
async fn converse(model: &Arc<FakeModel>, conversations: usize) {
    let mut all = JoinSet::new();
    for (number, manner) in both().cycle().take(conversations).enumerate() {
        let model = Arc::clone(model);
        all.spawn(async move {
            let prompt = format!(
                "[[httpx:1:503@1]] [[tool:read {{\"n\": {number}}}]] [[slow:1]] [[reply:{number} has {{{{tool}}}}]]"
            );
            let first = hear(&model, manner, &[user(&prompt)]).await;
            let call = first.calls.into_iter().next().expect("a call");
            assert_eq!(call.arguments["n"], number);
            let id = call.id.clone();
            let said = [user(&prompt), Said::Tool { call, result: format!("result {number}") }];
            let failed = super::dialect::ask(&model, manner, &said).await;
            assert_eq!(failed.status, 503);
            assert_eq!(hear(&model, manner, &said).await.text, format!("{number} has result {number}"));
            id
        });
    }
    let ids: HashSet<_> = soon("all conversations", all.join_all()).await.into_iter().collect();
    assert_eq!(ids.len(), conversations, "each call has an id of its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_conversations_do_not_disturb_each_other() {
    let model = Arc::new(FakeModel::start().await.expect("a model"));
    converse(&model, 200).await;
    let traffic = model.traffic();
    assert_eq!((traffic.asked, traffic.in_flight, traffic.abandoned), (600, 0, 0));
    assert_eq!(model.requests().len(), 600);
}

/// A thousand, or as many as this process may have open: client and server are both in it.
fn many() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let files = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    files.map_or(1000, |files| (files.saturating_sub(100) / 2).min(1000))
}

#[tokio::test]
async fn a_thousand_streams_are_open_at_once() {
    let many = many();
    let model = FakeModel::builder().keep(10).start().await.expect("a model");
    let mut streams = Vec::new();
    for protocol in ALL.into_iter().cycle().take(many) {
        let body = body(protocol, true, &[user("[[midstall:600]] [[reply:the first piece and the rest]]")]);
        let line = format!("POST {} HTTP/1.1", path(protocol, true));
        streams.push(send(&model, &line, &body.to_string()).await);
    }
    soon("all of them", model.until(|traffic| traffic.in_flight == many)).await;
    for stream in &mut streams {
        read_until(stream, "the first pi").await;
    }
    assert_eq!(model.requests().len(), 10, "so many are kept");
    drop(streams);
    soon("their end", model.until(|traffic| traffic.in_flight == 0)).await;
    assert_eq!(model.traffic().abandoned, many);
}

async fn begin(model: &FakeModel, prompt: &str) -> TcpStream {
    let body = body(Protocol::Messages, true, &[user(prompt)]).to_string();
    send(model, "POST /v1/messages HTTP/1.1", &body).await
}

#[tokio::test]
async fn a_drop_ends_every_connection_and_leaves_no_task() {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let script = move |request: &subagents_testkit::model::ModelRequest| {
        let _ = &held;
        Reply::from_prompt(request)
    };
    let model = FakeModel::builder().script(script).start().await.expect("a model");
    let address = model.address();
    let mut idle = TcpStream::connect(address).await.expect("a connection");
    let mut stalled = begin(&model, "[[stall:600]]").await;
    let mut midway = begin(&model, "[[midstall:600]] [[reply:the first piece and the rest]]").await;
    read_until(&mut midway, "the first pi").await;
    soon("both", model.until(|traffic| traffic.in_flight == 2)).await;
    let metrics = tokio::runtime::Handle::current().metrics();
    assert!(metrics.num_alive_tasks() >= 4);

    drop(model);
    for (what, stream) in [("idle", &mut idle), ("stalled", &mut stalled), ("midway", &mut midway)] {
        let answer = read(stream).await;
        assert!(!answer.complete, "{what}: {answer:?}");
    }
    let gone = async {
        while metrics.num_alive_tasks() > 0 || Arc::strong_count(&alive) > 1 {
            tokio::task::yield_now().await;
        }
    };
    soon("the last task", gone).await;
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn stop_returns_when_no_task_is_left() {
    let model = FakeModel::start().await.expect("a model");
    let address = model.address();
    let mut stalled = begin(&model, "[[stall:600]]").await;
    soon("the stall", model.until(|traffic| traffic.in_flight == 1)).await;
    soon("the stop", model.stop()).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    assert_eq!(stalled.read(&mut [0]).await.unwrap_or(0), 0);
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_connection_may_ask_again_and_again() {
    use tokio::io::AsyncWriteExt;
    let model = FakeModel::start().await.expect("a model");
    let body = body(Protocol::Messages, false, &[user("hi")]).to_string();
    let request =
        format!("POST /v1/messages HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut stream = TcpStream::connect(model.address()).await.expect("a connection");
    for _ in 0..3 {
        stream.write_all(request.as_bytes()).await.expect("sent");
        read_until(&mut stream, "\"type\":\"message\"").await;
    }
    assert_eq!(model.traffic().asked, 3);
}

#[tokio::test]
async fn two_servers_know_nothing_of_each_other() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let one = FakeModel::builder().script(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Reply::text("one")
    });
    let (one, two) = (one.start().await.expect("a model"), FakeModel::start().await.expect("a model"));
    assert_ne!(one.address(), two.address());
    assert!(one.address().ip().is_loopback());
    assert_eq!(one.url(), format!("http://{}", one.address()));
    assert_eq!(one.openai_base(), format!("{}/v1", one.url()));
    let manner = (Protocol::ChatCompletions, true);
    assert_eq!(hear(&one, manner, &[user("hi")]).await.text, "one");
    assert_eq!(hear(&two, manner, &[user("hi")]).await.text, "echo: hi");
    assert_eq!((asked.load(Ordering::Relaxed), two.traffic().asked), (1, 1));
    let taken = FakeModel::builder().port(one.address().port()).start().await;
    assert_eq!(taken.err().map(|error| error.kind()), Some(std::io::ErrorKind::AddrInUse));
}
