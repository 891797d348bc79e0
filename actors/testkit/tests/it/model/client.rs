//! As much of HTTP/1.1 as the tests need.

use super::soon;
use serde_json::Value;
use subagents_testkit::model::FakeModel;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// In lower case, one a line.
    pub(super) head: String,
    pub(super) body: String,
    /// The body arrived as a whole.
    pub(super) complete: bool,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a body of JSON")
    }

    /// The events as (name, data); the name is empty where there is none.
    pub(super) fn events(&self) -> Vec<(String, Value)> {
        let frames = self.body.split("\n\n").filter(|frame| !frame.is_empty());
        let events = frames.map(|frame| {
            let (name, data) = match frame.strip_prefix("event: ") {
                Some(rest) => rest.split_once('\n').expect("data after the name"),
                None => ("", frame),
            };
            let data = data.strip_prefix("data: ").expect("data");
            (name.to_owned(), serde_json::from_str(data).unwrap_or_else(|_| Value::from(data)))
        });
        events.collect()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Sends a request and leaves the answer to be read.
pub(super) async fn send(model: &FakeModel, request: &str, body: &str) -> TcpStream {
    let mut stream = soon("a connection", TcpStream::connect(model.address())).await.expect("a connection");
    let head =
        format!("{request}\r\nhost: test\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    soon("sending", stream.write_all(format!("{head}{body}").as_bytes())).await.expect("sent");
    stream
}

pub(super) async fn post(model: &FakeModel, path: &str, body: &Value) -> Answer {
    ask(model, &format!("POST {path} HTTP/1.1"), &body.to_string()).await
}

/// `request` is the request line, and headers if need be.
pub(super) async fn ask(model: &FakeModel, request: &str, body: &str) -> Answer {
    read(&mut send(model, request, body).await).await
}

/// Until the server closes.
pub(super) async fn read(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // A connection that is reset has said what it had to say.
    let _ = soon("an answer", stream.read_to_end(&mut bytes)).await;
    let text = String::from_utf8(bytes).expect("UTF-8");
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Answer { status: 0, head: String::new(), body: text, complete: false };
    };
    let head = head.to_ascii_lowercase().replace("\r\n", "\n");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let (body, complete) = match length {
        Some(length) => (body.to_owned(), body.len().to_string() == length),
        None => unchunked(body),
    };
    Answer { status, head, body, complete }
}

/// Reads until so much of the answer is there, and leaves the rest.
pub(super) async fn read_until(stream: &mut TcpStream, wanted: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(wanted) {
        let mut some = [0; 1024];
        let read = soon("a piece", stream.read(&mut some)).await.expect("a piece");
        assert!(read > 0, "the end came before {wanted}: {}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&some[..read]);
    }
}

fn unchunked(mut body: &str) -> (String, bool) {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk's size");
        if size == 0 {
            return (whole, true);
        }
        let Some(chunk) = rest.get(..size) else { break };
        whole.push_str(chunk);
        body = &rest[size + 2..];
    }
    (whole, false)
}
