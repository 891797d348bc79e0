//! Cancel, deadlines, settlement and disposal.

use crate::support::{Probe, quiet, service, service_with, until};
use std::{sync::Arc, time::Duration};
use subagents_runtime::SubagentService;
use subagents_seam::{
    CancelCause, CancellationToken, Child, Closed, Deadlines, Diagnostic, Instant, Phase, ResultError,
    RunContext, StartContext, StartError, StartRequest, StopReason, SubagentProvider, SubagentResult,
};

#[tokio::test(start_paused = true)]
async fn every_way_to_end_settles_with_its_own_reason() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    for (prompt, reason, category, text) in [
        ("fine", "completed", None, "fine"),
        ("say:half fail", "error", Some("model"), "half"),
        ("say:half panic", "error", Some("panic"), "half"),
        ("reason:max-tokens", "max-tokens", Some("max-tokens"), "so far"),
        ("reason:refusal", "refusal", Some("refusal"), "so far"),
        ("reason:coffee-break", "coffee-break", Some("unknown"), "so far"),
        ("say:pre blank", "error", Some("empty-answer"), "pre"),
    ] {
        let result = service.delegate("it", StartRequest::new(&root, prompt)).await.unwrap();
        assert_eq!(result.stop_reason.as_str(), reason, "{prompt}");
        assert_eq!(result.diagnostic.as_ref().map(Diagnostic::category), category, "{prompt}");
        assert_eq!(result.text(), text, "{prompt}");
    }
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn b06_l05_a_childs_error_is_told_with_its_text_and_class() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let result = service.delegate("it", StartRequest::new(&root, "fail")).await.unwrap();
    let diagnostic = result.diagnostic.as_ref().expect("it is told");
    assert_eq!((diagnostic.category(), diagnostic.text()), ("model", "429 from the model: slow down"));
    // On a later call as well, and whatever shape the error has: never empty, never a placeholder, bounded, clean.
    let nested =
        format!("{{\"code\":-32603,\"data\":{{\"nested\":[1,{{\"x\":\"{}\"}}]}}}}", "y".repeat(100 * 1024));
    for (text, says) in
        [("", "no details were given"), (&*nested, "-32603"), ("\u{1b}[31mred\u{7}", "red"), ("42", "42")]
    {
        let told = Diagnostic::new("rpc", text);
        assert!(
            told.text().contains(says) && told.text().len() <= 4096 && !told.text().contains('\u{1b}'),
            "{told}"
        );
    }
    let later = service.delegate("it", StartRequest::new(&root, "tool:grep say:found fail")).await.unwrap();
    assert_eq!((later.stop_reason.as_str(), &*later.text()), ("error", "found"));
    let error = service.delegate("it", StartRequest::new(&root, "err")).await.unwrap_err();
    assert_eq!(error.code(), "WAIT_FAILED");
    assert!(error.to_string().contains("the link broke"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn b14_whitespace_is_no_answer_unless_the_provider_allows_it() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let provider = crate::support::Obedient { blank: true, ..crate::support::Obedient::new(&probe) };
    let _registration = service.register("quiet", provider).unwrap();
    assert_eq!(
        service.delegate("it", StartRequest::new(&root, "blank")).await.unwrap().stop_reason,
        StopReason::Error
    );
    let allowed = service.delegate("quiet", StartRequest::new(&root, "blank")).await.unwrap();
    assert_eq!(allowed.stop_reason, StopReason::Completed);
}

#[tokio::test(start_paused = true)]
async fn m06_nobody_waits_for_ever_whatever_the_child_does() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    for prompt in ["panic", "err", "fail", "close-panic panic"] {
        let run = service.start("it", StartRequest::new(&root, prompt)).await.unwrap();
        let waiters: Vec<_> = (0..3).map(|_| tokio::spawn(run.result())).collect();
        for waiter in waiters {
            let outcome =
                tokio::time::timeout(Duration::from_secs(1), waiter).await.expect("at once").unwrap();
            assert!(outcome.is_err() || !outcome.unwrap().stop_reason.is_success(), "{prompt}");
        }
        let _ = run.dispose().await;
    }
}

