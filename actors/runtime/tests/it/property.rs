//! Any interleaving of start, queue, cancel, settle, panic, kill, dispose, drop, deadline and shutdown: every start is
//! published or rejected once, every published run settles once, and nothing is left.

use crate::{
    support::{Probe, service_with},
    tree::assert_same,
};
use proptest::prelude::*;
use std::{collections::HashMap, sync::Arc, time::Duration};
use subagents_runtime::{SubagentRun, SubagentService};
use subagents_seam::{CancelCause, CancellationToken, Deadlines, Event, Parent, RunId, StartRequest};

const PROMPTS: [&str; 20] = [
    "fine",
    "sleep:2 fine",
    "fail",
    "panic",
    "sleep:1 panic",
    "err",
    "blank",
    "hang",
    "deaf",
    "late:3",
    "stubborn",
    "start-err",
    "start-panic",
    "start-hang",
    "start-deaf",
    "start-slow fine",
    "close-slow fine",
    "close-panic fine",
    "nest:2:sleep:1+fine",
    "say:x tool:y hang",
];

#[derive(Clone, Debug)]
struct Step {
    prompt: usize,
    with_token: bool,
    deadline: Option<u64>,
    fate: u8,
    after: u64,
    again: u8,
}

fn step() -> impl Strategy<Value = Step> {
    (0..PROMPTS.len(), any::<bool>(), prop::option::weighted(0.3, 1_u64..8), 0_u8..10, 0_u64..6, 0_u8..4)
        .prop_map(|(prompt, with_token, deadline, fate, after, again)| Step {
            prompt,
            with_token,
            deadline,
            fate,
            after,
            again,
        })
}

/// Whether the start was published, where its caller could tell.
async fn one(service: SubagentService, parent: Parent, step: Step) -> (RunId, Option<bool>) {
    let token = CancellationToken::new();
    let mut request = StartRequest::new(parent, PROMPTS[step.prompt]).label("l");
    if step.with_token {
        request = request.token(token.clone());
    }
    if let Some(ms) = step.deadline {
        let ms = Duration::from_millis(ms);
        request = request.deadlines(Deadlines::new().total(ms).queue(ms * 3).start(ms * 2));
    }
    let starting = service.start("it", request);
    let id = starting.id();
    if step.fate == 0 {
        tokio::time::sleep(Duration::from_millis(step.after)).await;
        drop(starting);
        return (id, None);
    }
    let run: SubagentRun = if step.fate == 1 {
        match tokio::time::timeout(Duration::from_millis(step.after), starting).await {
            Err(_) => return (id, None),
            Ok(Err(_)) => return (id, Some(false)),
            Ok(Ok(run)) => run,
        }
    } else {
        match starting.await {
            Err(_) => return (id, Some(false)),
            Ok(run) => run,
        }
    };
    assert_eq!(run.id(), id);
    tokio::time::sleep(Duration::from_millis(step.after)).await;
    let watcher = run.watcher();
    let others: Vec<_> = (0..step.again).map(|_| tokio::spawn(run.result())).collect();
    match step.fate {
        2 => run.cancel(CancelCause::REQUESTED),
        3 => token.cancel(),
        4 => watcher.inject_kill(),
        5 => watcher.inject_panic(),
        6 => drop(run.dispose()),
        7 => {
            service.cancel(id, CancelCause::requested("by id"));
        }
        8 => {
            let watcher = watcher.clone();
            tokio::spawn(async move { watcher.dispose().await });
        }
        _ => {}
    }
    if step.fate == 9 {
        drop(run);
    } else if step.fate >= 2 {
        let _ = run.dispose().await;
    }
    watcher.cancel(CancelCause::REQUESTED);
    let first = watcher.result().await;
    let _ = watcher.dispose().await;
    for other in others {
        match (other.await.unwrap(), &first) {
            (Ok(other), Ok(first)) => assert!(Arc::ptr_eq(&other, first), "one result for all"),
            (Err(_), Err(_)) => {}
            (other, first) => panic!("two outcomes: {other:?} and {first:?}"),
        }
    }
    (id, Some(true))
}

