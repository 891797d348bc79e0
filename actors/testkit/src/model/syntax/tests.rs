use super::*;

fn one(text: &str) -> Directive {
    let mut found = parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    assert_eq!(found.len(), 1, "{text}: {found:?}");
    found.remove(0)
}

fn step(text: &str) -> Step {
    one(text).step().cloned().unwrap_or_else(|| panic!("{text} is a step"))
}

fn call(name: &str, arguments: Value) -> Call {
    Call { name: name.into(), arguments }
}

#[test]
fn steps_are_read_as_they_are_written() {
    for (text, wanted) in [
        ("say [[reply:hi]] now", Step::Reply("hi".into())),
        ("[[reply:]]", Step::Reply(String::new())),
        ("[[reply:a: b@1\nc]]", Step::Reply("a: b@1\nc".into())),
        ("[[reply:[x]]]", Step::Reply("[x]".into())),
        ("[[json:{\"b\": [[1]],  \"a\": \"]]\"}]]", Step::Json("{\"b\": [[1]],  \"a\": \"]]\"}".into())),
        ("[[structured: [1] ]]", Step::Structured("[1]".into())),
        ("[[tool:ls]]", Step::Tools(vec![call("ls", json!({}))])),
        ("[[tool: ls {\"a\":[[1]]} ]]", Step::Tools(vec![call("ls", json!({"a": [[1]]}))])),
        ("[[tool:s/t{\"a\":\"]]\"}]]", Step::Tools(vec![call("s/t", json!({"a": "]]"}))])),
        (
            "[[tool:a {\"x\":\"%%\"} %% b%%c {}]]",
            Step::Tools(vec![call("a", json!({"x": "%%"})), call("b", json!({})), call("c", json!({}))]),
        ),
    ] {
        assert_eq!(step(text), wanted, "{text}");
    }
}

#[test]
fn modifiers_hold_for_all_steps_or_one() {
    let second = Duration::from_secs(1);
    for (text, step, wanted) in [
        ("[[http:500]]", None, Modifier::Http { status: 500, retry_after: None }),
        ("[[http:429:2@1]]", Some(1), Modifier::Http { status: 429, retry_after: Some(2 * second) }),
        ("[[httpx:3:503]]", None, Modifier::HttpFirst { times: 3, status: 503, retry_after: None }),
        (
            "[[httpx:1:429:1@0]]",
            Some(0),
            Modifier::HttpFirst { times: 1, status: 429, retry_after: Some(second) },
        ),
        ("[[stall:0.5]]", None, Modifier::Stall(second / 2)),
        ("[[midstall:1@2]]", Some(2), Modifier::StallMidway(second)),
        ("[[slow:1000]]", None, Modifier::Slow(second)),
        ("[[drop]]", None, Modifier::Drop),
        ("[[drop:@1]]", Some(1), Modifier::Drop),
        ("[[dropx:2]]", None, Modifier::DropFirst(2)),
        ("[[cut]]", None, Modifier::Cut),
        ("[[usage:10:20]]", None, Modifier::Usage(Usage { input: 10, output: 20 })),
        ("[[think:hm: so]]", None, Modifier::Think("hm: so".into())),
        ("[[think:me@home]]", None, Modifier::Think("me@home".into())),
    ] {
        assert_eq!(one(text), Directive::Modifier { step, modifier: wanted }, "{text}");
    }
    let late = one("[[http:500@1]]");
    assert!(late.modifier_at(0).is_none() && late.modifier_at(1).is_some() && late.step().is_none());
}

#[test]
fn what_is_no_directive_is_text() {
    for text in
        ["", "[[", "if [[ -f x ]]; then", "[[wiki]] and [[Reply:x]]", "[[tool", "[[replying:x]]", "[[tools]]"]
    {
        assert_eq!(parse(text), Ok(Vec::new()), "{text}");
    }
    assert_eq!(parse("[[[reply:a]] x [[ [[json:1]][[drop]]").map(|found| found.len()), Ok(3));
}

#[test]
fn a_wrong_directive_says_what_would_be_right() {
    for (text, hint) in [
        ("[[reply:x", "close it with ]]"),
        ("[[json:{]]", "[[json:{\"answer\": 42}]]"),
        ("[[json:]]", "[[json:"),
        ("[[json:1 2]]", "more than its JSON"),
        ("[[structured:x]]", "[[structured:"),
        ("[[tool:]]", "name is missing"),
        ("[[tool:a {]]", "its JSON is wrong"),
        ("[[tool:a 1]]", "arguments are wrong"),
        ("[[tool:a {} %% ]]", "name is missing"),
        ("[[http:200]]", "400 to 599"),
        ("[[http]]", "400 to 599"),
        ("[[http:429:soon]]", "Retry-After"),
        ("[[httpx:500]]", "how often"),
        ("[[stall:-1]]", "seconds"),
        ("[[stall:inf]]", "seconds"),
        ("[[stall:100000]]", "a day"),
        ("[[slow:1.5]]", "milliseconds"),
        ("[[drop:1]]", "[[drop:@1]]"),
        ("[[cut:1]]", "[[cut:@1]]"),
        ("[[dropx:x]]", "how often"),
        ("[[usage:1]]", "tokens"),
    ] {
        let fault = parse(text).expect_err(text).to_string();
        assert!(fault.contains(hint) && fault.contains(&text[..7]), "{text}: {fault}");
    }
    let long = format!("[[reply:{}", "é".repeat(500));
    assert!(parse(&long).expect_err("no end").to_string().len() < 300);
}