#[tokio::test(start_paused = true)]
async fn spec_1_7_a_result_is_the_same_for_every_waiter_however_late() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let run = service.start("it", StartRequest::new(&root, "sleep:10 fine")).await.unwrap();
    let early: Vec<_> = (0..4).map(|_| tokio::spawn(run.result())).collect();
    let first = run.result().await.unwrap();
    for waiter in early {
        assert!(Arc::ptr_eq(&waiter.await.unwrap().unwrap(), &first));
    }
    let watcher = run.watcher();
    run.dispose().await.unwrap();
    drop(run);
    assert!(Arc::ptr_eq(&watcher.result().await.unwrap(), &first), "also after the disposal");
    assert!(Arc::ptr_eq(&service.outcome(watcher.id()).unwrap().unwrap(), &first));
    assert_eq!(watcher.phase(), Phase::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_keeps_the_partial_answer_and_the_first_cause() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    for (prompt, text) in [
        ("hang", "partial "),
        ("say:half deaf", "half"),
        ("stubborn", "I was done anyway"),
        ("late:500", "late"),
    ] {
        let run = service.start("it", StartRequest::new(&root, prompt)).await.unwrap();
        until("it runs", || probe.alive() == 2).await;
        run.cancel(CancelCause::requested("enough"));
        run.cancel(CancelCause::requested("too late"));
        let begun = Instant::now();
        let result = run.result().await.unwrap();
        assert_eq!((result.stop_reason.as_str(), &*result.text()), ("aborted", text), "{prompt}");
        assert!(result.diagnostic.as_ref().unwrap().text().contains("enough"), "{prompt}");
        assert!(begun.elapsed() <= Duration::from_millis(2_010), "the grace is two seconds");
        run.dispose().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_by_token_id_or_parent_says_so() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let token = CancellationToken::new();
    let by_token = service.start("it", StartRequest::new(&root, "hang").token(token.clone())).await.unwrap();
    token.cancel();
    assert!(by_token.result().await.unwrap().diagnostic.as_ref().unwrap().text().contains("token"));
    let by_id = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
    assert!(service.cancel(by_id.id(), CancelCause::requested("from a debug endpoint")));
    assert!(by_id.result().await.unwrap().diagnostic.as_ref().unwrap().text().contains("debug endpoint"));
    let below = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
    root.cancel(CancelCause::requested("stop it all"));
    assert!(below.result().await.unwrap().diagnostic.as_ref().unwrap().text().contains("stop it all"));
    assert_eq!(service.start("it", StartRequest::new(&root, "x")).await.unwrap_err().code(), "PARENT_GONE");
    quiet(&service, &probe).await;
    assert!(!service.cancel(by_id.id(), CancelCause::REQUESTED), "it is gone");
}

#[tokio::test(start_paused = true)]
async fn deadlines_end_a_run_as_timed_out_with_the_text_so_far() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let total = Deadlines::new().total(Duration::from_millis(300));
    let idle = Deadlines::new().idle(Duration::from_millis(300));
    for (prompt, deadlines, after, word) in [
        ("say:half deaf", total.clone(), 300, "total"),
        ("say:half hang", total.clone(), 300, "total"),
        ("say:half deaf", idle.clone(), 300, "idle"),
        ("sleep:200 say:half sleep:200 say:half deaf", idle.clone(), 700, "idle"),
        ("sleep:200 alive sleep:200 alive say:half deaf", idle, 700, "idle"),
    ] {
        let run = service.start("it", StartRequest::new(&root, prompt).deadlines(deadlines)).await.unwrap();
        let begun = Instant::now();
        let result = run.result().await.unwrap();
        assert_eq!(result.stop_reason, StopReason::TimedOut, "{prompt}");
        assert!(result.text().starts_with("half"), "{prompt}: {}", result.text());
        assert!(result.diagnostic.as_ref().unwrap().text().contains(word), "{prompt}");
        let late = begun.elapsed().as_millis();
        assert!((after..after + 20).contains(&late), "{prompt}: after {late} ms");
        run.dispose().await.unwrap();
    }
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn f02_a_run_that_is_cut_short_shows_its_denied_calls_and_counts() {
    let probe = Probe::default();
    let brief = Deadlines::new().cancel_grace(Duration::from_millis(10));
    let (service, root) = service_with(&probe, |builder| builder.deadlines(brief));
    let prompt = "plan tool:edit tool:bash deny:bash say:half deaf";
    let total = Deadlines::new().total(Duration::from_millis(300));
    let timed_out = StartRequest::new(&root, prompt).deadlines(total);
    let timed_out = service.start("it", timed_out).await.unwrap();
    let cancelled = service.start("it", StartRequest::new(&root, prompt)).await.unwrap();
    let mut progress = cancelled.progress();
    let mut denied = Vec::new();
    while denied.is_empty() {
        denied = progress.next().await.expect("it goes on").denied;
    }
    assert_eq!((denied[0].tool.as_str(), denied[0].reason.as_str()), ("bash", "the policy says no"));
    cancelled.cancel(CancelCause::REQUESTED);
    while let Some(update) = progress.next().await {
        assert!(update.denied.is_empty() && update.denied_calls == 1, "it is told once: {update:?}");
    }
    for (run, reason) in [(timed_out, StopReason::TimedOut), (cancelled, StopReason::Aborted)] {
        let result = run.result().await.unwrap();
        assert_eq!((&result.stop_reason, result.text().as_str()), (&reason, "half"));
        assert_eq!(result.details.denied_calls, denied, "{reason}");
        assert_eq!((result.details.tool_calls, result.details.plans), (Some(2), Some(1)), "{reason}");
        run.dispose().await.unwrap();
    }
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_without_end_is_no_deadline() {
    let probe = Probe::default();
    let never =
        Deadlines::new().total(Duration::MAX).idle(Duration::MAX).start(Duration::MAX).queue(Duration::MAX);
    let never = never
        .dispose(Duration::MAX - Duration::from_secs(1))
        .cancel_grace(Duration::MAX - Duration::from_secs(1));
    let (service, root) = service_with(&probe, |builder| builder.deadlines(never));
    let result = service.delegate("it", StartRequest::new(&root, "sleep:100000 fine")).await.unwrap();
    assert_eq!(result.text(), "fine");
}

#[tokio::test(start_paused = true)]
async fn dispose_means_gone_is_idempotent_and_ends_in_a_fact() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let run = service.start("it", StartRequest::new(&root, "hang close-slow")).await.unwrap();
    let (a, b, c) = tokio::join!(run.dispose(), run.dispose(), run.watcher().dispose());
    assert_eq!((a, b, c), (Ok(()), Ok(()), Ok(())));
    assert_eq!((probe.alive(), probe.closes()), (0, 1));
    assert!(service.tree().nodes.iter().all(|node| node.id != run.id().into()));
    assert_eq!(run.result().await.unwrap().stop_reason, StopReason::Aborted);
    for (prompt, what) in
        [("close-hang", "longer than"), ("close-panic", "panicked"), ("close-leak", "a socket")]
    {
        let run = service.start("it", StartRequest::new(&root, prompt)).await.unwrap();
        let begun = Instant::now();
        let error = run.dispose().await.unwrap_err();
        assert_eq!(error.code(), "LEAKED");
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(run.dispose().await.unwrap_err(), error, "everybody gets the same answer");
        assert!(begun.elapsed() <= Duration::from_millis(15_100), "bounded: {:?}", begun.elapsed());
        let error = service.delegate("it", StartRequest::new(&root, prompt)).await.unwrap_err();
        let subagents_seam::DelegateError::Dispose { result, .. } = error else { panic!("{error:?}") };
        assert_eq!(result.text(), "done", "a failed dispose keeps the result");
        assert!(service.tree().gone.last().unwrap().leaked().is_some(), "{prompt}");
    }
    assert_eq!(probe.alive(), 0);
}

#[tokio::test(start_paused = true)]
async fn teardown_starts_at_settlement_by_itself() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let run = service.start("it", StartRequest::new(&root, "fine")).await.unwrap();
    run.result().await.unwrap();
    until("it is gone without a dispose", || run.watcher().phase() == Phase::Gone).await;
    assert_eq!((probe.closes(), probe.alive()), (1, 0));
    run.dispose().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_that_races_with_the_end_settles_once() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let mut events = service.events();
    let (mut completed, mut aborted) = (0, 0);
    for i in 0..1_000_u32 {
        let run = service.start("it", StartRequest::new(&root, "fine")).await.unwrap();
        if i % 3 == 0 {
            tokio::task::yield_now().await;
        }
        run.cancel(CancelCause::REQUESTED);
        let result = run.result().await.unwrap();
        match result.stop_reason {
            StopReason::Completed => completed += 1,
            StopReason::Aborted => aborted += 1,
            ref other => panic!("{other}"),
        }
        assert_eq!(result.text(), "fine", "the text is kept either way");
        run.dispose().await.unwrap();
        let mut ended = 0;
        while let Some(event) = events.try_next() {
            ended += usize::from(matches!(event, Ok(subagents_seam::Event::Ended(_))));
        }
        assert_eq!(ended, 1);
    }
    assert_eq!(completed + aborted, 1_000);
}

