//! What comes of a turn: the answer, the stop reason, what an agent says when it fails.

use super::{
    Script,
    agent::chunk,
    support::{Host, category, played},
};
use serde_json::json;
use std::time::Duration;
use subagents::{Deadlines, StopReason};

#[tokio::test]
async fn spec_18_2_the_prompt_is_text_and_the_answer_is_the_text_of_the_messages() {
    let script = Script::prompted()
        .update(json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}}))
        .update(json!({"sessionUpdate": "plan", "entries": []}))
        .chunk("you said: $prompt")
        .stop("end_turn");
    let host = Host::of(&script);
    let result = host.delegate("a \"quoted\"\nprompt 漢").await;
    assert_eq!(result.stop_reason, StopReason::Completed, "{result:?}");
    assert_eq!(result.text(), "you said: a \"quoted\"\nprompt 漢");
    let details = &result.details;
    assert_eq!((details.messages, details.thoughts, details.plans), (Some(1), Some(1), Some(1)));
    assert_eq!((&result.diagnostic, &result.usage, details.truncated), (&None, &None, None));
    host.end().await;
}

#[tokio::test]
async fn b16_every_message_is_in_the_answer_and_they_are_counted() {
    let result = played(
        &Script::prompted()
            .chunk("the long report")
            .tool("t", "in_progress")
            .tool("t", "completed")
            .chunk("see above")
            .stop("end_turn"),
    )
    .await;
    assert_eq!(result.text(), "the long report\n\nsee above");
    assert_eq!((result.details.messages, result.details.tool_calls), (Some(2), Some(1)));
}

#[tokio::test]
async fn spec_18_4_each_stop_reason_becomes_one_of_ours() {
    for (stop, reason, category_of_it) in [
        ("end_turn", StopReason::Completed, ""),
        ("max_tokens", StopReason::MaxTokens, "max-tokens"),
        ("refusal", StopReason::Refusal, "refusal"),
        ("cancelled", StopReason::Aborted, "agent-cancelled"),
        ("max_turn_requests", StopReason::Error, "max-turn-requests"),
        ("something_new", StopReason::Error, "unknown-stop-reason"),
    ] {
        let result = played(&Script::prompted().chunk("part").stop(stop)).await;
        assert_eq!((&result.stop_reason, category(&result)), (&reason, category_of_it), "{stop}: {result:?}");
        assert_eq!(result.text(), "part");
    }
    let odd = played(&Script::prompted().chunk("part").reply(json!([7]))).await;
    assert_eq!(category(&odd), "unknown-stop-reason", "{odd:?}");
}

#[tokio::test]
async fn b06_an_error_of_the_agents_is_the_result_with_its_text() {
    let error = json!({"code": -32603, "message": "model said 500", "data": {"errorKind": "server_error"}});
    let script = |after_tool: bool| {
        let script = Script::prompted();
        let script = if after_tool { script.tool("t", "in_progress").tool("t", "completed") } else { script };
        script.chunk("so far").fail(error.clone())
    };
    for after_tool in [false, true] {
        let result = played(&script(after_tool)).await;
        assert_eq!(result.stop_reason, StopReason::Error);
        assert_eq!(result.text(), "so far");
        let diagnostic = result.diagnostic.clone().expect("why").to_string();
        assert!(
            diagnostic.starts_with("agent-error: sh answered with an error: model said 500 (code -32603)"),
            "{diagnostic}"
        );
        assert!(diagnostic.contains("server_error"), "{diagnostic}");
        assert_eq!(result.details.tool_calls.unwrap_or(0), u32::from(after_tool));
    }
}

#[tokio::test]
async fn b06_a_model_that_failed_is_an_error_although_the_turn_ends_as_usual() {
    let status = |status: &str| json!({"sessionUpdate": "session_info_update", "_meta": {"codex": {"threadStatus": {"type": status}}}});
    let result = played(
        &Script::prompted()
            .update(status("active"))
            .update(status("systemError"))
            .chunk("We are busy.")
            .stop("end_turn"),
    )
    .await;
    assert_eq!((&result.stop_reason, category(&result)), (&StopReason::Error, "model-error"));
    assert!(result.diagnostic.clone().expect("why").text().contains("We are busy."));
}

#[tokio::test]
async fn k04_a_used_up_quota_keeps_the_work_and_is_told_from_a_fault() {
    let text = "x".repeat(200);
    let result = played(
        &Script::prompted()
            .tool("a", "in_progress")
            .tool("a", "completed")
            .tool("b", "in_progress")
            .tool("b", "completed")
            .chunk(&text)
            .fail(json!({"code": 429, "message": "insufficient quota"})),
    )
    .await;
    assert_eq!((&result.stop_reason, category(&result)), (&StopReason::Error, "quota"));
    assert_eq!((result.text(), result.details.tool_calls), (text, Some(2)));
}

