//! What was said to a client whose connection broke, for as long as it may come back for it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream;
use rmcp::model::JsonRpcMessage;
use rmcp::transport::streamable_http_server::session::{
    EventId, EventStore, EventStoreError, EventStream, ServerSseMessage, StreamId,
};
use tokio::sync::watch;
use tokio::time::Instant;

/// As many events of a stream are kept; the oldest give way.
const EVENTS: usize = 64;
/// As many streams that have ended.
const ENDED: usize = 256;

/// How long an answer may be on its way after its request is over.
const ANSWER: Duration = Duration::from_secs(5);
/// How the stream is called that belongs to no request, after its session.
const COMMON: &str = ":common";

/// The streams of one session. Each ends with the answer to its request; that which belongs to no request does not.
#[derive(Default)]
pub(super) struct Replay(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    streams: HashMap<StreamId, Arc<Tape>>,
    /// Those that have ended, the longest ago first.
    ended: VecDeque<(Instant, StreamId)>,
    /// Those whose request is over, and whose answer, if there is one, is on its way.
    over: Vec<(Instant, StreamId)>,
}

/// One stream.
struct Tape {
    state: Mutex<State>,
    /// Told of each event.
    grown: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    events: VecDeque<ServerSseMessage>,
    /// The number of the first of them.
    first: u64,
    ended: bool,
}

impl Tape {
    fn new() -> Self {
        Self { state: Mutex::default(), grown: watch::Sender::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the event's id, and whether it is the last.
    fn record(&self, stream: &str, event: &ServerSseMessage) -> (EventId, bool) {
        // An answer that comes after a cancel may stand in that of no request.
        let last = is_answer(event) && !stream.ends_with(COMMON);
        let mut state = self.state();
        let id = format!("{stream}/{}", state.first + state.events.len() as u64);
        let mut event = event.clone();
        event.event_id = Some(id.clone());
        state.events.push_back(event);
        if state.events.len() > EVENTS {
            state.events.pop_front();
            state.first += 1;
        }
        state.ended |= last;
        drop(state);
        self.grown.send_replace(());
        (id, last)
    }

    /// Nothing more comes. False where that was known.
    fn end(&self) -> bool {
        let ends = !std::mem::replace(&mut self.state().ended, true);
        self.grown.send_replace(());
        ends
    }

    /// The first event from this number on and the number after it; none where it is not there yet, an error where it never
    /// will be.
    fn from(&self, number: u64) -> Result<Option<(ServerSseMessage, u64)>, ()> {
        let state = self.state();
        let skipped = number.saturating_sub(state.first);
        match usize::try_from(skipped).ok().and_then(|skipped| state.events.get(skipped)) {
            Some(event) => Ok(Some((event.clone(), state.first + skipped + 1))),
            None if state.ended => Err(()),
            None => Ok(None),
        }
    }
}

fn is_answer(event: &ServerSseMessage) -> bool {
    matches!(event.message.as_deref(), Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)))
}

impl Replay {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request of a stream is over. Its answer ends it; or, where there is none, some seconds.
    pub(super) fn is_over(&self, stream: &str) {
        let mut kept = self.kept();
        if kept.streams.contains_key(stream) {
            kept.over.push((Instant::now(), stream.to_owned()));
        }
    }

    /// Nothing more comes of any.
    pub(super) fn close(&self) {
        let kept = self.kept();
        for tape in kept.streams.values() {
            tape.end();
        }
    }

    /// Ends what has no answer, and forgets what ended this long ago.
    pub(super) fn forget(&self, age: Duration) {
        let mut kept = self.kept();
        let now = Instant::now();
        kept.end_over(now);
        while kept.ended.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= age) {
            kept.forget_first();
        }
    }
}

impl Kept {
    fn end_over(&mut self, now: Instant) {
        let mut over = std::mem::take(&mut self.over);
        over.retain(|(at, stream)| {
            let waits = now.saturating_duration_since(*at) < ANSWER;
            if !waits
                && let Some(tape) = self.streams.get(stream)
                && tape.end()
            {
                self.ended.push_back((now, stream.clone()));
            }
            waits
        });
        self.over = over;
        while self.ended.len() > ENDED {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, stream)) = self.ended.pop_front() {
            self.streams.remove(&stream);
        }
    }
}

#[async_trait]
impl EventStore for Replay {
    async fn store_event(&self, stream: &str, event: &ServerSseMessage) -> Result<EventId, EventStoreError> {
        let mut kept = self.kept();
        let tape = kept.streams.entry(stream.to_owned()).or_insert_with(|| Arc::new(Tape::new()));
        let (id, last) = tape.record(stream, event);
        if last {
            kept.ended.push_back((Instant::now(), stream.to_owned()));
            if kept.ended.len() > ENDED {
                kept.forget_first();
            }
        }
        Ok(id)
    }

