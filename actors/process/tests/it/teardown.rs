//! The ladder, stage by stage.

use std::time::{Duration, Instant};

use subagents_process::{Command, Exit, Ladder, Stage, Teardown};

use crate::support::{PATIENCE, alive, first_line, group_dead, group_gone, sh};

/// Whatever waits that long has waited in vain.
const LONG: Duration = PATIENCE;
const SHORT: Duration = Duration::from_millis(50);

fn stage(teardown: &Teardown) -> (Stage, Exit) {
    match teardown {
        Teardown::Gone { stage, exit, .. } => (*stage, *exit),
        Teardown::Leaked { .. } | _ => panic!("{teardown:?}"),
    }
}

#[tokio::test]
async fn a_child_that_ends_with_its_input_is_not_signalled() {
    let mut process = sh("trap 'exit 9' TERM; echo ready; read x; exit 3").spawn().unwrap();
    let (_, _lines) = first_line(&mut process).await;
    let teardown = process.terminate(Ladder::new(LONG, LONG, LONG)).await;
    assert_eq!(stage(&teardown), (Stage::Eof, Exit::Code(3)));
    assert!(group_gone(process.id()));
    assert_eq!(process.terminate(Ladder::default()).await, teardown);
}

#[tokio::test]
async fn a_child_that_ignores_its_input_gets_term() {
    let mut process = sh("trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done").spawn().unwrap();
    let (_, _lines) = first_line(&mut process).await;
    let teardown = process.terminate(Ladder::new(SHORT, LONG, LONG)).await;
    assert_eq!(stage(&teardown), (Stage::Term, Exit::Code(9)));
    assert!(group_dead(process.id()));
}

#[tokio::test]
async fn a_child_that_ignores_both_is_killed() {
    let mut process = sh("trap '' TERM; echo ready; while :; do sleep 0.01; done").spawn().unwrap();
    let (_, _lines) = first_line(&mut process).await;
    let teardown = process.terminate(Ladder::new(SHORT, SHORT, LONG)).await;
    let (stage, exit) = stage(&teardown);
    assert_eq!((stage, exit.signal_name()), (Stage::Kill, Some("SIGKILL")));
    assert!(group_dead(process.id()));
}

#[tokio::test]
async fn a_stopped_child_hears_term_too() {
    let mut process = sh("trap 'exit 9' TERM; echo ready; kill -STOP $$; sleep 100").spawn().unwrap();
    let (_, _lines) = first_line(&mut process).await;
    crate::support::until("it is stopped", || crate::support::state(process.id()) == Some('T'));
    let teardown = process.terminate(Ladder::new(SHORT, LONG, LONG)).await;
    assert_eq!(stage(&teardown), (Stage::Term, Exit::Code(9)));
}

#[tokio::test]
async fn without_an_open_stdin_the_first_step_is_skipped() {
    let mut process = Command::new("sleep", "/").arg("100").spawn().unwrap();
    let teardown = process.terminate(Ladder::new(LONG * 9, LONG, LONG)).await;
    assert_eq!(stage(&teardown).0, Stage::Term);
}

#[tokio::test]
async fn what_had_ended_is_only_reaped() {
    let mut process = sh("exit 4").spawn().unwrap();
    assert_eq!(process.wait().await, Exit::Code(4));
    assert!(!group_gone(process.id()), "the exited leader must keep its number until the teardown");
    let teardown = process.terminate(Ladder::default()).await;
    assert_eq!(stage(&teardown), (Stage::Exited, Exit::Code(4)));
    assert!(group_gone(process.id()));
    assert_eq!(process.wait().await, Exit::Code(4));
}

#[tokio::test]
async fn a_grandchild_that_is_left_behind_goes_too() {
    // It ignores TERM, and its parent is gone before the teardown begins.
    let mut process =
        sh("sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.01; done' & exit 0").spawn().unwrap();
    let (grandchild, _lines) = first_line(&mut process).await;
    let grandchild = grandchild.parse().unwrap();
    process.wait().await;
    assert!(alive(grandchild));
    let teardown = process.terminate(Ladder::new(LONG, SHORT, LONG)).await;
    assert_eq!(stage(&teardown), (Stage::Kill, Exit::Code(0)));
    assert!(!alive(grandchild));
}

#[tokio::test]
async fn a_child_that_is_full_of_output_can_still_end() {
    let mut process = sh("read x; head -c 1000000 /dev/zero; exit 5").spawn().unwrap();
    let teardown = process.terminate(Ladder::new(LONG, LONG, LONG)).await;
    assert_eq!(stage(&teardown), (Stage::Eof, Exit::Code(5)));
}

#[tokio::test]
async fn a_teardown_that_is_dropped_can_be_taken_up_again() {
    let mut process = sh("trap '' TERM; echo ready; while :; do sleep 0.01; done").spawn().unwrap();
    let (_, _lines) = first_line(&mut process).await;
    let cut = tokio::time::timeout(SHORT, process.terminate(Ladder::new(LONG, LONG, LONG))).await;
    assert!(cut.is_err());
    let teardown = process.terminate(Ladder::new(SHORT, SHORT, LONG)).await;
    assert_eq!(stage(&teardown).0, Stage::Kill);
}

#[tokio::test]
async fn a_teardown_without_time_is_bounded_and_says_what_is_left() {
    let mut process = sh("trap '' TERM; echo ready; while :; do sleep 0.01; done").spawn().unwrap();
    let (_, _lines) = first_line(&mut process).await;
    let begun = Instant::now();
    let teardown = process.terminate(Ladder::within(Duration::ZERO)).await;
    assert!(begun.elapsed() < LONG);
    // The kill may be as fast as the look; when it is not, a second call finds the group gone.
    if let Teardown::Leaked { pid, .. } = teardown {
        assert_eq!(pid, process.id());
        assert!(!process.terminate(Ladder::default()).await.is_leaked());
    }
}

#[tokio::test]
async fn patience_without_end_is_no_fault() {
    let mut process = sh("trap '' TERM; echo ready; read x; exit 3").spawn().unwrap();
    let (_, _lines) = first_line(&mut process).await;
    let ladder = Ladder::new(Duration::MAX, Duration::MAX, Duration::MAX);
    assert_eq!(stage(&process.terminate(ladder).await), (Stage::Eof, Exit::Code(3)));
}
