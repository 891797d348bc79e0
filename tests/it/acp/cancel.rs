//! Cancels: the protocol's own first, and an end in any case.

use super::{
    Script,
    support::{Host, within},
};
use serde_json::json;
use std::{fs, time::Duration};
use subagents::{CancelCause, Deadlines, Event, StopReason, SubagentRun};
use tokio::time::Instant;

/// A run that has shown `up`.
async fn up(host: &Host, deadlines: Deadlines) -> SubagentRun {
    let run = within("a start", host.service.start("agent", host.ask("x").deadlines(deadlines)))
        .await
        .expect("it starts");
    let mut progress = run.progress();
    let mut all = String::new();
    while !all.contains("up") {
        all += &within("its words", progress.next()).await.expect("it ended").text;
    }
    run
}

async fn cancelled(
    host: &Host,
    deadlines: Deadlines,
) -> (Duration, std::sync::Arc<subagents::SubagentResult>) {
    let run = up(host, deadlines).await;
    let begun = Instant::now();
    run.cancel(CancelCause::REQUESTED);
    let result = within("a result", run.result()).await.expect("a value");
    let settled = begun.elapsed();
    run.dispose().await.expect("nothing is left");
    assert_eq!(host.mark.alive(), [""; 0]);
    (settled, result)
}

#[tokio::test]
async fn c11_a_cancel_is_the_protocols_own_first_and_takes_what_is_said_then() {
    let host = Host::of(
        &Script::prompted()
            .chunk("up, ")
            .expect("session/cancel")
            .sleep(Duration::from_millis(50))
            .chunk("and down")
            .step(
                // The answer to the prompt, whose id is 3; a cancel has none.
                json!({"say": {"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "cancelled"}}}),
            ),
    );
    let (settled, result) = cancelled(&host, Deadlines::new()).await;
    assert_eq!((&result.stop_reason, result.text()), (&StopReason::Aborted, "up, and down".to_owned()));
    assert!(settled < Duration::from_secs(1), "{settled:?}");
    host.end().await;
}

#[tokio::test]
async fn c11_c22_a_cancel_that_is_ignored_settles_after_the_grace_and_is_no_fault() {
    let host = Host::of(
        &Script::prompted().chunk("up").become_shell("trap '' TERM INT; while :; do sleep 0.05; done"),
    );
    let (settled, result) = cancelled(&host, Deadlines::new().cancel_grace(Duration::from_millis(300))).await;
    assert_eq!((&result.stop_reason, result.text()), (&StopReason::Aborted, "up".to_owned()));
    assert_eq!(result.diagnostic.as_ref().map(subagents::Diagnostic::category), Some("cancelled"));
    assert!(settled >= Duration::from_millis(300) && settled < Duration::from_secs(2), "{settled:?}");
    host.end().await;
}

#[tokio::test]
async fn c22_a_second_cancel_changes_nothing_and_the_first_cause_stays() {
    let temp = tempfile::tempdir().expect("a folder");
    let log = temp.path().join("log");
    // It tells each line that it gets after the prompt.
    let host =
        Host::of(&Script::prompted().chunk("up").become_shell(&format!("exec cat > {}", log.display())));
    let run = up(&host, Deadlines::new().cancel_grace(Duration::from_millis(300))).await;
    run.cancel(CancelCause::Requested(Some("first".into())));
    run.cancel(CancelCause::Requested(Some("second".into())));
    let result = within("a result", run.result()).await.expect("a value");
    assert!(result.diagnostic.as_ref().expect("why").text().contains("first"), "{result:?}");
    run.dispose().await.expect("nothing is left");
    let told = fs::read_to_string(&log).expect("a log");
    assert_eq!(told.matches("session/cancel").count(), 1, "{told}");
    host.end().await;
}

#[tokio::test]
async fn c08_whatever_an_agent_answers_after_a_cancel_it_is_cancelled() {
    let usage = json!({"inputTokens": 0, "outputTokens": 0, "totalTokens": 0});
    for answer in [
        json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn", "usage": usage}}),
        json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "cancelled"}}),
        json!({"jsonrpc": "2.0", "id": 3, "error": {"code": -32800, "message": "cancelled"}}),
        json!({"jsonrpc": "2.0", "id": 3, "error": {"code": -32603, "message": "boom"}}),
    ] {
        let script = Script::prompted()
            .chunk("up")
            .expect("session/cancel")
            .say(json!({"jsonrpc": "2.0", "id": 77, "result": {"stopReason": "end_turn"}}))
            .say(answer.clone())
            .say(answer.clone());
        let host = Host::of(&script);
        let mut events = host.service.events();
        let (_, result) = cancelled(&host, Deadlines::new()).await;
        assert_eq!((&result.stop_reason, &result.usage), (&StopReason::Aborted, &None), "{answer}");
        let mut ended = 0;
        while let Some(event) = events.try_next() {
            ended += usize::from(matches!(event.expect("nothing is lost"), Event::Ended(_)));
        }
        assert_eq!(ended, 1);
        host.end().await;
    }
}

