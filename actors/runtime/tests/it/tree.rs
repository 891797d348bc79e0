//! The live tree: what it says, what it remembers, and that looking changes nothing.

use crate::support::{Obedient, Probe, quiet, service, service_with, until};
use std::time::Duration;
use subagents_seam::{Node, NodeKind, Phase, StartRequest, StopReason, Timestamp, Tree, Wait};

#[tokio::test(start_paused = true)]
async fn l01_every_node_says_what_it_waits_for_and_since_when() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.limit("it", 4));
    let runs = [
        service.start("it", StartRequest::new(&root, "ask:perm-7 hang")).await.unwrap(),
        service.start("it", StartRequest::new(&root, "tool:grep hang")).await.unwrap(),
        service.start("it", StartRequest::new(&root, "say:streaming hang").label("talks")).await.unwrap(),
    ];
    let starting = service.start("it", StartRequest::new(&root, "start-hang"));
    let queued = service.start("it", StartRequest::new(&root, "x"));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let tree = service.tree();
    let wait = |id: subagents_seam::RunId| tree.node(id).unwrap().wait.clone().unwrap();
    assert_eq!(wait(runs[0].id()), Wait::Permission("perm-7".into()));
    assert_eq!(wait(runs[1].id()), Wait::Tool("grep".into()));
    assert_eq!(wait(runs[2].id()), Wait::Child);
    assert_eq!(wait(starting.id()), Wait::Start);
    assert!(matches!(wait(queued.id()), Wait::Slot(_)));
    for node in tree.nodes.iter().filter(|node| node.kind == NodeKind::Run) {
        let since = node.wait_since.unwrap().until(tree.taken_at).as_millis();
        assert!((1_490..=1_500).contains(&since), "{since} {node:?}");
    }
    let streaming = tree.node(runs[2].id()).unwrap();
    assert!(streaming.last_progress.unwrap().until(tree.taken_at) >= Duration::from_millis(1_490));
    let drawn = tree.to_string();
    for words in ["permission perm-7", "in tool grep for 1.5s", "it talks", "place 1", "last sign 1.5s ago"] {
        assert!(drawn.contains(words), "{words} is not in\n{drawn}");
    }
    assert_eq!(tree.older_than(Duration::from_secs(1)).filter(|node| node.kind == NodeKind::Run).count(), 5);
    assert_eq!(tree.older_than(Duration::from_secs(2)).count(), 0);
    let json = serde_json::to_value(&tree).unwrap();
    assert!(json["nodes"].as_array().unwrap().iter().any(|node| node["wait"]["what"] == "grep"), "{json}");
    drop((starting, queued));
    for run in runs {
        run.dispose().await.unwrap();
    }
    quiet(&service, &probe).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l10_a_child_that_blocks_its_thread_is_seen_from_another() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let run = service.start("it", StartRequest::new(&root, "tool:crunch block:1500 fine")).await.unwrap();
    let (service2, id) = (service.clone(), run.id());
    let seen = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        let begun = std::time::Instant::now();
        let tree = service2.tree();
        (begun.elapsed(), tree.node(id).cloned(), tree)
    })
    .join()
    .unwrap();
    assert!(seen.0 < Duration::from_millis(100), "looking waits for nobody: {:?}", seen.0);
    let node = seen.1.unwrap();
    assert_eq!(node.wait, Some(Wait::Tool("crunch".into())));
    assert!(node.wait_since.unwrap().until(seen.2.taken_at) >= Duration::from_millis(200));
    let other = tokio::time::timeout(
        Duration::from_secs(1),
        service.delegate("it", StartRequest::new(&root, "quick")),
    );
    assert_eq!(other.await.expect("others go on").unwrap().text(), "quick");
    assert_eq!(run.result().await.unwrap().text(), "fine");
    run.dispose().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn l08_gone_nodes_are_kept_up_to_a_count_and_an_age() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.keep_gone(16, Duration::from_secs(60)));
    for _ in 0..10_000 {
        service.delegate("it", StartRequest::new(&root, "x")).await.unwrap();
    }
    service.delegate("it", StartRequest::new(&root, "fail").label("the one to look at")).await.unwrap();
    let tree = service.tree();
    assert_eq!((tree.nodes.len(), tree.gone.len(), tree.forgotten), (2, 16, 10_001 - 16));
    let last = tree.gone.last().unwrap();
    assert_eq!(
        (last.phase, last.stop_reason().cloned(), last.label.as_deref()),
        (Phase::Gone, Some(StopReason::Error), Some("the one to look at"))
    );
    tokio::time::sleep(Duration::from_secs(61)).await;
    let tree = service.tree();
    assert_eq!((tree.gone.len(), tree.forgotten), (0, 10_001));
}

