//! Before publication: refusals, and starts that are cancelled, abandoned, late or broken.

use super::{
    Scenario,
    settled::fit,
    stage::{BEAT, NAME, Stage, Verdict, ensure},
};
use serde_json::json;
use subagents_runtime::Starting;
use subagents_seam::{
    AgentOption, AgentOptions, CancelCause, CancellationToken, Capability, ContentBlock, Deadlines, Phase,
    PromptKind, RunId, StartError, StartRequest, ToolFilter,
};
use tokio::time::sleep;

// ---- refused before the provider hears of it

pub(super) async fn unsupported_is_refused(stage: &Stage) -> Verdict {
    let can = stage.provider.capabilities();
    let mut asked = Vec::new();
    for (capability, request) in [
        (Capability::OutputSchema, stage.request("x").output_schema(json!({"type": "object"}))),
        (Capability::DepthLimit, stage.request("x").max_depth(9_u32)),
        (Capability::ToolFilter, stage.request("x").tool_filter(ToolFilter::deny(["x"]))),
        (Capability::Persona, stage.request("x").persona("x")),
    ] {
        if !can.has(capability) {
            asked.push((capability.as_str(), request));
        }
    }
    for (option, options) in [
        (AgentOption::Provider, AgentOptions::new().provider("x")),
        (AgentOption::Model, AgentOptions::new().model("x")),
        (AgentOption::Effort, AgentOptions::new().effort("x")),
        (AgentOption::MaxTokens, AgentOptions::new().max_tokens(1)),
    ] {
        if !can.honours(option) {
            asked.push((option.as_str(), stage.request("x").agent_options(options)));
        }
    }
    for (feature, request) in asked {
        let error = refused(stage, stage.service.start(NAME, request)).await?;
        let told =
            matches!(&error, StartError::UnsupportedCapability { feature: named, .. } if *named == feature);
        ensure!(told, "`{feature}` was to be refused, and the start gave {}: {error}", error.code());
    }
    let blank = refused(stage, stage.service.start(NAME, StartRequest::new(&stage.root, " "))).await?;
    ensure!(
        blank.code() == "UNSUPPORTED_PROMPT",
        "a blank prompt was to be refused, and gave {}",
        blank.code()
    );
    for (kind, block) in [
        (PromptKind::Image, ContentBlock::Image { mime_type: "image/png".into(), data: "AAAA".into() }),
        (PromptKind::Link, ContentBlock::Link { uri: "file:///x".into(), name: "x".into() }),
    ] {
        if !can.takes(kind) {
            let blocks = vec![ContentBlock::Text { text: "x".into() }, block];
            let error =
                refused(stage, stage.service.start(NAME, StartRequest::new(&stage.root, blocks))).await?;
            let told = matches!(&error, StartError::UnsupportedPrompt { kind: named, .. } if *named == kind.as_str());
            ensure!(
                told,
                "`{}` was to be refused, and the start gave {}: {error}",
                kind.as_str(),
                error.code()
            );
        }
    }
    Ok(())
}

/// The error of a start that was to fail, with nothing left of it.
async fn refused(stage: &Stage, starting: Starting) -> Result<StartError, String> {
    let id = starting.id();
    stage.refusal(starting, id).await
}

pub(super) async fn cancelled_token_refuses(stage: &Stage) -> Verdict {
    let token = CancellationToken::new();
    token.cancel();
    let starting = stage.service.start(NAME, stage.request(&Stage::word()).token(token));
    cancelled(&refused(stage, starting).await?, &CancelCause::Token)
}

fn cancelled(error: &StartError, wanted: &CancelCause) -> Verdict {
    let told = matches!(error, StartError::Cancelled { cause } if cause == wanted);
    ensure!(told, "the start was to be CANCELLED ({wanted}), and gave {}: {error}", error.code());
    Ok(())
}

// ---- cancelled before anybody can say how far it came

pub(super) async fn cancelled_at_once(stage: &Stage) -> Verdict {
    let starting = stage.service.start(NAME, stage.request(&Stage::word()));
    let (id, cause) = (starting.id(), CancelCause::requested("it is not wanted any more"));
    starting.cancel(cause.clone());
    match stage.within("the start", starting).await? {
        Err(error) => {
            cancelled(&error, &cause)?;
            stage.ensure_unstarted(id)?;
        }
        // It was published first. Then it is a cancelled run, or one that was done before.
        Ok(run) => {
            stage.result_in_grace(&run.watcher()).await?;
            stage.dispose(&run.watcher()).await?;
        }
    }
    stage.ensure_absent(id)
}

pub(super) async fn dropped_at_once(stage: &Stage) -> Verdict {
    let starting = stage.service.start(NAME, stage.request(&Stage::word()));
    let id = starting.id();
    drop(starting);
    stage.within("the end of an abandoned start", stage.root.idle()).await?;
    stage.ensure_absent(id)
}

// ---- a start that does not end by itself