#[tokio::test]
async fn m09_m10_a_blocking_delegation_blocks_neither_looking_nor_cancel() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let waiting = tokio::spawn({
        let (service, parent) = (service.clone(), root.parent().clone());
        async move { service.delegate("it", StartRequest::new(&parent, "nest:1:hang")).await }
    });
    until("the inner one runs", || probe.runs() == 2).await;
    let begun = std::time::Instant::now();
    let tree = service.tree();
    assert!(begun.elapsed() < Duration::from_millis(50));
    assert_eq!(tree.nodes.iter().filter(|node| node.provider.is_some()).count(), 2);
    root.cancel(CancelCause::REQUESTED);
    let result = waiting.await.unwrap().unwrap();
    assert_eq!(result.stop_reason, StopReason::Aborted);
    quiet(&service, &probe).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_has_its_grace_whatever_deadline_would_pass_in_it() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    for deadlines in [
        Deadlines::new().idle(Duration::from_millis(200)),
        Deadlines::new().total(Duration::from_millis(200)),
    ] {
        let run =
            service.start("it", StartRequest::new(&root, "late:500").deadlines(deadlines)).await.unwrap();
        run.cancel(CancelCause::REQUESTED);
        let result = run.result().await.unwrap();
        assert_eq!((result.stop_reason.as_str(), &*result.text()), ("aborted", "late"));
        run.dispose().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_blocks_its_thread_makes_a_disposal_a_fact_and_not_a_hang() {
    let probe = Probe::default();
    let brief = Deadlines::new().cancel_grace(Duration::from_millis(10)).dispose(Duration::from_millis(10));
    let (service, root) = service_with(&probe, |builder| builder.deadlines(brief));
    let run = service.start("it", StartRequest::new(&root, "block:4000 x")).await.unwrap();
    until("it blocks", || probe.runs() == 1).await;
    let begun = std::time::Instant::now();
    let error = run.dispose().await.unwrap_err();
    assert!(error.to_string().contains("does not end"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    quiet(&service, &probe).await;
    assert_eq!(run.dispose().await.unwrap_err(), error, "everybody gets the same answer");
}

#[tokio::test(start_paused = true)]
async fn the_first_cause_wins_also_over_what_cancels_at_once() {
    for second in ["root", "drop", "shutdown"] {
        let probe = Probe::default();
        let (service, root) = service(&probe);
        let run = service.start("it", StartRequest::new(&root, "hang")).await.unwrap();
        until("it runs", || probe.runs() == 1).await;
        run.cancel(CancelCause::requested("the first"));
        match second {
            "root" => root.cancel(CancelCause::requested("the second")),
            "drop" => drop(root),
            _ => drop(service.shutdown(Duration::from_secs(5)).await),
        }
        let result = run.result().await.unwrap();
        assert!(result.diagnostic.as_ref().unwrap().text().contains("the first"), "{second}: {result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_max_is_none_also_where_there_is_a_default() {
    let probe = Probe::default();
    let (service, root) = service(&probe);
    let patient = Deadlines::new().start(Duration::MAX).cancel_grace(Duration::MAX).dispose(Duration::MAX);
    let starting = service.start("it", StartRequest::new(&root, "start-deaf").deadlines(patient.clone()));
    assert!(tokio::time::timeout(Duration::from_secs(3600), starting).await.is_err(), "no start deadline");
    let run = service.start("it", StartRequest::new(&root, "late:60000").deadlines(patient)).await.unwrap();
    run.cancel(CancelCause::REQUESTED);
    assert_eq!(run.result().await.unwrap().text(), "late", "a grace without end");
}

/// Ready to go on in every poll, until the task's budget is used up: it gives its thread back, and leaves no budget.
async fn busy() {
    loop {
        tokio::task::coop::consume_budget().await;
    }
}

struct Busy;

struct BusyChild {
    closes_busily: bool,
}

impl SubagentProvider for Busy {
    type Child = BusyChild;

    async fn start(&self, cx: StartContext) -> Result<BusyChild, StartError> {
        let prompt = cx.prompt().to_text();
        if prompt == "start" {
            busy().await;
        }
        Ok(BusyChild { closes_busily: prompt == "close" })
    }
}

impl Child for BusyChild {
    async fn run(&mut self, _: RunContext) -> Result<SubagentResult, ResultError> {
        if !self.closes_busily {
            busy().await;
        }
        Ok(SubagentResult::completed("done"))
    }

    async fn close(self, _: Instant) -> Closed {
        if self.closes_busily {
            busy().await;
        }
        Closed::Clean
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_uses_up_the_budget_in_every_poll_is_cut_all_the_same() {
    let short = Duration::from_millis(50);
    let deadlines = Deadlines::new().start(short).cancel_grace(short).dispose(short);
    let service = SubagentService::builder().provider("busy", Busy).deadlines(deadlines).build().unwrap();
    let root = service.root("/").unwrap();
    let ask = |prompt: &str| StartRequest::new(&root, prompt);
    let all = async {
        let late = service.start("busy", ask("start")).await.unwrap_err();
        assert_eq!(late.code(), "START_TIMEOUT");

        let late = service.start("busy", ask("run").deadlines(Deadlines::new().total(short))).await.unwrap();
        assert_eq!(late.result().await.unwrap().stop_reason, StopReason::TimedOut);
        late.dispose().await.unwrap();

        let cancelled = service.start("busy", ask("run")).await.unwrap();
        cancelled.cancel(CancelCause::REQUESTED);
        assert_eq!(cancelled.result().await.unwrap().stop_reason, StopReason::Aborted);
        cancelled.dispose().await.unwrap();

        let token = CancellationToken::new();
        let asked = service.start("busy", ask("run").token(token.clone())).await.unwrap();
        token.cancel();
        assert_eq!(asked.result().await.unwrap().stop_reason, StopReason::Aborted);
        asked.dispose().await.unwrap();

        let closing = service.start("busy", ask("close")).await.unwrap();
        assert_eq!(closing.result().await.unwrap().stop_reason, StopReason::Completed);
        assert_eq!(closing.dispose().await.unwrap_err().code(), "LEAKED");
    };
    // The test's own task has a budget of its own.
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("each deadline is heard");
    let report = service.shutdown(Duration::from_secs(5)).await;
    assert_eq!(report.killed, 0, "{report:?}");
}
