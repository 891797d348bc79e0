//! The connections: who comes, what is read of it, and how long it may take.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use subagents_runtime::WeakService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::authorization::{Authorization, HttpToken, authorize};
use super::caller::{Connection, Entrance, Visitors};
use super::late::promptly;
use super::sessions::{REQUESTS, Sessions};
use crate::handler::{From, Handler};
use crate::lines::mended;
use crate::pipe::{LONGEST_MESSAGE, PATIENCE};
use crate::server::{McpError, McpServer, ended};

/// As many connections of whoever has shown the token may be open at once; the next is refused.
const CONNECTIONS: usize = 2048;
/// As many of whoever has not yet; the oldest gives way to the next.
const UNKNOWN: usize = 256;
/// How long a request may take to be sent: its head, and then its body. A connection that waits for its next request is
/// closed after as long.
const REQUEST: Duration = Duration::from_secs(30);
/// A body of more than this waits for one of so many places: what is read and not yet understood is bounded.
const LARGE: u64 = 64 * 1024;
const LARGE_BODIES: usize = 8;
/// How much of a body that is not wanted is read, so that the answer is seen, and for how long.
const DRAINED: usize = 64 * 1024 * 1024;
const DRAINING: Duration = Duration::from_secs(5);
/// How often it is seen who has gone.
const ROUND: Duration = Duration::from_secs(1);
/// How long nobody is let in where no connection can be had.
const PAUSE: Duration = Duration::from_millis(100);
const JSON: &[u8] = b"application/json";
const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
/// The version of the protocol from which on there are no sessions.
const MODERN: &str = "2026-07-28";
/// When whoever is refused for want of room may try again, in seconds.
const AGAIN: &str = "1";

pub(super) type Answer = Response<BoxBody<Bytes, Infallible>>;
/// The protocol over HTTP, of the crate that knows it.
type Protocol = StreamableHttpService<Handler, Sessions>;

/// Serves whoever comes and shows the token, until `shutdown`, or the service has ended.
pub(crate) async fn serve(
    server: &McpServer,
    listener: TcpListener,
    token: HttpToken,
    shutdown: impl Future<Output = ()>,
) -> Result<(), McpError> {
    let address = listener.local_addr().map_err(McpError::Listener)?;
    if !address.ip().is_loopback() {
        return Err(McpError::NotLoopback(address));
    }
    let (stop, calls) = (CancellationToken::new(), TaskTracker::new());
    let _stop = stop.clone().drop_guard();
    let ours = (server.service.clone(), server.toolbox.clone(), server.cwd.clone());
    let entrance = Arc::new(Entrance::new(ours, stop.clone(), calls.clone()));
    let requests = Arc::new(Semaphore::new(REQUESTS));
    let visitors = Arc::new(Visitors::new(entrance.clone(), requests.clone())?);
    let sessions = Arc::new(Sessions::new(entrance.clone(), requests));
    let (toolbox, from) = (server.toolbox.clone(), visitors.clone());
    let handler = move || Ok(Handler { toolbox: toolbox.clone(), from: From::Http(from.clone()) });
    let server = Arc::new(Server {
        protocol: StreamableHttpService::new(handler, sessions.clone(), config(address, stop.clone())),
        token,
        known: Arc::new(Semaphore::new(CONNECTIONS)),
        sessions: sessions.clone(),
        large: Semaphore::new(LARGE_BODIES),
    });
    let mut connections = JoinSet::new();
    let served = tokio::select! {
        never = accept(&server, &listener, &mut connections) => match never {},
        never = end_absent(&sessions) => match never {},
        () = has_ended(&entrance.service) => Err(McpError::ServiceGone),
        () = shutdown => Ok(()),
    };
    visitors.leave();
    stop.cancel();
    ended(&calls).await;
    // What was answered is on its way.
    let _ = timeout(PAUSE, async { while connections.join_next().await.is_some() {} }).await;
    served
}

/// Lets in who comes. Of those who have not shown the token the oldest gives way to the next: whoever has it shows it at once.
async fn accept(server: &Arc<Server>, listener: &TcpListener, open: &mut JoinSet<()>) -> Infallible {
    let mut unknown = VecDeque::<(Arc<Standing>, AbortHandle)>::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, remote)) => {
                    unknown.retain(|(standing, task)| !task.is_finished() && !standing.is_known());
                    if unknown.len() >= UNKNOWN
                        && let Some((_, oldest)) = unknown.pop_front()
                    {
                        oldest.abort();
                    }
                    let standing = Arc::<Standing>::default();
                    let task = open.spawn(server.clone().talk(stream, remote, standing.clone()));
                    unknown.push_back((standing, task));
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection cannot be had");
                    sleep(PAUSE).await;
                }
            },
            _ = open.join_next(), if !open.is_empty() => {}
        }
    }
}

/// Ends the sessions of clients that are gone.
async fn end_absent(sessions: &Sessions) -> Infallible {
    let mut rounds = interval(ROUND);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        sessions.end_absent().await;
    }
}

/// Completes when the service has ended or is gone. It does not keep it.
async fn has_ended(service: &WeakService) {
    let mut rounds = interval(ROUND);
    loop {
        rounds.tick().await;
        if service.upgrade().is_none_or(|service| service.closed().now_or_never().is_some()) {
            return;
        }
    }
}

