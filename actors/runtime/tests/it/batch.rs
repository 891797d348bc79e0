//! Many delegations at once: every item has exactly one outcome, whatever stops the batch.

use crate::support::{Obedient, Probe, quiet, service, service_with, until};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use subagents_runtime::{Batch, StopOn};
use subagents_seam::{Capabilities, DelegateError, StopReason};

async fn all(mut batch: Batch) -> BTreeMap<usize, String> {
    let mut outcomes = BTreeMap::new();
    while let Some(item) = batch.next().await {
        let word = match item.outcome {
            Ok(result) => result.stop_reason.to_string(),
            Err(DelegateError::Start(error)) => error.code().to_owned(),
            Err(error) => error.code().to_owned(),
        };
        assert!(outcomes.insert(item.index, word).is_none(), "an outcome twice: {}", item.index);
    }
    outcomes
}

#[tokio::test(start_paused = true)]
async fn c14_wait_all_gives_every_outcome_once_and_disposed() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let prompts = ["a", "fail", "panic", "start-err", "sleep:50 b", "err", "c"];
    let batch = service.batch(&root, "it").limit(2).label("item").requests(prompts);
    let outcomes = all(batch).await;
    let words: Vec<_> = outcomes.values().map(String::as_str).collect();
    assert_eq!(
        words,
        ["completed", "error", "error", "PROVIDER_FAILED", "completed", "WAIT_FAILED", "completed"]
    );
    assert_eq!(probe.alive(), 0);
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_of_each_item_is_asked_of_each() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let able = Obedient { capabilities: Capabilities::NONE.with_output_schema(), ..Obedient::new(&probe) };
    let _registration = service.register("able", able).unwrap();
    let schema = Arc::new(serde_json::json!({"type": "object"}));
    for (provider, words) in [
        ("able", ["completed", "error", "completed"]),
        ("it", ["UNSUPPORTED_CAPABILITY", "UNSUPPORTED_CAPABILITY", "UNSUPPORTED_CAPABILITY"]),
    ] {
        let schema = schema.clone();
        let batch = service.batch(&root, provider).each(move |request| request.output_schema(schema.clone()));
        let outcomes = all(batch.requests(["value", "words", "value"])).await;
        assert_eq!(outcomes.values().map(String::as_str).collect::<Vec<_>>(), words, "{provider}");
    }
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_batch_holds() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut batch = service.batch(&root, "it").limit(3).requests(vec!["sleep:10 x"; 20]);
    let mut most = 0;
    while batch.next().await.is_some() {
        most = most.max(probe.alive());
        assert!(batch.under_way() <= 3);
    }
    assert!(most <= 6, "a child and its future each, three at a time: {most}");
}

