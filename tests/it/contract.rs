//! The contract of every provider, held against each.

use crate::processes::{Mark, VARIABLE};
use std::time::Duration;
use subagents::Exec;
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
