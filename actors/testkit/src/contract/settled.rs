//! A child that ends by itself: what its run settles as, how often, and what is left.

use super::{
    Scenario,
    stage::{Live, NAME, Stage, Verdict, ensure},
};
use std::sync::Arc;
use subagents_seam::{CancelCause, Diagnostic, Event, Phase, StopReason, SubagentResult};

/// The longest diagnostic, in UTF-8 bytes (SPEC 17.6).
const DIAGNOSTIC_BYTES: usize = 4096;

pub(super) async fn settles_as_it_should(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    let result = stage.result(&live.run.watcher()).await?;
    as_it_should(stage, &live, &result)?;
    stage.dispose(&live.run.watcher()).await
}

fn as_it_should(stage: &Stage, live: &Live, result: &SubagentResult) -> Verdict {
    let (reason, category) = (&result.stop_reason, result.diagnostic.as_ref().map(Diagnostic::category));
    let shown = || format!("{reason}, {category:?}");
    match stage.scenario {
        Scenario::Answers => answered(&live.word, result)?,
        Scenario::Blank if stage.provider.allows_blank_answer() => {
            ensure!(reason.is_success(), "it allows a blank answer, and the run settled as {}", shown());
        }
        Scenario::Blank => {
            ensure!(
                *reason == StopReason::Error && category == Some("empty-answer"),
                "a blank answer is an error of category empty-answer, and the run settled as {}",
                shown()
            );
        }
        Scenario::Floods => {
            ensure!(reason.is_success(), "the flood was to complete, and settled as {}", shown());
        }
        Scenario::Panics => {
            ensure!(
                *reason == StopReason::Error && category == Some("panic"),
                "a panic is an error of category panic, and the run settled as {}",
                shown()
            );
        }
        Scenario::Fails | Scenario::NoisyFailure => {
            let told = matches!(reason, StopReason::Completed | StopReason::Aborted | StopReason::TimedOut);
            ensure!(
                !told,
                "a child's failure is no success, no cancel and no deadline, and it settled as {}",
                shown()
            );
        }
        Scenario::Hangs
        | Scenario::IgnoresCancel
        | Scenario::HangsInStart
        | Scenario::FailsInStart
        | Scenario::PanicsInStart => {}
    }
    ensure!(
        reason.is_success() == result.diagnostic.is_none(),
        "every failure has a diagnostic and no success has one, and this is {}",
        shown()
    );
    Ok(())
}

/// The answer of [`Scenario::Answers`] to the prompt with this word.
pub(super) fn answered(word: &str, result: &SubagentResult) -> Verdict {
    let reason = &result.stop_reason;
    ensure!(reason.is_success(), "it was to complete, and settled as {reason}: {:?}", result.diagnostic);
    let text = result.text();
    ensure!(text.contains("ok"), "the answer does not contain `ok`");
    ensure!(!text.contains("ok-") || text.contains(word), "the answer is to the prompt of another start");
    Ok(())
}

pub(super) async fn settles_once(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    let watcher = live.run.watcher();
    let (one, two, three) =
        tokio::join!(stage.result(&watcher), stage.result(&watcher), stage.result(&watcher));
    let one = one?;
    ensure!(Arc::ptr_eq(&one, &two?) && Arc::ptr_eq(&one, &three?), "every waiter gets the same result");
    ended_once(stage, &live, &one)?;
    stage.dispose(&watcher).await?;
    // The teardown adds nothing to it.
    ended_once(stage, &live, &one)
}

/// One `Started` and one `Ended`, which says what the result says.
pub(super) fn ended_once(stage: &Stage, live: &Live, result: &SubagentResult) -> Verdict {
    let lifecycle = stage.lifecycle()?;
    let [Event::Started(started), Event::Ended(ended)] = &lifecycle[..] else {
        return Err(format!("one run has one Started and then one Ended, and there were {lifecycle:?}"));
    };
    ensure!(started.run_id == live.run.id(), "the Started is of another run");
    ensure!(
        started.id == live.run.agent_id() && *started.provider == *NAME,
        "the Started names another child"
    );
    ensure!(ended.run == *started, "the Ended is of another run than the Started");
    ensure!(
        ended.stop_reason == result.stop_reason
            && ended.last_assistant_message.as_ref() == result.last_assistant_message(),
        "the Ended says something else than the result"
    );
    Ok(())
}

