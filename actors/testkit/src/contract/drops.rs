//! What the drop of each handle means.

use super::{
    cancel::aborted,
    settled::answered,
    stage::{NAME, Stage, Verdict},
};
use subagents_seam::CancelCause;

pub(super) async fn handle(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    let watcher = live.run.watcher();
    drop(live.run);
    aborted(&*stage.result_in_grace(&watcher).await?, &CancelCause::Dropped.to_string())?;
    // It goes by itself: nobody disposes it.
    stage.within("the end of the run", stage.root.idle()).await?;
    stage.ensure_absent(watcher.id())
}

pub(super) async fn watcher_and_futures(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    let watcher = live.run.watcher();
    drop(watcher.clone());
    drop(watcher.progress());
    drop(watcher.result());
    // One that was polled, too.
    let _ = tokio::time::timeout(std::time::Duration::from_millis(1), watcher.result()).await;
    stage.beat().await;
    Stage::ensure_running(&watcher, "after the drop of a watcher and of futures")?;
    stage.dispose(&watcher).await
}

pub(super) async fn detached(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    let watcher = live.run.detach();
    answered(&live.word, &*stage.result(&watcher).await?)?;
    stage.within("the end of the detached run", stage.root.idle()).await?;
    stage.ensure_absent(watcher.id())
}

pub(super) async fn root(stage: &Stage) -> Verdict {
    let root = stage.service.root(&stage.settings.cwd).map_err(|error| error.to_string())?;
    let request = subagents_seam::StartRequest::new(&root, "Work until you are stopped.");
    let run = stage.begin_with(request).await?;
    let watcher = run.watcher();
    drop(root);
    aborted(&*stage.result_in_grace(&watcher).await?, &CancelCause::RootDropped.to_string())?;
    stage.dispose(&watcher).await?;
    stage.ensure_absent(watcher.id())
}

pub(super) async fn service(stage: &Stage) -> Verdict {
    let other = stage.another()?;
    let run = other.begin().await?.run;
    let starting = other.service.start(NAME, other.request(&Stage::word()));
    let watcher = run.watcher();
    // The root stays: its drop is another cause.
    let Stage { service, root: _root, .. } = other;
    drop(service);
    aborted(&*stage.result_in_grace(&watcher).await?, &CancelCause::ServiceDropped.to_string())?;
    stage.dispose(&watcher).await?;
    // The start is rejected, or was published just before and is then cancelled as well.
    if let Ok(run) = stage.within("the start", starting).await? {
        stage.dispose(&run.watcher()).await?;
    }
    Ok(())
}
