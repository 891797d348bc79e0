//! A model server on the loopback: what real agents and clients of models talk to in tests, without a key, a network or
//! a bill. Needs the feature `model-server`.
//!
//! It speaks OpenAI Responses and Chat Completions, Anthropic Messages, and Gemini, streamed and not, and says what the
//! prompt or a closure tells it to.
//!
//! ```
//! use subagents_testkit::model::{FakeModel, Reply};
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = FakeModel::builder().script(|request| Reply::text(request.prompt().to_uppercase())).start().await?;
//!
//! // An agent would be given `model.openai_base()`, `model.anthropic_base()` or `model.gemini_base()`.
//! let body = r#"{"model": "any", "messages": [{"role": "user", "content": "hello"}]}"#;
//! # let mut stream = tokio::net::TcpStream::connect(model.address()).await?;
//! # let head = format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
//! # stream.write_all(format!("{head}{body}").as_bytes()).await?;
//! # let mut answer = String::new();
//! # stream.read_to_string(&mut answer).await?;
//! // … which sends it to `/v1/chat/completions` and reads the `answer`.
//! assert!(answer.contains("HELLO"));
//!
//! let asked = model.requests();
//! assert_eq!((asked[0].prompt(), asked[0].model()), ("hello", "any"));
//! # Ok(())
//! # }
//! ```
//!
//! # Directives
//!
//! Without a script, the prompt says what the model does: in the last text of the user that has directives. Without any,
//! the answer is `echo: ` and the prompt. Each step is one call of the model, in order:
//!
//! | step | the model |
//! |---|---|
//! | `[[reply:TEXT]]` | says it |
//! | `[[tool:NAME {"a": 1}]]` | calls a tool; several at once with `%%` between them; `NAMESPACE/NAME` where tools have one |
//! | `[[json:{"a": 1}]]` | says exactly this JSON |
//! | `[[structured:{"a": 1}]]` | calls the tool `StructuredOutput`, where it is offered, as Claude Code does; else as `json` |
//!
//! `{{tool}}` in a step stands for the last results of tools. After the last step the model says `tool said: ` and these,
//! or echoes what the user said since. A request that offers no tools gets a sentence in place of a call.
//!
//! | modifier | effect |
//! |---|---|
//! | `[[http:500]]`, `[[http:429:2]]` | fails with this status, and `Retry-After` of so many seconds |
//! | `[[httpx:2:500]]`, `[[httpx:2:429:1]]` | the first 2 times only |
//! | `[[stall:S]]`, `[[midstall:S]]` | nothing comes for S seconds: before the status, after the first piece |
//! | `[[slow:MS]]` | so many milliseconds after each piece |
//! | `[[drop]]`, `[[dropx:2]]` | the connection breaks after the first piece: always, the first 2 times |
//! | `[[cut]]` | a stream ends after the first piece, without the model's last words and as if it were whole |
//! | `[[usage:120:7]]` | reports these tokens, that came and that go |
//! | `[[think:TEXT]]` | thinks before it says |
//!
//! A modifier holds for every step; `@k` before the brackets limits it to step k, of which the first is 0:
//! `[[http:500@1]]`, `[[drop:@1]]`. A directive that cannot be read is a 400 that says what would be right.
//!
//! Which step it is follows from the conversation in the request: one for each answer since the prompt. So any number of
//! conversations may go on at once. Only `httpx`, `dropx` and their like in code count something: how often the same
//! conversation asked, where the same is what has the same words. A prompt whose steps were not all played, as after a
//! cancel, goes on in the next prompt that has no directives of its own.
//!
//! # Limits
//!
//! It is for tests: on 127.0.0.1 only, without a check of keys, and nothing of a header is kept. What the real servers
//! refuse it may take. It keeps no responses (`previous_response_id`), unpacks no bodies, and has no WebSocket.

mod answer;
mod directives;
mod models;
mod protocol;
mod record;
mod reply;
mod request;
mod routes;
mod server;
mod syntax;

pub use record::Traffic;
pub use reply::Reply;
pub use request::{ModelRequest, Protocol, Turn};

use answer::Model;
use record::Record;
use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinSet};

type Script = Arc<dyn Fn(&ModelRequest) -> Reply + Send + Sync>;

