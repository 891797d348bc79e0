//! Long answers, for as long as somebody may read on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use subagents_seam::{AgentId, RunId};

/// As many are kept,
const MOST: usize = 64;
/// of as many bytes in all. One answer is 16 MiB at most where its provider does not say otherwise.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// The answers that were too long to be shown at once. The oldest give way.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    answers: VecDeque<Answer>,
}

#[derive(Debug)]
struct Answer {
    /// Who may read it: the agent that asked.
    owner: AgentId,
    run: RunId,
    text: Arc<str>,
}

impl Answers {
    pub(crate) fn keep(&self, owner: AgentId, run: RunId, text: &str) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += text.len();
        kept.answers.push_back(Answer { owner, run, text: text.into() });
        // One that is longer than all may be is kept alone.
        while kept.answers.len() > MOST || (kept.bytes > MOST_BYTES && kept.answers.len() > 1) {
            let oldest = kept.answers.pop_front().map_or(0, |answer| answer.text.len());
            kept.bytes -= oldest;
        }
    }

    pub(crate) fn read(&self, owner: AgentId, run: RunId) -> Option<Arc<str>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = kept.answers.iter().find(|answer| (answer.owner, answer.run) == (owner, run))?;
        Some(answer.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_the_askers_own_and_the_oldest_give_way() {
        let answers = Answers::default();
        let (owner, other) = (AgentId::new(), AgentId::new());
        let runs: Vec<_> = (0..=MOST).map(|_| RunId::new()).collect();
        for (i, run) in runs.iter().enumerate() {
            answers.keep(owner, *run, &i.to_string());
        }
        assert_eq!(answers.read(owner, runs[0]), None);
        assert_eq!(answers.read(owner, runs[1]).as_deref(), Some("1"));
        assert_eq!(answers.read(other, runs[1]), None);
        let (large, larger) = (RunId::new(), RunId::new());
        answers.keep(owner, large, &"x".repeat(MOST_BYTES - 10));
        assert_eq!(answers.0.lock().expect("no panic").answers.len(), 6);
        answers.keep(owner, larger, &"x".repeat(MOST_BYTES + 1));
        let kept = answers.0.lock().expect("no panic");
        assert_eq!((kept.answers.len(), kept.bytes), (1, MOST_BYTES + 1));
    }
}
