//! Faults of the runtime itself, on demand: a killed run actor, a panicking one, a panicking registry.

use crate::support::{Probe, quiet, service, until};
use std::time::Duration;
use subagents_runtime::{ServiceEnd, SubagentService};
use subagents_seam::{CancelCause, Capabilities, Diagnostic, Event, StartRequest, StopReason, provider_fn};

#[tokio::test(start_paused = true)]
async fn m05_a_lost_run_actor_is_a_value_and_takes_nobody_along() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let neighbour = service.start("it", StartRequest::new(&root, "sleep:500 fine")).await.unwrap();
    let mut events = service.events();
    for kill in [true, false] {
        let run = service.start("it", StartRequest::new(&root, "say:half hang")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        if kill {
            run.watcher().inject_kill();
        } else {
            run.watcher().inject_panic();
        }
        let result = run.result().await.unwrap();
        assert_eq!(result.stop_reason, StopReason::Error);
        assert_eq!(result.diagnostic.as_ref().map(Diagnostic::category), Some("owner-lost"));
        assert_eq!(result.text(), "half");
        let cut = run.dispose().await.unwrap_err();
        assert!(cut.to_string().contains("cut short"), "it is gone, and nobody saw its teardown: {cut}");
        let mut ended = 0;
        while let Some(Ok(event)) = events.try_next() {
            ended += usize::from(matches!(event, Event::Ended(_)));
        }
        assert_eq!(ended, 1);
    }
    let starting = service.start("it", StartRequest::new(&root, "hang"));
    let queued = starting.await.unwrap();
    queued.dispose().await.unwrap();
    assert_eq!(neighbour.result().await.unwrap().text(), "fine");
    neighbour.dispose().await.unwrap();
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn m05_a_failed_registry_ends_every_run_and_says_so() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut events = service.events();
    let mut runs = Vec::new();
    for prompt in ["hang", "deaf", "nest:2:hang", "close-hang hang"] {
        runs.push(service.start("it", StartRequest::new(&root, prompt)).await.unwrap());
    }
    let starting = service.start("it", StartRequest::new(&root, "start-hang"));
    until("all run", || probe.runs() == 6 && probe.starts() == 7).await;
    service.inject_registry_panic();
    assert_eq!(
        tokio::time::timeout(Duration::from_secs(5), service.closed()).await.expect("it is told"),
        ServiceEnd::Failed
    );
    for run in &runs {
        let result =
            tokio::time::timeout(Duration::from_secs(5), run.result()).await.expect("nobody hangs").unwrap();
        assert_eq!(result.stop_reason, StopReason::Error);
        let disposed =
            tokio::time::timeout(Duration::from_secs(20), run.dispose()).await.expect("a disposal ends");
        assert!(disposed.is_ok() || disposed.unwrap_err().to_string().contains("cut short"));
    }
    assert_eq!(starting.await.unwrap_err().code(), "SERVICE_FAILED");
    assert_eq!(
        service.start("it", StartRequest::new(&root, "x")).await.unwrap_err().code(),
        "SERVICE_FAILED"
    );
    until("no child is left", || probe.alive() == 0 && service.tasks() == 0).await;
    let (mut started, mut ended) = (0, 0);
    while let Some(Ok(event)) = events.next().await {
        started += usize::from(matches!(event, Event::Started(_)));
        ended += usize::from(matches!(event, Event::Ended(_)));
    }
    assert_eq!((started, ended), (6, 6));
    let report = service.shutdown(Duration::from_secs(1)).await;
    assert!(report.leaked.is_empty(), "{report:?}");
}

