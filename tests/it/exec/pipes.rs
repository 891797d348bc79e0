//! Programs that write too much, too little, too late, or hold on to what is not theirs.

use super::support::{Host, PATIENCE, within};
use crate::processes::alone;
use std::time::Duration;
use subagents::{CancelCause, Deadlines, Diagnostic, Exec, StopReason, SubagentResult};
use tokio::time::Instant;

async fn answer(exec: Exec, prompt: &str) -> std::sync::Arc<SubagentResult> {
    let host = Host::with(exec);
    let result = within("an answer", host.service.delegate("sh", host.ask(prompt))).await.expect("a result");
    host.end().await;
    result
}

fn sh(script: &str) -> Exec {
    Exec::new("sh").args(["-c", script])
}

fn diagnostic(result: &SubagentResult) -> (&str, &str) {
    result.diagnostic.as_ref().map_or(("", ""), |diagnostic| (diagnostic.category(), diagnostic.text()))
}

#[tokio::test]
async fn d02_d06_the_exit_and_nothing_else_ends_an_answer() {
    // Its stdout ends long before it does: that alone is no end.
    let result = answer(sh("printf 'one two'; exec >&-; sleep 0.3; exit 5"), "x").await;
    assert_eq!((result.stop_reason.clone(), result.text()), (StopReason::Error, "one two".to_owned()));
    assert!(diagnostic(&result).1.contains("exit code 5"));
    // An exit of 0 with an answer is its success, one without is none.
    assert!(answer(sh("printf 'one two'"), "x").await.stop_reason.is_success());
    let result = answer(sh("exit 0"), "x").await;
    assert_eq!((result.stop_reason.clone(), diagnostic(&result).0), (StopReason::Error, "empty-answer"));
    // The whole prompt is there to be read, and then its end, however late it is read.
    let result = answer(sh("sleep 0.3; cat; echo; cat; echo end"), "the prompt").await;
    assert_eq!(result.text(), "the prompt\nend\n");
}

#[tokio::test]
async fn d04_a_crash_is_told_with_what_came_after_the_last_output() {
    let result =
        answer(sh("echo old warning >&2; sleep 0.6; echo part; echo 'fatal: X' >&2; kill -SEGV $$"), "x")
            .await;
    assert_eq!(result.text(), "part\n");
    assert_eq!(diagnostic(&result), ("signal", "sh ended with signal SIGSEGV; stderr: fatal: X"));
    let result = answer(sh("echo old warning >&2; sleep 0.6; echo part; kill -SEGV $$"), "x").await;
    let text = "sh ended with signal SIGSEGV; no stderr after the last output; before it: old warning";
    assert_eq!(diagnostic(&result), ("signal", text));
    let result = answer(sh(r"printf '\033[31mred\033[0m\a\n' >&2; exit 1"), "x").await;
    assert_eq!(diagnostic(&result).1, "sh ended with exit code 1; stderr: red");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d05_a_program_that_is_gone_before_its_prompt_is_a_value_and_the_next_is_a_fresh_one() {
    let host = Host::of("exec <&-; echo $$; exit 7");
    let prompt = "x".repeat(1 << 20);
    let mut pids = Vec::new();
    for _ in 0..3 {
        let run = within("a start", host.service.start("sh", host.ask(&prompt))).await.unwrap();
        let result = within("a result", run.result()).await.unwrap();
        pids.push(result.text());
        assert_eq!(diagnostic(&result), ("exit-code", "sh ended with exit code 7; no stderr"));
        within("the disposal", run.dispose()).await.unwrap();
    }
    pids.dedup();
    assert_eq!(pids.len(), 3);
    host.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d10_an_output_without_end_is_cut_in_flat_memory_and_its_writer_is_ended() {
    if !alone("exec::pipes::d10_an_output_without_end_is_cut_in_flat_memory_and_its_writer_is_ended") {
        return;
    }
    let before = memory();
    let exec = Exec::new("sh").args(["-c", "head -c 1000000000 /dev/zero | tr '\\0' x; sleep 1000"]);
    let result = answer(exec.max_output(1 << 20).max_total_output(64 << 20), "x").await;
    assert_eq!((result.stop_reason.clone(), diagnostic(&result).0), (StopReason::Error, "output-limit"));
    let truncation = result.details.truncated.as_ref().unwrap();
    assert_eq!(truncation.kept_bytes, 1 << 20);
    assert!(truncation.total_bytes > 64 << 20 && truncation.total_bytes < 65 << 20, "{truncation:?}");
    let grown = memory().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
    // A long answer on one line is none of that.
    let result = answer(sh("head -c 5000000 /dev/zero | tr '\\0' x"), "x").await;
    assert_eq!((result.stop_reason.is_success(), result.text().len()), (true, 5_000_000));
}

/// The most that this process has held at once, in bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the mark");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

#[tokio::test]
async fn d11_a_flood_on_stderr_before_and_amid_the_answer_blocks_nobody() {
    let flood = "head -c 10000000 /dev/zero | tr '\\0' e >&2";
    let result = answer(sh(&format!("{flood}; echo one; {flood}; echo two")), "x").await;
    assert_eq!((result.stop_reason.is_success(), result.text()), (true, "one\ntwo\n".to_owned()));
    let result = answer(sh(&format!("{flood}; exit 3")), "x").await;
    assert!(diagnostic(&result).1.len() <= 4096 && diagnostic(&result).1.ends_with("eee"));
}

#[tokio::test]
async fn d12_a_background_process_that_holds_stdout_delays_nothing_for_long_and_is_ended() {
    for background in ["sleep 1000 &", "setsid sleep 1000 &", "setsid sh -c 'sleep 1000 & sleep 1000' &"] {
        let host = Host::of(&format!("{background} echo done"));
        let begun = Instant::now();
        let result = within("an answer", host.service.delegate("sh", host.ask("x"))).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5), "{background}: {:?}", begun.elapsed());
        assert_eq!((result.stop_reason.is_success(), result.text()), (true, "done\n".to_owned()));
        assert_eq!(host.mark.alive(), [""; 0], "{background}");
        host.end().await;
    }
}