/// A start that the provider is at.
async fn under_way(stage: &Stage, request: StartRequest) -> Result<Starting, String> {
    debug_assert_eq!(stage.scenario, Scenario::HangsInStart);
    let starting = stage.service.start(NAME, request);
    let id = starting.id();
    let at_it = async {
        while stage.service.tree().node(id).is_none_or(|node| node.phase == Phase::Queued) {
            sleep(BEAT / 10).await;
        }
        stage.beat().await;
    };
    stage.within("the begin of the start", at_it).await?;
    ensure_starting(stage, id, "before its cancel")?;
    Ok(starting)
}

fn ensure_starting(stage: &Stage, id: RunId, when: &str) -> Verdict {
    let phase = stage.service.tree().node(id).map(|node| node.phase);
    ensure!(phase == Some(Phase::Starting), "{when} the start was to go on, and it is {phase:?}");
    Ok(())
}

pub(super) async fn cancel_in_start(stage: &Stage) -> Verdict {
    let starting = under_way(stage, stage.request(&Stage::word())).await?;
    let cause = CancelCause::requested("it takes too long");
    starting.cancel(cause.clone());
    cancelled(&refused(stage, starting).await?, &cause)
}

pub(super) async fn token_in_start(stage: &Stage) -> Verdict {
    let token = CancellationToken::new();
    let starting = under_way(stage, stage.request(&Stage::word()).token(token.clone())).await?;
    token.cancel();
    cancelled(&refused(stage, starting).await?, &CancelCause::Token)
}

pub(super) async fn abandoned(stage: &Stage) -> Verdict {
    let starting = under_way(stage, stage.request(&Stage::word())).await?;
    let unpolled = starting.id();
    drop(starting);
    let starting = under_way(stage, stage.request(&Stage::word())).await?;
    let polled = starting.id();
    // The deadline drops the future.
    let ended = tokio::time::timeout(BEAT, starting).await;
    ensure!(ended.is_err(), "the start was to hang, and it ended");
    stage.within("the end of the abandoned starts", stage.root.idle()).await?;
    for id in [unpolled, polled] {
        stage.ensure_absent(id)?;
        stage.ensure_unstarted(id)?;
    }
    Ok(())
}

pub(super) async fn start_deadline(stage: &Stage) -> Verdict {
    let request = stage.request(&Stage::word()).deadlines(Deadlines::new().start(stage.settings.grace));
    let error = refused(stage, stage.service.start(NAME, request)).await?;
    ensure!(
        error.code() == "START_TIMEOUT",
        "its deadline passed, and the start gave {}: {error}",
        error.code()
    );
    Ok(())
}

pub(super) async fn neighbour_starts_on(stage: &Stage) -> Verdict {
    let one = under_way(stage, stage.request(&Stage::word())).await?;
    let two = under_way(stage, stage.request(&Stage::word())).await?;
    let (first, second) = (CancelCause::requested("only this one"), CancelCause::requested("now the other"));
    one.cancel(first.clone());
    cancelled(&refused(stage, one).await?, &first)?;
    stage.beat().await;
    ensure_starting(stage, two.id(), "after the cancel of its neighbour")?;
    two.cancel(second.clone());
    cancelled(&refused(stage, two).await?, &second)
}

pub(super) async fn shutdown_in_start(stage: &Stage) -> Verdict {
    let starting = under_way(stage, stage.request(&Stage::word())).await?;
    let shutdown = stage.within("the shutdown", stage.service.shutdown(stage.settings.patience));
    let (report, error) = tokio::join!(shutdown, refused(stage, starting));
    let report = report?;
    ensure!(report.is_clean(), "the shutdown was not clean: {report:?}");
    cancelled(&error?, &CancelCause::Shutdown)
}

// ---- a start that goes wrong

pub(super) async fn start_fails(stage: &Stage) -> Verdict {
    // Twice: one failed start leaves the provider as it was.
    for _ in 0..2 {
        let error = refused(stage, stage.service.start(NAME, stage.request(&Stage::word()))).await?;
        let told = matches!(
            error,
            StartError::ProviderFailed(_)
                | StartError::NoParentHistory
                | StartError::UnsupportedPrompt { .. }
        );
        ensure!(told, "the provider was to fail the start, and it gave {}: {error}", error.code());
    }
    Ok(())
}

pub(super) async fn start_panics(stage: &Stage) -> Verdict {
    for _ in 0..2 {
        let error = refused(stage, stage.service.start(NAME, stage.request(&Stage::word()))).await?;
        let told = error.code() == "PROVIDER_PANICKED";
        ensure!(told, "the provider was to panic, and the start gave {}: {error}", error.code());
    }
    Ok(())
}

pub(super) async fn start_message_is_fit(stage: &Stage) -> Verdict {
    let word = Stage::word();
    let error = refused(stage, stage.service.start(NAME, stage.request(&word))).await?;
    fit(&error.to_string(), &word)
}
