//! Ending a child: ask, insist, force, and say what came of it (`SPEC 17.7`).

use std::convert::Infallible;
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep, timeout_at};

use crate::exit::Exit;
use crate::process::Process;
use crate::stdout::Stdout;
use crate::sweep::SweepReport;

/// How long what a child leaves behind in its group may take to follow it by itself.
const STRAGGLERS: Duration = Duration::from_millis(100);

/// The pauses between two looks at a group without its leader.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The share of the last step that the search has; the rest is for its answer.
const SEARCH: f64 = 0.8;

/// The longest that a step may take, whatever was asked for.
const LONGEST: Duration = Duration::from_hours(24);

/// From this pause on, a look also tells zombies from the living.
const THOROUGH_FROM: Duration = Duration::from_millis(8);

/// How long each step of a teardown may take. All are upper bounds: a step ends as soon as the group is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ladder {
    /// From the end of stdin, whoever closed it, to `SIGTERM`. Skipped where there was no pipe, or it ended longer ago.
    pub eof: Duration,
    /// From `SIGTERM` to `SIGKILL`.
    pub term: Duration,
    /// From `SIGKILL`, and the search for whoever has left the group, to the report that something is left. What the
    /// steps before it have left of their time is added.
    pub kill: Duration,
}

impl Default for Ladder {
    /// 1 s for the end of stdin, 2 s for `SIGTERM`, 2 s for `SIGKILL`.
    fn default() -> Self {
        Self { eof: Duration::from_secs(1), term: Duration::from_secs(2), kill: Duration::from_secs(2) }
    }
}

impl Ladder {
    /// Bounds for each step.
    pub fn new(eof: Duration, term: Duration, kill: Duration) -> Self {
        Self { eof, term, kill }
    }

    /// A ladder that takes no longer than `total` in all: the default one, scaled down where `total` is shorter.
    pub fn within(total: Duration) -> Self {
        let whole = Self::default();
        let sum = whole.eof + whole.term + whole.kill;
        if total >= sum {
            return whole;
        }
        let scale = |step: Duration| step.mul_f64(total.as_secs_f64() / sum.as_secs_f64());
        Self { eof: scale(whole.eof), term: scale(whole.term), kill: scale(whole.kill) }
    }
}

/// The step of a teardown at which the whole group was found gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// It was gone, or going, before anything was done to it.
    Exited,
    /// After its stdin was closed.
    Eof,
    /// After `SIGTERM`.
    Term,
    /// After `SIGKILL`.
    Kill,
}

/// What came of a teardown.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Teardown {
    /// Nothing that descends from the child is alive, and the child is reaped.
    Gone {
        /// What it took to end the group.
        stage: Stage,
        /// How the child itself ended.
        exit: Exit,
        /// How many had left the group, and were found and killed.
        escaped: u32,
    },
    /// Even after `SIGKILL` something is left when the time is up: a process that waits in the kernel, that we may not
    /// signal, or that forks faster than it can be caught.
    Leaked {
        /// The child's process id, which is the group's.
        pid: u32,
        /// Who is alive, in the group or out of it, where the system tells. Empty where they come and go faster than
        /// they can be seen.
        members: Vec<u32>,
        /// How the child itself ended, if it did.
        exit: Option<Exit>,
    },
}

impl Teardown {
    /// Whether something is left.
    pub fn is_leaked(&self) -> bool {
        matches!(self, Self::Leaked { .. })
    }
}

impl Process {
    /// Ends the child and all that descends from it: closes stdin, then `SIGTERM` to the group, then `SIGKILL`, each
    /// with the patience that `ladder` gives. Then whoever has left the group is looked for, stopped and killed: other
    /// sessions, daemons, orphans. It waits until nobody is alive, zombies not counted (`SPEC 17.7`). Returns as soon
    /// as that is so, and in any case soon after the sum of the three bounds.
    ///
    /// A stdin that was taken is closed too. A stdout that was not is read and thrown away, so that a child which
    /// has much to say can end; one that was taken is its owner's to read. When the child ends by itself, what it
    /// leaves in its group gets 100 ms to follow before the next step; what it leaves elsewhere gets none.
    ///
    /// Idempotent: called again, it gives the same answer, or after a leak tries again. Cancel-safe: a dropped
    /// future leaves a child that can be terminated again, or dropped.
    pub async fn terminate(&mut self, ladder: Ladder) -> Teardown {
        if let Some(done @ Teardown::Gone { .. }) = &self.teardown {
            return done.clone();
        }
        let discard = discard(self.stdout.take());
        let teardown = tokio::select! {
            teardown = self.descend(ladder) => teardown,
            never = discard => match never {},
        };
        if self.guard.is_reaped() {
            // Nothing pins the number any more.
            self.guard.group.forget();
        }
        match &teardown {
            Teardown::Gone { stage, exit, escaped } => {
                tracing::debug!(pid = self.id(), ?stage, %exit, escaped, "a child process is gone");
                self.guard.set_gone();
            }
            Teardown::Leaked { members, .. } => {
                tracing::warn!(pid = self.id(), ?members, "a child process could not be ended in time");
            }
        }
        self.teardown.insert(teardown).clone()
    }