#[tokio::test]
async fn d13_characters_that_come_byte_by_byte_are_exact() {
    let script =
        r#"for byte in 303 251 346 274 242 360 237 246 200 012; do printf "\\$byte"; sleep 0.01; done"#;
    assert_eq!(answer(sh(script), "x").await.text(), "é漢🦀\n");
}

#[tokio::test]
async fn d17_a_last_line_without_an_end_is_part_of_the_answer() {
    let result = answer(sh(r"printf 'one\ntwo'"), "x").await;
    assert_eq!((result.stop_reason.is_success(), result.text()), (true, "one\ntwo".to_owned()));
    // A character that was cut off at the end is shown as cut off.
    assert_eq!(answer(sh(r"printf 'caf\303'"), "x").await.text(), "caf\u{fffd}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d18_a_large_prompt_to_a_program_that_is_slow_to_read_or_never_reads() {
    let prompt = "x".repeat(1 << 20);
    // It writes more than a pipe holds before it reads anything.
    let result = answer(sh("head -c 200000 /dev/zero | tr '\\0' y; wc -c"), &prompt).await;
    assert!(result.stop_reason.is_success());
    assert!(result.text().trim_end().ends_with("1048576"), "{}", &result.text()[200_000..]);

    let host = Host::of("echo up; sleep 1000");
    let idle = Deadlines::new().idle(Duration::from_millis(300));
    let request = host.ask(&prompt).deadlines(idle);
    let result = within("the idle limit", host.service.delegate("sh", request)).await.unwrap();
    assert_eq!(result.stop_reason, StopReason::TimedOut);
    assert_eq!(result.diagnostic.as_ref().map(Diagnostic::category), Some("timed-out"));
    assert_eq!(host.mark.alive(), [""; 0]);

    let run = within("a start", host.service.start("sh", host.ask(&prompt))).await.unwrap();
    super::support::said(&mut run.progress(), "up").await;
    run.cancel(CancelCause::requested("in the middle of the write"));
    assert_eq!(within("the settlement", run.result()).await.unwrap().stop_reason, StopReason::Aborted);
    tokio::time::timeout(PATIENCE, run.dispose()).await.unwrap().unwrap();
    assert_eq!(host.mark.alive(), [""; 0]);
    host.end().await;
}
