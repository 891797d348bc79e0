//! From a request to the bytes of its answer: the failure, the stall, the stream and where it breaks.

use super::{
    ModelRequest, Protocol, Reply, Script,
    protocol::{self, Piece, Voice},
    record::{InFlight, Record},
    reply::{Failure, Usage},
};
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use std::{
    any::Any,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
    vec,
};
use tokio::{task::yield_now, time::sleep};

/// Something like this many bytes make a token.
const BYTES_PER_TOKEN: usize = 4;

/// The model itself: what all connections of one server share.
pub(crate) struct Model {
    pub(crate) script: Script,
    pub(crate) record: Arc<Record>,
    answers: AtomicU64,
}

impl Model {
    pub(crate) fn new(script: Script, record: Arc<Record>) -> Self {
        Self { script, record, answers: AtomicU64::new(0) }
    }

    /// Dropped, as when the client leaves, it counts as abandoned; so does the body that it returns.
    pub(crate) async fn answer(&self, request: &ModelRequest) -> Response {
        let mut in_flight = self.record.enter(request);
        let reply = self.ask(request);
        if !reply.stall.is_zero() {
            sleep(reply.stall).await;
        }
        if let Some(failure) = &reply.failure
            && self.record.befalls(failure.times, "http", request)
        {
            in_flight.answered();
            return refusal(request.protocol(), failure);
        }
        let voice = Voice {
            protocol: request.protocol(),
            model: request.model(),
            offered: request.offered(),
            body: request.body(),
            usage: reply.usage.unwrap_or_else(|| usage(request, &reply)),
            number: self.answers.fetch_add(1, Ordering::Relaxed),
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        };
        let play = |pieces: Vec<Piece>, pace: Duration| Play {
            pieces: sayable(pieces).into_iter(),
            in_flight,
            early: if reply.drops.is_some_and(|times| self.record.befalls(times, "drop", request)) {
                Some(Early::Broken)
            } else {
                (reply.cut && request.is_streaming()).then_some(Early::Cut)
            },
            stall: reply.stall_midway,
            pace,
            pause: Duration::ZERO,
            said: false,
        };
        if request.is_streaming() {
            let head = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
            (head, play(protocol::stream(&voice, &reply), reply.pace).into_body()).into_response()
        } else {
            let body = protocol::whole(&voice, &reply).to_string();
            let head = [
                (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
                (header::CONTENT_LENGTH, HeaderValue::from(body.len())),
            ];
            (head, play(halves(&body), Duration::ZERO).into_body()).into_response()
        }
    }

    /// A script that panics is a failure of this one answer. It is called with nothing that it could leave half done.
    fn ask(&self, request: &ModelRequest) -> Reply {
        catch_unwind(AssertUnwindSafe(|| (self.script)(request))).unwrap_or_else(|panic| {
            Reply::http(500).message(format!("the script panicked: {}", words(panic.as_ref())))
        })
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

fn usage(request: &ModelRequest, reply: &Reply) -> Usage {
    let said = reply.text.iter().chain(&reply.think).map(String::len).sum::<usize>();
    let called = reply.calls.iter().map(|call| call.arguments.to_string().len()).sum::<usize>();
    Usage { input: tokens(request.bytes()), output: tokens(said + called) }
}

/// At least one.
pub(crate) fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes / BYTES_PER_TOKEN).unwrap_or(u64::MAX).max(1)
}

/// An error as its protocol has it.
pub(crate) fn error(protocol: Protocol, status: StatusCode, message: &str) -> Response {
    (status, axum::Json(protocol::error(protocol, status.as_u16(), message))).into_response()
}

fn refusal(protocol: Protocol, failure: &Failure) -> Response {
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let told = failure
        .message
        .clone()
        .unwrap_or_else(|| format!("the script failed with status {}", failure.status));
    let mut response = error(protocol, status, &told);
    if let Some(after) = failure.retry_after {
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Where nothing is said, the beginning is what a reply pauses or breaks after.
fn sayable(mut pieces: Vec<Piece>) -> Vec<Piece> {
    if !pieces.iter().any(|piece| piece.is_said)
        && let Some(first) = pieces.first_mut()
    {
        first.is_said = true;
    }
    pieces
}

/// A whole answer, in two, so that it may stall or break in the middle.
fn halves(body: &str) -> Vec<Piece> {
    let (first, second) = body.split_at(body.floor_char_boundary(body.len() / 2));
    [(first, true), (second, false)].map(|(half, is_said)| Piece { bytes: half.to_owned(), is_said }).into()
}

/// How an answer ends after its first piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Early {
    /// The connection breaks.
    Broken,
    /// As if that were all.
    Cut,
}

/// A body on its way out.
struct Play {
    pieces: vec::IntoIter<Piece>,
    in_flight: InFlight,
    early: Option<Early>,
    stall: Duration,
    pace: Duration,
    /// Before the next piece.
    pause: Duration,
    said: bool,
}

impl Play {
    fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(Some(self), async |play| play?.next().await))
    }

    /// The next piece, and what plays the ones after it. An error makes the connection break.
    async fn next(mut self) -> Option<(io::Result<Bytes>, Option<Self>)> {
        if !self.pause.is_zero() {
            sleep(self.pause).await;
            self.pause = Duration::ZERO;
        }
        let piece = if self.early.is_some() && self.said { None } else { self.pieces.next() };
        let Some(piece) = piece else {
            self.in_flight.answered();
            if self.early != Some(Early::Broken) {
                return None;
            }
            // What was said leaves this process while the connection finds nothing more to send.
            yield_now().await;
            return Some((Err(io::Error::other("the script drops the connection here")), None));
        };
        if piece.is_said {
            self.pause = self.pace + if self.said { Duration::ZERO } else { self.stall };
            self.said = true;
        }
        if self.pieces.len() == 0 && self.pause.is_zero() && self.early.is_none() {
            self.in_flight.answered();
        }
        Some((Ok(piece.bytes.into()), Some(self)))
    }
}