    async fn replay_events_after(&self, last: &str) -> Result<EventStream, EventStoreError> {
        let place = last.rsplit_once('/');
        let place = place.and_then(|(stream, number)| Some((stream, number.parse::<u64>().ok()?)));
        let (stream, number) = place.ok_or("it is no id of an event")?;
        let tape = self.kept().streams.get(stream).cloned();
        let tape = tape.ok_or("its stream has ended and is forgotten")?;
        let grown = tape.grown.subscribe();
        let from = (tape, grown, number.saturating_add(1));
        Ok(Box::pin(stream::unfold(from, |(tape, mut grown, next)| async move {
            loop {
                // What comes after the look is told.
                grown.mark_unchanged();
                if let Some((event, after)) = tape.from(next).ok()? {
                    return Some((event, (tape, grown, after)));
                }
                grown.changed().await.ok()?;
            }
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, StreamExt};
    use rmcp::model::{
        ErrorData, RequestId, ServerJsonRpcMessage, ServerNotification, ToolListChangedNotification,
    };

    fn note() -> ServerSseMessage {
        let changed = ServerNotification::ToolListChangedNotification(ToolListChangedNotification::default());
        ServerSseMessage::from_message(ServerJsonRpcMessage::notification(changed))
    }

    fn answer() -> ServerSseMessage {
        let error = ErrorData::internal_error("x", None);
        ServerSseMessage::from_message(JsonRpcMessage::error(error, Some(RequestId::Number(1))))
    }

    #[tokio::test]
    async fn what_came_after_an_event_is_said_again_and_what_comes_is_followed_to_the_answer() {
        let replay = Replay::default();
        let first = replay.store_event("s", &note()).await.expect("room");
        replay.store_event("other", &note()).await.expect("room");
        replay.store_event("s", &note()).await.expect("room");
        let mut again = replay.replay_events_after(&first).await.expect("it is kept");
        assert_eq!(again.next().await.and_then(|event| event.event_id).as_deref(), Some("s/1"));
        assert!(again.next().now_or_never().is_none(), "there is no more yet");
        replay.store_event("s", &answer()).await.expect("room");
        assert_eq!(again.next().await.and_then(|event| event.event_id).as_deref(), Some("s/2"));
        assert!(again.next().await.is_none());
        // After the answer, too, for some time.
        let mut late = replay.replay_events_after(&first).await.expect("it is kept");
        assert_eq!(
            (late.next().await.is_some(), late.next().await.is_some(), late.next().await.is_some()),
            (true, true, false)
        );
        replay.forget(Duration::from_hours(1));
        assert!(replay.replay_events_after(&first).await.is_ok());
        replay.forget(Duration::ZERO);
        for gone in [&*first, "s/1", "nobody/0", "", "s", "s/x"] {
            assert!(replay.replay_events_after(gone).await.is_err(), "{gone}");
        }
        let mut other = replay.replay_events_after("other/0").await.expect("it has not ended");
        assert!(other.next().now_or_never().is_none());
        replay.close();
        assert!(other.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_cancelled_ends_without_an_answer_and_what_belongs_to_no_request_does_not_end() {
        let replay = Replay::default();
        for stream in ["cancelled", "answered", "s:common"] {
            replay.store_event(stream, &note()).await.expect("room");
        }
        replay.store_event("s:common", &answer()).await.expect("room");
        replay.is_over("cancelled");
        replay.is_over("answered");
        replay.is_over("nobody");
        replay.forget(Duration::from_secs(30));
        let mut follows = replay.replay_events_after("cancelled/0").await.expect("it is kept");
        assert!(follows.next().now_or_never().is_none(), "its answer may be on its way");
        replay.store_event("answered", &answer()).await.expect("room");
        tokio::time::advance(Duration::from_secs(6)).await;
        replay.forget(Duration::from_secs(30));
        assert!(follows.next().await.is_none());
        tokio::time::advance(Duration::from_secs(31)).await;
        replay.forget(Duration::from_secs(30));
        assert!(replay.replay_events_after("cancelled/0").await.is_err());
        assert!(replay.replay_events_after("answered/0").await.is_err());
        let id = replay.store_event("s:common", &note()).await.expect("room");
        assert_eq!(id, "s:common/2");
    }

    #[tokio::test]
    async fn the_oldest_give_way() {
        let replay = Replay::default();
        for _ in 0..EVENTS + 2 {
            replay.store_event("s", &note()).await.expect("room");
        }
        let mut again = replay.replay_events_after("s/0").await.expect("it is kept");
        assert_eq!(again.next().await.and_then(|event| event.event_id).as_deref(), Some("s/2"));
        for n in 0..=ENDED {
            replay.store_event(&n.to_string(), &answer()).await.expect("room");
        }
        assert!(replay.replay_events_after("0/0").await.is_err());
        assert!(replay.replay_events_after("1/0").await.is_ok());
    }
}
