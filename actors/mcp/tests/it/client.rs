//! A client that knows no more of the protocol than its lines, and the server that it talks to.

use serde_json::{Value, json};
use std::{future::IntoFuture, time::Duration};
use subagents_mcp::{McpError, McpServer};
use subagents_runtime::SubagentService;
use subagents_seam::DynProvider;
use subagents_tool::{SubagentTool, Toolbox};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines},
    task::JoinHandle,
};

pub(crate) struct Client {
    pub(crate) service: SubagentService,
    pub(crate) write: Option<DuplexStream>,
    pub(crate) read: Lines<BufReader<DuplexStream>>,
    pub(crate) served: JoinHandle<Result<(), McpError>>,
    next: u64,
    /// What came while something else was waited for.
    aside: Vec<Value>,
}

impl Client {
    /// Of a server with the tool `subagent`, which delegates to this provider; it has said hello.
    pub(crate) async fn of(provider: impl Into<DynProvider>) -> Self {
        let mut client = Self::fresh(provider);
        client.hello("2025-11-25").await;
        client
    }

    pub(crate) fn fresh(provider: impl Into<DynProvider>) -> Self {
        let service = SubagentService::builder().provider("p", provider).build().unwrap();
        Self::with(service, [SubagentTool::new("subagent", "p")])
    }

    pub(crate) fn with(service: SubagentService, tools: impl IntoIterator<Item = SubagentTool>) -> Self {
        let toolbox = Toolbox::new(&service, tools).unwrap();
        let server = McpServer::new(&service, toolbox, std::env::temp_dir());
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (out, answers) = tokio::io::duplex(64 * 1024);
        let served = tokio::spawn(async move { server.serve(theirs, out).await });
        let read = BufReader::new(answers).lines();
        Self { service, write: Some(ours), read, served, next: 0, aside: Vec::new() }
    }

    pub(crate) async fn hello(&mut self, version: &str) -> Value {
        let params = json!({
            "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
        });
        let id = self.ask("initialize", params).await;
        let hello = self.answer(id).await;
        self.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        hello
    }

    pub(crate) async fn say(&mut self, message: Value) {
        self.line(&message.to_string()).await;
    }

    pub(crate) async fn line(&mut self, line: &str) {
        let write = self.write.as_mut().expect("it is open");
        within(write.write_all(format!("{line}\n").as_bytes())).await.unwrap();
    }

    /// Asks; gives the id.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        self.say(json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params})).await;
        self.next
    }

    pub(crate) async fn call(&mut self, prompt: &str) -> u64 {
        let arguments = json!({"description": "a short task", "prompt": prompt});
        self.ask("tools/call", json!({"name": "subagent", "arguments": arguments})).await
    }

    /// The next message. None at the end.
    pub(crate) async fn message(&mut self) -> Option<Value> {
        let line = within(self.read.next_line()).await.unwrap()?;
        Some(serde_json::from_str(&line).expect("each line is a message"))
    }

    /// The next that is like this, whatever comes before it.
    pub(crate) async fn find(&mut self, like: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.aside.iter().position(&like) {
            return self.aside.remove(at);
        }
        loop {
            let message = self.message().await.expect("it is open");
            if like(&message) {
                return message;
            }
            self.aside.push(message);
        }
    }

    /// The answer to this request.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        self.find(|message| message["id"] == json!(id)).await
    }

    /// What the model reads of this call, and whether it is an error.
    pub(crate) async fn outcome(&mut self, id: u64) -> (String, bool) {
        let answer = self.answer(id).await;
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}"));
        (text.to_owned(), result["isError"].as_bool().unwrap_or(false))
    }

    /// Goes, and waits for the server to have ended.
    pub(crate) async fn go(mut self) {
        drop(self.write.take());
        within(&mut self.served).await.unwrap().unwrap();
        assert!(within(self.service.shutdown(Duration::from_secs(10))).await.is_clean());
    }
}

pub(crate) async fn within<T>(wait: impl IntoFuture<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(90), wait.into_future()).await.expect("it comes in time")
}
