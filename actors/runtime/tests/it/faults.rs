//! Faults of the runtime itself, on demand: a killed run actor, a panicking one, a panicking registry.

use crate::support::{Probe, quiet, service, until};
use std::time::Duration;
use subagents_runtime::ServiceEnd;
use subagents_seam::{Diagnostic, Event, StartRequest, StopReason};

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
        run.dispose().await.unwrap();
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
        tokio::time::timeout(Duration::from_secs(5), run.dispose()).await.expect("a disposal ends").unwrap();
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
