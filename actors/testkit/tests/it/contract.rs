//! The suite on a provider that keeps the contract, on both clocks.

use std::time::{Duration, Instant};
use subagents_seam::{StartError, StopReason};
use subagents_testkit::{Contract, Outcome, Probe, Scenario, Script, Scripted, contract};

#[tokio::test(start_paused = true)]
async fn a_scripted_child_keeps_the_whole_contract_on_a_paused_clock() {
    let began = Instant::now();
    let probe = Probe::new();
    let left = probe.clone();
    let report = Contract::new()
        .leftovers(move || left.alive() + left.counts().starting + left.counts().running)
        .run(|scenario| Some(Scripted::new(scenario.script()).with_probe(&probe)))
        .await;
    report.assert();
    assert_eq!(report.not_covered().count(), 0, "{report}");
    assert!(probe.counts().is_quiet() && probe.starts() > 50, "{probe:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "a paused clock waits for nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scripted_child_keeps_the_whole_contract_on_the_real_clock() {
    let contract = Contract::new().grace(Duration::from_millis(50));
    contract.run(|scenario| Some(Scripted::new(scenario.script()))).await.assert();
}

#[tokio::test(start_paused = true)]
async fn variants_of_the_scenarios_keep_the_contract_as_well() {
    let report = contract(|scenario| {
        let script = scenario.script();
        let second = Duration::from_secs(1);
        Some(match scenario {
            Scenario::Answers => Scripted::new(script.pause(second).start_after(second).close_after(second)),
            Scenario::Blank => Scripted::new(script).allow_blank_answer(true),
            Scenario::Hangs => Scripted::new(script.settle_late(Duration::from_millis(400))),
            Scenario::IgnoresCancel => Scripted::new(script.close_after(4 * second)),
            Scenario::HangsInStart => Scripted::new(script.start_hangs_deaf()),
            Scenario::Floods => Scripted::new(script.close_after(second)),
            Scenario::Fails => Scripted::new(Script::stop(StopReason::Refusal, "no")),
            Scenario::NoisyFailure => Scripted::new(Script::stop("paused", "half").flood(1_000_000, 50)),
            Scenario::FailsInStart => Scripted::new(script.start_error(StartError::NoParentHistory)),
            Scenario::Panics => Scripted::new(script.pause(second).say("half")),
            Scenario::PanicsInStart | _ => Scripted::new(script),
        })
    })
    .await;
    report.assert();
}

#[tokio::test(start_paused = true)]
async fn a_scenario_without_a_provider_is_not_covered_and_no_failure() {
    let report =
        contract(|scenario| (scenario == Scenario::Blank).then(|| Scripted::new(scenario.script()))).await;
    report.assert();
    assert_eq!(report.not_covered().count(), Scenario::ALL.len() - 1);
    assert!(report.rows().iter().any(|row| row.outcome == Outcome::NotCovered));
    let table = report.to_string();
    for &scenario in Scenario::ALL {
        let told = table.contains(&format!("not covered: {}", scenario.description()));
        assert_eq!(told, scenario != Scenario::Blank, "{table}");
    }
    assert!(table.ends_with("5 checks passed, 0 failed; 10 scenarios not covered"), "{table}");
}

#[test]
fn the_suite_can_be_spawned() {
    fn is_send<T: Send>(_: &T) {}
    is_send(&contract(|scenario| Some(Scripted::new(scenario.script()))));
}
