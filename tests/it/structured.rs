//! Structured output through the whole runtime: a provider whose child speaks text, the shared ask–validate–ask again, and
//! the one result that comes of it.

use serde_json::{Value, json};
use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex},
};
use subagents::{
    Capabilities, Details, DynProvider, StartRequest, StopReason, SubagentResult, SubagentService,
    provider_fn,
    schema::{Cut, SchemaAsk, Verdict},
};
use subagents_testkit::{Script, Scripted};

/// What the child was told, in order.
type Told = Arc<Mutex<Vec<String>>>;

/// A child that gives these answers one after the other, whatever it is told; an answer that ends in `…` was cut by the
/// token limit. Written as a provider of any foreign agent would be.
fn speaker(attempts: u32, answers: &'static [&'static str], told: &Told) -> DynProvider {
    let attempts = NonZeroU32::new(attempts).expect("some");
    let told = told.clone();
    provider_fn(Capabilities::NONE.with_output_schema(), move |start, _run| {
        let told = told.clone();
        async move {
            let prompt = start.prompt().to_text();
            let schema = start.output_schema().expect("a schema is asked for");
            let mut ask = SchemaAsk::new(schema, attempts).expect("the service has checked it");
            let mut next = ask.ask(&prompt);
            let mut answers = answers.iter();
            let mut result = loop {
                told.lock().expect("nobody panics").push(next);
                let answer = *answers.next().expect("it is asked no more than that");
                let cut = answer.ends_with('…').then_some(Cut::TokenLimit);
                match ask.submit(answer, cut) {
                    Verdict::Again(prompt) => next = prompt,
                    Verdict::Accepted(value) => {
                        break SubagentResult::completed(answer).with_structured(value);
                    }
                    Verdict::Failed(diagnostic) => {
                        let reason = if cut.is_some() { StopReason::MaxTokens } else { StopReason::Error };
                        break SubagentResult::new(reason, answer).with_diagnostic(diagnostic);
                    }
                }
            };
            let mut details = Details::default();
            details.schema_attempts = ask.attempts().to_vec();
            result.details = details;
            Ok(result)
        }
    })
    .into()
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"file": {"type": "string"}, "level": {"enum": ["low", "high"]}},
        "required": ["file"],
        "additionalProperties": false,
    })
}

async fn delegate(provider: impl Into<DynProvider>) -> Arc<SubagentResult> {
    let service = SubagentService::builder().provider("it", provider).build().expect("a service");
    let root = service.root(std::env::temp_dir()).expect("a root");
    let request = StartRequest::new(&root, "Find the bug.").output_schema(schema());
    service.delegate("it", request).await.expect("a result")
}

#[tokio::test]
async fn g02_wrong_payloads_are_fed_back_with_their_paths_and_a_good_one_is_accepted() {
    const ANSWERS: [&str; 6] = [
        r#"{"file": 3}"#,
        "{}",
        r#"{"file": "a", "level": "worst"}"#,
        r#"{"file": "a", "line": 3}"#,
        r#""{\"file\": \"a\"}""#,
        "It is:\n```json\n{\"file\": \"a\"}\n```",
    ];
    let told = Told::default();
    let result = delegate(speaker(6, &ANSWERS, &told)).await;
    assert_eq!(
        (&result.stop_reason, &result.structured),
        (&StopReason::Completed, &Some(json!({"file": "a"})))
    );
    let told = told.lock().expect("nobody panics");
    assert!(told[0].starts_with("Find the bug.\n\n"), "{}", told[0]);
    for (prompt, path) in
        told[1..].iter().zip(["/file: expected", "/file: missing", "/level: ", "/line: not", "(root): "])
    {
        assert!(prompt.contains(path), "{path} is not in {prompt}");
    }
    assert_eq!(result.details.schema_attempts.len(), 6);
}

#[tokio::test]
async fn g01_a_placeholder_after_three_rejected_attempts_is_seen_in_the_result() {
    const ANSWERS: [&str; 4] = ["I cannot.", "[]", "{}", r#"{"file": ""}"#];
    let late = delegate(speaker(4, &ANSWERS, &Told::default())).await;
    assert!(late.stop_reason.is_success() && late.diagnostic.is_none());
    let errors: Vec<_> = late.details.schema_attempts.iter().map(|attempt| attempt.errors.len()).collect();
    assert_eq!(errors, [1, 1, 1, 0]);

    let failed = delegate(speaker(3, &ANSWERS, &Told::default())).await;
    let diagnostic = failed.diagnostic.as_ref().expect("it is told");
    assert_eq!((&failed.stop_reason, diagnostic.category()), (&StopReason::Error, "schema-not-met"));
    assert!(diagnostic.text().contains("/file: missing"), "{diagnostic}");
    assert_eq!(
        (failed.text().as_str(), &failed.structured, failed.details.schema_attempts.len()),
        ("{}", &None, 3)
    );
}

#[tokio::test]
async fn g04_an_answer_that_was_cut_is_a_failure_with_the_raw_text_as_partial() {
    let told = Told::default();
    let result = delegate(speaker(4, &["{\"file\": \"a…"], &told)).await;
    let diagnostic = result.diagnostic.as_ref().expect("it is told");
    assert_eq!((&result.stop_reason, diagnostic.category()), (&StopReason::MaxTokens, "schema-truncated"));
    assert_eq!((result.text().as_str(), &result.structured), ("{\"file\": \"a…", &None));
    assert_eq!(told.lock().expect("nobody panics").len(), 1, "it is not asked again");
}

#[tokio::test]
async fn spec_8_7_a_provider_that_lets_words_pass_as_the_value_gets_an_error() {
    let careless = Scripted::new(Script::answer("{\"file\": \"a\"}"));
    let result = delegate(careless.capabilities(Capabilities::NONE.with_output_schema())).await;
    let category = result.diagnostic.as_ref().map(subagents::Diagnostic::category);
    assert_eq!((&result.stop_reason, category), (&StopReason::Error, Some("schema-not-met")));
    assert_eq!((result.text().as_str(), &result.structured), ("{\"file\": \"a\"}", &None));
}
