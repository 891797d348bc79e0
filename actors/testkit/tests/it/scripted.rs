//! What a script says is what its child does.

use std::time::Duration;
use subagents_runtime::{Root, SubagentService};
use subagents_seam::{
    CancelCause, Capabilities, Deadlines, DelegateError, Diagnostic, FailureCode, StartRequest, StopReason,
    SubagentResult, Wait,
};
use subagents_testkit::{Probe, Script, Scripted};

const MINUTE: Duration = Duration::from_mins(1);

struct House {
    service: SubagentService,
    root: Root,
    probe: Probe,
}

impl House {
    fn new(scripted: &Scripted) -> Self {
        let probe = scripted.probe();
        let service =
            SubagentService::builder().provider("child", scripted.clone()).build().expect("a service");
        scripted.attach(service.downgrade());
        let root = service.root("/").expect("a root");
        Self { service, root, probe }
    }

    fn ask(&self, prompt: &str) -> StartRequest {
        StartRequest::new(&self.root, prompt)
    }

    /// Two facts in a line: how it ended, and with which text or code.
    async fn outcome(&self, prompt: &str) -> String {
        match self.service.delegate("child", self.ask(prompt)).await {
            Ok(result) => told(&result),
            Err(DelegateError::Dispose { result, source }) => format!("{} then {source}", told(&result)),
            Err(error) => error.code().to_owned(),
        }
    }
}

fn told(result: &SubagentResult) -> String {
    let category = result.diagnostic.as_ref().map_or("", Diagnostic::category);
    format!("{} {category} {}", result.stop_reason, result.text())
}