#[tokio::test(start_paused = true)]
async fn c14_fail_fast_cancels_siblings_for_a_direct_failure_only() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let batch = |prompts: Vec<&'static str>| {
        service.batch(&root, "it").limit(3).stop_on(StopOn::FirstFailure).requests(prompts)
    };
    let outcomes = all(batch(vec!["hang", "sleep:10 fail", "hang", "never", "never"])).await;
    let words: Vec<_> = outcomes.values().map(String::as_str).collect();
    assert_eq!(words, ["aborted", "error", "aborted", "CANCELLED", "CANCELLED"]);
    assert_eq!(probe.starts(), 3, "what had not started never does");
    // A grandchild's failure that its parent handles cancels nobody.
    let outcomes = all(batch(vec!["nest:2:fail", "sleep:50 x", "y"])).await;
    assert!(outcomes.values().all(|word| word == "completed"), "{outcomes:?}");
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn n08_the_first_success_wins_and_the_rest_is_cancelled() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let batch = service.batch(&root, "it").limit(3).stop_on(StopOn::FirstSuccess);
    let outcomes = all(batch.requests(["fail", "sleep:10 good", "hang", "hang", "start-hang"])).await;
    assert_eq!(outcomes[&0], "error");
    assert_eq!(outcomes[&1], "completed");
    assert_eq!((&*outcomes[&2], &*outcomes[&3]), ("aborted", "aborted"));
    assert_eq!(outcomes.len(), 5);
    assert_eq!(probe.alive(), 0);
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_one_deadline_for_all() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let batch = service.batch(&root, "it").limit(3).deadline(Duration::from_millis(100));
    let outcomes = all(batch.requests(["quick", "deaf", "hang", "start-hang", "never"])).await;
    let words: Vec<_> = outcomes.values().map(String::as_str).collect();
    assert_eq!(words, ["completed", "timed-out", "timed-out", "CANCELLED", "CANCELLED"]);
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_nobody_looks_at_ends_in_time() {
    let probe = Probe::default();
    let (service, root) = service_with(&probe, |builder| builder.limit("it", 1));
    let prompts = ["sleep:900 first", "hang", "start-hang", "never"];
    let mut batch = service.batch(&root, "it").limit(4).deadline(Duration::from_secs(1)).requests(prompts);
    let begun = tokio::time::Instant::now();
    assert_eq!(batch.next().await.unwrap().outcome.unwrap().stop_reason, StopReason::Completed);
    // The second has run for a tenth of a second, the others have waited all the time: each counts from the first look.
    until("nothing is alive", || service.tree().nodes.len() == 2).await;
    assert_eq!(begun.elapsed().as_millis() / 10, 100, "{:?}", begun.elapsed());
    let words: Vec<_> = all(batch).await.into_values().collect();
    assert_eq!(words, ["timed-out", "CANCELLED", "CANCELLED"]);
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn dropping_a_batch_cancels_what_is_under_way() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut batch = service.batch(&root, "it").limit(3).requests(["x", "hang", "start-hang", "never"]);
    let first = batch.next().await.unwrap();
    assert_eq!(first.outcome.unwrap().stop_reason, StopReason::Completed);
    until("two are under way", || probe.starts() == 3).await;
    drop(batch);
    quiet(&service, &probe).await;
    assert_eq!(probe.starts(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_empty_batch_and_an_unknown_provider_end_at_once() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    assert!(service.batch(&root, "it").requests(Vec::<String>::new()).next().await.is_none());
    let outcomes = all(service.batch(&root, "nobody").requests(["a", "b"])).await;
    assert_eq!(outcomes.into_values().collect::<Vec<_>>(), ["NO_PROVIDER", "NO_PROVIDER"]);
}

#[tokio::test(start_paused = true)]
async fn an_item_says_which_run_it_was_and_how_long_it_took() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut batch = service
        .batch(&root, "it")
        .limit(1)
        .stop_on(StopOn::FirstFailure)
        .requests(["sleep:50 fail", "never"]);
    let first = batch.next().await.unwrap();
    let run = first.run.expect("it was started");
    assert_eq!(service.outcome(run).unwrap().unwrap().stop_reason, StopReason::Error);
    assert!(first.elapsed >= Duration::from_millis(50), "{:?}", first.elapsed);
    let second = batch.next().await.unwrap();
    assert_eq!((second.index, second.run, second.elapsed), (1, None, Duration::ZERO));
    assert!(batch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn prompts_may_come_later() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut batch = service.batch(&root, "it").requests(std::iter::from_fn(move || receiver.try_recv().ok()));
    assert!(batch.next().await.is_none(), "nothing has come yet");
    for index in 0..3 {
        sender.send("x").unwrap();
        assert_eq!(batch.next().await.unwrap().index, index);
    }
    assert!(batch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_items_are_always_ready_keeps_its_deadline() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut batch =
        service.batch(&root, "it").limit(4).deadline(Duration::from_millis(100)).requests(vec!["x"; 60]);
    let (mut done, mut refused) = (0, 0);
    while let Some(item) = batch.next().await {
        match item.outcome {
            Ok(_) => done += 1,
            Err(error) => {
                assert_eq!(error.code(), "CANCELLED");
                refused += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(done + refused, 60);
    assert!(done < 12, "{done} were done");
}
