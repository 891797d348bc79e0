//! Concurrent starts of one provider share nothing (SPEC 3.4).

use super::{
    cancel::aborted,
    settled::answered,
    stage::{NAME, Stage, Verdict, ensure},
};
use subagents_seam::{CancelCause, StopReason};

pub(super) async fn answer_for_themselves(stage: &Stage) -> Verdict {
    let (one, two, three) = tokio::join!(stage.begin(), stage.begin(), stage.begin());
    let all = [one?, two?, three?];
    for live in &all {
        answered(&live.word, &*stage.result(&live.run.watcher()).await?)?;
    }
    for live in &all {
        stage.dispose(&live.run.watcher()).await?;
    }
    Ok(())
}

pub(super) async fn unruly_neighbours(stage: &Stage) -> Verdict {
    let word = Stage::word();
    let good = stage.service.start(NAME, stage.request(&word));
    let cancelled = stage.service.start(NAME, stage.request(&Stage::word()));
    drop(stage.service.start(NAME, stage.request(&Stage::word())));
    cancelled.cancel(CancelCause::REQUESTED);
    let run = stage.within("the start", good).await?.map_err(|error| format!("the start failed: {error}"))?;
    answered(&word, &*stage.result(&run.watcher()).await?)?;
    stage.dispose(&run.watcher()).await?;
    // It was rejected, unless it was published first.
    if let Ok(run) = stage.within("the cancelled start", cancelled).await? {
        stage.dispose(&run.watcher()).await?;
    }
    Ok(())
}

pub(super) async fn cancelled_apart(stage: &Stage) -> Verdict {
    let (one, two) = tokio::join!(stage.begin(), stage.begin());
    let (first, second) = (one?.run, two?.run);
    let (one, two) = (first.watcher(), second.watcher());
    one.cancel(CancelCause::requested("only this one"));
    aborted(&*stage.result_in_grace(&one).await?, "only this one")?;
    stage.dispose(&one).await?;
    stage.beat().await;
    Stage::ensure_running(&two, "after the cancel of its neighbour")?;
    two.cancel(CancelCause::requested("and now the other"));
    let result = stage.result_in_grace(&two).await?;
    ensure!(result.stop_reason == StopReason::Aborted, "the other settled as {}", result.stop_reason);
    aborted(&result, "and now the other")?;
    stage.dispose(&two).await
}
