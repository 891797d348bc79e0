//! Long answers, for as long as somebody may read on.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use subagents_seam::{AgentId, RunId};

/// As many are kept,
const MOST: usize = 256;
/// of as many bytes in all. One answer is 16 MiB at most where its provider does not say otherwise.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// The answers that were too long to be shown at once. Where there is no more room, the oldest of whoever has the most gives
/// way.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    /// The oldest first.
    answers: VecDeque<Answer>,
}

#[derive(Debug)]
struct Answer {
    /// Who may read it: the agent that asked.
    owner: AgentId,
    run: RunId,
    text: Arc<str>,
}

impl Kept {
    /// Drops the oldest answer of whoever has the most bytes, but not the one that has just come.
    fn make_room(&mut self) {
        let mut owners = HashMap::<_, usize>::new();
        let before = self.answers.len().saturating_sub(1);
        for answer in self.answers.iter().take(before) {
            // An empty one takes its place, too.
            *owners.entry(answer.owner).or_default() += answer.text.len() + 1;
        }
        let most = owners.values().max().copied();
        let oldest =
            self.answers.iter().take(before).position(|answer| owners.get(&answer.owner).copied() == most);
        if let Some(answer) = oldest.and_then(|oldest| self.answers.remove(oldest)) {
            self.bytes -= answer.text.len();
        }
    }
}

impl Answers {
    pub(crate) fn keep(&self, owner: AgentId, run: RunId, text: &str) {
        let text = Arc::<str>::from(text);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += text.len();
        kept.answers.push_back(Answer { owner, run, text });
        // One that is longer than all may be is kept alone.
        while kept.answers.len() > MOST || (kept.bytes > MOST_BYTES && kept.answers.len() > 1) {
            kept.make_room();
        }
    }

    /// Drops all of somebody who is gone.
    pub(crate) fn forget(&self, owner: AgentId) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.answers.retain(|answer| answer.owner != owner);
        kept.bytes = kept.answers.iter().map(|answer| answer.text.len()).sum();
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
    fn answers_are_the_askers_own_and_the_oldest_of_whoever_has_the_most_give_way() {
        let answers = Answers::default();
        let (owner, other) = (AgentId::new(), AgentId::new());
        let small = RunId::new();
        answers.keep(other, small, "small");
        let runs: Vec<_> = (0..MOST).map(|_| RunId::new()).collect();
        for (i, run) in runs.iter().enumerate() {
            answers.keep(owner, *run, &i.to_string());
        }
        assert_eq!(answers.read(owner, runs[0]), None);
        assert_eq!(answers.read(owner, runs[1]).as_deref(), Some("1"));
        assert_eq!(answers.read(other, runs[1]), None);
        assert_eq!(answers.read(other, small).as_deref(), Some("small"));
        let (large, larger) = (RunId::new(), RunId::new());
        answers.keep(owner, large, &"x".repeat(MOST_BYTES - 10));
        assert_eq!(answers.read(other, small).as_deref(), Some("small"));
        answers.keep(owner, larger, &"x".repeat(MOST_BYTES - 10));
        assert_eq!((answers.read(owner, large), answers.read(owner, larger).is_some()), (None, true));
        answers.forget(owner);
        assert_eq!(answers.read(other, small).as_deref(), Some("small"));
        answers.keep(owner, larger, &"x".repeat(MOST_BYTES + 1));
        let kept = answers.0.lock().expect("no panic");
        assert_eq!((kept.answers.len(), kept.bytes), (1, MOST_BYTES + 1));
    }
}
