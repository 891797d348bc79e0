//! A child that has to be ended: cancelled, disposed, shut down.

use super::{
    settled::{all_dispose, ended_once, fit},
    stage::{Live, Stage, Verdict, ensure},
};
use std::sync::Arc;
use subagents_seam::{CancelCause, CancellationToken, Diagnostic, StopReason, SubagentResult};

const WHY: &str = "the contract asks for it";

pub(super) async fn at_once(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    cancel_and_look(stage, &live).await
}

pub(super) async fn mid_way(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    // A child that shows something is cancelled after its first words, and a silent one after a moment.
    let mut progress = live.run.progress();
    tokio::select! {
        _ = progress.next() => {}
        () = stage.beat() => {}
    }
    Stage::ensure_running(&live.run.watcher(), "before its cancel")?;
    cancel_and_look(stage, &live).await
}

/// A child that shows text as fast as it can hears a cancel, if it has not ended before.
pub(super) async fn in_a_flood(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    let watcher = live.run.watcher();
    stage.within("the first text", live.run.progress().next()).await?;
    watcher.cancel(CancelCause::requested(WHY));
    let result = stage.result_in_grace(&watcher).await?;
    if !result.stop_reason.is_success() {
        aborted(&result, WHY)?;
    }
    ended_once(stage, &live, &result)?;
    stage.dispose(&watcher).await
}

async fn cancel_and_look(stage: &Stage, live: &Live) -> Verdict {
    let watcher = live.run.watcher();
    watcher.cancel(CancelCause::requested(WHY));
    let result = stage.result_in_grace(&watcher).await?;
    aborted(&result, WHY)?;
    fit(result.diagnostic.as_ref().map_or("", Diagnostic::text), &live.word)?;
    ended_once(stage, live, &result)?;
    stage.dispose(&watcher).await?;
    stage.ensure_absent(live.run.id())
}

/// Settled as aborted, with the cause in the diagnostic.
pub(super) fn aborted(result: &SubagentResult, cause: &str) -> Verdict {
    let (reason, diagnostic) = (&result.stop_reason, &result.diagnostic);
    ensure!(*reason == StopReason::Aborted, "a cancelled run is aborted, and it settled as {reason}");
    let told = diagnostic
        .as_ref()
        .is_some_and(|diagnostic| diagnostic.category() == "cancelled" && diagnostic.text().contains(cause));
    ensure!(told, "the cause was to be `{cause}`, and the diagnostic is {diagnostic:?}");
    Ok(())
}

pub(super) async fn settles_once(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    let watcher = live.run.watcher();
    let cancel = async {
        watcher.cancel(CancelCause::requested(WHY));
    };
    let (one, two, ()) = tokio::join!(stage.result(&watcher), stage.result(&watcher), cancel);
    let one = one?;
    ensure!(Arc::ptr_eq(&one, &two?), "every waiter gets the same result");
    stage.dispose(&watcher).await?;
    let late = stage.result(&watcher).await?;
    ensure!(Arc::ptr_eq(&one, &late), "the result after the disposal is another one");
    ended_once(stage, &live, &one)
}

pub(super) async fn disposed(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    all_dispose(stage, &live).await?;
    let result = stage.result(&live.run.watcher()).await?;
    aborted(&result, &CancelCause::Disposed.to_string())?;
    ended_once(stage, &live, &result)
}

pub(super) async fn shutdown(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    let watcher = live.run.watcher();
    let report = stage.within("the shutdown", stage.service.shutdown(stage.settings.patience)).await?;
    ensure!(report.is_clean(), "the shutdown was not clean: {report:?}");
    let result = stage.result(&watcher).await?;
    aborted(&result, &CancelCause::Shutdown.to_string())?;
    stage.dispose(&watcher).await
}

pub(super) async fn first_cause(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    let watcher = live.run.watcher();
    watcher.cancel(CancelCause::requested(WHY));
    watcher.cancel(CancelCause::requested("somebody else asks as well"));
    aborted(&*stage.result_in_grace(&watcher).await?, WHY)?;
    stage.dispose(&watcher).await
}

pub(super) async fn by_token(stage: &Stage) -> Verdict {
    let token = CancellationToken::new();
    let word = Stage::word();
    let run = stage.begin_with(stage.request(&word).token(token.clone())).await?;
    let watcher = run.watcher();
    stage.beat().await;
    Stage::ensure_running(&watcher, "before its token is cancelled")?;
    token.cancel();
    aborted(&*stage.result_in_grace(&watcher).await?, &CancelCause::Token.to_string())?;
    stage.dispose(&watcher).await
}