#[test]
fn a_failed_registry_on_threads_ends_nested_and_pending_ones_as_errors() {
    for round in 0..40 {
        let probe = Probe::default();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let (service, root) = service(&probe);
            let mut runs = Vec::new();
            for _ in 0..4 {
                runs.push(service.start("it", StartRequest::new(&root, "nest:2:hang")).await.unwrap());
            }
            let pending = service.start("it", StartRequest::new(&root, "start-deaf"));
            until("all run", || probe.runs() == 12 && probe.starts() == 13).await;
            let mut events = service.events();
            service.inject_registry_panic();
            for run in &runs {
                assert_eq!(run.result().await.unwrap().stop_reason, StopReason::Error, "round {round}");
                let _ = run.dispose().await;
            }
            assert_eq!(pending.await.unwrap_err().code(), "SERVICE_FAILED", "round {round}");
            while let Some(Ok(event)) = events.next().await {
                if let Event::Ended(ended) = event {
                    assert_eq!(ended.stop_reason, StopReason::Error, "round {round}: nested ones as well");
                }
            }
            assert_eq!(service.root("/").unwrap_err().code(), "SERVICE_FAILED");
            let report = service.shutdown(Duration::from_secs(10)).await;
            assert!(report.leaked.is_empty(), "{report:?}");
            until("nothing is left", || probe.alive() == 0 && service.tasks() == 0).await;
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_run_actor_is_gone_after_the_runs_below_it() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let run = service.start("it", StartRequest::new(&root, "nest:2:close-slow+hang")).await.unwrap();
    until("all run", || probe.runs() == 3).await;
    run.watcher().inject_kill();
    let _ = run.dispose().await;
    assert_eq!(probe.alive(), 0, "a disposal returns when those below are gone, too");
    quiet(&service, &probe).await;
}

/// A child and its future that both panic when they are dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a destructor panics");
    }
}

struct BombChild(#[allow(dead_code, reason = "it goes off when it is dropped")] Bomb);

impl subagents_seam::SubagentProvider for Bomb {
    type Child = BombChild;
    async fn start(&self, _: subagents_seam::StartContext) -> Result<BombChild, subagents_seam::StartError> {
        Ok(BombChild(Bomb))
    }
}

impl subagents_seam::Child for BombChild {
    async fn run(
        &mut self,
        _: subagents_seam::RunContext,
    ) -> Result<subagents_seam::SubagentResult, subagents_seam::ResultError> {
        let _bomb = Bomb;
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn destructors_that_panic_together_end_their_run_and_nothing_else() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let registration = service.register("bomb", Bomb).unwrap();
    for kill in [true, false] {
        let run = service.start("bomb", StartRequest::new(&root, "x")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        if kill {
            run.watcher().inject_kill();
        }
        let _ = run.dispose().await;
        assert!(!run.result().await.unwrap().stop_reason.is_success());
    }
    assert_eq!(service.delegate("it", StartRequest::new(&root, "fine")).await.unwrap().text(), "fine");
    // The provider is one as well.
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(registration)));
    assert!(dropped.is_err(), "the panic of a provider's own drop is its owner's");
}

/// A payload that panics when it is dropped.
struct Loaded;

impl Drop for Loaded {
    fn drop(&mut self) {
        std::panic::panic_any(Loaded2);
    }
}

struct Loaded2;

impl Drop for Loaded2 {
    fn drop(&mut self) {
        panic!("also the payload's payload");
    }
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_panics_is_a_panic_like_any_other() {
    struct Child;
    impl Drop for Child {
        fn drop(&mut self) {
            std::panic::panic_any(Loaded);
        }
    }
    let service = SubagentService::builder()
        .provider(
            "early",
            provider_fn(Capabilities::NONE, |_start, _run| {
                let child = Child;
                async move {
                    let _child = child;
                    std::future::pending().await
                }
            }),
        )
        .provider(
            "run",
            provider_fn(Capabilities::NONE, |_start, _run| async {
                std::panic::panic_any(Loaded);
            }),
        )
        .build()
        .unwrap();
    let root = service.root("/").unwrap();
    let run = service.start("run", StartRequest::new(&root, "x")).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!(result.stop_reason, StopReason::Error);
    let diagnostic = result.diagnostic.as_ref().unwrap();
    assert!(diagnostic.text().contains("no text"), "{diagnostic:?}");
    run.dispose().await.unwrap();
    // Its future is dropped at the end of the grace.
    let run = service.start("early", StartRequest::new(&root, "x")).await.unwrap();
    run.cancel(CancelCause::REQUESTED);
    assert_eq!(run.result().await.unwrap().stop_reason, StopReason::Aborted);
    let _ = run.dispose().await;
    root.idle().await;
}

#[tokio::test]
async fn a_start_that_nobody_awaits_holds_no_place_below_a_failed_registry() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    service.inject_registry_panic();
    let unpolled = service.start("it", StartRequest::new(&root, "x"));
    tokio::time::timeout(Duration::from_secs(5), root.idle()).await.unwrap();
    assert_eq!(unpolled.await.unwrap_err().code(), "SERVICE_FAILED");
}