#[tokio::test(start_paused = true)]
async fn a_child_ends_as_its_script_says() {
    for (script, wanted) in [
        (Script::answer("hi"), "completed  hi"),
        (Script::echo().pause(MINUTE), "completed  the prompt"),
        (Script::answer(""), "error empty-answer "),
        (Script::fail("quota", "no more"), "error quota "),
        (Script::stop(StopReason::MaxTokens, "half"), "max-tokens max-tokens half"),
        (Script::stop("refusal", ""), "refusal refusal "),
        (Script::stop("paused", "so far"), "paused unknown so far"),
        (Script::wait_fails("lost it"), "WAIT_FAILED"),
        (Script::panic("boom").say("half"), "error panic half"),
        (Script::answer("hi").close_after(MINUTE / 6), "completed  hi"),
        (Script::echo().start_after(MINUTE / 2), "completed  the prompt"),
        (Script::echo().start_after(2 * MINUTE), "START_TIMEOUT"),
        (Script::echo().start_fails(FailureCode::AuthRequired, "sign in"), "AUTH_REQUIRED"),
        (Script::echo().start_panics("boom"), "PROVIDER_PANICKED"),
        (Script::echo().start_hangs(), "START_TIMEOUT"),
        (Script::echo().start_hangs_deaf(), "START_TIMEOUT"),
    ] {
        let label = format!("{script:?}");
        let house = House::new(&Scripted::new(script));
        assert_eq!(house.outcome("the prompt").await, wanted, "{label}");
        assert!(house.probe.counts().is_quiet(), "{label}: {:?}", house.probe);
        assert_eq!(house.probe.starts(), 1, "{label}");
        assert_eq!(house.probe.runs(), house.probe.closes(), "{label}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_teardown_is_a_leak_with_the_result_kept_and_the_child_dropped() {
    for (script, what) in [
        (Script::answer("hi").close_leaks("a socket"), "a socket"),
        (Script::answer("hi").close_panics("boom"), "panicked"),
        (Script::answer("hi").close_hangs(), "longer"),
        (Script::answer("hi").drop_panics(), "panicked"),
    ] {
        let house = House::new(&Scripted::new(script));
        let outcome = house.outcome("x").await;
        assert!(outcome.starts_with("completed  hi then") && outcome.contains(what), "{outcome}");
        assert!(house.probe.counts().is_quiet(), "{what}: {:?}", house.probe);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_child_hears_a_cancel_late_or_not_at_all() {
    let grace = Duration::from_secs(2);
    for (script, least, most) in [
        (Script::hang().say("half"), Duration::ZERO, Duration::ZERO),
        (Script::hang().say("half").settle_late(grace / 2), grace / 2, grace / 2),
        (Script::hang().say("half").deaf(), grace, grace),
        (Script::answer("whole").say("half").pause(MINUTE), Duration::ZERO, Duration::ZERO),
    ] {
        let house = House::new(&Scripted::new(script));
        let request = house.ask("x").deadlines(Deadlines::new().cancel_grace(grace));
        let run = house.service.start("child", request).await.unwrap();
        house.probe.until(|counts| counts.running == 1).await;
        run.cancel(CancelCause::REQUESTED);
        let began = tokio::time::Instant::now();
        assert_eq!(told(&run.result().await.unwrap()), "aborted cancelled half");
        let took = began.elapsed();
        // The clock of tokio goes in milliseconds.
        assert!(took >= least && took <= most + Duration::from_millis(2), "{took:?}");
        run.dispose().await.unwrap();
        assert!(house.probe.counts().is_quiet());
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_shows_what_it_waits_for() {
    for (script, wait) in [
        (Script::hang().tool("grep"), Wait::Tool("grep".into())),
        (Script::hang().tool("grep").tool_done("grep"), Wait::Child),
        (Script::hang().permission("p1").think("hm").message(), Wait::Permission("p1".into())),
    ] {
        let house = House::new(&Scripted::new(script));
        let run = house.service.start("child", house.ask("x")).await.unwrap();
        house.probe.until(|counts| counts.running == 1).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(run.node().wait, Some(wait));
        run.dispose().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_as_long_as_it_says() {
    let house = House::new(&Scripted::new(Script::answer("ok").flood(1_000_003, 7)));
    let run = house.service.start("child", house.ask("x")).await.unwrap();
    let (mut progress, mut bytes) = (run.progress(), 0);
    while let Some(update) = progress.next().await {
        bytes += update.lagged_bytes + update.text.len() as u64;
    }
    assert_eq!(bytes, 1_000_003);
    run.dispose().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_script_is_chosen_by_the_prompt_and_may_delegate_further() {
    let house = House::new(&Scripted::by(|prompt| match prompt {
        "lead" => Script::delegate("child", ["a", "b", "lead of two"]),
        "lead of two" => Script::delegate("child", ["c", "d"]),
        "bad lead" => Script::delegate("child", ["a", "bad"]),
        "bad" => Script::fail("x", "y"),
        "endless" => Script::delegate("child", ["hang", "hang"]),
        "hang" => Script::hang(),
        other => Script::answer(other.to_uppercase()).pause(MINUTE),
    }));
    assert_eq!(house.outcome("lead").await, "completed  A\nB\nC\nD");
    assert_eq!(house.probe.starts(), 6);
    assert_eq!(house.outcome("bad lead").await, "error nested ");

    let run = house.service.start("child", house.ask("endless")).await.unwrap();
    house.probe.until(|counts| counts.running == 3).await;
    run.dispose().await.unwrap();
    assert!(house.probe.counts().is_quiet(), "{:?}", house.probe);

    let alone = Scripted::new(Script::delegate("child", ["a"]));
    let service = SubagentService::builder().provider("child", alone).build().unwrap();
    let root = service.root("/").unwrap();
    let result = service.delegate("child", StartRequest::new(&root, "x")).await.unwrap();
    assert_eq!(told(&result), "error nested ");
}

#[tokio::test(start_paused = true)]
async fn a_provider_declares_what_it_is_told_to() {
    let scripted = Scripted::new(Script::answer(""))
        .capabilities(Capabilities::NONE.with_persona())
        .allow_blank_answer(true)
        .inherits_parent_context(true);
    let house = House::new(&scripted);
    assert!(house.service.provider("child").unwrap().inherits_parent_context());
    let result = house.service.delegate("child", house.ask("x").persona("a pirate")).await.unwrap();
    assert_eq!(told(&result), "completed  ");
}
