//! What a drop means, inside and outside a runtime.

use crate::support::{Probe, quiet, service, until};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use subagents_runtime::SubagentService;
use subagents_seam::{Event, Phase, StartRequest, StopReason};

#[tokio::test(start_paused = true)]
async fn dropping_a_start_rolls_it_back() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    drop(service.start("it", StartRequest::new(&root, "hang")));
    quiet(&service, &probe).await;
    let starting = service.start("it", StartRequest::new(&root, "start-deaf"));
    until("it starts", || probe.alive() == 1).await;
    drop(starting);
    quiet(&service, &probe).await;
    let starting = service.start("it", StartRequest::new(&root, "start-hang"));
    let awaited = tokio::time::timeout(Duration::from_millis(10), starting).await;
    assert!(awaited.is_err(), "the future was dropped by the timeout");
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_dropped_with_its_answer_unread_cancels_the_run() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut events = service.events();
    let starting = service.start("it", StartRequest::new(&root, "hang"));
    let id = starting.id();
    until("it is published", || service.tree().node(id).is_some_and(|node| node.phase == Phase::Running))
        .await;
    drop(starting);
    quiet(&service, &probe).await;
    let ended = loop {
        if let Event::Ended(ended) = events.next().await.unwrap().unwrap() {
            break ended;
        }
    };
    assert_eq!((ended.run.run_id, ended.stop_reason), (id, StopReason::Aborted));
}