/// A model server. [The module](self) says what it does.
///
/// A drop stops it: no connection is taken any more, and each that is open ends, whatever it was at. Its tasks end as
/// soon as the runtime gets to them; [`stop`](Self::stop) waits for that.
pub struct FakeModel {
    address: SocketAddr,
    url: String,
    record: Arc<Record>,
    stop: oneshot::Sender<()>,
    server: JoinSet<()>,
}

impl FakeModel {
    /// A server that does what the prompts say, on a port that the system chooses.
    ///
    /// # Errors
    ///
    /// The system gives no port on the loopback.
    pub async fn start() -> io::Result<Self> {
        Self::builder().start().await
    }

    /// A server with settings.
    pub fn builder() -> FakeModelBuilder {
        FakeModelBuilder { script: Arc::new(Reply::from_prompt), port: 0, max_body: 16 << 20, keep: 1000 }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The base address for clients of OpenAI: `OPENAI_BASE_URL`, `base_url` of a Codex provider, `baseURL`.
    pub fn openai_base(&self) -> String {
        format!("{}/v1", self.url)
    }

    /// The base address for clients of Anthropic: `ANTHROPIC_BASE_URL`.
    pub fn anthropic_base(&self) -> &str {
        &self.url
    }

    /// The base address for clients of Gemini: `GOOGLE_GEMINI_BASE_URL`.
    pub fn gemini_base(&self) -> &str {
        &self.url
    }

    /// What was asked, the oldest first: the last [`keep`](FakeModelBuilder::keep) requests, and fewer where their
    /// bodies are more than 64 MiB together. Counting tokens and listing models is not among them, nor is what was
    /// refused as malformed.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.record.requests()
    }

    /// How many answers are under way: a test sees by it that a cancel has reached the model.
    pub fn in_flight(&self) -> usize {
        self.traffic().in_flight
    }

    /// All counts, of one moment.
    pub fn traffic(&self) -> Traffic {
        self.record.traffic()
    }

    /// Waits until the counts are so: `model.until(|traffic| traffic.in_flight == 0)`. Give it a deadline.
    ///
    /// Cancel-safe.
    pub async fn until(&self, so: impl FnMut(&Traffic) -> bool) {
        self.record.until(so).await;
    }

    /// Stops as a drop does, and waits until no task is left.
    ///
    /// Dropping the future leaves the rest to the runtime.
    pub async fn stop(self) {
        let Self { stop, mut server, .. } = self;
        // It has gone where it cannot be told.
        let _ = stop.send(());
        while server.join_next().await.is_some() {}
    }
}

impl fmt::Debug for FakeModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeModel")
            .field("url", &self.url)
            .field("traffic", &self.traffic())
            .finish_non_exhaustive()
    }
}

/// Settings of a [`FakeModel`].
#[derive(Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct FakeModelBuilder {
    script: Script,
    port: u16,
    max_body: usize,
    keep: usize,
}

impl FakeModelBuilder {
    /// Asks this for each reply, in place of [`Reply::from_prompt`]. It runs on the runtime: it must not block. A panic
    /// in it is a 500 with its words.
    pub fn script(mut self, script: impl Fn(&ModelRequest) -> Reply + Send + Sync + 'static) -> Self {
        self.script = Arc::new(script);
        self
    }

    /// Listens on this port. Without it, and with 0, the system chooses one that is free, and tests cannot collide.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The longest body that is read, in bytes; a longer one is a 413. 16 MiB without it.
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// How many requests are kept for [`FakeModel::requests`]; 1,000 without it.
    pub fn keep(mut self, requests: usize) -> Self {
        self.keep = requests;
        self
    }

    /// Listens on 127.0.0.1 and serves, as a task of the runtime that it is awaited in, which needs I/O and time.
    ///
    /// # Errors
    ///
    /// The port is taken, or the system gives none.
    pub async fn start(self) -> io::Result<FakeModel> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await?;
        let address = listener.local_addr()?;
        let record = Arc::new(Record::new(self.keep));
        let model = Arc::new(Model::new(self.script, Arc::clone(&record)));
        let (stop, stopped) = oneshot::channel();
        let mut server = JoinSet::new();
        server.spawn(server::serve(listener, routes::router(model, self.max_body), stopped));
        Ok(FakeModel { address, url: format!("http://{address}"), record, stop, server })
    }
}

impl fmt::Debug for FakeModelBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeModelBuilder")
            .field("port", &self.port)
            .field("max_body", &self.max_body)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}