#[tokio::test]
async fn l05_an_odd_error_is_told_with_code_message_and_bounded_data() {
    for (error, wanted) in [
        (
            json!({"code": 7, "message": "", "data": {"deep": {"er": [1, 2]}}}),
            "no message (code 7); {\"deep\":{\"er\":[1,2]}}",
        ),
        (json!({"code": 7, "message": {"not": "text"}}), "{\"not\":\"text\"} (code 7)"),
        (json!("just text"), "just text (code none)"),
        (json!({"code": 7, "message": "é".repeat(20_000)}), "é… (cut) (code 7)"),
    ] {
        let result = played(&Script::prompted().fail(error)).await;
        let diagnostic = result.diagnostic.clone().expect("why");
        assert!(diagnostic.text().contains(wanted) && diagnostic.text().len() <= 4096, "{diagnostic}");
    }
}

#[tokio::test]
async fn usage_and_cost_are_told_where_the_agent_tells_them() {
    let result = played(
        &Script::prompted()
            .chunk("x")
            .update(json!({"sessionUpdate": "usage_update", "used": 10, "size": 100, "cost": {"amount": 0.5, "currency": "USD"}}))
            .reply(json!({"stopReason": "end_turn", "usage": {"inputTokens": 10, "outputTokens": 2, "totalTokens": 12}})),
    )
    .await;
    let usage = result.usage.clone().expect("usage");
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.total_tokens), (Some(10), Some(2), Some(12)));
    assert_eq!((usage.cost_usd, usage.cached_tokens), (Some(0.5), None));
}

#[tokio::test]
async fn b01_an_agent_that_is_silent_for_ever_is_timed_out_and_ended() {
    for said in ["", "half"] {
        silent(said).await;
    }
}

async fn silent(said: &str) {
    let host = Host::of(&Script::prompted().chunk(said).become_shell("sleep 1000"));
    let deadlines = Deadlines::new().idle(Duration::from_millis(500));
    let begun = tokio::time::Instant::now();
    let run = host.service.start("agent", host.ask("x").deadlines(deadlines)).await.expect("it starts");
    let result = run.result().await.expect("a value");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!((&result.stop_reason, result.text()), (&StopReason::TimedOut, said.to_owned()));
    run.dispose().await.expect("nothing is left");
    assert_eq!(host.mark.alive(), [""; 0]);
    // The parent goes on.
    host.end().await;
}

#[tokio::test]
async fn b19_a_last_message_without_an_end_is_timed_out_with_all_of_it() {
    let host = Host::of(&Script::prompted().chunk("the whole answer"));
    let deadlines = Deadlines::new().idle(Duration::from_millis(300));
    let result = host.delegated(host.ask("x").deadlines(deadlines)).await;
    assert_eq!((&result.stop_reason, result.text()), (&StopReason::TimedOut, "the whole answer".to_owned()));
    host.end().await;
}

#[tokio::test]
async fn a_long_answer_is_cut_and_says_so_and_a_flood_ends_the_agent() {
    let flood = Script::prompted()
        .repeat(500, Script::bare().chunk("0123456789").chunk("abcdefghij"))
        .stop("end_turn");
    let host = Host::with(flood.acp().max_output(95));
    let result = host.delegate("x").await;
    assert_eq!((&result.stop_reason, result.text().len()), (&StopReason::Completed, 95));
    let truncated = result.details.truncated.expect("cut");
    assert_eq!((truncated.kept_bytes, truncated.total_bytes), (95, 10_000));
    host.end().await;

    let endless =
        Script::prompted().forever(Script::bare().chunk("again and again").chunk(", and once more"));
    let host = Host::with(endless.acp().max_total_output(100_000));
    let result = host.delegate("x").await;
    assert_eq!((&result.stop_reason, category(&result)), (&StopReason::Error, "output-limit"));
    assert!(result.text().starts_with("again and again"));
    host.end().await;
}

#[tokio::test]
async fn an_agent_that_says_the_same_without_end_is_ended() {
    let message = |id: &str| {
        let mut message = chunk("this text ne");
        message["messageId"] = id.into();
        message
    };
    let both = Script::bare().update(message("a")).update(message("b"));
    let endless = Script::prompted().chunk("Let me see. ").forever(both);
    let result = played(&endless).await;
    assert_eq!((&result.stop_reason, category(&result)), (&StopReason::Error, "output-limit"));
    let text = result.diagnostic.as_ref().expect("why").text();
    assert!(text.contains("the same 200 times in a row"), "{text}");
    assert!(result.text().len() < 10_000, "{}", result.text().len());
}