#[tokio::test]
async fn c08_a_stray_answer_never_settles_a_prompt() {
    let stop = |id: u64| json!({"jsonrpc": "2.0", "id": id, "result": {"stopReason": "refusal"}});
    // To the handshake's requests, which are answered, and to one that never was.
    let script = Script::prompted().say(stop(1)).say(stop(2)).say(stop(4)).chunk("mine").stop("end_turn");
    let host = Host::of(&script);
    let result = host.delegate("x").await;
    assert_eq!((&result.stop_reason, result.text()), (&StopReason::Completed, "mine".to_owned()));
    host.end().await;
}

#[tokio::test]
async fn c09_a_turn_that_has_ended_is_completed_although_it_is_disposed_at_once() {
    let host = Host::of(&Script::prompted().chunk("all of it").stop("end_turn"));
    for _ in 0..20 {
        let run = host.start().await;
        let result = within("a result", run.result()).await.expect("a value");
        run.cancel(CancelCause::REQUESTED);
        run.dispose().await.expect("nothing is left");
        let again = run.result().await.expect("a value");
        assert_eq!((&again.stop_reason, again.text()), (&StopReason::Completed, "all of it".to_owned()));
        assert!(std::sync::Arc::ptr_eq(&result, &again));
    }
    host.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c09_a_cancel_that_races_the_end_settles_once() {
    const RUNS: u32 = 1000;
    let host = Host::of(&Script::prompted().chunk("up").stop("end_turn"));
    let mut events = host.service.events();
    let (mut completed, mut aborted) = (0, 0);
    for round in 0..RUNS {
        let run = host.start().await;
        tokio::time::sleep(Duration::from_micros(u64::from(round * 7 % 2000))).await;
        run.cancel(CancelCause::REQUESTED);
        let result = within("a result", run.result()).await.expect("a value");
        match result.stop_reason {
            StopReason::Completed => {
                assert_eq!(result.text(), "up");
                completed += 1;
            }
            StopReason::Aborted => aborted += 1,
            StopReason::Error | _ => unreachable!("neither the one nor the other: {result:?}"),
        }
        run.dispose().await.expect("nothing is left");
        let mut ended = 0;
        while let Some(event) = events.try_next() {
            ended += usize::from(matches!(event.expect("nothing is lost"), Event::Ended(_)));
        }
        assert_eq!(ended, 1);
    }
    // It is a race, and each has won it.
    assert!(completed > 0 && aborted > 0, "{completed} completed, {aborted} were cancelled");
    host.end().await;
}

#[tokio::test]
async fn spec_18_5_a_deadline_cancels_by_the_protocol_too() {
    let temp = tempfile::tempdir().expect("a folder");
    let log = temp.path().join("log");
    let host =
        Host::of(&Script::prompted().chunk("up").become_shell(&format!("exec cat > {}", log.display())));
    let result =
        host.delegated(host.ask("x").deadlines(Deadlines::new().total(Duration::from_millis(300)))).await;
    assert_eq!(result.stop_reason, StopReason::TimedOut);
    assert!(fs::read_to_string(&log).expect("a log").contains("session/cancel"));
    host.end().await;
}