#[tokio::test(start_paused = true)]
async fn c15_dropping_a_run_cancels_it_and_a_watcher_or_a_stream_does_not() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let run = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
    let watcher = run.watcher();
    let mut events = service.events();
    drop((run.watcher(), run.result(), service.events(), run.progress()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(watcher.phase(), Phase::Running, "none of these touches the run");
    drop(run);
    let result = watcher.result().await.unwrap();
    assert_eq!(result.stop_reason, StopReason::Aborted);
    assert!(result.diagnostic.as_ref().unwrap().text().contains("handle was dropped"));
    quiet(&service, &probe).await;
    assert!(events.next().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_detached_run_goes_on_and_its_result_is_kept() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut events = service.events();
    let id = service.start("it", StartRequest::new(&root, "sleep:100 later")).await.unwrap().detach().id();
    let ended = loop {
        if let Event::Ended(ended) = events.next().await.unwrap().unwrap() {
            break ended;
        }
    };
    assert_eq!((ended.run.run_id, ended.last_assistant_message.unwrap().to_text().as_str()), (id, "later"));
    quiet(&service, &probe).await;
    assert_eq!(service.outcome(id).unwrap().unwrap().text(), "later");
}

#[tokio::test(start_paused = true)]
async fn dropping_a_dispose_or_a_result_future_changes_nothing() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let run = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
    drop(run.result());
    assert_eq!(run.watcher().phase(), Phase::Running);
    drop(run.dispose());
    until("the disposal goes on", || run.watcher().phase() == Phase::Gone).await;
    assert_eq!(probe.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_root_cancels_what_is_below_and_keeps_others() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let other = service.root("/").unwrap();
    let mine = service.start("it", StartRequest::new(&root, "nest:2:hang")).await.unwrap();
    let theirs = service.start("it", StartRequest::new(&other, "hang")).await.unwrap();
    until("all run", || probe.runs() == 4).await;
    let parent = root.parent().clone();
    drop(root);
    let result = mine.result().await.unwrap();
    assert!(result.diagnostic.as_ref().unwrap().text().contains("root"), "{result:?}");
    assert_eq!(theirs.watcher().phase(), Phase::Running);
    assert_eq!(service.start("it", StartRequest::new(&parent, "x")).await.unwrap_err().code(), "PARENT_GONE");
    theirs.dispose().await.unwrap();
    quiet(&service, &probe).await;
}

#[tokio::test]
async fn m03_when_all_handles_are_dropped_nothing_is_left() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let probe = Probe::default();
    let dropped = Arc::new(AtomicBool::new(false));
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    {
        let flag = Dropped(dropped.clone());
        let canary = subagents_seam::provider_fn(subagents_seam::Capabilities::NONE, move |_, _| {
            let _held = &flag;
            async { Ok(subagents_seam::SubagentResult::completed("x")) }
        });
        let service = SubagentService::builder()
            .provider("it", crate::support::Obedient::new(&probe))
            .provider("canary", canary)
            .build()
            .unwrap();
        let root = service.root("/").unwrap();
        for _ in 0..3 {
            service.delegate("it", StartRequest::new(&root, "fine")).await.unwrap();
        }
        let _running = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
        let _starting = service.start("it", StartRequest::new(&root, "start-hang"));
        let _stream = service.events();
    }
    until("the provider is dropped", || dropped.load(SeqCst) && probe.alive() == 0).await;
    until("no task is left", || tokio::runtime::Handle::current().metrics().num_alive_tasks() <= before)
        .await;
}

#[test]
fn every_handle_may_be_dropped_outside_a_runtime() {
    let probe = Probe::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (service, root, run, starting, stream, watcher, registration, batch, result, dispose) = runtime
        .block_on(async {
            let (service, root) = crate::support::service(&probe);
            let run = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
            let starting = service.start("it", StartRequest::new(&root, "start-hang"));
            let registration = service.register("other", crate::support::Obedient::new(&probe)).unwrap();
            let batch = service.batch(&root, "it").requests(["x"]);
            let (watcher, result, dispose) = (run.watcher(), run.result(), run.dispose());
            (
                service.clone(),
                root,
                run,
                starting,
                service.events(),
                watcher,
                registration,
                batch,
                result,
                dispose,
            )
        });
    drop((stream, starting, batch, registration, watcher, result, dispose, run, root, service));
    runtime.block_on(until("all of it is gone", || probe.alive() == 0));
    // And the same when the runtime is gone first.
    let (service, root) = runtime.block_on(async { crate::support::service(&probe) });
    let run =
        runtime.block_on(async { service.start("it", StartRequest::new(&root, "hang")).await.unwrap() });
    let starting = service.start("it", StartRequest::new(&root, "start-hang"));
    let waiting = run.result();
    drop(runtime);
    assert_eq!(probe.alive(), 0, "the runtime took the children with it");
    let late = futures_util::FutureExt::now_or_never(waiting).expect("nobody waits for ever");
    assert!(late.is_err() || !late.unwrap().stop_reason.is_success());
    assert!(service.tree().nodes.len() <= 4);
    drop((starting, run, root, service));
}

#[test]
fn m07_m08_services_come_and_go_with_every_kind_of_runtime() {
    let probe = Probe::default();
    for workers in [0, 1, 2] {
        let runtime = if workers == 0 {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
        } else {
            tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap()
        };
        let kept = runtime.block_on(async {
            let (one, root_one) = service(&probe);
            let (two, root_two) = service(&probe);
            let (a, b) = tokio::join!(
                one.delegate("it", StartRequest::new(&root_one, "one")),
                two.delegate("it", StartRequest::new(&root_two, "two")),
            );
            assert_eq!((a.unwrap().text(), b.unwrap().text()), ("one".into(), "two".into()));
            let blocking = one.clone();
            tokio::task::spawn_blocking(move || drop(blocking)).await.unwrap();
            drop(one);
            let run = two.start("it", StartRequest::new(&root_two, "deaf")).await.unwrap();
            (two, root_two, run)
        });
        // The host's runtime ends first, with a live child.
        runtime.shutdown_timeout(Duration::from_millis(100));
        assert_eq!(probe.alive(), 0);
        drop(kept);
    }
}

#[test]
fn a_caller_outside_of_tokio_may_wait_for_everything() {
    use futures_util::task::{ArcWake, waker};
    struct Unpark(std::thread::Thread);
    impl ArcWake for Unpark {
        fn wake_by_ref(this: &std::sync::Arc<Self>) {
            this.0.unpark();
        }
    }
    fn block_on<F: IntoFuture>(work: F) -> F::Output {
        let mut work = std::pin::pin!(work.into_future());
        let waker = waker(std::sync::Arc::new(Unpark(std::thread::current())));
        loop {
            if let std::task::Poll::Ready(done) =
                work.as_mut().poll(&mut std::task::Context::from_waker(&waker))
            {
                return done;
            }
            std::thread::park_timeout(Duration::from_secs(10));
        }
    }
    let probe = Probe::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (service, root) = runtime.block_on(async { crate::support::service(&probe) });
    let run = block_on(service.start("it", StartRequest::new(&root, "hang"))).unwrap();
    block_on(run.dispose()).unwrap();
    assert_eq!(
        block_on(service.delegate("it", StartRequest::new(&root, "sleep:20 x"))).unwrap().stop_reason,
        StopReason::Completed
    );
    let mut batch = service.batch(&root, "it").deadline(Duration::from_millis(50)).requests(["hang"]);
    let item = block_on(batch.next()).unwrap();
    assert_eq!(item.outcome.unwrap().stop_reason, StopReason::TimedOut);
    let left = service.start("it", StartRequest::new(&root, "deaf"));
    let left = block_on(left).unwrap();
    let report = block_on(service.shutdown(Duration::from_millis(50)));
    assert_eq!(report.killed, 1, "{report:?}");
    drop(left);
}
