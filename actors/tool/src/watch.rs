//! What a caller is told while it waits.

use std::pin::pin;
use std::time::Duration;

use subagents_runtime::{ProgressStream, ProgressUpdate, RunWatcher, WeakService};
use subagents_seam::{Instant, Phase, RunId, ToolContext, bounded};
use tokio::time::{MissedTickBehavior, interval};

/// So often it is looked; a line that is new is told.
const LOOK: Duration = Duration::from_secs(1);
/// So often something is told in any case: hosts take it for a sign of life.
const BEAT: Duration = Duration::from_secs(10);
/// As much of a line.
const LINE: usize = 200;

/// Follows one run for a caller.
pub(crate) struct Watch<'a> {
    cx: &'a ToolContext,
    service: WeakService,
    run: RunId,
    begun: Instant,
    seen: Option<(RunWatcher, ProgressStream)>,
    update: ProgressUpdate,
    told: Option<(String, Instant)>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(cx: &'a ToolContext, service: WeakService, run: RunId) -> Self {
        let (begun, update) = (Instant::now(), ProgressUpdate::default());
        Self { cx, service, run, begun, seen: None, update, told: None }
    }

    /// Waits for something, and tells meanwhile what happens.
    pub(crate) async fn during<F: IntoFuture>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future.into_future());
        if !self.cx.is_watched() {
            return future.await;
        }
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                output = &mut future => return output,
                _ = looks.tick() => self.look(),
            }
        }
    }

    fn look(&mut self) {
        if self.seen.is_none() {
            // The registry may not have seen it yet.
            let watcher = self.service.upgrade().and_then(|service| service.watcher(self.run));
            self.seen = watcher.map(|watcher| {
                let progress = watcher.progress();
                (watcher, progress)
            });
        }
        let Some((watcher, progress)) = &mut self.seen else { return };
        if let Some(update) = progress.try_next() {
            self.update = update;
        }
        let node = watcher.node();
        let waits = node.wait.as_ref().map(ToString::to_string);
        let line = line(node.phase, waits.as_deref(), &self.update);
        let now = Instant::now();
        if self.told.as_ref().is_none_or(|(told, at)| *told != line || now - *at >= BEAT) {
            self.cx.progress(&format!("{line} ({} s)", (now - self.begun).as_secs()));
            self.told = Some((line, now));
        }
    }
}

fn line(phase: Phase, waits: Option<&str>, update: &ProgressUpdate) -> String {
    let mut line = waits.unwrap_or(phase.as_str()).replace(['\n', '\t'], " ");
    for (count, one, many) in [
        (update.tool_calls, "tool call", "tool calls"),
        (u64::from(update.messages), "message", "messages"),
        (update.denied_calls, "refused", "refused"),
    ] {
        if count > 0 {
            line = format!("{line}, {count} {}", if count == 1 { one } else { many });
        }
    }
    bounded(&line, LINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_waited_for_and_what_was_done() {
        let mut update = ProgressUpdate::default();
        assert_eq!(line(Phase::Queued, Some("waits for a slot"), &update), "waits for a slot");
        update.tool_calls = 2;
        update.messages = 1;
        assert_eq!(
            line(Phase::Running, Some("in tool a\nb"), &update),
            "in tool a b, 2 tool calls, 1 message"
        );
        assert_eq!(line(Phase::Running, None, &update), "running, 2 tool calls, 1 message");
    }
}