fn config(address: SocketAddr, stop: CancellationToken) -> StreamableHttpServerConfig {
    let address = match address.ip() {
        std::net::IpAddr::V4(ip) => ip.to_string(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let mut config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(["localhost", "127.0.0.1", "[::1]", &address])
        .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"])
        .enforce_origin_validation();
    // Events without a message come where the client knows them: see `Sessions`.
    config.sse_retry = None;
    config.max_request_body_bytes = LONGEST_MESSAGE;
    config.cancellation_token = stop;
    config
}

/// What a request is part of.
enum Asked {
    /// A session that is there.
    InSession,
    /// A new one.
    Session,
    /// Nothing: it stands alone. With its id.
    Alone(Value),
}

impl Asked {
    fn of(body: &[u8]) -> Self {
        let message = serde_json::from_slice::<Value>(body).unwrap_or_default();
        if message["method"] == "initialize" { Self::Session } else { Self::Alone(message["id"].clone()) }
    }
}

/// What all connections share.
struct Server {
    protocol: Protocol,
    token: HttpToken,
    /// Connections of whoever has shown the token.
    known: Arc<Semaphore>,
    sessions: Arc<Sessions>,
    large: Semaphore,
}

/// Whether a connection is of somebody who has shown the token, and its place among those.
#[derive(Default)]
struct Standing(OnceLock<OwnedSemaphorePermit>);

impl Standing {
    fn is_known(&self) -> bool {
        self.0.get().is_some()
    }

    /// False where there is no room among the known.
    fn becomes_known(&self, known: &Arc<Semaphore>) -> bool {
        if !self.is_known()
            && let Ok(place) = known.clone().try_acquire_owned()
        {
            let _ = self.0.set(place);
        }
        self.is_known()
    }
}

impl Server {
    /// One connection, to its end.
    async fn talk(self: Arc<Self>, stream: TcpStream, remote: SocketAddr, standing: Arc<Standing>) {
        let Ok(local) = stream.local_addr() else { return };
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        // One that does not read is given up: an open stream has a sign of life every 15 seconds.
        stream.set_write_timeout(Some(PATIENCE));
        let connection = Arc::new(Connection::new(local, remote));
        let answer = service_fn(move |request| {
            let (server, connection, standing) = (self.clone(), connection.clone(), standing.clone());
            async move { Ok::<_, Infallible>(server.answer(request, connection, &standing).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST)
            .serve_connection(TokioIo::new(Box::pin(stream)), answer);
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ends");
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        connection: Arc<Connection>,
        standing: &Standing,
    ) -> Answer {
        match authorize(&self.token, request.uri().path(), request.headers()) {
            Authorization::Authorized => {}
            Authorization::NotFound => {
                return told(StatusCode::NOT_FOUND, "there is nothing here; the server is at /mcp");
            }
            Authorization::Unauthorized => {
                let mut answer = told(
                    StatusCode::UNAUTHORIZED,
                    "show the token that the server was started with: `Authorization: Bearer TOKEN`, or /TOKEN/mcp",
                );
                answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                return answer;
            }
        }
        if !standing.becomes_known(&self.known) {
            return busy("too many connections are open; close some");
        }
        let (mut head, body) = request.into_parts();
        let (body, large) = match timeout(REQUEST, self.read(body)).await {
            Ok(Ok(read)) => read,
            Ok(Err(refused)) => return refused,
            Err(_) => return told(StatusCode::REQUEST_TIMEOUT, "the body did not come within 30 seconds"),
        };
        let has_session = head.headers.contains_key(SESSION);
        let is_modern = head.headers.get(VERSION).is_some_and(|version| *version >= *MODERN);
        if has_session && is_modern {
            return told(StatusCode::BAD_REQUEST, "there are no sessions in this version of the protocol");
        }
        head.extensions.insert(connection);
        let is_json = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(JSON));
        let body = match mended(&body) {
            Cow::Borrowed(_) => body,
            Cow::Owned(mended) => mended.into(),
        };
        let asked = if has_session { Asked::InSession } else { Asked::of(&body) };
        let request = Request::from_parts(head, Full::new(body));
        let answer = match asked {
            Asked::Session if !self.sessions.has_room() => {
                return busy("all sessions are in use; end one, or try again in some seconds");
            }
            Asked::InSession | Asked::Session => self.protocol.handle(request).await,
            Asked::Alone(id) => {
                let protocol = self.protocol.clone();
                promptly(id, async move { protocol.handle(request).await }).await
            }
        };
        drop(large);
        if is_json && answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return told(StatusCode::BAD_REQUEST, "the body is no message of JSON-RPC 2.0");
        }
        answer
    }

    /// All of a body, and the place that it holds until it is understood.
    async fn read(&self, mut body: Incoming) -> Result<(Bytes, Option<SemaphorePermit<'_>>), Answer> {
        let is_large = body.size_hint().upper().is_none_or(|length| length > LARGE);
        // The semaphore is never closed.
        let large = if is_large { self.large.acquire().await.ok() } else { None };
        let mut whole = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return Err(told(StatusCode::BAD_REQUEST, "the body broke off")) };
            let Some(data) = frame.data_ref() else { continue };
            if whole.len() + data.len() > LONGEST_MESSAGE {
                drain(body).await;
                return Err(told(StatusCode::PAYLOAD_TOO_LARGE, "a message has 16 MiB at most"));
            }
            whole.extend_from_slice(data);
        }
        Ok((whole.into(), large))
    }
}

/// Reads on for a while: a connection that is closed with something unread is reset, and the answer with it.
async fn drain(mut body: Incoming) {
    let mut read = 0;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > DRAINED {
                return;
            }
        }
    };
    let _ = timeout(DRAINING, reading).await;
}

/// A refusal for want of room.
fn busy(words: &'static str) -> Answer {
    let mut answer = told(StatusCode::SERVICE_UNAVAILABLE, words);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(AGAIN));
    answer
}

/// An answer in words. What was not read of the request goes with the connection.
pub(super) fn told(status: StatusCode, words: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(words.as_bytes())).boxed());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