    async fn descend(&mut self, ladder: Ladder) -> Teardown {
        // What one step leaves of its time is the search's, and what it takes too much is not added.
        let sum = ladder.eof.saturating_add(ladder.term).saturating_add(ladder.kill);
        let end = Instant::now() + sum.min(LONGEST);
        // Before its input ends: a quick child is gone right after.
        let exited = self.exit().is_some();
        // Who closed it is all the same: what is left of the patience counts from then.
        let patience = self.input.close().map(|closed| ladder.eof.saturating_sub(closed.elapsed()));
        let steps = [
            (Stage::Exited, exited.then_some(Duration::ZERO)),
            (Stage::Eof, patience.filter(|left| !left.is_zero())),
            (Stage::Term, Some(ladder.term)),
        ];
        for (stage, bound) in steps {
            let Some(bound) = bound else { continue };
            tracing::debug!(pid = self.id(), ?stage, ?bound, "teardown of a child process");
            if stage == Stage::Term {
                self.signal_group(Signal::TERM);
                // A stopped process would not hear of it until somebody continued it.
                self.signal_group(Signal::CONT);
            }
            if self.gone_within(stage, bound).await {
                return self.sweep(stage, end).await;
            }
        }
        tracing::debug!(pid = self.id(), stage = ?Stage::Kill, bound = ?ladder.kill, "teardown of a child process");
        self.sweep(Stage::Kill, end).await
    }

    /// Ends what is left, in the group and out of it, and waits for it.
    async fn sweep(&mut self, stage: Stage, end: Instant) -> Teardown {
        let sweep = self.guard.sweep((end - Instant::now()).mul_f64(SEARCH));
        if stage == Stage::Kill {
            self.signal_group(Signal::KILL);
        }
        // It keeps to its time; a thread that gets none to run must not hold us up.
        let report = timeout_at(end, sweep).await.ok().and_then(Result::ok);
        let group_gone = stage < Stage::Kill || self.gone_within(stage, end - Instant::now()).await;
        let report = report.unwrap_or_else(|| SweepReport { unknown: true, ..SweepReport::default() });
        match self.exit() {
            Some(exit) if group_gone && report.left.is_empty() && !report.unknown => {
                Teardown::Gone { stage, exit, escaped: report.escaped }
            }
            exit => {
                let mut members = self.guard.group.members().unwrap_or_default();
                members.extend(report.left);
                members.sort_unstable();
                members.dedup();
                Teardown::Leaked { pid: self.id(), members, exit }
            }
        }
    }

    /// Waits until the child is reaped and its group empty; false when `bound` is over before that.
    async fn gone_within(&mut self, stage: Stage, bound: Duration) -> bool {
        let mut end = Instant::now() + bound.min(LONGEST);
        if self.exit().is_none() && timeout_at(end, self.wait()).await.is_err() {
            return false;
        }
        if self.exit() == Some(Exit::Unknown) {
            self.guard.group.forget();
        }
        self.reap();
        if stage < Stage::Term {
            end = Instant::now() + STRAGGLERS;
        }
        let mut pause = FIRST_PAUSE;
        while !self.guard.group.is_empty(pause >= THOROUGH_FROM) {
            if Instant::now() >= end {
                return self.guard.group.is_empty(true);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        true
    }
}

/// Reads what nobody else will. Never returns.
async fn discard(stdout: Option<Stdout>) -> Infallible {
    if let Some(mut stdout) = stdout {
        while let Ok(Some(_)) = stdout.read_chunk().await {}
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_ladder_keeps_its_proportions() {
        assert_eq!(Ladder::within(Duration::from_secs(50)), Ladder::default());
        let short = Ladder::within(Duration::from_millis(500));
        assert_eq!((short.eof.as_millis(), short.term.as_millis(), short.kill.as_millis()), (100, 200, 200));
        assert_eq!(Ladder::within(Duration::ZERO).kill, Duration::ZERO);
    }
}
