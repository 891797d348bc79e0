//! Providers that break the contract are found out: the suite is able to fail.

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};
use subagents_seam::{
    CancellationToken, Child, Closed, Diagnostic, DynProvider, Instant, ProviderFailure, ResultError,
    RunContext, StartContext, StartError, SubagentProvider, SubagentResult,
};
use subagents_testkit::{Contract, Outcome, Probe, Report, Scenario, Script, Scripted};
use tokio::sync::OwnedSemaphorePermit;

/// Runs one scenario with a provider that is no good at it.
async fn report(scenario: Scenario, provider: impl Into<DynProvider>) -> Report {
    report_with(Contract::new(), scenario, provider).await
}

async fn report_with(contract: Contract, scenario: Scenario, provider: impl Into<DynProvider>) -> Report {
    let provider = provider.into();
    let contract = contract.patience(Duration::from_secs(5));
    contract.run(|asked| (asked == scenario).then(|| provider.clone())).await
}

/// Asserts that this check failed, with a message that says so.
#[track_caller]
fn assert_found(report: &Report, check: &str, message: &str) {
    let found = report.failures().any(|row| {
        row.check.contains(check) && matches!(&row.outcome, Outcome::Failed(why) if why.contains(message))
    });
    assert!(found, "no failure of `{check}` says `{message}`:\n{report}");
}

#[track_caller]
fn assert_held(report: &Report, check: &str) {
    let held = report.rows().iter().any(|row| row.check.contains(check) && row.outcome == Outcome::Passed);
    assert!(held, "`{check}` was to hold:\n{report}");
}

