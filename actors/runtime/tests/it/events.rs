//! The lifecycle on the channel: observed, never able to touch a run.

use crate::support::{Probe, quiet, service, service_with, until};
use std::time::Duration;
use subagents_runtime::{EventStream, Lagged};
use subagents_seam::{Event, StartRequest, StopReason};

fn lifecycle(events: &mut EventStream) -> Vec<Event> {
    let mut seen = Vec::new();
    while let Some(event) = events.try_next() {
        let event = event.expect("nothing was lost");
        if matches!(event, Event::Started(_) | Event::Ended(_)) {
            seen.push(event);
        }
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn spec_2_5_each_published_run_has_one_start_then_one_end() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut events = service.events();
    for (prompt, reason, message) in [
        ("fine", StopReason::Completed, Some("fine")),
        ("fail", StopReason::Error, None),
        ("err", StopReason::Error, None),
        ("say:half panic", StopReason::Error, Some("half")),
    ] {
        let _ = service.delegate("it", StartRequest::new(&root, prompt)).await;
        let seen = lifecycle(&mut events);
        let [Event::Started(started), Event::Ended(ended)] = &seen[..] else { panic!("{prompt}: {seen:?}") };
        assert_eq!(*started, ended.run, "{prompt}");
        assert_eq!(ended.stop_reason, reason, "{prompt}");
        assert_eq!(
            ended.last_assistant_message.as_ref().map(|m| m.to_text()).as_deref(),
            message,
            "{prompt}"
        );
    }
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn spec_1_8_run_ids_are_minted_per_start_and_an_end_names_its_start() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut events = service.events();
    let starting = service.start("it", StartRequest::new(&root, "fine"));
    let id = starting.id();
    let run = starting.await.unwrap();
    assert_eq!(run.id(), id);
    run.result().await.unwrap();
    let other = service.start("it", StartRequest::new(&root, "fine")).await.unwrap();
    assert!(other.id() != id && other.agent_id() != run.agent_id());
    other.dispose().await.unwrap();
    let seen = lifecycle(&mut events);
    let Event::Started(info) = &seen[0] else { panic!("{seen:?}") };
    assert_eq!((info.run_id, info.id, &*info.provider, info.local), (id, run.agent_id(), "it", false));
}

#[tokio::test(start_paused = true)]
async fn spec_2_7_a_parent_sees_its_own_delegations_only_and_no_noise_lags_it() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.event_capacity(64));
    let noisy = service.root("/").unwrap();
    let mut own = service.events().of(root.parent());
    let mut all = service.events();
    let mine = service.start("it", StartRequest::new(&root, "nest:1:x")).await.unwrap();
    for _ in 0..200 {
        service.delegate("it", StartRequest::new(&noisy, "noise")).await.unwrap();
    }
    mine.dispose().await.unwrap();
    let seen = lifecycle(&mut own);
    assert_eq!(seen.len(), 2, "one start and one end, and not the grandchild's: {seen:?}");
    assert!(seen.iter().all(|event| match event {
        Event::Started(run) => run.run_id == mine.id(),
        Event::Ended(end) => end.run.run_id == mine.id(),
        _ => false,
    }));
    assert!(
        matches!(all.next().await, Some(Err(Lagged(lost))) if lost > 0),
        "a slow listener is told what it lost"
    );
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn l06_two_readers_see_the_same_and_do_not_disturb_each_other() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let (mut slow, mut fast, leaving) = (service.events(), service.events(), service.events());
    let run = service
        .start("it", StartRequest::new(&root, "say:one sleep:10 say:two sleep:10 three"))
        .await
        .unwrap();
    let (mut first, mut second) = (run.progress(), run.progress());
    let text = first.next().await.unwrap().text;
    drop(leaving);
    let mut seen_fast = lifecycle(&mut fast);
    assert_eq!(seen_fast.len(), 1);
    run.result().await.unwrap();
    let collect = async |stream: &mut subagents_runtime::ProgressStream| {
        let mut text = String::new();
        while let Some(update) = stream.next().await {
            assert_eq!(update.lagged_bytes, 0);
            text += &update.text;
        }
        text
    };
    assert_eq!(text + &collect(&mut first).await, "onetwo");
    assert_eq!(collect(&mut second).await, "onetwo");
    seen_fast.extend(lifecycle(&mut fast));
    assert_eq!(lifecycle(&mut slow), seen_fast, "the same, in the same order");
    assert_eq!(seen_fast.len(), 2);
    run.dispose().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watcher_is_found_by_id_and_its_progress_can_be_looked_at_without_waiting() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let run = service.start("it", StartRequest::new(&root, "say:one sleep:10 say:two sleep:10 three"));
    let run = run.await.unwrap();
    let mut progress = service.watcher(run.id()).expect("it lives").progress();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(progress.try_next().map(|update| update.text).as_deref(), Some("one"));
    assert!(progress.try_next().is_none(), "nothing new");
    run.result().await.unwrap();
    assert_eq!(progress.try_next().map(|update| update.text).as_deref(), Some("two"));
    let id = run.id();
    run.dispose().await.unwrap();
    assert!(service.watcher(id).is_none(), "it is gone");
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn spec_2_9_every_end_has_its_start_with_the_same_facts_under_a_mixed_load() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.limit("it", 7));
    let mut events = service.events();
    let prompts = ["fine", "fail", "panic", "start-err", "start-panic", "err", "sleep:3 fine", "nest:2:fine"];
    let runs = (0..200).map(|i| service.delegate("it", StartRequest::new(&root, prompts[i % prompts.len()])));
    futures_util::future::join_all(runs).await;
    until("all is told", || service.tree().nodes.len() == 2).await;
    let mut open = std::collections::HashMap::new();
    for event in lifecycle(&mut events) {
        match event {
            Event::Started(info) => assert!(open.insert(info.run_id, info).is_none(), "a run id is unique"),
            Event::Ended(end) => assert_eq!(open.remove(&end.run.run_id).as_ref(), Some(&end.run)),
            _ => {}
        }
    }
    assert!(open.is_empty());
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_is_on_the_channel_before_any_waiter_has_the_result() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.event_capacity(1 << 12));
    let mut events = service.events();
    for _ in 0..5_000 {
        let run = service.start("it", StartRequest::new(&root, "fine")).await.unwrap();
        run.result().await.unwrap();
        let ended = std::iter::from_fn(|| events.try_next())
            .any(|event| matches!(event, Ok(Event::Ended(ended)) if ended.run.run_id == run.id()));
        assert!(ended, "the result came before its `Ended`");
        run.dispose().await.unwrap();
        while events.try_next().is_some() {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_parents_own_stream_ends_with_that_parent() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let (parent, other) = (root.parent().clone(), service.root("/").unwrap());
    let mut before = service.events().of(&parent);
    let _kept = service.events().of(other.parent());
    drop(root);
    let mut after = service.events().of(&parent);
    let both = async {
        while before.next().await.is_some() {}
        while after.next().await.is_some() {}
    };
    tokio::time::timeout(Duration::from_secs(5), both).await.expect("both end");
    let parent = other.parent().clone();
    let mut late = service.events().of(&parent);
    let _ = service.shutdown(Duration::from_secs(1)).await;
    drop(other);
    tokio::time::timeout(Duration::from_secs(5), async { while late.next().await.is_some() {} })
        .await
        .expect("it ends");
    assert!(service.events().of(&parent).next().await.is_none());
}
