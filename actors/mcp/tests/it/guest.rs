//! A client over HTTP that knows no more of the protocol than its requests, and the server that it talks to.

use crate::client::within;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use subagents_mcp::{HttpToken, McpError, McpServer};
use subagents_runtime::SubagentService;
use subagents_seam::DynProvider;
use subagents_tool::{SubagentTool, Toolbox};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) struct Server {
    pub(crate) service: SubagentService,
    pub(crate) served: JoinHandle<Result<(), McpError>>,
    pub(crate) address: SocketAddr,
    token: HttpToken,
    pub(crate) shutdown: CancellationToken,
}

impl Server {
    pub(crate) async fn of(provider: impl Into<DynProvider>) -> Self {
        let service = SubagentService::builder().provider("p", provider).queue(5_000).build().unwrap();
        Self::with(service, [SubagentTool::new("subagent", "p")]).await
    }

    pub(crate) async fn with(
        service: SubagentService,
        tools: impl IntoIterator<Item = SubagentTool>,
    ) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), service, tools)
    }

    pub(crate) fn on(
        listener: TcpListener,
        service: SubagentService,
        tools: impl IntoIterator<Item = SubagentTool>,
    ) -> Self {
        let toolbox = Toolbox::new(&service, tools).unwrap();
        let (address, token) = (listener.local_addr().unwrap(), HttpToken::random());
        let server = McpServer::new(&service, toolbox, std::env::temp_dir());
        let (shown, shutdown) = (token.clone(), CancellationToken::new());
        let ended = shutdown.clone();
        let served = tokio::spawn(async move { server.serve_http(listener, shown, ended.cancelled()).await });
        Self { service, served, address, token, shutdown }
    }

    /// `/TOKEN/mcp`.
    pub(crate) fn path_with_token(&self) -> String {
        format!("/{}/mcp", self.token.as_str())
    }

    /// Ends it, and nothing may be left.
    pub(crate) async fn close(self) {
        self.shutdown.cancel();
        within(self.served).await.unwrap().unwrap();
        let report = within(self.service.shutdown(Duration::from_secs(10))).await;
        assert!(report.is_clean(), "{report:?}");
    }
}

#[derive(Debug)]
pub(crate) struct Request {
    address: SocketAddr,
    request: hyper::http::request::Builder,
    path: String,
    authorization: Option<String>,
    host: String,
    body: Vec<u8>,
    id: u64,
}

impl Request {
    fn new(server: SocketAddr, token: &HttpToken, method: &str, body: Vec<u8>) -> Self {
        let request =
            hyper::Request::builder().method(method).header("accept", "application/json, text/event-stream");
        let authorization = Some(format!("Bearer {}", token.as_str()));
        let host = server.to_string();
        Self { address: server, request, path: "/mcp".to_owned(), authorization, host, body, id: 0 }
    }

    pub(crate) fn hello(server: &Server, version: &str) -> Self {
        let params = json!({
            "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
        });
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        Self::new(server.address, &server.token, "POST", body.to_string().into())
    }

    /// Of the version without a handshake.
    pub(crate) fn modern(server: &Server, method: &str, mut params: Value) -> Self {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": method, "params": params});
        Self::new(server.address, &server.token, "POST", body.to_string().into())
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        if name == "authorization" {
            self.authorization = Some(value.to_owned());
        } else {
            self.request = self.request.header(name, value);
        }
        self
    }

    /// Without a token.
    pub(crate) fn bare(mut self) -> Self {
        self.authorization = None;
        self
    }

    pub(crate) fn at(mut self, path: &str) -> Self {
        self.path = path.to_owned();
        self
    }

    pub(crate) fn host(mut self, host: &str) -> Self {
        self.host = host.to_owned();
        self
    }