#[tokio::test(start_paused = true)]
async fn a_close_that_leaks_panics_or_hangs_is_found() {
    for (script, what) in [
        (Script::echo().close_leaks("a socket"), "a socket"),
        (Script::echo().close_panics("boom"), "panicked"),
        (Script::echo().close_hangs(), "longer than"),
        (Script::echo().drop_panics(), "panicked"),
    ] {
        let report = report(Scenario::Answers, Scripted::new(script)).await;
        assert_found(&report, "disposed means gone", what);
        // Found by what is looked at after every check, too: nobody disposes that run.
        assert_found(&report, "a detached run goes on", what);
        assert_held(&report, "what the provider cannot do is refused");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_does_something_else_is_found() {
    let settles = "the run settles as it should";
    for (scenario, script, message) in [
        (Scenario::Answers, Script::answer("no"), "does not contain `ok`"),
        (Scenario::Answers, Script::answer(""), "settled as error"),
        (Scenario::Answers, Script::wait_fails("lost"), "not an error: WAIT_FAILED"),
        (Scenario::Answers, Script::hang(), "the result: nothing came of it"),
        (Scenario::Answers, Script::echo().start_hangs(), "the start failed: START_TIMEOUT"),
        (Scenario::Fails, Script::answer("fine"), "settled as completed"),
        (Scenario::Fails, Script::stop("aborted", ""), "settled as aborted"),
        (Scenario::Blank, Script::fail("x", "y"), "settled as error, Some(\"x\")"),
        (Scenario::Panics, Script::fail("x", "y"), "settled as error, Some(\"x\")"),
        (Scenario::Floods, Script::fail("x", "y").flood(10, 1), "settled as error"),
    ] {
        assert_found(&report(scenario, Scripted::new(script)).await, settles, message);
    }
    let early = report(Scenario::Hangs, Scripted::new(Script::answer("done"))).await;
    assert_found(&early, "mid-way", "the run was to go on");
    assert_found(&early, "watcher or future", "the run was to go on");
    let silent = report(Scenario::Floods, Scripted::new(Script::answer("ok"))).await;
    assert_found(&silent, "reader of the flood", "no text");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_does_something_else_is_found() {
    let starts = report(Scenario::FailsInStart, Scripted::new(Script::echo())).await;
    assert_found(&starts, "the start is rejected", "gave a run");
    let hangs = report(Scenario::FailsInStart, Scripted::new(Script::echo().start_hangs())).await;
    assert_found(&hangs, "the start is rejected", "START_TIMEOUT");
    let fails = Script::echo().start_fails(subagents_seam::FailureCode::SpawnFailed, "no");
    let fails = report(Scenario::PanicsInStart, Scripted::new(fails)).await;
    assert_found(&fails, "the panic rejects", "SPAWN_FAILED");
    let starts = report(Scenario::HangsInStart, Scripted::new(Script::echo())).await;
    assert_found(&starts, "a start takes no longer", "gave a run");
    assert_found(&starts, "cancelled start is rejected", "was to go on");
}

#[tokio::test(start_paused = true)]
async fn a_diagnostic_with_the_prompt_in_it_is_found() {
    struct Telltale;
    struct TelltaleChild(String);
    impl SubagentProvider for Telltale {
        type Child = TelltaleChild;
        async fn start(&self, cx: StartContext) -> Result<TelltaleChild, StartError> {
            Ok(TelltaleChild(cx.prompt().to_text()))
        }
    }
    impl Child for TelltaleChild {
        async fn run(&mut self, _: RunContext) -> Result<SubagentResult, ResultError> {
            Ok(SubagentResult::error(Diagnostic::new("exit-code", &format!("failed at `{}`", self.0))))
        }
    }
    struct TelltaleStart;
    impl SubagentProvider for TelltaleStart {
        type Child = TelltaleChild;
        async fn start(&self, cx: StartContext) -> Result<TelltaleChild, StartError> {
            let message = format!("cannot start `{}`", cx.prompt().to_text());
            Err(ProviderFailure::new(subagents_seam::FailureCode::SpawnFailed, message).into())
        }
    }
    for scenario in [Scenario::Fails, Scenario::NoisyFailure] {
        let report = report(scenario, Telltale).await;
        assert_found(&report, "bounded, clean diagnostic", "contains the prompt");
        assert_held(&report, "it settles once");
    }
    let report = report(Scenario::FailsInStart, TelltaleStart).await;
    assert_found(&report, "message is bounded and clean", "contains the prompt");
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_is_shown_in_the_tree_is_found() {
    let shows = Scripted::by(|prompt| Script::hang().tool(prompt));
    assert_found(&report(Scenario::Hangs, shows).await, "nothing of its prompt", "shows the prompt");
}

#[tokio::test(start_paused = true)]
async fn a_category_that_is_no_word_for_programs_is_found() {
    let script = Script::result(SubagentResult::error(Diagnostic::new("Exit Code", "fine")));
    let report = report(Scenario::Fails, Scripted::new(script)).await;
    assert_found(&report, "bounded, clean diagnostic", "kebab");
}

/// Its starts share a token: who cancels one ends all.
#[derive(Default)]
struct OneFate(Mutex<CancellationToken>);

struct FatedChild(CancellationToken);

impl SubagentProvider for OneFate {
    type Child = FatedChild;
    async fn start(&self, _: StartContext) -> Result<FatedChild, StartError> {
        let mut fate = self.0.lock().expect("no start panicked");
        if fate.is_cancelled() {
            *fate = CancellationToken::new();
        }
        Ok(FatedChild(fate.clone()))
    }
}

impl Child for FatedChild {
    async fn run(&mut self, cx: RunContext) -> Result<SubagentResult, ResultError> {
        tokio::select! {
            () = cx.cancelled() => self.0.cancel(),
            () = self.0.cancelled() => {}
        }
        Ok(SubagentResult::aborted("half"))
    }
}

/// Its starts share a place: the second waits until the first is gone.
struct OneAtATime(Arc<tokio::sync::Semaphore>);

struct LoneChild(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl SubagentProvider for OneAtATime {
    type Child = LoneChild;
    async fn start(&self, _: StartContext) -> Result<LoneChild, StartError> {
        Ok(LoneChild(self.0.clone().acquire_owned().await.expect("it is never closed")))
    }
}

impl Child for LoneChild {
    async fn run(&mut self, cx: RunContext) -> Result<SubagentResult, ResultError> {
        cx.cancelled().await;
        Ok(SubagentResult::aborted("half"))
    }
}

/// It answers each prompt with the first.
#[derive(Default)]
struct FirstCome(OnceLock<String>);

impl SubagentProvider for FirstCome {
    type Child = subagents_testkit::ScriptedChild;
    async fn start(&self, cx: StartContext) -> Result<Self::Child, StartError> {
        let first = self.0.get_or_init(|| cx.prompt().to_text()).clone();
        Scripted::new(Script::answer(first)).start(cx).await
    }
}

#[tokio::test(start_paused = true)]
async fn starts_that_are_coupled_are_found() {
    let fated = report(Scenario::Hangs, OneFate::default()).await;
    assert_found(&fated, "leaves its neighbour alone", "the run was to go on");
    assert_held(&fated, "a cancel at once");
    let lone = report(Scenario::Hangs, OneAtATime(Arc::new(tokio::sync::Semaphore::new(1)))).await;
    assert_found(&lone, "leaves its neighbour alone", "the start");
    assert_held(&lone, "a cancel at once");
    let first = report(Scenario::Answers, FirstCome::default()).await;
    assert_found(&first, "answer each for itself", "another start");
}

/// What it starts stays when the start is dropped.
struct Litter(Probe);

impl SubagentProvider for Litter {
    type Child = subagents_testkit::ScriptedChild;
    async fn start(&self, cx: StartContext) -> Result<Self::Child, StartError> {
        let child = Scripted::new(Script::echo()).with_probe(&self.0).start(cx).await?;
        std::mem::forget(child);
        std::future::pending().await
    }
}

/// What it closes stays, and it says nothing of it.
struct Forgetful(Probe);

struct ForgetfulChild(subagents_testkit::ScriptedChild);

impl SubagentProvider for Forgetful {
    type Child = ForgetfulChild;
    async fn start(&self, cx: StartContext) -> Result<ForgetfulChild, StartError> {
        Ok(ForgetfulChild(Scripted::new(Script::echo()).with_probe(&self.0).start(cx).await?))
    }
}

impl Child for ForgetfulChild {
    async fn run(&mut self, cx: RunContext) -> Result<SubagentResult, ResultError> {
        self.0.run(cx).await
    }

    async fn close(self, _: Instant) -> Closed {
        std::mem::forget(self.0);
        Closed::Clean
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_by_the_providers_own_count_is_found() {
    let probe = Probe::new();
    let left = probe.clone();
    let contract = Contract::new().leftovers(move || left.alive());
    let report = report_with(contract, Scenario::HangsInStart, Litter(probe)).await;
    assert_found(&report, "an abandoned start leaves nothing", "own count are left");

    let probe = Probe::new();
    let left = probe.clone();
    let contract = Contract::new().leftovers(move || left.alive());
    let report = report_with(contract, Scenario::Answers, Forgetful(probe)).await;
    assert_found(&report, "disposed means gone", "own count are left");
}

#[tokio::test(start_paused = true)]
async fn an_assertion_on_a_broken_provider_panics_with_the_table() {
    let report = report(Scenario::Fails, Scripted::new(Script::answer("fine"))).await;
    let panic = std::panic::catch_unwind(|| report.assert()).expect_err("it is broken");
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.contains("breaks its contract in") && message.contains("FAILED: "), "{message}");
    assert!(message.contains("not covered"), "{message}");
}
