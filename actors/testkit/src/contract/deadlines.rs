//! A child that takes too long.

use super::stage::{Stage, Verdict, ensure};
use subagents_seam::{Deadlines, Diagnostic, StopReason};

pub(super) async fn total(stage: &Stage) -> Verdict {
    let request = stage.request(&Stage::word()).deadlines(Deadlines::new().total(stage.settings.grace));
    let run = stage.begin_with(request).await?;
    let watcher = run.watcher();
    let result = stage.result_in_grace(&watcher).await?;
    let category = result.diagnostic.as_ref().map(Diagnostic::category);
    ensure!(
        result.stop_reason == StopReason::TimedOut && category == Some("timed-out"),
        "its deadline passed, and the run settled as {}, {category:?}",
        result.stop_reason
    );
    stage.dispose(&watcher).await?;
    stage.ensure_absent(run.id())
}
