//! What became of all of them, in numbers.

use std::{fmt, time::Duration};
use subagents::{BatchItem, DelegateError, ItemOutcome, StartError, StopReason, SubagentResult};

/// The ways in which a prompt can end, as they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Completed,
    Failed,
    TimedOut,
    Cancelled,
    NeverStarted,
}

/// How many ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    completed: u64,
    failed: u64,
    timed_out: u64,
    cancelled: u64,
    never_started: u64,
}

pub(crate) fn ending(result: &SubagentResult) -> Ending {
    match &result.stop_reason {
        StopReason::Completed => Ending::Completed,
        StopReason::TimedOut => Ending::TimedOut,
        StopReason::Aborted => Ending::Cancelled,
        // What is unknown is no success.
        StopReason::Error | StopReason::MaxTokens | StopReason::Refusal | StopReason::Other(_) | _ => {
            Ending::Failed
        }
    }
}

impl Tally {
    pub(crate) fn add(&mut self, item: &BatchItem) {
        self.count(item.run.is_some(), &item.outcome);
    }

    fn count(&mut self, begun: bool, outcome: &ItemOutcome) {
        let ending = match outcome {
            Ok(result) => ending(result),
            Err(DelegateError::Start(StartError::Cancelled { .. })) if !begun => Ending::NeverStarted,
            Err(DelegateError::Start(StartError::Cancelled { .. })) => Ending::Cancelled,
            // Also what completed and left something behind.
            Err(_) => Ending::Failed,
        };
        match ending {
            Ending::Completed => self.completed += 1,
            Ending::Failed => self.failed += 1,
            Ending::TimedOut => self.timed_out += 1,
            Ending::Cancelled => self.cancelled += 1,
            Ending::NeverStarted => self.never_started += 1,
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.completed + self.unsuccessful()
    }

    /// How many did not complete.
    pub(crate) fn unsuccessful(&self) -> u64 {
        self.failed + self.timed_out + self.cancelled + self.never_started
    }

    /// One line for the end.
    pub(crate) fn summary(&self, elapsed: Duration) -> String {
        let total = self.total();
        let noun = if total == 1 { "delegation" } else { "delegations" };
        format!("{total} {noun}: {self} in {}", seconds(elapsed))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} completed", self.completed)?;
        for (count, what) in [
            (self.failed, "failed"),
            (self.timed_out, "timed out"),
            (self.cancelled, "cancelled"),
            (self.never_started, "never started"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

fn seconds(elapsed: Duration) -> String {
    let tenths = (elapsed.as_millis() + 50) / 100;
    format!("{}.{}s", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::Tally;
    use std::time::Duration;
    use subagents::{CancelCause, StartError, StopReason, SubagentResult};

    #[test]
    fn the_summary_names_what_there_is() {
        let mut tally = Tally::default();
        let mut add = |reason: &str| {
            tally.count(true, &Ok(SubagentResult::new(StopReason::from(reason), "x").into()));
        };
        for reason in ["completed", "completed", "error", "refusal", "a-newer-one", "timed-out"] {
            add(reason);
        }
        assert_eq!(
            tally.summary(Duration::from_millis(3_249)),
            "6 delegations: 2 completed, 3 failed, 1 timed out in 3.2s"
        );
        for begun in [true, false, false] {
            tally.count(begun, &Err(StartError::Cancelled { cause: CancelCause::Batch }.into()));
        }
        assert_eq!((tally.total(), tally.unsuccessful()), (9, 7));
        assert!(tally.to_string().ends_with("1 timed out, 1 cancelled, 2 never started"), "{tally}");
    }
}