    /// As it is written.
    pub(crate) fn plain(self) -> String {
        let mut text = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n",
            self.path, self.host
        );
        for (name, value) in self.request.headers_ref().unwrap() {
            text += &format!("{name}: {}\r\n", value.to_str().unwrap());
        }
        let authorization = self.authorization.unwrap();
        let body = String::from_utf8(self.body).unwrap();
        text + &format!("authorization: {authorization}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    /// Over a connection of its own.
    pub(crate) async fn send(self) -> Stream {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = Connection(tokio::spawn(async move {
            let _ = connection.await;
        }));
        let mut request = self.request.uri(self.path).header("host", self.host);
        if let Some(authorization) = self.authorization {
            request = request.header("authorization", authorization);
        }
        if !request.headers_ref().unwrap().contains_key("content-type") {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(Full::<Bytes>::new(self.body.into())).unwrap();
        let answer = within(sender.send_request(request)).await.unwrap();
        let (head, body) = answer.into_parts();
        Stream {
            status: head.status.as_u16(),
            id: self.id,
            primed: false,
            head,
            body,
            read: String::new(),
            _connection: connection,
        }
    }
}

struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An answer, of which there may be more to come. Dropped, it breaks the connection.
pub(crate) struct Stream {
    pub(crate) status: u16,
    /// Of the request.
    pub(crate) id: u64,
    /// An event without a message has come.
    pub(crate) primed: bool,
    head: hyper::http::response::Parts,
    body: Incoming,
    read: String,
    _connection: Connection,
}

impl Stream {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    pub(crate) async fn text(self) -> String {
        let body = within(self.body.collect()).await.unwrap().to_bytes();
        String::from_utf8(body.into()).unwrap()
    }

    /// The next event: its id and its data. None at the end, also where it breaks off.
    async fn event(&mut self) -> Option<(String, String)> {
        loop {
            if let Some(end) = self.read.find("\n\n") {
                let event: String = self.read.drain(..end + 2).collect();
                let of = |name: &str| {
                    let lines = event.lines().filter_map(|line| line.strip_prefix(name));
                    lines.map(str::trim_start).collect::<String>()
                };
                if event.starts_with(':') {
                    continue;
                }
                return Some((of("id:"), of("data:")));
            }
            let frame = within(self.body.frame()).await?.ok()?;
            self.read += std::str::from_utf8(frame.data_ref()?).unwrap();
        }
    }

    /// The id of the next event, which says where to go on.
    pub(crate) async fn event_id(&mut self) -> String {
        self.event().await.expect("an event").0
    }

    /// Whether nothing comes for a while, and it is not the end either.
    pub(crate) async fn silence(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(200), self.event()).await.is_err()
    }

    /// The next message. None at the end.
    pub(crate) async fn message(&mut self) -> Option<Value> {
        if self.header("content-type") == Some("application/json") {
            let frame = within(self.body.frame()).await?.unwrap();
            return Some(serde_json::from_slice(frame.data_ref()?).unwrap());
        }
        loop {
            let (_, data) = self.event().await?;
            if !data.is_empty() {
                return Some(serde_json::from_str(&data).expect("a message"));
            }
            self.primed = true;
        }
    }

    /// What the model reads at the end, and whether it is an error.
    pub(crate) async fn outcome(&mut self) -> (String, bool) {
        loop {
            let message = self.message().await.expect("an answer comes");
            let Some(text) = message["result"]["content"][0]["text"].as_str() else {
                assert!(message["method"].is_string(), "{message}");
                continue;
            };
            return (text.to_owned(), message["result"]["isError"].as_bool().unwrap_or(false));
        }
    }
}

/// A client with a session.
pub(crate) struct Guest {
    pub(crate) hello: Value,
    address: SocketAddr,
    token: HttpToken,
    session: String,
    version: String,
    next: AtomicU64,
}

impl Guest {
    pub(crate) async fn greets(server: &Server, version: &str) -> Self {
        let mut answer = Request::hello(server, version).send().await;
        let hello = answer.message().await.expect("an answer");
        let session = answer.header("mcp-session-id").expect("a session").to_owned();
        let (address, token, version) = (server.address, server.token.clone(), version.to_owned());
        let guest = Self { hello, address, token, session, version, next: AtomicU64::new(1) };
        assert_eq!(guest.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await, 202);
        guest
    }

    fn of(&self, method: &str, body: Vec<u8>) -> Request {
        Request::new(self.address, &self.token, method, body)
            .header("mcp-session-id", &self.session)
            .header("mcp-protocol-version", &self.version)
    }

    pub(crate) fn raw(&self, body: &str) -> Request {
        self.of("POST", body.into())
    }

    pub(crate) async fn say(&self, message: Value) -> u16 {
        self.raw(&message.to_string()).send().await.status
    }

    pub(crate) fn request(&self, method: &str, params: Value) -> Request {
        let id = self.next.fetch_add(1, Relaxed);
        let body = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        Request { id, ..self.raw(&body.to_string()) }
    }

    pub(crate) async fn call(&self, prompt: &str) -> Stream {
        let arguments = json!({"description": "a short task", "prompt": prompt});
        let params = json!({"name": "subagent", "arguments": arguments});
        let stream = self.request("tools/call", params).send().await;
        assert_eq!(stream.status, 200);
        stream
    }

    /// Hears what is no answer.
    pub(crate) fn listen(&self) -> Request {
        self.of("GET", Vec::new())
    }

    /// Says that it goes.
    pub(crate) async fn ends(&self) -> u16 {
        self.of("DELETE", Vec::new()).send().await.status
    }
}
