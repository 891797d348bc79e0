//! What the server remembers: who asked what, what is being answered, and who asked again.

use super::{ModelRequest, reply::Times};
use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// The bodies of the requests that are kept have no more bytes than this together.
const KEPT_BYTES: usize = 64 << 20;
/// So many conversations are remembered for the replies that fail at first; the oldest is forgotten.
const CONVERSATIONS: usize = 10_000;

/// What went on at a server, of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// How often a model was asked. Requests that were refused as malformed are not among them.
    pub asked: usize,
    /// Answers that are under way now: a stall before them counts, and so does each stream until its last piece.
    pub in_flight: usize,
    /// Answers that the client did not wait for: it left before the last piece, as on a cancel.
    pub abandoned: usize,
}

/// Shared by the server's handle and its connections.
#[derive(Debug)]
pub(crate) struct Record {
    keep: usize,
    kept: Mutex<Kept>,
    seen: Mutex<Seen>,
    traffic: watch::Sender<Traffic>,
}

#[derive(Debug, Default)]
struct Kept {
    requests: VecDeque<ModelRequest>,
    bytes: usize,
}

/// How often each conversation met a reply that fails at first.
#[derive(Debug, Default)]
struct Seen {
    times: HashMap<u64, u64>,
    order: VecDeque<u64>,
}

/// No lock here is held while anything of others runs: what a panic left is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Record {
    pub(crate) fn new(keep: usize) -> Self {
        Self { keep, kept: Mutex::default(), seen: Mutex::default(), traffic: watch::Sender::default() }
    }

    /// Counts an answer as under way until the value that is returned is dropped.
    pub(crate) fn enter(self: &Arc<Self>, request: &ModelRequest) -> InFlight {
        let mut gone = Vec::new();
        let mut kept = lock(&self.kept);
        kept.bytes += request.bytes();
        kept.requests.push_back(request.clone());
        while kept.requests.len() > self.keep || kept.bytes > KEPT_BYTES {
            let Some(oldest) = kept.requests.pop_front() else { break };
            kept.bytes -= oldest.bytes();
            gone.push(oldest);
        }
        drop(kept);
        self.traffic.send_modify(|traffic| {
            traffic.asked += 1;
            traffic.in_flight += 1;
        });
        InFlight { record: Arc::clone(self), answered: false }
    }

    pub(crate) fn requests(&self) -> Vec<ModelRequest> {
        lock(&self.kept).requests.iter().cloned().collect()
    }

    pub(crate) fn traffic(&self) -> Traffic {
        *self.traffic.borrow()
    }

    pub(crate) async fn until(&self, mut so: impl FnMut(&Traffic) -> bool) {
        // An error would say that the sender is gone, and this record holds it.
        let _ = self.traffic.subscribe().wait_for(|traffic| so(traffic)).await;
    }

    /// Whether it befalls this request. `what` keeps the counts of different things apart.
    pub(crate) fn befalls(&self, times: Times, what: &str, request: &ModelRequest) -> bool {
        let first = match times {
            Times::Always => return true,
            Times::First(first) => first,
        };
        let mut hasher = DefaultHasher::new();
        // A title or a summary is asked for with the same text, and is another conversation.
        (what, request.protocol(), request.model(), request.offered(), request.turns()).hash(&mut hasher);
        let key = hasher.finish();
        let mut seen = lock(&self.seen);
        if !seen.times.contains_key(&key) {
            seen.order.push_back(key);
            if seen.order.len() > CONVERSATIONS
                && let Some(oldest) = seen.order.pop_front()
            {
                seen.times.remove(&oldest);
            }
        }
        let times = seen.times.entry(key).or_default();
        *times += 1;
        *times <= first
    }
}

/// One answer that is under way. Dropped before [`answered`](Self::answered), it counts as abandoned.
#[derive(Debug)]
pub(crate) struct InFlight {
    record: Arc<Record>,
    answered: bool,
}

impl InFlight {
    /// Nothing more comes from this side.
    pub(crate) fn answered(&mut self) {
        self.answered = true;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.record.traffic.send_modify(|traffic| {
            traffic.in_flight -= 1;
            traffic.abandoned += usize::from(!self.answered);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Protocol,
        request::{Asked, Turn},
    };
    use serde_json::Value;

    fn request(text: &str, bytes: usize) -> ModelRequest {
        let turns = vec![Turn::User(text.into())];
        let asked =
            Asked { model: "m".into(), streaming: false, turns, tools: Vec::new(), wants_json: false };
        ModelRequest::new(Protocol::Messages, asked, Value::Null, bytes)
    }

    #[test]
    fn few_requests_are_kept_and_few_bytes() {
        let record = Arc::new(Record::new(2));
        for (text, bytes) in [("a", 1), ("b", 1), ("c", 1)] {
            record.enter(&request(text, bytes)).answered();
        }
        let kept = |record: &Record| {
            record.requests().iter().map(|request| request.prompt().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(kept(&record), ["b", "c"]);
        drop(record.enter(&request("d", KEPT_BYTES - 1)));
        assert_eq!(kept(&record), ["c", "d"]);
        drop(record.enter(&request("e", 2)));
        assert_eq!(kept(&record), ["e"]);
        assert_eq!(record.traffic(), Traffic { asked: 5, in_flight: 0, abandoned: 2 });
    }

    #[test]
    fn each_conversation_has_a_count_of_its_own() {
        let record = Record::new(0);
        let ask = |text: &str| record.befalls(Times::First(2), "http", &request(text, 0));
        assert_eq!(
            [ask("a"), ask("a"), ask("b"), ask("a"), ask("b"), ask("b")],
            [true, true, true, false, true, false]
        );
        assert!(record.befalls(Times::First(1), "drop", &request("a", 0)), "what is apart is counted apart");
        assert!(record.befalls(Times::Always, "http", &request("a", 0)));
    }

    #[test]
    fn the_oldest_conversation_is_forgotten() {
        let record = Record::new(0);
        let ask = |text: &str| record.befalls(Times::First(1), "http", &request(text, 0));
        assert_eq!([ask("first"), ask("first")], [true, false]);
        for other in 0..CONVERSATIONS {
            assert!(ask(&other.to_string()));
        }
        let remembered = lock(&record.seen).times.len();
        assert_eq!(remembered, CONVERSATIONS);
        assert!(ask("first"), "it begins anew");
    }
}