#[tokio::test(start_paused = true)]
async fn a_process_is_a_node_below_its_run() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let (mut watched, mut events) = service.watch();
    let run = service.start("it", StartRequest::new(&root, "process:claude hang")).await.unwrap();
    until("it is told", || service.tree().nodes.iter().any(|node| node.kind == NodeKind::Process)).await;
    let tree = service.tree();
    let process = tree.nodes.iter().find(|node| node.kind == NodeKind::Process).unwrap();
    assert_eq!(
        (process.parent, process.pid, process.label.as_deref()),
        (Some(run.id().into()), Some(4242), Some("claude"))
    );
    run.dispose().await.unwrap();
    while let Some(event) = events.try_next() {
        watched.apply(&event.unwrap());
    }
    assert_same(&watched, &service.tree());
}

/// Copy plus changes equals any later copy, but for what is as of the moment of looking.
pub(crate) fn assert_same(applied: &Tree, copied: &Tree) {
    let normal = |tree: &Tree| {
        let mut nodes = tree.nodes.clone();
        for node in &mut nodes {
            node.last_progress = None;
            node.usage = None;
            node.place = None;
            if node.phase == Phase::Running {
                (node.wait, node.wait_since) = (None, None);
            }
            if node.kind == NodeKind::Service {
                (node.phase, node.since) = (Phase::Running, Timestamp::from_millis(0));
            }
        }
        nodes.sort_by_key(|node: &Node| node.id);
        nodes
    };
    pretty(&normal(applied), &normal(copied));
}

fn pretty(a: &[Node], b: &[Node]) {
    assert_eq!(a.len(), b.len(), "{a:#?}\n{b:#?}");
    for (a, b) in a.iter().zip(b) {
        assert_eq!(a, b);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_and_its_changes_equal_a_later_copy_while_everything_moves() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.limit("it", 8).event_capacity(1 << 17));
    let (parent, busy) = (root.parent().clone(), service.clone());
    let load = tokio::spawn(async move {
        let prompts =
            ["fine", "sleep:1 fine", "panic", "start-err", "fail", "nest:2:fine", "process:p sleep:1 x"];
        let runs =
            (0..600).map(|i| busy.delegate("it", StartRequest::new(&parent, prompts[i % prompts.len()])));
        futures_util::StreamExt::count(futures_util::StreamExt::buffer_unordered(
            futures_util::stream::iter(runs),
            40,
        ))
        .await
    });
    let mut copies = Vec::new();
    while !load.is_finished() {
        copies.push(service.watch());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    load.await.unwrap();
    quiet(&service, &probe).await;
    let last = service.tree();
    assert!(copies.len() > 3);
    for (mut tree, mut events) in copies {
        while let Some(event) = events.try_next() {
            tree.apply(&event.expect("nothing was lost"));
        }
        assert_same(&tree, &last);
    }
    let _ = Obedient::new(&probe);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_goes_is_in_exactly_one_part_of_every_copy() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let (looker, stop) = (service.clone(), std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let stopped = stop.clone();
    let looking = std::thread::spawn(move || {
        let mut both = 0;
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            let tree = looker.tree();
            both += tree.gone.iter().filter(|gone| tree.nodes.iter().any(|node| node.id == gone.id)).count();
        }
        both
    });
    let mut neither = 0;
    for _ in 0..3_000 {
        let run = service.start("it", StartRequest::new(&root, "x")).await.unwrap();
        run.result().await.unwrap();
        neither += usize::from(service.tree().node(run.id()).is_none());
        run.dispose().await.unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!((looking.join().unwrap(), neither), (0, 0), "in both, in neither");
    quiet(&service, &probe).await;
}
