//! Trees of delegations.

use crate::support::{Probe, quiet, service, until};
use std::{collections::HashMap, time::Duration};
use subagents_runtime::SubagentService;
use subagents_seam::{
    CancelCause, Capabilities, Deadlines, Event, Instant, NodeId, Phase, StartRequest, StopReason,
    SubagentResult, provider_fn,
};

#[tokio::test(start_paused = true)]
async fn c24_a_cancelled_tree_settles_within_the_grace_and_is_gone_child_first() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut events = service.events();
    let top = service.start("it", StartRequest::new(&root, "nest:2:nest:2:deaf")).await.unwrap();
    until("all run", || probe.runs() == 7).await;
    let begun = Instant::now();
    top.cancel(CancelCause::REQUESTED);
    assert_eq!(top.result().await.unwrap().stop_reason, StopReason::Aborted);
    top.dispose().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(probe.alive(), 0);
    let (mut parents, mut gone, mut ended) = (HashMap::new(), Vec::new(), 0);
    while let Some(Ok(event)) = events.try_next() {
        match event {
            Event::NodeChanged(change) => drop(parents.insert(change.id(), change.node().parent)),
            Event::NodeGone { id, .. } => gone.push(id),
            Event::Ended(end) => {
                ended += 1;
                assert_eq!(end.stop_reason, StopReason::Aborted);
            }
            _ => {}
        }
    }
    assert_eq!((gone.len(), ended), (7, 7));
    let place = |id: &NodeId| gone.iter().position(|gone| gone == id);
    for (child, parent) in &parents {
        if let Some(parent) = parent.as_ref().and_then(place) {
            assert!(place(child).unwrap() < parent, "a child is gone before its parent");
        }
    }
    assert_eq!(events.try_next(), None, "nothing moves after the end of the top");
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_cancels_what_it_left_running() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let weak = service.downgrade();
    let careless = provider_fn(Capabilities::NONE, move |start, _| {
        let service = weak.upgrade().unwrap();
        async move {
            let run = service.start("it", StartRequest::new(start.as_parent(), "hang")).await.unwrap();
            drop(run.detach());
            Ok(SubagentResult::completed("bye"))
        }
    });
    let _registration = service.register("careless", careless).unwrap();
    let run = service.start("careless", StartRequest::new(&root, "x")).await.unwrap();
    assert_eq!(run.result().await.unwrap().text(), "bye");
    run.dispose().await.unwrap();
    assert_eq!(probe.alive(), 0, "the parent is gone after its child");
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn m10_a_child_may_look_at_delegate_from_and_even_dispose_its_own_run() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let weak = service.downgrade();
    let (own, handle) = tokio::sync::watch::channel(None::<subagents_runtime::RunWatcher>);
    let curious = provider_fn(Capabilities::NONE, move |start, _| {
        let (service, mut handle) = (weak.upgrade().unwrap(), handle.clone());
        async move {
            let seen = service.tree().node(start.run_id()).is_some();
            let answer =
                service.delegate("it", StartRequest::new(start.as_parent(), "inner")).await.unwrap().text();
            if start.prompt().to_text() == "look" {
                return Ok(SubagentResult::completed(format!("{seen} {answer}")));
            }
            let own = handle.wait_for(Option::is_some).await.unwrap().clone().unwrap();
            // It cannot end before this returns, and this cannot return before it ends: the grace cuts it.
            own.dispose().await.unwrap();
            unreachable!("the run is cut before its own disposal returns")
        }
    });
    let _registration = service.register("curious", curious).unwrap();
    let result = service.delegate("curious", StartRequest::new(&root, "look")).await.unwrap();
    assert_eq!(result.text(), "true inner");
    let run = service.start("curious", StartRequest::new(&root, "dispose")).await.unwrap();
    own.send(Some(run.watcher())).unwrap();
    let result =
        tokio::time::timeout(Duration::from_secs(5), run.result()).await.expect("no deadlock").unwrap();
    assert_eq!(result.stop_reason, StopReason::Aborted);
    run.dispose().await.unwrap();
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn a_chain_a_thousand_deep_ends() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut runs = Vec::new();
    let mut parent = root.parent().clone();
    let (give, mut take) = tokio::sync::mpsc::channel(1);
    let link = provider_fn(Capabilities::NONE, move |start, run| {
        let give = give.clone();
        async move {
            give.send(start.as_parent()).await.unwrap();
            run.cancelled().await;
            Ok(SubagentResult::aborted(""))
        }
    });
    let _registration = service.register("link", link).unwrap();
    for _ in 0..1_000 {
        runs.push(service.start("link", StartRequest::new(&parent, "x")).await.unwrap());
        parent = take.recv().await.unwrap();
    }
    assert_eq!(parent.depth(), 1_000);
    assert!(service.tree().to_string().lines().count() >= 1_001);
    runs[0].dispose().await.unwrap();
    for run in &runs {
        assert_eq!(run.result().await.unwrap().stop_reason, StopReason::Aborted);
    }
    quiet(&service, &probe).await;
    // The last holds of a chain let it go in a loop, whatever stack they stand on.
    let rest = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || drop((runs, parent))).unwrap();
    rest.join().unwrap();
}

#[test]
fn a_chain_that_waits_only_for_its_end_ends_in_a_loop() {
    const DEEP: usize = 1_500;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(512 * 1024)
        .enable_all()
        .build()
        .unwrap();
    let (give, mut take) = tokio::sync::mpsc::channel(1);
    let deaf = provider_fn(Capabilities::NONE, move |start, _run| {
        let give = give.clone();
        async move {
            give.send(start.as_parent()).await.unwrap();
            std::future::pending().await
        }
    });
    let chain = async move {
        let patient = Duration::from_secs(600);
        let deadlines = Deadlines::new().cancel_grace(patient).dispose(patient);
        let service = SubagentService::builder().provider("deaf", deaf).deadlines(deadlines).build().unwrap();
        let root = service.root("/").unwrap();
        let (mut runs, mut parent) = (Vec::new(), root.parent().clone());
        for _ in 0..DEEP {
            runs.push(service.start("deaf", StartRequest::new(&parent, "x")).await.unwrap());
            parent = take.recv().await.unwrap();
        }
        // From the top: by the time that the lowest goes, all those above wait for nothing else.
        for run in &runs {
            run.watcher().inject_kill();
        }
        root.idle().await;
        assert!(runs.iter().all(|run| run.watcher().phase() == Phase::Gone));
    };
    runtime
        .block_on(async { tokio::spawn(tokio::time::timeout(Duration::from_secs(60), chain)).await })
        .unwrap()
        .unwrap();
}