pub(super) async fn diagnostic_is_fit(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    let result = stage.result(&live.run.watcher()).await?;
    if let Some(diagnostic) = &result.diagnostic {
        fit(diagnostic.text(), &live.word)?;
        let category = diagnostic.category();
        let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ensure!(
            !category.is_empty() && category.chars().all(kebab),
            "the category `{category}` is not in kebab case"
        );
    }
    stage.dispose(&live.run.watcher()).await
}

/// Bounded, clean, and without the prompt (SPEC 17.6).
pub(super) fn fit(text: &str, word: &str) -> Verdict {
    ensure!(
        text.len() <= DIAGNOSTIC_BYTES,
        "the diagnostic has {} bytes, over {DIAGNOSTIC_BYTES}",
        text.len()
    );
    ensure!(!text.trim().is_empty(), "the diagnostic is blank");
    let control = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t'));
    ensure!(control.is_none(), "the diagnostic has the control character {control:?}");
    ensure!(!text.contains(word), "the diagnostic contains the prompt");
    Ok(())
}

pub(super) async fn disposed_is_gone(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    stage.result(&live.run.watcher()).await?;
    all_dispose(stage, &live).await
}

/// Three at once and one more: the same good answer for all, and nothing left in the tree.
pub(super) async fn all_dispose(stage: &Stage, live: &Live) -> Verdict {
    let watcher = live.run.watcher();
    let (one, two, three) =
        tokio::join!(stage.dispose(&watcher), stage.dispose(&watcher), stage.dispose(&watcher));
    ensure!(
        one == two && two == three,
        "disposers at once got different answers: {one:?}, {two:?}, {three:?}"
    );
    one?;
    ensure!(watcher.phase() == Phase::Gone, "it is disposed and {}", watcher.phase());
    stage.ensure_absent(live.run.id())?;
    stage.dispose(&watcher).await
}

pub(super) async fn late_waiter(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    let watcher = live.run.watcher();
    let early = stage.result(&watcher).await?;
    stage.dispose(&watcher).await?;
    let late = stage.result(&watcher).await?;
    ensure!(Arc::ptr_eq(&early, &late), "the result after the disposal is another one");
    let kept = stage.service.outcome(live.run.id()).and_then(Result::ok);
    ensure!(kept.is_some_and(|kept| Arc::ptr_eq(&early, &kept)), "the remembered outcome is another one");
    Ok(())
}

pub(super) async fn delegates(stage: &Stage) -> Verdict {
    let word = Stage::word();
    let delegation = stage.service.delegate(NAME, stage.request(&word));
    let result = stage.within("the delegation", delegation).await?;
    answered(&word, &*result.map_err(|error| format!("{}: {error}", error.code()))?)
}

pub(super) async fn late_cancel(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    let watcher = live.run.watcher();
    let before = stage.result(&watcher).await?;
    watcher.cancel(CancelCause::requested("too late"));
    stage.dispose(&watcher).await?;
    let after = stage.result(&watcher).await?;
    ensure!(Arc::ptr_eq(&before, &after), "a cancel after the end changed the result");
    ended_once(stage, &live, &after)
}

pub(super) async fn progress_ends(stage: &Stage) -> Verdict {
    let live = stage.begin().await?;
    let mut progress = live.run.progress();
    let read = async {
        let mut bytes = 0_u64;
        while let Some(update) = progress.next().await {
            bytes += update.lagged_bytes + update.text.len() as u64;
        }
        bytes
    };
    let bytes = stage.within("the end of the progress", read).await?;
    ensure!(bytes > 0, "the flood showed no text as progress");
    stage.dispose(&live.run.watcher()).await
}
