//! What a running child shows of itself: bounded, coalesced, outside any mailbox.

use crate::{core::RunCore, settlement::Shown};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use subagents_seam::{
    AgentId, DeniedCall, Details, NodeId, Progress, SchemaAttempt, Truncation, Usage, Wait,
};
use tokio::sync::Notify;

/// As much text of the answer is kept for a slow reader and for a partial answer.
pub(crate) const TEXT_BYTES: usize = 256 * 1024;
/// A name that a child gave is cut here.
const NAME_BYTES: usize = 200;
/// As many attempts at a schema are kept.
const MOST_ATTEMPTS: usize = 100;
/// As many denied calls are kept; the others are counted.
const MOST_DENIED: usize = 100;

/// The process that does a run's work.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) node: NodeId,
    pub(crate) pid: u32,
    pub(crate) program: Arc<str>,
    pub(crate) since: u64,
    pub(crate) revision: u64,
}

#[derive(Default)]
pub(crate) struct Live {
    shown: Mutex<Folded>,
    changed: Notify,
}

#[derive(Default)]
struct Folded {
    /// The end of the answer's text; its first byte is `text_total - text.len()` bytes into it.
    text: String,
    text_total: u64,
    /// Where the answer begins in all the text: what was before it did not match a schema.
    answer_start: u64,
    /// Where the attempt before that is: it is what there is where nothing follows.
    attempt: std::ops::Range<u64>,
    messages: u32,
    thoughts: u64,
    tool_calls: u64,
    plans: u64,
    denied_calls: u64,
    /// The first of them.
    denied: Vec<DeniedCall>,
    attempts: Vec<SchemaAttempt>,
    wait: Option<(Wait, u64)>,
    usage: Option<Box<Usage>>,
    process: Option<Process>,
    changes: u64,
}

impl Live {
    fn folded(&self) -> MutexGuard<'_, Folded> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Folds one sign of life in.
    pub(crate) fn take_in(&self, progress: Progress<'_>, at: u64) {
        let mut folded = self.folded();
        folded.changes += 1;
        match progress {
            Progress::Text(text) => folded.add_text(text),
            Progress::Message => folded.messages = folded.messages.saturating_add(1),
            Progress::Thought(_) => folded.thoughts += 1,
            Progress::ToolStarted(name) => {
                folded.tool_calls += 1;
                folded.wait = Some((Wait::Tool(name_of(name)), at));
            }
            Progress::ToolFinished(_) => folded.wait = None,
            Progress::Plan => folded.plans += 1,
            Progress::SchemaAttempt(attempt) => folded.begin_again(attempt),
            Progress::Denied { tool, reason } => {
                folded.denied_calls += 1;
                if folded.denied.len() < MOST_DENIED {
                    folded.denied.push(DeniedCall::new(tool, reason));
                }
            }
            Progress::Waiting(waiting) => folded.wait = waiting.map(|waiting| (waiting.into(), at)),
            Progress::Usage(usage) => folded.usage = Some(Box::new(usage)),
            Progress::Process { pid, program } if folded.process.is_none() => {
                let process = Process {
                    node: AgentId::new().into(),
                    pid,
                    program: name_of(program),
                    since: at,
                    revision: 0,
                };
                folded.process = Some(process);
            }
            Progress::Alive | Progress::Process { .. } | _ => {}
        }
        drop(folded);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    pub(crate) fn wait(&self) -> Option<(Wait, u64)> {
        self.folded().wait.clone()
    }

    pub(crate) fn usage(&self) -> Option<Box<Usage>> {
        self.folded().usage.clone()
    }

    pub(crate) fn process(&self) -> Option<Process> {
        self.folded().process.clone()
    }

    pub(crate) fn set_process_revision(&self, revision: u64) {
        if let Some(process) = &mut self.folded().process {
            process.revision = revision;
        }
    }

    pub(crate) fn shown(&self) -> Shown {
        let folded = self.folded();
        let first = folded.text_total - folded.text.len() as u64;
        let start = usize::try_from(folded.answer_start.saturating_sub(first)).unwrap_or(usize::MAX);
        let mut text = &folded.text[folded.text.ceil_char_boundary(start.min(folded.text.len()))..];
        let mut total = folded.text_total - folded.answer_start;
        if total == 0 {
            let place = |at: u64| {
                let at = usize::try_from(at.saturating_sub(first)).unwrap_or(usize::MAX);
                folded.text.ceil_char_boundary(at.min(folded.text.len()))
            };
            text = &folded.text[place(folded.attempt.start)..place(folded.attempt.end)];
            total = folded.attempt.end - folded.attempt.start;
        }
        let kept = text.len() as u64;
        let mut details = Details::default();
        details.truncated = (kept < total).then(|| Truncation::new(kept, total));
        details.messages = (folded.messages > 0).then_some(folded.messages);
        details.tool_calls = counted(folded.tool_calls);
        details.thoughts = counted(folded.thoughts);
        details.plans = counted(folded.plans);
        details.denied_calls.clone_from(&folded.denied);
        if folded.denied_calls > folded.denied.len() as u64 {
            details.denied_total = counted(folded.denied_calls);
        }
        details.schema_attempts.clone_from(&folded.attempts);
        Shown { text: text.to_owned(), usage: folded.usage.as_deref().cloned(), details }
    }
}

impl Folded {
    /// Readers see where one answer ends and the next begins.
    fn begin_again(&mut self, attempt: &SchemaAttempt) {
        if self.text_total > self.answer_start {
            self.attempt = self.answer_start..self.text_total;
        }
        if !self.text.is_empty() {
            self.add_text("\n\n");
        }
        self.answer_start = self.text_total;
        self.messages = 0;
        if self.attempts.len() < MOST_ATTEMPTS {
            self.attempts.push(attempt.clone());
        }
    }

