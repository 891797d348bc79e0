//! The runtime itself is lost, one way or another: no child outlives it.

use super::support::{Host, PATIENCE, STUBBORN, lifecycle, until, within};
use crate::processes::is_our_zombie;
use std::time::{Duration, Instant};
use subagents::{Diagnostic, ServiceEnd, StopReason};
use tokio::runtime;

#[test]
fn m08_a_runtime_that_is_dropped_first_takes_three_stubborn_children_with_it() {
    for workers in [0, 2] {
        let runtime = if workers == 0 {
            runtime::Builder::new_current_thread().enable_all().build().unwrap()
        } else {
            runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap()
        };
        let host = runtime.block_on(async { Host::of(STUBBORN) });
        let runs: Vec<_> =
            runtime.block_on(async { vec![host.up().await, host.up().await, host.up().await] });
        assert!(host.mark.alive().len() >= 3);
        let begun = Instant::now();
        runtime.shutdown_timeout(Duration::from_millis(100));
        assert!(begun.elapsed() < PATIENCE);
        // The kill was sent by the drop; what is left is the kernel's to do.
        runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            until("nothing is alive", || host.mark.alive().is_empty()).await;
            for run in &runs {
                let ended = within("the result", run.result()).await;
                assert!(!ended.is_ok_and(|result| result.stop_reason.is_success()), "nobody hangs");
            }
        });
        drop((runs, host));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m05_a_failed_registry_kills_and_reaps_real_processes_and_is_told() {
    let host = Host::of(STUBBORN);
    let mut events = host.service.events();
    let runs = [host.up().await, host.up().await, host.up().await];
    let processes = host.processes();
    assert_eq!(processes.len(), 3);
    host.service.inject_registry_panic();
    assert_eq!(within("the end", host.service.closed()).await, ServiceEnd::Failed);
    for run in &runs {
        let result = within("the result", run.result()).await.unwrap();
        assert_eq!(result.stop_reason, StopReason::Error);
        assert_eq!(result.diagnostic.as_ref().map(Diagnostic::category), Some("owner-lost"));
        let error = within("the disposal", run.dispose()).await.unwrap_err();
        assert_eq!(error.code(), "LEAKED", "nobody saw its teardown end");
    }
    until("nothing is alive", || host.mark.alive().is_empty()).await;
    until("all are reaped", || !processes.iter().any(|id| is_our_zombie(*id))).await;
    assert_eq!(lifecycle(&mut events), (3, 3));
    let refused = within("the refusal", host.service.start("sh", host.ask("x"))).await.unwrap_err();
    assert_eq!(refused.code(), "SERVICE_FAILED");
}
