//! Pipes: both ways, flooded, cut, closed.

use std::time::Duration;

use subagents_process::{Exit, FrameError, Ladder, StdinError};
use tokio::time::timeout;

use crate::support::{PATIENCE, alone, first_line, read_all, sh};

#[tokio::test]
async fn what_goes_in_comes_out() {
    let mut process = sh("cat").spawn().unwrap();
    let mut stdin = process.take_stdin().unwrap();
    let sent = "漢字🦀\n".repeat(100_000).into_bytes();
    let writing = async {
        stdin.write_all(&sent).await.unwrap();
        drop(stdin);
    };
    let (received, ()) = tokio::join!(read_all(&mut process), writing);
    assert_eq!(received, sent);
    assert_eq!(process.wait().await, Exit::Code(0));
}

#[tokio::test]
async fn a_stderr_flood_does_not_block_the_child() {
    // Nobody looks at stderr, and the current-thread runtime is only driven by the wait.
    let process = sh("head -c 10000000 /dev/zero | tr '\\0' x >&2; printf '\\nlast \\033[31mwords\\n' >&2")
        .spawn()
        .unwrap();
    assert_eq!(timeout(PATIENCE, process.wait()).await.unwrap(), Exit::Code(0));
    let stderr = process.stderr();
    timeout(PATIENCE, stderr.finished()).await.unwrap();
    assert_eq!(stderr.text(), "last words");
    assert!(stderr.total_bytes() > 10_000_000);
}

#[tokio::test]
async fn the_tail_outlives_the_process() {
    let process = sh("echo why >&2").spawn().unwrap();
    let stderr = process.stderr();
    process.wait().await;
    timeout(PATIENCE, stderr.finished()).await.unwrap();
    drop(process);
    timeout(PATIENCE, stderr.finished()).await.unwrap();
    assert_eq!(stderr.text(), "why");
}

#[tokio::test]
async fn a_line_that_is_too_long_is_an_error_and_the_next_one_is_read() {
    let mut process =
        sh("echo one; head -c 3000000 /dev/zero | tr '\\0' x; echo; printf 'é\\r\\n\\377\\nend'")
            .spawn()
            .unwrap();
    let mut lines = process.take_stdout().unwrap().into_lines(100);
    assert_eq!(lines.next().await.unwrap().unwrap(), "one");
    assert!(matches!(lines.next().await, Err(FrameError::TooLarge { limit: 100 })));
    assert_eq!(lines.next().await.unwrap().unwrap(), "é");
    assert!(matches!(lines.next().await, Err(FrameError::NotUtf8)));
    assert_eq!(lines.next().await.unwrap().unwrap(), "end");
    assert!(lines.next().await.unwrap().is_none());
}

#[tokio::test]
async fn writing_to_a_child_that_does_not_read_is_a_typed_error() {
    let mut process = sh("exec <&-; echo closed; sleep 100").spawn().unwrap();
    first_line(&mut process).await;
    let mut stdin = process.take_stdin().unwrap();
    let error = timeout(PATIENCE, stdin.write_all(&vec![0; 1 << 20])).await.unwrap().unwrap_err();
    assert!(matches!(error, StdinError::Closed), "{error:?}");
}

#[tokio::test]
async fn a_teardown_ends_a_write_that_waits() {
    let mut process = sh("trap '' TERM; echo ready; while :; do sleep 1; done").spawn().unwrap();
    first_line(&mut process).await;
    let mut stdin = process.take_stdin().unwrap();
    let writing = async move { stdin.write_all(&vec![0; 1 << 20]).await };
    let ladder = Ladder::new(Duration::from_secs(1), Duration::from_millis(10), PATIENCE);
    let (written, report) =
        timeout(PATIENCE, async { tokio::join!(writing, process.terminate(ladder)) }).await.unwrap();
    assert!(matches!(written, Err(StdinError::Closed)));
    assert!(!report.is_leaked());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d10_a_long_line_is_whole_one_over_the_limit_is_an_error_and_an_endless_one_is_flat() {
    if !alone("output::d10_a_long_line_is_whole_one_over_the_limit_is_an_error_and_an_endless_one_is_flat") {
        return;
    }
    let lines = |script: &str, limit| {
        let mut process = sh(script).spawn().unwrap();
        let lines = process.take_stdout().unwrap().into_lines(limit);
        (process, lines)
    };
    let long = "head -c 5000000 /dev/zero | tr '\\0' x";
    let (_process, mut whole) = lines(&format!("printf '\"'; {long}; printf '\"\\n'"), 8 << 20);
    assert_eq!(timeout(PATIENCE, whole.next()).await.unwrap().unwrap().unwrap().len(), 5_000_002);

    // A message and the start of one that is too long, in one write: the first is there before the failure.
    let (_process, mut mixed) = lines(&format!("printf 'first\\nxxxxxxxxxxxx'; {long}; echo; echo next"), 10);
    assert_eq!(mixed.next().await.unwrap().unwrap(), "first");
    assert!(matches!(mixed.next().await, Err(FrameError::TooLarge { limit: 10 })));
    assert_eq!(timeout(PATIENCE, mixed.next()).await.unwrap().unwrap().unwrap(), "next");

    let (mut process, endless) = lines("tr '\\0' x < /dev/zero", 1 << 20);
    let mut endless = endless.max_total(256 << 20);
    assert!(matches!(endless.next().await, Err(FrameError::TooLarge { .. })));
    let total = timeout(PATIENCE, endless.next()).await.unwrap();
    assert!(matches!(total, Err(FrameError::TotalTooLarge { limit }) if limit == 256 << 20), "{total:?}");
    assert!(endless.next().await.unwrap().is_none(), "the end is told once");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(most < 100 << 10, "{most} kB");
    assert!(!process.terminate(Ladder::default()).await.is_leaked());
}

#[tokio::test]
async fn d13_d17_lines_that_come_byte_by_byte_are_exact_and_the_last_needs_no_end() {
    let bytes = "303 251 012 346 274 242 015 012 360 237 246 200";
    let mut process =
        sh(&format!(r#"for byte in {bytes}; do printf "\\$byte"; sleep 0.01; done"#)).spawn().unwrap();
    let mut lines = process.take_stdout().unwrap().into_lines(100);
    for line in ["é", "漢", "🦀"] {
        assert_eq!(timeout(PATIENCE, lines.next()).await.unwrap().unwrap().unwrap(), line);
    }
    assert!(lines.next().await.unwrap().is_none());
}

#[tokio::test]
async fn an_early_exit_is_seen_at_once_by_every_waiter() {
    let process = sh("read x; exit 3").spawn().unwrap();
    let waiting = futures_util::future::join_all(std::iter::repeat_with(|| process.wait()).take(100));
    let ending = async {
        let id = i32::try_from(process.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        std::time::Instant::now()
    };
    let (exits, killed) = timeout(PATIENCE, async { tokio::join!(waiting, ending) }).await.unwrap();
    assert!(killed.elapsed() < Duration::from_secs(1));
    assert_eq!(exits.len(), 100);
    assert!(exits.iter().all(|exit| exit.signal_name() == Some("SIGKILL")));
}