async fn whole(steps: Vec<Step>, limit: usize, shutdown_after: Option<u64>, grace: u64, crash: bool) {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| {
        let builder = builder.queue(8).event_capacity(1 << 14);
        let builder = builder.deadlines(
            Deadlines::new().start(Duration::from_millis(300)).cancel_grace(Duration::from_millis(200)),
        );
        if limit > 0 { builder.limit("it", limit) } else { builder }
    });
    let (mut watched, mut events) = service.watch();
    let mut lifecycle = service.events();
    let work: Vec<_> = steps
        .into_iter()
        .map(|step| tokio::spawn(one(service.clone(), root.parent().clone(), step)))
        .collect();
    if let Some(after) = shutdown_after {
        tokio::time::sleep(Duration::from_millis(after)).await;
        if crash {
            service.inject_registry_panic();
        } else {
            let _ = service.shutdown(Duration::from_millis(grace)).await;
        }
    }
    let mut told = Vec::new();
    for task in work {
        let one = tokio::time::timeout(Duration::from_secs(60), task)
            .await
            .expect("nobody hangs")
            .expect("no assertion failed");
        told.push(one);
    }
    let ended = shutdown_after.is_some();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while probe.alive() > 0 || service.tree().nodes.iter().any(|node| node.provider.is_some()) {
        assert!(
            tokio::time::Instant::now() < deadline,
            "something is left: {} {}",
            probe.alive(),
            service.tree()
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while service.tasks() > 0 {
        assert!(tokio::time::Instant::now() < deadline, "{} tasks are left", service.tasks());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut open = HashMap::new();
    while let Some(event) = lifecycle.try_next() {
        match event.expect("nothing was lost") {
            Event::Started(info) => assert!(open.insert(info.run_id, false).is_none(), "started twice"),
            Event::Ended(end) => {
                assert_eq!(open.insert(end.run.run_id, true), Some(false), "ended twice, or before its start")
            }
            _ => {}
        }
    }
    assert!(open.values().all(|ended| *ended), "a published run did not settle");
    for (id, published) in told {
        if let Some(published) = published {
            assert_eq!(
                open.contains_key(&id),
                published,
                "a start is published or rejected, and the caller knows which"
            );
        }
    }
    while let Some(event) = events.try_next() {
        watched.apply(&event.expect("nothing was lost"));
    }
    assert_same(&watched, &service.tree());
    if !ended {
        // Every slot is free again.
        let fill = (0..limit.max(1)).map(|_| service.start("it", StartRequest::new(&root, "fine")));
        for start in fill {
            let run = tokio::time::timeout(Duration::from_secs(1), start)
                .await
                .expect("a slot is free")
                .expect("it starts");
            run.dispose().await.expect("it goes");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_interleaving_settles_once_and_leaves_nothing(
        steps in prop::collection::vec(step(), 1..24),
        limit in 0_usize..4,
        shutdown_after in prop::option::weighted(0.3, 0_u64..10),
        grace in 0_u64..4_000,
        crash in prop::bool::weighted(0.3),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(whole(steps, limit, shutdown_after, grace, crash));
    }
}

/// The same on threads and a real clock, where the scheduler picks the interleavings.
#[test]
fn a_storm_on_threads_settles_once_and_leaves_nothing() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for (round, limit) in [0, 1, 3, 0].into_iter().enumerate() {
        let steps = prop::collection::vec(step(), 300..400).new_tree(&mut runner).unwrap().current();
        let steps =
            steps.into_iter().filter(|step| !matches!(PROMPTS[step.prompt], "start-deaf" | "deaf")).collect();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let shutdown = (round == 3).then_some(20);
        runtime.block_on(whole(steps, limit, shutdown, 500, false));
    }
    for seed in 0..6 {
        let steps = prop::collection::vec(step(), 40..60).new_tree(&mut runner).unwrap().current();
        let steps =
            steps.into_iter().filter(|step| !matches!(PROMPTS[step.prompt], "start-deaf" | "deaf")).collect();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(whole(steps, 0, Some(seed * 2), 500, true));
    }
}
