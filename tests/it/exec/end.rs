//! How programs end, and that their groups end with them.

use super::support::{Host, within};
use crate::processes::is_our_zombie;
use std::time::Duration;
use subagents::{CancelCause, Deadlines, Diagnostic, Exec, StopReason};

#[tokio::test]
async fn code_and_signal_are_in_the_diagnostic_with_the_last_words() {
    for (script, category, text) in [
        ("echo part; echo why >&2; exit 41", "exit-code", "sh ended with exit code 41; stderr: why"),
        ("echo part; echo why >&2; kill -SEGV $$", "signal", "sh ended with signal SIGSEGV; stderr: why"),
        ("echo part; exit 1", "exit-code", "sh ended with exit code 1; no stderr"),
    ] {
        let host = Host::of(script);
        let result = within("an answer", host.service.delegate("sh", host.ask("x"))).await.unwrap();
        assert_eq!((result.stop_reason.clone(), result.text()), (StopReason::Error, "part\n".to_owned()));
        let diagnostic = result.diagnostic.as_ref().expect("a failure has one");
        assert_eq!((diagnostic.category(), diagnostic.text()), (category, text));
        host.end().await;
    }
}

#[tokio::test]
async fn a_cancel_in_mid_run_ends_the_whole_group() {
    // The grandchild hears TERM and ignores it, and its parent ends before it.
    let grandchild = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    let host = Host::of(&format!("sh -c \"{grandchild}\" & trap 'exit 0' TERM; wait; sleep 1000"));
    let run = host.up().await;
    assert!(host.mark.alive().len() >= 2, "{:?}", host.mark.alive());
    run.cancel(CancelCause::requested("enough"));
    let result = within("the settlement", run.result()).await.unwrap();
    assert_eq!((result.stop_reason.clone(), result.text()), (StopReason::Aborted, "up\n".to_owned()));
    assert!(result.diagnostic.as_ref().is_some_and(|diagnostic| diagnostic.text().contains("enough")));
    within("the disposal", run.dispose()).await.unwrap();
    assert_eq!(host.mark.alive(), [""; 0], "disposed means gone");
    host.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c27_a_storm_of_children_leaves_no_zombie() {
    const CHILDREN: usize = 200;
    // Each says its id; one in five is killed, one in ten hangs until its deadline, the rest exits with a code.
    let script = r#"echo $$; case $1 in *[05]) kill -KILL $$;; *9) exec sleep 1000;; *) exit "$1";; esac"#;
    let host = Host::with(Exec::new("sh").args(["-c", script, "sh", "{}"]));
    let deadlines = Deadlines::new().total(Duration::from_secs(4));
    let prompts = (0..CHILDREN).map(|i| i.to_string());
    let batch = host.service.batch(&host.root, "sh").limit(32).deadlines(deadlines);
    let (mut batch, mut ids, mut ends) = (batch.requests(prompts), Vec::new(), [0; 4]);
    while let Some(item) = within("an item", batch.next()).await {
        let result = item.outcome.unwrap();
        let wanted = match item.index % 10 {
            0 | 5 => 2,
            9 => 3,
            _ => 1,
        };
        let got = match (&result.stop_reason, result.diagnostic.as_ref().map(Diagnostic::category)) {
            (StopReason::Completed, None) => 0,
            (StopReason::Error, Some("exit-code")) => 1,
            (StopReason::Error, Some("signal")) => 2,
            (StopReason::TimedOut, Some("timed-out")) => 3,
            other => panic!("prompt {}: {other:?}", item.index),
        };
        assert_eq!(got, wanted, "prompt {}", item.index);
        ends[got] += 1;
        let id = result.text().trim().parse().expect("its id");
        // Each item is disposed, so now: not at some later time.
        assert!(!is_our_zombie(id), "prompt {} is a zombie", item.index);
        ids.push(id);
    }
    assert_eq!((ids.len(), ends), (CHILDREN, [0, 140, 40, 20]));
    assert!(!ids.into_iter().any(is_our_zombie));
    host.end().await;
}
