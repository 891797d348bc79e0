use super::{Cut, DEFAULT_ATTEMPTS, SchemaAsk, Verdict};
use crate::schema::{check, explain};
use proptest::{collection, option, prelude::*, sample};
use serde_json::{Map, Value, json};
use std::{num::NonZeroU32, sync::Arc};

fn ask(schema: Value, attempts: u32) -> SchemaAsk {
    SchemaAsk::new(&Arc::new(schema), NonZeroU32::new(attempts).expect("some")).expect("in the subset")
}

fn finding() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "line": {"type": "integer"},
            "level": {"enum": ["low", "high"]},
            "notes": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["path", "line"],
        "additionalProperties": false,
    })
}

#[track_caller]
fn again(ask: &mut SchemaAsk, answer: &str) -> String {
    let verdict = ask.submit(answer, None);
    let Verdict::Again(prompt) = verdict else { panic!("{answer}: {verdict:?}") };
    prompt
}

#[track_caller]
fn failed(ask: &mut SchemaAsk, answer: &str, cut: Option<Cut>) -> (String, String) {
    let verdict = ask.submit(answer, cut);
    let Verdict::Failed(diagnostic) = verdict else { panic!("{answer}: {verdict:?}") };
    (diagnostic.category().to_owned(), diagnostic.text().to_owned())
}

const GOOD: &str = r#"{"path": "a.rs", "line": 3}"#;

#[test]
fn spec_8_2_the_child_is_told_of_the_schema_and_that_only_the_value_counts() {
    let ask = ask(finding(), 4);
    let prompt = ask.ask("Find it.\n");
    assert!(prompt.starts_with("Find it.\n\nAnswer with one JSON value"), "{prompt}");
    assert!(prompt.contains("Only this value counts") && prompt.ends_with(ask.instruction()), "{prompt}");
    let (_, schema) = prompt.rsplit_once("\n\n").expect("the schema comes last");
    assert_eq!(serde_json::from_str::<Value>(schema).expect("whole"), finding());
}

#[test]
fn spec_8_1_a_schema_outside_the_subset_is_refused_with_every_violation() {
    let schema =
        json!({"type": "object", "pattern": "x", "properties": {"a": {"$ref": "http://127.0.0.1:9/s"}}});
    let error = SchemaAsk::new(&schema.into(), DEFAULT_ATTEMPTS).expect_err("refused");
    assert_eq!(error.violations.len(), 3, "{error}");
}

