//! The end of a service.

use crate::support::{Probe, service, service_with, until};
use std::time::Duration;
use subagents_runtime::ServiceEnd;
use subagents_seam::{Instant, StartRequest, StopReason};

#[tokio::test(start_paused = true)]
async fn a_shutdown_cancels_waits_kills_and_tells() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut runs = Vec::new();
    for prompt in ["hang", "hang", "nest:2:hang", "deaf", "late:100", "close-leak hang"] {
        runs.push(service.start("it", StartRequest::new(&root, prompt)).await.unwrap());
    }
    until("all run", || probe.runs() == 8).await;
    let begun = Instant::now();
    let report = service.shutdown(Duration::from_secs(10)).await;
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "the grace of a cancel is enough: {:?}",
        begun.elapsed()
    );
    assert_eq!((report.settled, report.killed), (8, 0), "{report:?}");
    assert_eq!(
        report.leaked.iter().map(|(id, what)| (*id, &**what)).collect::<Vec<_>>(),
        [(runs[5].id(), "a socket")]
    );
    for run in &runs {
        assert_eq!(run.result().await.unwrap().stop_reason, StopReason::Aborted);
        assert!(run.result().await.unwrap().diagnostic.as_ref().unwrap().text().contains("shuts down"));
    }
    assert_eq!((probe.alive(), service.tasks()), (0, 0));
    assert_eq!(service.closed().await, ServiceEnd::ShutDown);
    let again = service.shutdown(Duration::from_secs(1)).await;
    assert!(again.is_clean() && again.settled == 0);
    assert_eq!(service.tree().gone.len(), 8, "what was kept is still there to look at");
}

#[tokio::test(start_paused = true)]
async fn what_outlives_the_grace_is_killed() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let stubborn = service.start("it", StartRequest::new(&root, "say:half close-hang deaf")).await.unwrap();
    let begun = Instant::now();
    let report = service.shutdown(Duration::from_millis(500)).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!((report.settled, report.killed), (0, 1), "{report:?}");
    assert_eq!(probe.alive(), 0);
    assert!(!stubborn.result().await.unwrap().stop_reason.is_success());
    assert_eq!(stubborn.result().await.unwrap().text(), "half");
    assert_eq!(service.closed().await, ServiceEnd::ShutDown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_with_a_thousand_live_runs_keeps_its_deadline_and_its_report_is_right() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.event_capacity(100_000));
    let mut runs = Vec::new();
    for i in 0..1_000 {
        let prompt = if i % 10 == 0 { "close-hang deaf" } else { "hang" };
        runs.push(service.start("it", StartRequest::new(&root, prompt)).await.unwrap());
    }
    let begun = std::time::Instant::now();
    let report = service.shutdown(Duration::from_secs(1)).await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!((report.settled, report.killed, report.leaked.len()), (900, 100, 0), "{report:?}");
    for run in &runs {
        assert!(!run.result().await.unwrap().stop_reason.is_success());
        if let Err(error) = run.dispose().await {
            assert!(
                error.to_string().contains("cut short"),
                "nobody saw the end of a killed teardown: {error}"
            );
        }
    }
    assert_eq!(probe.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_shutdown_future_goes_on() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let run = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
    assert!(tokio::time::timeout(Duration::ZERO, service.shutdown(Duration::from_secs(5))).await.is_err());
    assert_eq!(service.closed().await, ServiceEnd::ShutDown);
    assert_eq!(run.result().await.unwrap().stop_reason, StopReason::Aborted);
}

#[tokio::test(start_paused = true)]
async fn an_event_stream_ends_with_the_service() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut events = service.events();
    let mut own = service.events().of(root.parent());
    let _run = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
    let _ = service.shutdown(Duration::from_secs(1)).await;
    let all = async {
        while events.next().await.is_some() {}
        while own.next().await.is_some() {}
    };
    tokio::time::timeout(Duration::from_secs(1), all).await.expect("both end");
    assert!(service.events().next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn two_shutdowns_at_once_tell_the_same() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let _run = service.start("it", StartRequest::new(&root, "close-hang deaf")).await.unwrap();
    let _other = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
    let grace = Duration::from_millis(300);
    let (one, two) = tokio::join!(service.shutdown(grace), service.shutdown(grace));
    assert_eq!((one.settled, one.killed, &one.leaked), (1, 1, &two.leaked));
    assert_eq!((two.settled, two.killed), (1, 1));
}

#[test]
fn an_agent_may_be_adopted_twice_and_outside_a_runtime() {
    struct Agent(subagents_seam::AgentId, subagents_seam::CancellationToken);
    impl subagents_seam::LocalAgent for Agent {
        fn id(&self) -> subagents_seam::AgentId {
            self.0
        }
        fn cwd(&self) -> &std::path::Path {
            std::path::Path::new("/")
        }
        fn token(&self) -> subagents_seam::CancellationToken {
            self.1.clone()
        }
    }
    let probe = Probe::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (service, _root) = runtime.block_on(async { service(&probe) });
    let agent = Agent(subagents_seam::AgentId::new(), subagents_seam::CancellationToken::new());
    let (first, second) = (service.adopt(&agent).unwrap(), service.adopt(&agent).unwrap());
    let parents = |service: &subagents_runtime::SubagentService| {
        service.tree().nodes.iter().filter(|node| node.kind == subagents_seam::NodeKind::Parent).count()
    };
    assert_eq!(parents(&service), 3);
    drop(first);
    assert_eq!(parents(&service), 2, "the other keeps its node");
    drop(second);
}
