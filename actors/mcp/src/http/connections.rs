//! The connections: who comes, what is read of it, and how long it may take.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use subagents_runtime::WeakService;
use subagents_tool::Toolbox;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::{Admission, HttpToken, admit};
use super::sessions::{NewClient, Sessions};
use crate::pipe::{LONGEST_MESSAGE, PATIENCE};
use crate::server::McpError;
use crate::session::Session;

/// As many connections may be open at once; the next is let in when one ends.
const CONNECTIONS: usize = 1024;
/// How long a request may take to be sent: its head, and then its body.
const REQUEST: Duration = Duration::from_secs(30);
/// How often it is seen who has gone.
const ROUND: Duration = Duration::from_secs(1);
/// How long nobody is let in where no connection can be had.
const BREATH: Duration = Duration::from_millis(100);

type Answer = Response<BoxBody<Bytes, Infallible>>;
/// The protocol over HTTP, of the crate that knows it.
type Protocol = StreamableHttpService<Session, Sessions>;

/// Serves whoever comes and shows the token, until the service is gone, or this is dropped.
pub(crate) async fn serve(
    (service, toolbox, cwd): (WeakService, Toolbox, Arc<Path>),
    listener: TcpListener,
    token: HttpToken,
) -> Result<Infallible, McpError> {
    let address = listener.local_addr().map_err(|error| McpError::Failed(error.to_string().into()))?;
    if !address.ip().is_loopback() {
        return Err(McpError::NotLoopback(address));
    }
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let new = NewClient { service: service.clone(), cwd, stop: stop.clone(), calls: TaskTracker::new() };
    // Whoever speaks the protocol without sessions.
    let visitors = new.enter()?;
    let sessions = Arc::new(Sessions::new(new));
    let session = move || Ok(Session { toolbox: toolbox.clone(), client: visitors.clone() });
    let protocol = StreamableHttpService::new(session, sessions.clone(), config(stop));
    let house = Arc::new(House { protocol, token });
    tokio::select! {
        never = admit_all(house, listener) => match never {},
        ended = end_absent(service, sessions) => Err(ended),
    }
}

/// Lets in who comes, and keeps the connections: dropped, they are closed.
async fn admit_all(house: Arc<House>, listener: TcpListener) -> Infallible {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut open = JoinSet::new();
    loop {
        let next = async {
            // The semaphore is never closed.
            let place = places.clone().acquire_owned().await.ok()?;
            match listener.accept().await {
                Ok((stream, _)) => Some((stream, place)),
                Err(error) => {
                    tracing::debug!(%error, "a connection cannot be had");
                    sleep(BREATH).await;
                    None
                }
            }
        };
        tokio::select! {
            next = next => if let Some((stream, place)) = next {
                let house = house.clone();
                open.spawn(async move {
                    let _place = place;
                    house.talk(stream).await;
                });
            },
            _ = open.join_next(), if !open.is_empty() => {}
        }
    }
}

/// Ends the sessions of clients that are gone, until the service is.
async fn end_absent(service: WeakService, sessions: Arc<Sessions>) -> McpError {
    let mut rounds = interval(ROUND);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        if service.upgrade().is_none() {
            return McpError::ServiceGone;
        }
        sessions.end_absent().await;
    }
}

fn config(stop: CancellationToken) -> StreamableHttpServerConfig {
    let mut config = StreamableHttpServerConfig::default()
        .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"])
        .enforce_origin_validation();
    // Events without a message come where the client knows them: see `Sessions`.
    config.sse_retry = None;
    config.max_request_body_bytes = LONGEST_MESSAGE;
    config.cancellation_token = stop;
    config
}

/// What all connections share.
struct House {
    protocol: Protocol,
    token: HttpToken,
}

impl House {
    /// One connection, to its end.
    async fn talk(self: Arc<Self>, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        // One that does not read is given up; on a stream that waits there is a sign of life every 15 seconds.
        stream.set_write_timeout(Some(PATIENCE));
        let answer = service_fn(move |request| {
            let house = self.clone();
            async move { Ok::<_, Infallible>(house.answer(request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST)
            .serve_connection(TokioIo::new(Box::pin(stream)), answer);
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ends");
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        match admit(&self.token, request.uri().path(), request.headers()) {
            Admission::Welcome => {}
            Admission::Nowhere => {
                return told(StatusCode::NOT_FOUND, "there is nothing here; the server is at /mcp");
            }
            Admission::Stranger => {
                let mut answer = told(
                    StatusCode::UNAUTHORIZED,
                    "show the token that the server was started with: `Authorization: Bearer TOKEN`, or /TOKEN/mcp",
                );
                answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                return answer;
            }
        }
        let (head, body) = request.into_parts();
        match timeout(REQUEST, Limited::new(body, LONGEST_MESSAGE).collect()).await {
            Ok(Ok(body)) => self.protocol.handle(Request::from_parts(head, Full::new(body.to_bytes()))).await,
            Ok(Err(error)) if error.is::<LengthLimitError>() => {
                told(StatusCode::PAYLOAD_TOO_LARGE, "a message has 16 MiB at most")
            }
            Ok(Err(_)) => told(StatusCode::BAD_REQUEST, "the body broke off"),
            Err(_) => told(StatusCode::REQUEST_TIMEOUT, "the body did not come within 30 seconds"),
        }
    }
}

/// An answer in words. What was not read of the request goes with the connection.
fn told(status: StatusCode, words: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(words.as_bytes())).boxed());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
