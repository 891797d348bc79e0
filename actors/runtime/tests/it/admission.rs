//! Limits, the visible queue, borrowed slots, the total of starts.

use crate::support::{Obedient, Probe, quiet, service, service_with, until};
use std::{path::Path, time::Duration};
use subagents_seam::{
    AgentId, CancelCause, CancellationToken, Deadlines, LocalAgent, Phase, StartRequest, StopReason, Wait,
};

#[tokio::test(start_paused = true)]
async fn the_surplus_waits_visibly_and_in_order() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.limit("it", 1).queue(2));
    let first = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
    let second = service.start("it", StartRequest::new(&root, "second"));
    let third = service.start("it", StartRequest::new(&root, "third"));
    let (second_id, third_id) = (second.id(), third.id());
    until("both wait", || {
        service.tree().nodes.iter().filter(|node| node.phase == Phase::Queued).count() == 2
    })
    .await;
    let tree = service.tree();
    let place = |id| tree.node(id).and_then(|node| node.place);
    assert_eq!((place(second_id), place(third_id)), (Some(1), Some(2)));
    assert!(matches!(tree.node(second_id).unwrap().wait, Some(Wait::Slot(_))));
    let refused = service.start("it", StartRequest::new(&root, "fourth")).await.unwrap_err();
    assert_eq!(refused.code(), "QUEUE_FULL");
    assert!(
        refused.to_string().contains("2 starts wait already") && refused.to_string().contains("1 active"),
        "{refused}"
    );
    first.dispose().await.unwrap();
    let (second, third) = tokio::join!(second, third);
    for run in [second.unwrap(), third.unwrap()] {
        run.dispose().await.unwrap();
    }
    assert_eq!(probe.prompts(), ["hang", "second", "third"]);
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_has_a_deadline() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.limit("it", 1));
    let first = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
    let patience = Deadlines::new().queue(Duration::from_millis(250));
    let error = service.start("it", StartRequest::new(&root, "x").deadlines(patience)).await.unwrap_err();
    assert_eq!(error.code(), "QUEUE_TIMEOUT");
    first.dispose().await.unwrap();
    assert_eq!(probe.starts(), 1);
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn k05_a_settled_run_holds_no_slot_whoever_reads_its_result() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.limit("it", 2));
    let mut unread = Vec::new();
    for _wave in 0..10 {
        for _ in 0..2 {
            let start = service.start("it", StartRequest::new(&root, "sleep:1 brief"));
            unread
                .push(tokio::time::timeout(Duration::from_secs(5), start).await.expect("it starts").unwrap());
        }
    }
    for run in &unread {
        assert_eq!(run.result().await.unwrap().text(), "brief");
    }
}