    fn add_text(&mut self, text: &str) {
        self.text_total += text.len() as u64;
        let text = if text.len() > TEXT_BYTES {
            &text[text.ceil_char_boundary(text.len() - TEXT_BYTES)..]
        } else {
            text
        };
        self.text.push_str(text);
        // Cut at twice the bound, so that a flood of small pieces moves each byte once.
        if self.text.len() > 2 * TEXT_BYTES {
            let cut = self.text.ceil_char_boundary(self.text.len() - TEXT_BYTES);
            self.text.drain(..cut);
        }
    }
}

/// What a child never told of is unknown.
fn counted(count: u64) -> Option<u32> {
    (count > 0).then(|| u32::try_from(count).unwrap_or(u32::MAX))
}

fn name_of(name: &str) -> Arc<str> {
    subagents_seam::bounded(&subagents_seam::sanitised(name), NAME_BYTES).into()
}

/// What a run showed since the last look.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ProgressUpdate {
    /// New text of the answer, in order.
    pub text: String,
    /// Bytes of text before it that came and went between two looks.
    pub lagged_bytes: u64,
    /// How many messages the answer has begun so far.
    pub messages: u32,
    /// How many pieces of thought there were so far.
    pub thoughts: u64,
    /// How many tool calls there were so far.
    pub tool_calls: u64,
    /// How often it made a plan or changed it so far.
    pub plans: u64,
    /// How many of its tool calls were denied so far.
    pub denied_calls: u64,
    /// Those of them that are new. After the first hundred they are only counted.
    pub denied: Vec<DeniedCall>,
    /// What the child waits for now, if it said so.
    pub wait: Option<Wait>,
    /// What it used up so far.
    pub usage: Option<Usage>,
}

/// The progress of one run, coalesced: each look gives all that changed since the one before.
///
/// Any number of streams read one run, each at its own pace; a slow one loses the middle of a flood of text and is told
/// how much. Dropping one changes nothing.
pub struct ProgressStream {
    core: Arc<RunCore>,
    seen_text: u64,
    seen_changes: u64,
    seen_denied: usize,
    ended: bool,
}

impl ProgressStream {
    pub(crate) fn new(core: Arc<RunCore>) -> Self {
        Self { core, seen_text: 0, seen_changes: 0, seen_denied: 0, ended: false }
    }

    /// The next change, or `None` once the run has settled and everything was read. Cancel-safe.
    pub async fn next(&mut self) -> Option<ProgressUpdate> {
        let core = self.core.clone();
        let live = core.live_or_new();
        loop {
            let changed = live.changed.notified();
            let settled = core.state().is_settled();
            if let Some(update) = self.look(live) {
                return Some(update);
            }
            if settled || self.ended {
                self.ended = true;
                return None;
            }
            changed.await;
        }
    }

    /// What changed since the last look, if anything did; waits for nothing.
    pub fn try_next(&mut self) -> Option<ProgressUpdate> {
        let core = self.core.clone();
        self.look(core.live_or_new())
    }

