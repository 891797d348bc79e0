//! An answer that is waited for: the client, and whatever stands between, sees meanwhile that it will come.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Interval, interval_at, timeout};

use super::connections::Answer;

/// What takes longer is begun before it is there.
const PROMPTLY: Duration = Duration::from_secs(1);
/// How often there is a sign of life then.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
const EVENTS: &str = "text/event-stream";
const JSON: &[u8] = b"application/json";

/// The answer itself where it comes promptly; else one whose events are those of the answer, or whose one event it is. It is
/// dropped with what is given.
pub(super) async fn promptly(id: Value, answer: impl Future<Output = Answer> + Send + 'static) -> Answer {
    let mut waiting = JoinSet::new();
    waiting.spawn(answer);
    if let Ok(answer) = timeout(PROMPTLY, waiting.join_next()).await {
        return answer.and_then(Result::ok).unwrap_or_else(broken);
    }
    let signs = interval_at(tokio::time::Instant::now(), SIGN_OF_LIFE);
    let events = stream::unfold(Late::Waiting(id, waiting, signs), Late::next);
    let mut answer = Response::new(StreamBody::new(events).boxed());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer
}

/// Of one whose task was ended, as it is when the runtime is.
fn broken() -> Answer {
    super::connections::told(StatusCode::INTERNAL_SERVER_ERROR, "the server ends")
}

enum Late {
    /// With the request's id.
    Waiting(Value, JoinSet<Answer>, Interval),
    Here(Answer),
}

impl Late {
    async fn next(self) -> Option<(Result<Frame<Bytes>, Infallible>, Self)> {
        let mut answer = match self {
            Self::Here(answer) => answer,
            Self::Waiting(id, mut waiting, mut signs) => {
                tokio::select! {
                    biased;
                    answer = waiting.join_next() => {
                        let answer = answer.and_then(Result::ok)?;
                        if !is_events(&answer) {
                            return Some(one_event(&id, answer).await);
                        }
                        answer
                    }
                    _ = signs.tick() => {
                        let sign = Frame::data(Bytes::from_static(b": \n\n"));
                        return Some((Ok(sign), Self::Waiting(id, waiting, signs)));
                    }
                }
            }
        };
        let Ok(frame) = answer.body_mut().frame().await?;
        Some((Ok(frame), Self::Here(answer)))
    }
}

fn is_events(answer: &Answer) -> bool {
    answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(EVENTS.as_bytes()))
}

/// A message as the one event, and the end. What is no message is told in one.
async fn one_event(id: &Value, answer: Answer) -> (Result<Frame<Bytes>, Infallible>, Late) {
    let (head, body) = answer.into_parts();
    let Ok(body) = body.collect().await;
    let mut body = body.to_bytes();
    if !head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(JSON)) {
        let why = String::from_utf8_lossy(&body);
        let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": why}});
        body = error.to_string().into();
    }
    let event = [b"data: ", &*body, b"\n\n"].concat();
    let empty = http_body_util::Empty::new().boxed();
    (Ok(Frame::data(event.into())), Late::Here(Response::from_parts(head, empty)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use tokio::time::sleep;

    fn answer(kind: &'static str, text: &'static str) -> Answer {
        let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        answer
    }

    async fn after(wait: u64, kind: &'static str, text: &'static str) -> (String, String) {
        let answer = promptly(json!(7), async move {
            sleep(Duration::from_millis(wait)).await;
            answer(kind, text)
        });
        let (head, body) = answer.await.into_parts();
        let kind = head.headers[CONTENT_TYPE].to_str().expect("text").to_owned();
        let Ok(body) = body.collect().await;
        (kind, String::from_utf8(body.to_bytes().into()).expect("text"))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_late_has_signs_of_life_and_is_the_same() {
        let json = "application/json";
        let pair = |kind: &str, text: &str| (kind.to_owned(), text.to_owned());
        assert_eq!(after(900, json, "{}").await, pair(json, "{}"));
        assert_eq!(after(900, EVENTS, "data: 1\n\n").await, pair(EVENTS, "data: 1\n\n"));
        assert_eq!(after(1_500, json, "{}").await, pair(EVENTS, ": \n\ndata: {}\n\n"));
        let (kind, told) = after(1_500, "text/plain", "it ends").await;
        let told = told.strip_prefix(": \n\ndata: ").and_then(|told| told.strip_suffix("\n\n"));
        let told: Value = serde_json::from_str(told.expect("one event")).expect("JSON");
        let error = json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32603, "message": "it ends"}});
        assert_eq!((&*kind, told), (EVENTS, error));
        assert_eq!(after(40_000, EVENTS, "data: 1\n\n").await, pair(EVENTS, ": \n\n: \n\n: \n\ndata: 1\n\n"));
    }
}