#[tokio::test(start_paused = true)]
async fn k07_queued_starts_end_with_their_parent_and_reach_no_provider() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.limit("it", 1));
    let first = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
    let queued: Vec<_> = (0..4).map(|_| service.start("it", StartRequest::new(&root, "never"))).collect();
    until("four wait", || {
        service.tree().nodes.iter().filter(|node| node.phase == Phase::Queued).count() == 4
    })
    .await;
    root.cancel(CancelCause::REQUESTED);
    assert_eq!(first.result().await.unwrap().stop_reason, StopReason::Aborted);
    for starting in queued {
        assert_eq!(starting.await.unwrap_err().code(), "CANCELLED");
    }
    assert_eq!(probe.starts(), 1);
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn nested_limits_finish_with_one_slot_three_levels_and_four_children() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.limit("it", 1));
    let leaf = "nest:4:sleep%5+leaf";
    let prompt = leaf.replace('+', "/").replace('%', ":");
    let middle = format!("nest:4:{prompt}");
    // Two levels of four below one, and the top itself: 1 + 4 + 16.
    let all = service.delegate("it", StartRequest::new(&root, &*middle));
    let result = tokio::time::timeout(Duration::from_secs(60), all).await.expect("it finishes").unwrap();
    assert_eq!(result.text().matches("[").count(), 4 + 16, "{}", result.text());
    assert_eq!(probe.starts(), 21);
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn a_borrowed_slot_is_told_and_given_back() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.limit("it", 1));
    let run = service.start("it", StartRequest::new(&root, "nest:1:sleep:50+inner")).await.unwrap();
    until("the inner one runs", || probe.runs() == 2).await;
    let tree = service.tree();
    let inner = tree.nodes.iter().find(|node| node.parent == Some(run.id().into())).expect("it is below");
    assert!(inner.borrowed);
    assert!(!tree.node(run.id()).unwrap().borrowed);
    assert!(tree.to_string().contains("borrowed slot"), "{tree}");
    assert_eq!(run.result().await.unwrap().text(), "[inner]");
    run.dispose().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn e02_k_the_total_of_starts_below_one_root_is_capped() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.max_starts(10));
    for _ in 0..10 {
        service.delegate("it", StartRequest::new(&root, "one")).await.unwrap();
    }
    let error = service.delegate("it", StartRequest::new(&root, "one more")).await.unwrap_err();
    assert_eq!(error.code(), "START_LIMIT_EXCEEDED");
    assert!(error.to_string().contains("10"), "it names the cap: {error}");
    // It is one root's own: another has its own total, and the parent goes on.
    let other = service.root("/").unwrap();
    service.delegate("it", StartRequest::new(&other, "fine")).await.unwrap();
    // Nested starts count below the same root.
    let third = service.root("/").unwrap();
    let result = service.delegate("it", StartRequest::new(&third, "nest:12:x")).await.unwrap();
    assert_eq!(result.text().matches("[START_LIMIT_EXCEEDED]").count(), 3, "{}", result.text());
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn e01_n05_a_tree_that_would_grow_for_ever_stops_at_its_depth() {
    for (max, starts) in [(0, 0), (1, 1), (2, 1 + 5), (3, 1 + 5 + 25)] {
        let probe = Probe::default();
        let (service, root) = service_with(&probe, |builder| builder.max_depth(max));
        let outcome = service.delegate("it", StartRequest::new(&root, "fan:5")).await;
        assert_eq!(probe.starts(), starts, "depth {max}");
        match outcome {
            Ok(result) => {
                assert!(max == 1 && result.text().contains("DEPTH_EXCEEDED") || max > 1, "{}", result.text())
            }
            Err(error) => {
                assert_eq!(error.code(), "DEPTH_EXCEEDED");
                assert!(
                    error.to_string().contains("depth 1") && error.to_string().contains("limit of 0"),
                    "{error}"
                );
            }
        }
        quiet(&service, &probe).await;
    }
}

/// A host's own agent.
struct Agent {
    id: AgentId,
    depth: u32,
    max_depth: Option<u32>,
    token: CancellationToken,
}

