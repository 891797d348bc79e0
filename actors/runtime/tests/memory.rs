//! What the whole process holds, so in a binary of its own and one test at a time.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::{Mutex, MutexGuard, PoisonError};
use subagents_runtime::{Root, SubagentService};
use subagents_seam::{Capabilities, Diagnostic, Progress, StartRequest, SubagentResult, provider_fn};

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells it");
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn on_a_runtime(test: impl AsyncFnOnce(SubagentService, Root)) {
    let _alone = alone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let echo = provider_fn(Capabilities::NONE, |start, _| async move {
            Ok(SubagentResult::completed(start.prompt().to_text()))
        });
        let flood = provider_fn(Capabilities::NONE, |_, run| async move {
            for _ in 0..20_000_000 {
                run.progress(Progress::Text("0123456789"));
            }
            Ok(SubagentResult::error(Diagnostic::new("model", "it gave up")))
        });
        let service =
            SubagentService::builder().provider("echo", echo).provider("flood", flood).build().unwrap();
        let root = service.root("/").unwrap();
        test(service, root).await;
    });
}

#[test]
fn a_hundred_thousand_runs_leave_memory_flat() {
    on_a_runtime(async |service, root| {
        let mut warm = 0;
        for i in 0..100_000 {
            let request = StartRequest::new(&root, "x").label("a label");
            assert_eq!(service.delegate("echo", request).await.unwrap().text(), "x");
            if i == 10_000 {
                warm = resident();
            }
        }
        let after = resident();
        assert!(warm > 0 && after <= warm + 8 * 1024, "{warm} -> {after} KiB");
        assert_eq!((service.tree().nodes.len(), service.tasks()), (2, 0));
    });
}

#[test]
fn k08_a_flood_of_progress_is_coalesced_counted_and_ends_flagged() {
    on_a_runtime(async |service, root| {
        let before = resident();
        // 200 MB in pieces of ten bytes, and a reader that sleeps.
        let run = service.start("flood", StartRequest::new(&root, "x")).await.unwrap();
        let mut progress = run.progress();
        let result = run.result().await.unwrap();
        let after = resident();
        assert!(after < before + 64 * 1024, "{before} -> {after} KiB");
        let truncated = result.details.truncated.expect("it is flagged");
        assert_eq!(truncated.total_bytes, 200_000_000);
        assert!(truncated.kept_bytes < 1_000_000 && result.text().len() as u64 == truncated.kept_bytes);
        let update = progress.next().await.unwrap();
        assert_eq!(update.lagged_bytes + update.text.len() as u64, 200_000_000);
        assert!(progress.next().await.is_none());
        run.dispose().await.unwrap();
    });
}
