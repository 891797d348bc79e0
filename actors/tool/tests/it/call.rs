//! One call, and many.

use crate::support::{Host, asked, within};
use serde_json::json;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use subagents_seam::{
    CancellationToken, Capabilities, Deadlines, DeniedCall, FailureCode, Phase, ProviderFailure, ResultError,
    RunId, StopReason, SubagentResult, ToolContext, provider_fn,
};
use subagents_testkit::{Script, Scripted};
use subagents_tool::{OUTPUT_TOOL, SubagentTool};
use tokio::time::Instant;

#[tokio::test]
async fn spec_12_6_a_call_starts_awaits_and_disposes() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let host = Host::of(provider);
    let output = host.call("echo three short words").await.unwrap();
    // Disposed by the time it is answered.
    assert_eq!((probe.closes(), probe.alive()), (1, 0));
    let value = output.structured.unwrap();
    assert_eq!(value["output"], json!([{"type": "text", "text": "three short words"}]));
    let run: RunId = value["runId"].as_str().unwrap().parse().unwrap();
    let tree = host.service.tree();
    let node = tree.node(run).expect("it is remembered");
    assert_eq!((node.phase, node.label.as_deref()), (Phase::Gone, Some("a short task")));
    let error = host.error("fail out of tokens").await;
    assert!(error.starts_with("The subagent `p` failed (run "), "{error}");
    assert!(error.contains("model-error: out of tokens"), "{error}");
    assert_eq!(probe.closes(), 2);
    host.end().await;
}

#[tokio::test]
async fn b06_a_fault_of_the_child_is_an_error_that_says_what_and_of_which_kind() {
    let host = Host::of(Scripted::obedient());
    for (prompt, parts) in [
        ("fail the model answers 529", &["failed", "model-error: the model answers 529"][..]),
        ("panic", &["failed", "a fault"]),
    ] {
        let error = host.error(prompt).await;
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    host.end().await;
    let wait =
        provider_fn(Capabilities::NONE, |_, _| async { Err(ResultError::wait_failed("the pipe broke")) });
    let host = Host::of(wait);
    let error = host.error("x").await;
    assert!(error.contains("has no result") && error.contains("the pipe broke"), "{error}");
    host.end().await;
}

#[tokio::test]
async fn l05_an_error_has_a_code_and_a_bounded_text_whatever_it_was() {
    for text in ["", " \n", &"x".repeat(100_000)] {
        let provider = Scripted::by({
            let text = text.to_owned();
            move |_| Script::fail("odd", &text)
        });
        let host = Host::of(provider);
        let error = host.error("x").await;
        assert!(error.contains("odd: ") && error.len() < 6_000, "{error}");
        assert!(!error.contains("odd: \n") && !error.contains("object Object"), "{error}");
        host.end().await;
        let failure = ProviderFailure::new(FailureCode::ProtocolError, text);
        let host = Host::of(Scripted::by(move |_| Script::answer("").start_error(failure.clone().into())));
        let error = host.error("x").await;
        assert!(error.contains("was not started: PROTOCOL_ERROR") && error.len() < 6_000, "{error}");
        host.end().await;
    }
}

#[tokio::test]
async fn spec_12_10_siblings_run_in_parallel_and_commit_in_order() {
    let provider = Scripted::obedient();
    let host = Host::of(provider);
    let tool = host.toolbox.tool("subagent").unwrap();
    let begun = Instant::now();
    // As a host does with the calls of one message: all at once, and the results in the order of the calls.
    let calls = ["400", "200", "300", "fail x", "echo y"].map(|prompt| tool.call(host.cx(), asked(prompt)));
    let results = within(futures_util::future::join_all(calls)).await;
    assert!(begun.elapsed() < Duration::from_millis(800), "{:?}", begun.elapsed());
    let texts: Vec<_> = results
        .into_iter()
        .map(|result| match result {
            Ok(output) => output.structured.unwrap()["output"][0]["text"].as_str().unwrap().to_owned(),
            Err(error) => error.to_string().split(" (run").next().unwrap().to_owned(),
        })
        .collect();
    assert_eq!(texts, ["400", "200", "300", "The subagent `p` failed", "y"]);
    host.end().await;
}

#[tokio::test]
async fn c12_one_of_several_parallel_calls_is_cancelled_and_the_others_go_on() {
    let host = Host::of(Scripted::obedient());
    let tool = host.toolbox.tool("subagent").unwrap();
    let token = CancellationToken::new();
    let cancelled = tool.call(ToolContext::new(&host.root, token.clone()), asked("hang"));
    let (one, other) = (tool.call(host.cx(), asked("300")), tool.call(host.cx(), asked("300")));
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        token.cancel();
    });
    let (cancelled, one, other) = within(async { tokio::join!(cancelled, one, other) }).await;
    let error = cancelled.unwrap_err().to_string();
    assert!(error.starts_with("The subagent `p` was cancelled (run ") && error.contains("half"), "{error}");
    assert!(one.is_ok() && other.is_ok());
    host.end().await;
}