    fn look(&mut self, live: &Live) -> Option<ProgressUpdate> {
        let folded = live.folded();
        if folded.changes == self.seen_changes {
            return None;
        }
        self.seen_changes = folded.changes;
        let first = folded.text_total - folded.text.len() as u64;
        let from = self.seen_text.max(first);
        let start = usize::try_from(from - first).unwrap_or(usize::MAX).min(folded.text.len());
        let update = ProgressUpdate {
            text: folded.text[folded.text.ceil_char_boundary(start)..].to_owned(),
            lagged_bytes: from - self.seen_text,
            messages: folded.messages,
            thoughts: folded.thoughts,
            tool_calls: folded.tool_calls,
            plans: folded.plans,
            denied_calls: folded.denied_calls,
            denied: folded.denied.get(self.seen_denied..).unwrap_or_default().to_vec(),
            wait: folded.wait.as_ref().map(|(wait, _)| wait.clone()),
            usage: folded.usage.as_deref().cloned(),
        };
        self.seen_text = folded.text_total;
        self.seen_denied = folded.denied.len();
        Some(update)
    }
}

impl fmt::Debug for ProgressStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressStream").field("run", &self.core.id()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{Live, MOST_DENIED, TEXT_BYTES};
    use subagents_seam::{Progress, SchemaAttempt, Truncation};

    #[test]
    fn what_did_not_match_a_schema_is_no_part_of_the_answer_that_follows() {
        let live = Live::default();
        let attempt = SchemaAttempt::default();
        for part in [Progress::Message, Progress::Text("three"), Progress::SchemaAttempt(&attempt)] {
            live.take_in(part, 1);
        }
        // It is all there is, should nothing follow.
        assert_eq!((&*live.shown().text, live.shown().details.messages), ("three", None));
        for part in [Progress::Message, Progress::Text("{\"n\"")] {
            live.take_in(part, 1);
        }
        let shown = live.shown();
        assert_eq!(
            (&*shown.text, shown.details.messages, shown.details.truncated),
            ("{\"n\"", Some(1), None)
        );
        assert_eq!(shown.details.schema_attempts.len(), 1);
        assert_eq!(live.folded().text, "three\n\n{\"n\"");
        // Also where the flood of the first has pushed its own beginning out.
        live.take_in(Progress::Text(&"x".repeat(10 * TEXT_BYTES)), 1);
        live.take_in(Progress::SchemaAttempt(&attempt), 1);
        live.take_in(Progress::Text("y"), 1);
        assert_eq!((&*live.shown().text, live.shown().details.truncated), ("y", None));
        live.take_in(Progress::Text(&"z".repeat(10 * TEXT_BYTES)), 1);
        let truncated = live.shown().details.truncated.expect("cut");
        assert_eq!(truncated, Truncation::new(truncated.kept_bytes, 10 * TEXT_BYTES as u64 + 1));
    }

    #[test]
    fn k08_a_flood_of_text_is_bounded_and_counted() {
        let live = Live::default();
        for _ in 0..200_000 {
            live.take_in(Progress::Text("0123456789é"), 1);
        }
        let shown = live.shown();
        let truncated = shown.details.truncated.expect("it is not whole");
        assert_eq!(truncated.total_bytes, 200_000 * 12);
        assert!(shown.text.len() <= 2 * TEXT_BYTES && shown.text.ends_with("0123456789é"));
        assert!(live.folded().text.capacity() <= 5 * TEXT_BYTES);
        live.take_in(Progress::Text(&"é".repeat(10 * TEXT_BYTES)), 1);
        assert!(live.shown().text.len() <= 3 * TEXT_BYTES);
    }

    #[test]
    fn f02_a_flood_of_denials_is_bounded_and_counted() {
        let live = Live::default();
        let reason = "no ".repeat(10_000);
        for _ in 0..10_000 {
            live.take_in(Progress::Denied { tool: "bash", reason: &reason }, 1);
        }
        let details = live.shown().details;
        assert_eq!((details.denied_calls.len(), details.denied_total), (MOST_DENIED, Some(10_000)));
        assert!(details.denied_calls.iter().all(|denied| denied.reason.len() <= 500));
        assert_eq!((details.tool_calls, details.thoughts, details.plans), (None, None, None));
    }
}
