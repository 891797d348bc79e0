//! The contract of every provider, held against each.

use crate::{
    acp::Script,
    processes::{Mark, VARIABLE},
};
use serde_json::json;
use std::time::Duration;
use subagents::{Acp, Exec};
use subagents_testkit::{Contract, Scenario};

/// A shell that plays a scenario, where a program can.
fn exec(scenario: Scenario, mark: &Mark) -> Option<Exec> {
    let sh = |script: &str| Exec::new("sh").args(["-c", script]);
    let exec = match scenario {
        Scenario::Answers => Exec::new("cat"),
        Scenario::Fails => sh("echo why >&2; exit 3"),
        Scenario::NoisyFailure => sh(r#"yes "$(printf '\033[31mred\007')" | head -c 5000000 >&2; exit 1"#),
        Scenario::Blank => Exec::new("true"),
        Scenario::Floods => sh("yes | head -c 5000000"),
        // With a grandchild, so that the group counts.
        Scenario::Hangs => sh("echo half of it; sleep 1000 & wait"),
        Scenario::IgnoresCancel => sh("trap '' TERM INT HUP; echo half of it; while :; do sleep 1; done"),
        Scenario::FailsInStart => Exec::new("/no/such/program"),
        // Its start is one fork, which never waits; and no program brings code of ours to panic.
        Scenario::HangsInStart | Scenario::Panics | Scenario::PanicsInStart | _ => return None,
    };
    Some(exec.env(VARIABLE, mark.value()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exec_keeps_the_contract() {
    let mark = Mark::fresh();
    let left = mark.clone();
    let report = Contract::new()
        // A child that ignores everything is killed when four fifths of half of this are over.
        .patience(Duration::from_secs(6))
        .leftovers(move || left.alive().len())
        .run(|scenario| exec(scenario, &mark))
        .await;
    println!("{report}");
    report.assert();
    assert_eq!(
        report.not_covered().collect::<Vec<_>>(),
        [Scenario::HangsInStart, Scenario::Panics, Scenario::PanicsInStart]
    );
    assert_eq!(mark.alive(), [""; 0]);
}

/// A scripted agent that plays a scenario, where an agent can.
fn acp(scenario: Scenario, mark: &Mark) -> Option<Acp> {
    let noise = "\u{1b}[31mred\u{7}".repeat(1000);
    let agent = match scenario {
        Scenario::Answers => Script::prompted().chunk("$prompt").stop("end_turn").acp(),
        Scenario::Fails => Script::prompted().fail(json!({"code": 1, "message": "why"})).acp(),
        Scenario::NoisyFailure => Script::prompted()
            .raw_times(&noise, 500)
            .fail(json!({"code": 1, "message": noise, "data": {"more": noise}}))
            .acp(),
        Scenario::Blank => Script::prompted().stop("end_turn").acp(),
        Scenario::Floods => {
            let both = Script::bare().chunk(&"y\n".repeat(500)).chunk(&"n\n".repeat(500));
            Script::prompted().repeat(2500, both).stop("end_turn").acp()
        }
        // With a grandchild outside of its group.
        Scenario::Hangs => Script::prompted()
            .run("setsid sleep 1000 >/dev/null 2>&1 3>&- &")
            .chunk("half of it")
            .expect("session/cancel")
            .say(json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "cancelled"}}))
            .acp(),
        Scenario::IgnoresCancel => Script::prompted()
            .chunk("half of it")
            .become_shell("trap '' TERM INT HUP; while :; do sleep 1; done")
            .acp(),
        Scenario::HangsInStart => Script::initialized().become_shell("sleep 1000 & wait").acp(),
        Scenario::FailsInStart => {
            Script::initialized().expect("session/new").fail(json!({"code": 1, "message": "why"})).acp()
        }
        // No agent brings code of ours to panic.
        Scenario::Panics | Scenario::PanicsInStart | _ => return None,
    };
    Some(agent.env(VARIABLE, mark.value()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acp_keeps_the_contract() {
    let mark = Mark::fresh();
    let left = mark.clone();
    let report = Contract::new()
        .patience(Duration::from_secs(8))
        .leftovers(move || left.alive().len())
        .run(|scenario| acp(scenario, &mark))
        .await;
    println!("{report}");
    report.assert();
    assert_eq!(report.not_covered().collect::<Vec<_>>(), [Scenario::Panics, Scenario::PanicsInStart]);
    assert_eq!(mark.alive(), [""; 0]);
}