#[tokio::test]
async fn a_call_that_is_dropped_is_disposed_all_the_same() {
    let provider = Scripted::obedient();
    let probe = provider.probe();
    let host = Host::of(provider);
    let tool = host.toolbox.tool("subagent").unwrap();
    let call = tool.call(host.cx(), asked("hang"));
    assert!(tokio::time::timeout(Duration::from_millis(200), call).await.is_err());
    within(async {
        while probe.closes() == 0 || probe.alive() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    host.end().await;
}

#[tokio::test]
async fn spec_12_6_every_way_to_end_has_its_headline() {
    let reasons: [(StopReason, &str); 4] = [
        (StopReason::MaxTokens, "hit its token limit before finishing"),
        (StopReason::Refusal, "declined the task"),
        (StopReason::Error, "failed"),
        ("strange".into(), "ended abnormally (strange)"),
    ];
    for (reason, headline) in reasons {
        let host = Host::of(Scripted::by(move |_| Script::stop(reason.clone(), "partial")));
        let error = host.error("x").await;
        assert!(error.starts_with(&format!("The subagent `p` {headline} (run ")), "{error}");
        assert!(error.contains("\npartial\n"), "{error}");
        host.end().await;
    }
    let tool =
        SubagentTool::new("subagent", "p").deadlines(Deadlines::new().total(Duration::from_millis(100)));
    let host = Host::with(Scripted::obedient(), tool);
    let error = host.error("hang").await;
    assert!(error.starts_with("The subagent `p` ran out of time (run ") && error.contains("half"), "{error}");
    host.end().await;
}

#[tokio::test]
async fn a_long_answer_is_read_to_its_end_by_whoever_asked_and_nobody_else() {
    let whole: String = (0..20_000).map(|n| format!("{n} ")).collect();
    let answer = whole.clone();
    let host = Host::of(Scripted::by(move |_| Script::answer(&*answer)));
    let output = host.call("x").await.unwrap();
    let value = output.structured.unwrap();
    let mut read = value["output"][0]["text"].as_str().unwrap().to_owned();
    let reader = host.toolbox.tool(OUTPUT_TOOL).unwrap();
    let mut offset = value["rest"]["offset"].as_u64();
    while let Some(at) = offset {
        assert_eq!(at, read.len() as u64);
        let input = json!({"run_id": value["runId"], "offset": at});
        let text = within(reader.call(host.cx(), input)).await.unwrap().content.to_text();
        let (_, piece) = text.split_once("[begin of subagent data ").unwrap();
        let (piece, after) =
            piece.split_once("]\n").unwrap().1.split_once("\n[end of subagent data ").unwrap();
        read.push_str(piece);
        offset = after.split_once("and offset ").map(|(_, at)| at.trim_end_matches('.').parse().unwrap());
    }
    assert_eq!(read, whole.trim_end());
    // Another agent of the same service.
    let other = host.service.root(std::env::temp_dir()).unwrap();
    let cx = ToolContext::new(&other, CancellationToken::new());
    let error = reader.call(cx, json!({"run_id": value["runId"]})).await.unwrap_err();
    assert!(error.text().contains("No long answer of such a run is kept"), "{error}");
    let error = reader.call(host.cx(), json!({"run_id": "x"})).await.unwrap_err();
    assert!(error.text().contains("no id of a run"), "{error}");
    host.end().await;
}

#[tokio::test]
async fn f02_a_refused_permission_is_told_beside_the_answer() {
    let mut result = SubagentResult::completed("all done");
    result.details.denied_calls = vec![DeniedCall::new("bash", "no")];
    let host = Host::of(Scripted::by(move |_| Script::result(result.clone())));
    let text = host.call("x").await.unwrap().content.to_text();
    assert!(
        text.ends_with("1 of its tool calls were refused a permission: what it says may be incomplete."),
        "{text}"
    );
    host.end().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_told_what_happens_and_that_it_lives() {
    let host = Host::of(Scripted::by(|_| {
        Script::answer("done")
            .tool("grep")
            .pause(Duration::from_secs(25))
            .tool_done("grep")
            .pause(Duration::from_secs(3))
    }));
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let listener = told.clone();
    let cx = host.cx().with_progress(move |line| listener.lock().unwrap().push(line.to_owned()));
    host.call_in(cx, "x").await.unwrap();
    let told = told.lock().unwrap().clone();
    assert!(told.iter().any(|line| line.starts_with("in tool grep, 1 tool call (")), "{told:?}");
    // A sign of life every ten seconds, and no more than there is to say.
    assert!((4..=7).contains(&told.len()), "{told:?}");
    host.end().await;
}