#[test]
fn g01_a_placeholder_after_rejected_attempts_is_accepted_and_shows_each_of_them() {
    let wrong = [r#"{"path": 3}"#, r#"{"path": 3}"#, "I cannot do this."];
    let mut patient = ask(json!({"type": "object", "properties": {"path": {"type": "string"}}}), 4);
    for (i, answer) in wrong.iter().enumerate() {
        let prompt = again(&mut patient, answer);
        assert!(prompt.contains(&format!("attempt {} of 4", i + 1)), "{prompt}");
    }
    assert_eq!(patient.submit("{}", None), Verdict::Accepted(json!({})));
    let errors: Vec<_> = patient.attempts().iter().map(|attempt| attempt.errors.len()).collect();
    assert_eq!(errors, [1, 1, 1, 0]);

    let mut strict = ask(json!({"type": "object", "properties": {"path": {"type": "string"}}}), 3);
    for answer in &wrong[..2] {
        again(&mut strict, answer);
    }
    let (category, text) = failed(&mut strict, wrong[2], None);
    assert_eq!(category, "schema-not-met");
    assert!(text.contains("3 attempts") && text.contains("no JSON"), "{text}");
    let (category, _) = failed(&mut strict, "{}", None);
    assert_eq!((category.as_str(), strict.attempts().len()), ("schema-not-met", 3));
}

#[test]
fn g02_each_wrong_payload_is_rejected_with_its_path_and_a_good_one_is_accepted_next() {
    for (wrong, told) in [
        (r#"{"path": 3, "line": 3}"#, "/path: expected a string, found a number"),
        (r#"{"path": "a.rs", "line": "3"}"#, "/line: expected a whole number, found a string"),
        (
            r#"{"path": "a.rs", "line": 3.5}"#,
            "/line: expected a whole number, found a number with a fraction",
        ),
        (r#"{"path": "a.rs"}"#, "/line: missing; expected a whole number"),
        (
            r#"{"path": "a.rs", "line": 3, "level": "medium"}"#,
            r#"/level: expected one of "low", "high", found another string"#,
        ),
        (r#"{"path": "a.rs", "line": 3, "level": null}"#, "/level: expected one of"),
        (
            r#"{"path": "a.rs", "line": 3, "a/b~": 1}"#,
            "/a~1b~0: not allowed here; the properties are `level`, `line`, `notes`, `path`",
        ),
        (r#"{"path": "a.rs", "line": 3, "notes": ["x", null]}"#, "/notes/1: expected a string, found null"),
        (r#"{"path": "a.rs", "line": 3, "notes": {}}"#, "/notes: expected a list, found an object"),
        (
            r#""{\"path\": \"a.rs\", \"line\": 3}""#,
            "(root): expected an object, found a string; JSON inside a string",
        ),
        (r#"[{"path": "a.rs", "line": 3}]"#, "(root): expected an object, found a list"),
        ("null", "(root): expected an object, found null"),
    ] {
        let mut ask = ask(finding(), 4);
        let prompt = again(&mut ask, wrong);
        if told.contains("properties are") && !prompt.contains(told) {
            // Where the order of names is kept.
            assert!(prompt.contains("/a~1b~0: not allowed here; the properties are `path`"), "{prompt}");
        } else {
            assert!(prompt.contains(told), "{told} is not in {prompt}");
        }
        assert!(prompt.ends_with(ask.instruction()), "the whole instruction is told again");
        assert_eq!(ask.attempts()[0].errors.len(), 1, "{wrong}: {:?}", ask.attempts());
        let good: Value = serde_json::from_str(GOOD).expect("good");
        assert_eq!(ask.submit(GOOD, None), Verdict::Accepted(good));
    }
}

#[test]
fn g02_an_alternative_is_told_by_the_nearest() {
    let shape = |kind: &str, size: &str| json!({"type": "object", "properties": {"kind": {"const": kind}, size: {"type": "number"}}, "required": ["kind", size]});
    let schema = json!({"type": "object", "properties": {
        "shape": {"oneOf": [{"type": "null"}, shape("circle", "radius"), shape("square", "side")]},
        "both": {"oneOf": [{"type": "number"}, {"type": "integer"}]},
    }});
    let mut ask = ask(schema, 9);
    for (wrong, told) in [
        (
            r#"{"shape": {"kind": "square", "side": "3"}}"#,
            &["/shape: matches none of the 3", "/oneOf/2", "/shape/side: expected a number"][..],
        ),
        (
            r#"{"shape": {"kind": "line"}}"#,
            &["the nearest is /oneOf/1", "/shape/kind: expected \"circle\"", "/shape/radius: missing"],
        ),
        (r#"{"both": 3}"#, &["/both: matches /oneOf/0, /oneOf/1; exactly one"]),
    ] {
        let prompt = again(&mut ask, wrong);
        assert!(told.iter().all(|told| prompt.contains(told)), "{wrong}: {prompt}");
    }
    let good = r#"{"shape": null, "both": 1.5}"#;
    assert!(matches!(ask.submit(good, None), Verdict::Accepted(_)));
}

#[test]
fn g04_a_cut_answer_is_no_answer_and_is_not_asked_for_again() {
    for (cut, told) in [(Cut::TokenLimit, "token limit"), (Cut::OutputBound, "bound on output")] {
        for answer in [r#"{"path": "a.rs", "li"#, "```json\n{\"path\": \"a", "", GOOD] {
            let mut ask = ask(finding(), 4);
            let (category, text) = failed(&mut ask, answer, Some(cut));
            assert_eq!(category, "schema-truncated");
            assert!(text.contains(told) && !text.contains("a.rs"), "{text}");
            assert_eq!(ask.attempts().len(), 1);
            assert_eq!(failed(&mut ask, GOOD, None).0, "schema-not-met", "it has settled");
        }
    }
}

#[test]
fn f07_what_the_child_gave_is_told_to_nobody() {
    let secret = "sk-ant-0123456789";
    let mut ask = ask(finding(), 5);
    for wrong in [
        format!(r#"{{"path": ["{secret}"], "line": "{secret}", "level": "{secret}"}}"#),
        format!(r#"{{"path": "{secret}", "line": {{"{secret}": 1}}}}"#),
        format!(r#"{{"path": "{secret}", "line": 3 "#),
        format!("the key is {secret}"),
    ] {
        assert!(!again(&mut ask, &wrong).contains(secret));
    }
    let (_, text) = failed(&mut ask, &format!("```\n{secret}\n```"), None);
    assert!(!text.contains(secret) && !format!("{:?}", ask.attempts()).contains(secret), "{text}");
}

#[test]
fn many_and_long_faults_are_bounded_and_steer_no_terminal() {
    let names: Vec<_> =
        (0..100_000).map(|i| format!("\"\\u001b]0;x\\u0007\\u202e{}{i}\": 1", "n".repeat(50))).collect();
    let begun = std::time::Instant::now();
    let flood = format!("{{{}, \"notes\": [{}]}}", names.join(","), "0,".repeat(1_000_000) + "0");
    let mut ask = ask(finding(), 2);
    let prompt = again(&mut ask, &flood);
    assert!(prompt.len() < 20 * 450 + 2_000 && prompt.contains("there are more"), "{}", prompt.len());
    let errors = &ask.attempts()[0].errors;
    assert!(errors.len() == 21 && errors.iter().all(|error| error.len() <= 400), "{errors:?}");
    assert!(!prompt.contains(['\u{1b}', '\u{7}', '\u{202e}']));
    let (_, text) = failed(&mut ask, &flood, None);
    assert!(text.len() <= 4096);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn the_deepest_schema_and_the_deepest_answer_fit_on_a_small_stack() {
    let mut schema = json!({"oneOf": [{"type": "null"}, {"type": "string"}]});
    let mut answer = "null".to_owned();
    for i in 0..60 {
        (schema, answer) = match i % 3 {
            0 => (json!({"type": "array", "items": schema}), format!("[{answer}]")),
            1 => (json!({"oneOf": [schema, {"type": "boolean"}]}), answer),
            _ => (json!({"type": "object", "properties": {"a": schema}}), format!("{{\"a\": {answer}}}")),
        };
    }
    let schema = json!({"type": "object", "properties": {"a": schema}});
    let thread = std::thread::Builder::new().stack_size(1024 * 1024).spawn(move || {
        let mut ask = ask(schema, 3);
        again(&mut ask, &format!("{{\"a\": {}}}", answer.replace("null", "3")));
        again(&mut ask, &"{\"a\":".repeat(100_000));
        assert!(matches!(ask.submit(&format!("{{\"a\": {answer}}}"), None), Verdict::Accepted(_)));
    });
    thread.expect("a thread").join().expect("no overflow");
}

#[test]
fn names_that_mean_something_elsewhere_are_names() {
    let names = ["$ref", "$id", "$schema", "$dynamicRef", "$anchor", "type", "properties", ""];
    let properties: Map<_, _> =
        names.iter().map(|name| ((*name).to_owned(), json!({"type": "integer"}))).collect();
    let schema =
        json!({"type": "object", "properties": properties, "required": names, "default": {"$ref": "#/no"}});
    let mut ask = ask(schema, 2);
    let answer =
        |value: Value| Value::Object(names.iter().map(|name| ((*name).to_owned(), value.clone())).collect());
    again(&mut ask, &answer(json!("x")).to_string());
    assert_eq!(ask.submit(&answer(json!(1)).to_string(), None), Verdict::Accepted(answer(json!(1))));
}

const fn is_send_and_sync<T: Send + Sync>() {}
const _: () = is_send_and_sync::<SchemaAsk>();

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        sample::select(vec![0.0, -0.0, 1.0, 1.5, -2.0, 1e300, 9_007_199_254_740_993.0]).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        sample::select(vec!["", "a", "b", "{}", "1", "null"]).prop_map(Value::from),
    ]
}

fn name() -> impl Strategy<Value = String> {
    sample::select(vec!["a", "b", "c", "a/b", "~", "$ref", "type"]).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            collection::btree_map(name(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn object(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    (collection::btree_map(name(), inner, 0..4), option::of(any::<bool>()), any::<u8>()).prop_map(
        |(properties, additional, required)| {
            let required: Vec<_> = properties
                .keys()
                .enumerate()
                .filter(|(i, _)| required >> i & 1 == 1)
                .map(|(_, name)| name)
                .collect();
            let mut schema = json!({"type": "object", "required": required, "properties": &properties});
            if let Some(additional) = additional {
                schema["additionalProperties"] = additional.into();
            }
            schema
        },
    )
}

fn schema() -> impl Strategy<Value = Value> {
    let kinds = vec!["object", "array", "string", "number", "integer", "boolean", "null"];
    let leaf = prop_oneof![
        3 => sample::select(kinds).prop_map(|kind| json!({"type": kind})),
        1 => collection::vec(scalar(), 1..4).prop_map(|options| json!({"enum": options})),
        1 => scalar().prop_map(|wanted| json!({"const": wanted})),
        1 => (scalar(), scalar()).prop_map(|(one, two)| json!({"type": "number", "enum": [one, two]})),
    ];
    let any = leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|item| json!({"type": "array", "items": item})),
            collection::vec(inner.clone(), 2..4).prop_map(|options| json!({"oneOf": options})),
            object(inner),
        ]
    });
    object(any)
}

/// A value that is likely to match, and is sometimes spoilt.
fn like(schema: &Value, spoil: &mut impl FnMut() -> usize) -> Value {
    if spoil() == 0 {
        return [json!("spoilt"), json!(1.5), json!({"a": null})][spoil() % 3].clone();
    }
    if let Some(options) = schema["enum"].as_array().or(schema["oneOf"].as_array()) {
        let option = &options[spoil() % options.len()];
        return if schema.get("oneOf").is_some() { like(option, spoil) } else { option.clone() };
    }
    match (schema.get("const"), schema["type"].as_str()) {
        (Some(wanted), _) => wanted.clone(),
        (_, Some("object")) => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            Value::Object(properties.map(|(name, property)| (name.clone(), like(property, spoil))).collect())
        }
        (_, Some("array")) => (0..spoil() % 4).map(|_| like(&schema["items"], spoil)).collect(),
        (_, Some("string")) => json!("a"),
        (_, Some("number")) => json!(1.5),
        (_, Some("integer")) => [json!(1), json!(2.0)][spoil() % 2].clone(),
        (_, Some("boolean")) => json!(true),
        _ => Value::Null,
    }
}

proptest! {
    #[test]
    fn any_schema_of_the_subset_compiles_and_is_explained_as_it_is_validated(
        schema in schema(),
        other in value(),
        choices in collection::vec(0_usize..12, 1..40),
    ) {
        prop_assert_eq!(check(&schema), Ok(()));
        let mut choices = choices.iter().cycle().copied();
        let close = like(&schema, &mut || choices.next().unwrap_or_default());
        let ask = ask(schema.clone(), 1);
        for value in [close, other] {
            let faults = explain::explain(&schema, &value);
            let valid = ask.validator.is_valid(&value);
            prop_assert_eq!(valid, faults.is_empty(), "{} {}: {:?}", schema, value, faults);
        }
    }

    #[test]
    fn submit_never_panics_and_ends_within_its_attempts(
        schema in schema(),
        attempts in 1_u32..6,
        answers in collection::vec((prop_oneof![
            any::<String>(),
            value().prop_map(|value| value.to_string()),
            value().prop_map(|value| format!("Here:\n```json\n{value:#}\n```\n")),
            "[`~ \n\\\\\"{}\\[\\]:,a0-9.eE+-]{0,60}",
        ], 0_u8..12), 1..10),
    ) {
        let mut ask = ask(schema, attempts);
        let mut settled = false;
        for (answer, cut) in &answers {
            let cut = match cut { 0 => Some(Cut::TokenLimit), 1 => Some(Cut::OutputBound), _ => None };
            let before = ask.attempts().len();
            let verdict = ask.submit(answer, cut);
            prop_assert_eq!(ask.attempts().len(), before + usize::from(!settled));
            match verdict {
                Verdict::Accepted(value) => {
                    prop_assert!(!settled && cut.is_none() && ask.validator.is_valid(&value));
                    settled = true;
                }
                Verdict::Again(prompt) => {
                    prop_assert!(!settled && prompt.ends_with(ask.instruction()));
                    prop_assert!(ask.attempts().len() < attempts as usize);
                }
                Verdict::Failed(_) => settled = true,
            }
            prop_assert!(ask.attempts().len() <= attempts as usize);
        }
    }
}
