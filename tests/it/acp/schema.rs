//! A value of an agent that speaks text: asked for, validated, asked again.

use super::{Script, support::Host};
use serde_json::{Value, json};
use std::{num::NonZeroU32, sync::Arc, time::Duration};
use subagents::{Deadlines, StartRequest, StopReason, SubagentResult};

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"n": {"type": "integer"}, "colour": {"type": "string", "enum": ["red", "blue"]}},
        "required": ["n"],
        "additionalProperties": false,
    })
}

fn asking(host: &Host) -> StartRequest {
    host.ask("how many?").output_schema(schema())
}

/// An agent that gives these answers, one a turn.
fn answers(texts: &[&str]) -> Script {
    let turns = |script: Script, text: &&str| script.expect("session/prompt").chunk(text).stop("end_turn");
    texts.iter().fold(Script::opened(), turns)
}

async fn asked(script: &Script, attempts: u32) -> Arc<SubagentResult> {
    let host = Host::with(script.acp().schema_attempts(NonZeroU32::new(attempts).expect("more than none")));
    let result = host.delegated(asking(&host)).await;
    host.end().await;
    result
}

#[tokio::test]
async fn g02_each_kind_of_wrong_value_is_told_back_and_a_right_one_is_taken() {
    for (wrong, told) in [
        (r#"{"n": "three"}"#, "/n"),
        ("{}", "n"),
        (r#"{"n": 1, "colour": "green"}"#, "/colour"),
        (r#"{"n": 1, "more": 2}"#, "more"),
        (r#""{\"n\": 1}""#, "string"),
        ("about three", "JSON"),
    ] {
        let script = answers(&[wrong, r#"{"n": 3}"#]);
        let result = asked(&script, 4).await;
        assert_eq!(
            (&result.stop_reason, &result.structured),
            (&StopReason::Completed, &Some(json!({"n": 3}))),
            "{wrong}"
        );
        let attempts = &result.details.schema_attempts;
        assert_eq!(attempts.len(), 2, "{wrong}");
        assert!(attempts[0].errors.iter().any(|error| error.contains(told)), "{wrong}: {attempts:?}");
        assert!(attempts[1].errors.is_empty());
    }
}

#[tokio::test]
async fn g01_a_value_that_came_late_shows_its_attempts_and_may_be_too_late() {
    let script = answers(&["no", "{}", r#"{"n": null}"#, r#"{"n": 0}"#]);
    let result = asked(&script, 4).await;
    assert_eq!((result.structured.clone(), result.details.schema_attempts.len()), (Some(json!({"n": 0})), 4));
    assert!(result.details.schema_attempts[..3].iter().all(|attempt| !attempt.errors.is_empty()));
    let result = asked(&script, 3).await;
    assert_eq!((&result.stop_reason, &result.structured), (&StopReason::Error, &None));
    assert_eq!(result.diagnostic.as_ref().map(subagents::Diagnostic::category), Some("schema-not-met"));
    assert_eq!(result.details.schema_attempts.len(), 3);
    assert_eq!(result.text(), r#"{"n": null}"#, "what it said last is kept");
}

#[tokio::test]
async fn g04_an_answer_that_was_cut_is_no_value() {
    let cut = Script::prompted().chunk(r#"{"n": 1"#).stop("max_tokens");
    let result = asked(&cut, 4).await;
    assert_eq!(result.stop_reason, StopReason::MaxTokens);
    assert_eq!(result.diagnostic.as_ref().map(subagents::Diagnostic::category), Some("schema-truncated"));
    assert_eq!((result.text(), &result.structured), (r#"{"n": 1"#.to_owned(), &None));

    let fenced = answers(&["Here it is:\n```json\n{\"n\": 7}\n```\nAnything else?"]);
    assert_eq!(asked(&fenced, 4).await.structured, Some(json!({"n": 7})));
    let two = answers(&["```json\n{\"n\": 7}\n```\nor\n```json\n{\"n\": 8}\n```", r#"{"n": 9}"#]);
    assert_eq!(asked(&two, 4).await.structured, Some(json!({"n": 9})));

    // By our own bound.
    let host = Host::with(answers(&[r#"{"n": 1234567890}"#]).acp().max_output(8));
    let result = host.delegated(asking(&host)).await;
    assert_eq!(result.diagnostic.as_ref().map(subagents::Diagnostic::category), Some("schema-truncated"));
    host.end().await;
}

#[tokio::test]
async fn what_is_said_before_the_last_message_is_talk() {
    let script = Script::prompted()
        .chunk("let me look")
        .tool("t", "in_progress")
        .tool("t", "completed")
        .chunk(r#"{"n": 5}"#)
        .stop("end_turn");
    let result = asked(&script, 1).await;
    assert_eq!(
        (&result.structured, result.text()),
        (&Some(json!({"n": 5})), "let me look\n\n{\"n\": 5}".to_owned())
    );
}

#[tokio::test]
async fn an_agent_that_fails_is_not_asked_again() {
    let script = Script::prompted().chunk("x").fail(json!({"code": 1, "message": "boom"}));
    let result = asked(&script, 4).await;
    assert_eq!(result.diagnostic.as_ref().map(subagents::Diagnostic::category), Some("agent-error"));
    assert!(result.details.schema_attempts.is_empty());
    let refuses = Script::prompted().chunk("I will not").stop("refusal");
    assert_eq!(asked(&refuses, 4).await.stop_reason, StopReason::Refusal);
}

#[tokio::test]
async fn the_schema_and_the_faults_are_in_what_the_agent_is_told() {
    let told = Script::opened()
        .expect("session/prompt")
        .chunk("$prompt")
        .stop("end_turn")
        .expect("session/prompt")
        .chunk("$prompt")
        .stop("end_turn");
    let host = Host::with(told.acp().schema_attempts(NonZeroU32::new(2).expect("two")));
    let result = host.delegated(asking(&host)).await;
    assert_eq!(result.stop_reason, StopReason::Error, "an echo is no value");
    // Of the second turn.
    for part in ["additionalProperties", "colour"] {
        assert!(result.text().contains(part), "{part} is not in {}", result.text());
    }
    host.end().await;
}

#[tokio::test]
async fn what_did_not_match_is_kept_where_nothing_follows() {
    let first = || Script::opened().expect("session/prompt").chunk("a long valuable report").stop("end_turn");
    for (script, total) in [
        (first().expect("session/prompt").exit(3), 30_000),
        (first().expect("session/prompt").fail(json!({"code": 429, "message": "quota"})), 30_000),
        (first().expect("session/prompt").become_shell("exec cat >/dev/null"), 1_500),
    ] {
        let host = Host::of(&script);
        let deadlines = Deadlines::new().total(Duration::from_millis(total));
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let result = host.delegated(host.ask("x").output_schema(schema).deadlines(deadlines)).await;
        assert!(!result.stop_reason.is_success());
        assert_eq!(result.text(), "a long valuable report", "{result:?}");
        host.end().await;
    }
}

#[tokio::test]
async fn a_persona_goes_ahead_where_that_is_configured_and_is_refused_elsewhere() {
    let script = Script::prompted().chunk("$prompt").stop("end_turn");
    let host = Host::with(script.acp().persona(true));
    let result = host.delegated(host.ask("the task").persona("You are a cat.")).await;
    assert_eq!(result.text(), "You are a cat.|the task");
    // Models refuse an empty block.
    let result = host.delegated(host.ask("the task").persona(" ")).await;
    assert_eq!(result.text(), "the task");
    host.end().await;
    let host = Host::of(&script);
    let error = host.refusal(host.ask("x").persona("You are a cat.")).await;
    assert_eq!(error.code(), "UNSUPPORTED_CAPABILITY");
    assert!(error.to_string().contains("persona"), "{error}");
    host.end().await;
}

#[tokio::test]
async fn a_depth_is_limited_where_the_agent_keeps_to_it_and_refused_elsewhere() {
    let script = Script::prompted().chunk("ok").stop("end_turn");
    let host = Host::with(script.acp().depth_limit(true));
    assert_eq!(host.delegated(host.ask("x").max_depth(3)).await.text(), "ok");
    host.end().await;
    let host = Host::of(&script);
    assert_eq!(host.refusal(host.ask("x").max_depth(3)).await.code(), "UNSUPPORTED_CAPABILITY");
    host.end().await;
}

#[tokio::test]
async fn g01_a_run_that_is_cut_in_a_later_attempt_shows_those_before_it_and_its_own_words_alone() {
    let script = Script::opened()
        .expect("session/prompt")
        .chunk("three")
        .reply(json!({"stopReason": "end_turn", "usage": {"inputTokens": 10, "outputTokens": 1}}))
        .expect("session/prompt")
        .chunk("{\"n\"")
        .become_shell("sleep 1000");
    let host = Host::of(&script);
    let deadlines = Deadlines::new().total(Duration::from_millis(700));
    let result = host.delegated(asking(&host).deadlines(deadlines)).await;
    assert_eq!((&result.stop_reason, result.text()), (&StopReason::TimedOut, "{\"n\"".to_owned()));
    assert_eq!((result.details.schema_attempts.len(), result.details.messages), (1, Some(1)));
    assert_eq!(result.usage.as_ref().and_then(|usage| usage.input_tokens), Some(10));
    host.end().await;
}
