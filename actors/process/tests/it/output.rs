//! Pipes: both ways, flooded, cut, closed.

use std::time::Duration;

use subagents_process::{Exit, FrameError, Ladder, StdinError};
use tokio::time::timeout;

use crate::support::{PATIENCE, first_line, read_all, sh};

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