impl LocalAgent for Agent {
    fn id(&self) -> AgentId {
        self.id
    }
    fn depth(&self) -> u32 {
        self.depth
    }
    fn max_depth(&self) -> Option<u32> {
        self.max_depth
    }
    fn cwd(&self) -> &Path {
        Path::new("/")
    }
    fn token(&self) -> CancellationToken {
        self.token.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn spec_5_6_a_cap_ends_with_its_run_and_the_depth_of_the_header_is_the_floor() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let able = Obedient {
        capabilities: subagents_seam::Capabilities::NONE.with_depth_limit(),
        ..Obedient::new(&probe)
    };
    let _registered = service.register("able", able).unwrap();
    let capped = service.start("able", StartRequest::new(&root, "nest:1:x").max_depth(1)).await.unwrap();
    assert_eq!(capped.result().await.unwrap().text(), "[DEPTH_EXCEEDED]");
    // The same agent, resumed by its host: its depth is known, the cap of its earlier run is not.
    let agent = Agent {
        id: capped.agent_id(),
        depth: capped.node().depth,
        max_depth: None,
        token: CancellationToken::new(),
    };
    capped.dispose().await.unwrap();
    let resumed = service.adopt(&agent).unwrap();
    let below = service.start("it", StartRequest::new(&resumed, "fine")).await.unwrap();
    assert_eq!((resumed.parent().depth(), below.node().depth), (1, 2));
    assert_eq!(below.result().await.unwrap().text(), "fine");
    below.dispose().await.unwrap();
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn spec_5_1_depth_is_counted_by_the_registry_from_the_adopted_depth() {
    let probe = Probe::default();
    let (service, _root) = service_with(&probe, |builder| builder.max_depth(7));
    let token = CancellationToken::new();
    let adopted = service
        .adopt(&Agent { id: AgentId::new(), depth: 6, max_depth: None, token: token.clone() })
        .unwrap();
    assert_eq!(adopted.parent().depth(), 6);
    let result = service.delegate("it", StartRequest::new(&adopted, "nest:1:x")).await.unwrap();
    assert_eq!(result.text(), "[DEPTH_EXCEEDED]");
    // The agent's end is the end of what is below it.
    let run = service.start("it", StartRequest::new(&adopted, "hang")).await.unwrap();
    token.cancel();
    assert_eq!(run.result().await.unwrap().stop_reason, StopReason::Aborted);
    assert_eq!(
        service.start("it", StartRequest::new(&adopted, "x")).await.unwrap_err().code(),
        "PARENT_GONE"
    );
}

#[tokio::test(start_paused = true)]
async fn spec_5_1_of_the_caps_of_a_service_and_of_an_adopted_agent_the_smaller_holds() {
    for (ours, theirs, allowed) in
        [(Some(7), Some(3), false), (Some(3), Some(7), false), (None, Some(3), false), (Some(9), None, true)]
    {
        let probe = Probe::default();
        let (service, _root) = service_with(&probe, |builder| match ours {
            Some(cap) => builder.max_depth(cap),
            None => builder,
        });
        let agent =
            Agent { id: AgentId::new(), depth: 3, max_depth: theirs, token: CancellationToken::new() };
        let adopted = service.adopt(&agent).unwrap();
        let started = service.start("it", StartRequest::new(&adopted, "fine")).await;
        match started {
            Ok(run) => {
                assert!(allowed, "{ours:?} {theirs:?}");
                run.dispose().await.unwrap();
            }
            Err(error) => {
                assert_eq!((error.code(), allowed), ("DEPTH_EXCEEDED", false), "{ours:?} {theirs:?}")
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn spec_5_1_a_child_that_comes_from_outside_is_found_by_its_process() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let run = service.start("it", StartRequest::new(&root, "process:child hang")).await.unwrap();
    until("the process is told", || service.parent_of_process(4242, "/").unwrap().is_some()).await;
    let parent = service.parent_of_process(4242, "/").unwrap().unwrap();
    assert_eq!((parent.depth(), parent.run_id()), (1, Some(run.id())));
    assert!(service.parent_of_process(4243, "/").unwrap().is_none());
    assert!(service.parent_of_process(4242, "nowhere").is_err());
    let below = service.start("it", StartRequest::new(parent, "fine")).await.unwrap();
    assert_eq!(below.node().depth, 2);
    below.dispose().await.unwrap();
    run.cancel(CancelCause::REQUESTED);
    run.result().await.unwrap();
    assert!(service.parent_of_process(4242, "/").unwrap().is_none(), "it is over");
    run.dispose().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cap_of_a_request_holds_for_what_is_below_it() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let provider = Obedient {
        capabilities: subagents_seam::Capabilities::NONE.with_depth_limit(),
        ..Obedient::new(&probe)
    };
    let _registration = service.register("able", provider).unwrap();
    let request = StartRequest::new(&root, "nest:1:nest:1:x").max_depth(2);
    assert_eq!(service.delegate("able", request).await.unwrap().text(), "[[DEPTH_EXCEEDED]]");
}

#[tokio::test(start_paused = true)]
async fn a_chain_through_an_unlimited_provider_lends_on() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.limit("it", 1));
    // `nest` delegates to `it`; between the two stands a provider without a limit.
    let weak = service.downgrade();
    let middle = subagents_seam::provider_fn(subagents_seam::Capabilities::NONE, move |start, _| {
        let service = weak.upgrade().unwrap();
        async move {
            let below = StartRequest::new(start.as_parent(), "leaf");
            Ok(subagents_seam::SubagentResult::completed(service.delegate("it", below).await.unwrap().text()))
        }
    });
    let _middle = service.register("middle", middle).unwrap();
    // it (the one slot) → middle → it: the slot of the first is lent past the middle.
    let holder = service.start("it", StartRequest::new(&root, "via:middle")).await.unwrap();
    let result =
        tokio::time::timeout(Duration::from_secs(30), holder.result()).await.expect("no deadlock").unwrap();
    assert_eq!(result.text(), "leaf");
    holder.dispose().await.unwrap();
    quiet(&service, &probe).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slot_is_free_when_a_disposal_returns() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.limit("it", 1).queue(0));
    for i in 0..5_000 {
        let run = service.start("it", StartRequest::new(&root, "fine")).await;
        let run = run.unwrap_or_else(|error| panic!("start {i}: {error}"));
        run.dispose().await.unwrap();
    }
}
