//! What crosses the border between us and an agent: messages of every kind, noise, secrets, the place in the tree.

use super::{
    Script,
    agent::{SESSION, chunk},
    support::{Host, category, played, within},
};
use serde_json::{Value, json};
use std::{num::NonZeroU32, time::Duration};
use subagents::{
    Deadlines, StartRequest, StopReason, SubagentService,
    acp::{Decision, Permission},
};
use tokio::time::Instant;

#[tokio::test]
async fn b20_a_question_of_the_agents_is_no_answer_whatever_its_id() {
    let options = [("no", "reject_once")];
    // The prompt's own id is 3.
    for id in [json!(3), json!("three"), json!(0), json!(null), json!(-1.5)] {
        let script = Script::prompted()
            .ask(id.clone(), &options)
            .chunk("outcome $outcome")
            .say(json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn"}}));
        let result = played(&script).await;
        assert!(result.text().contains("'optionId':'no'"), "{id}: {result:?}");
    }
}

#[tokio::test]
async fn b20_what_is_not_offered_is_refused_with_its_name() {
    for method in
        ["fs/read_text_file", "fs/write_text_file", "terminal/create", "_vendor/ask", "elicitation/create"]
    {
        let script = Script::prompted()
            .request(json!("f"), method, json!({"sessionId": SESSION, "path": "/etc/passwd"}))
            .chunk("outcome $outcome")
            .stop("end_turn");
        let result = played(&script).await;
        let text = result.text();
        assert!(text.contains("-32601") && text.contains(&format!("{method} is not offered")), "{text}");
    }
}

#[tokio::test]
async fn b21_a_flood_in_both_directions_is_no_deadlock() {
    let pending = json!({"jsonrpc": "2.0", "method": "_vendor/noise", "params": {"x": "y".repeat(200)}});
    // It asks much, floods us, and does not read for a second: our answers fill its stdin, its words fill our pipe.
    let ask = json!({"jsonrpc": "2.0", "id": "q", "method": "_vendor/ask", "params": {}});
    let script = Script::prompted()
        .step(json!({"say": ask, "times": 3000}))
        .sleep(Duration::from_secs(1))
        .step(json!({"say": pending, "times": 10_000}))
        .ask(json!("p"), &[("no", "reject_once")])
        .chunk("outcome $outcome")
        .say(json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn"}}));
    let result = played(&script).await;
    assert!(result.text().contains("'optionId':'no'"), "{result:?}");
}

#[tokio::test]
async fn an_agent_that_asks_without_end_and_reads_nothing_is_ended() {
    let ask = json!({"jsonrpc": "2.0", "id": "q", "method": "_vendor/ask", "params": {}});
    let script = Script::prompted().chunk("part").step(json!({"say": ask, "times": 1_000_000}));
    let result = played(&script).await;
    assert_eq!(
        (&result.stop_reason, category(&result), result.text()),
        (&StopReason::Error, "protocol-error", "part".to_owned())
    );
    assert!(result.diagnostic.as_ref().expect("why").text().contains("did not read the answers"));
}

#[tokio::test]
async fn d07_lines_that_are_no_messages_are_counted_and_kept_out_of_the_answer() {
    let noise = ["Welcome to the agent!", "", "\u{1b}]0;title\u{7}", "\"hi\"", "[1, 2]", "17", "null", "{"];
    let noisy = |script: Script| noise.iter().fold(script, |script, line| script.raw(line));
    let script = noisy(Script::bare()).expect("initialize").reply(json!({"protocolVersion": 1}));
    let script = noisy(script).expect("session/new").reply(json!({"sessionId": SESSION}));
    let script = noisy(noisy(script).expect("session/prompt")).chunk("an");
    let result = played(&noisy(script).chunk("swer").stop("end_turn")).await;
    assert_eq!((&result.stop_reason, result.text()), (&StopReason::Completed, "answer".to_owned()));
    assert_eq!(result.details.stray_lines, Some(40));
    // Where something goes wrong, the first are told.
    let result = played(&noisy(Script::prompted()).exit(1)).await;
    let text = result.diagnostic.as_ref().expect("why").text().to_owned();
    assert!(text.contains("Welcome to the agent!") && !text.contains('\u{1b}'), "{text}");
}

#[tokio::test]
async fn d07_unknown_updates_and_notifications_are_tolerated() {
    let script = Script::prompted()
        .update(json!({"sessionUpdate": "quantum_update", "state": 1}))
        .say(json!({"jsonrpc": "2.0", "method": "_auth/status_update", "params": {}}))
        .say(json!({"jsonrpc": "2.0", "method": "session/update", "params": 7}))
        .say(json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "another", "update": chunk("not mine")}}))
        .chunk("fine")
        .stop("end_turn");
    assert_eq!(played(&script).await.text(), "fine");
}

#[tokio::test]
async fn garbage_without_end_ends_the_agent() {
    for script in [
        Script::prompted().chunk("part").raw_times(&"garbage ".repeat(1000), 5000),
        // One line without an end.
        Script::prompted().chunk("part").become_shell("exec yes x | tr -d '\\n' >&3"),
    ] {
        let begun = Instant::now();
        let result = played(&script).await;
        assert_eq!(
            (&result.stop_reason, category(&result), result.text()),
            (&StopReason::Error, "protocol-error", "part".to_owned())
        );
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn d15_foreign_line_ends_within_a_text_are_text() {
    let text = "a\u{2028}b\u{2029}c\u{85}d\u{b}e\u{c}f";
    let line = format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{SESSION}","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
    );
    let result = played(&Script::prompted().raw(&line).stop("end_turn")).await;
    assert_eq!((result.text(), result.details.stray_lines), (text.to_owned(), None));
}

fn said(text: &str, more: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{SESSION}","update":{{"sessionUpdate":"agent_message_chunk"{more},"content":{{"type":"text","text":"{text}"}}}}}}}}"#
    )
}

#[tokio::test]
async fn nothing_of_an_answer_is_lost_for_an_oddity_in_it() {
    let deep = format!(r#","_meta":{{"x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let script = Script::prompted()
        .raw(&format!("\u{feff}{}", said("begin, ", "")))
        .raw(&said(r"do NOT delete \ud83d", ""))
        .raw(&said(r"\ude00 the database, ", &deep))
        .raw(&said(r"\ud83d\ude00, ", ""))
        .raw(&said("end", r#","_meta":{"title":"\udc00"}"#))
        .stop("end_turn");
    let result = played(&script).await;
    assert_eq!(
        (result.text().as_str(), result.details.stray_lines),
        ("begin, do NOT delete \u{fffd}\u{fffd} the database, \u{1f600}, end", None)
    );
    // Bytes that are no text, in the answer and in what ends it.
    let bytes = format!(
        "printf '%s caf\\351 %s\\n' '{}' >&3; printf '{{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{{\"_meta\":\"\\377\",\"stopReason\":\"end_turn\"}}}}\\n' >&3; exec cat >/dev/null",
        said("TEXT", "").replace("TEXT", "' '")
    );
    let result = played(&Script::prompted().become_shell(&bytes)).await;
    assert_eq!((result.text().trim(), result.stop_reason.is_success()), ("caf\u{fffd}", true), "{result:?}");
}

#[tokio::test]
async fn an_agent_begins_as_it_likes_and_is_told_what_cannot_be_read() {
    let script = Script::bare().expect("initialize").raw(
        r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentInfo":{"name":"a\ud83d","version":"1"}}}"#,
    );
    let script = script.expect("session/new").reply(json!({"sessionId": SESSION})).expect("session/prompt");
    assert_eq!(played(&script.chunk("ok").stop("end_turn")).await.text(), "ok");
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1,"x":{}{}}}}}"#,
        "[".repeat(200),
        "]".repeat(200)
    );
    let host = Host::of(&Script::bare().expect("initialize").raw(&deep).become_shell("exec cat >/dev/null"));
    let error = host.refusal(host.ask("x")).await;
    assert_eq!(error.code(), "PROTOCOL_ERROR");
    assert!(error.to_string().contains("answered initialize with what cannot be read"), "{error}");
    host.end().await;
}

#[tokio::test]
async fn f07_a_secret_is_masked_in_a_value_too() {
    const KEY: &str = "{\"private\":\n\t\"hunter2-hunter2/~hunter2-hunter2/~hunter2-hunter2/~hunter2-hunter2/~hunter2-hunter2/~hunter2-hunter2\"}";
    let schema = json!({"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"], "additionalProperties": false});
    let told =
        |value: Value| Script::opened().expect("session/prompt").chunk(&value.to_string()).stop("end_turn");
    let host = Host::with(told(json!({"n": KEY})).acp().env("SA_KEY", KEY));
    let result = host.delegated(host.ask("x").output_schema(schema.clone())).await;
    assert_eq!(result.structured, Some(json!({"n": "[SA_KEY]"})), "{result:?}");
    host.end().await;
    // What does not match is named.
    let script = told(json!({KEY: 1})).expect("session/prompt").chunk("no").stop("end_turn");
    let acp = script.acp().env("SA_KEY", KEY).schema_attempts(NonZeroU32::new(2).expect("two"));
    let host = Host::with(acp);
    let result = host.delegated(host.ask("x").output_schema(schema)).await;
    let shown = format!("{result:?}");
    assert!(!shown.contains("hunter2") && shown.contains("SA_KEY"), "{shown}");
    host.end().await;
}

#[tokio::test]
async fn what_is_large_is_no_reason_to_lose_it() {
    let end =
        r#"printf '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}\n' >&3; exec cat >/dev/null"#;
    let large = "large=$(head -c 300000 /dev/zero | tr '\\0' x)";
    let (head, tail) = said("SPLIT", "")
        .split_once("SPLIT")
        .map(|(head, tail)| (head.to_owned(), tail.to_owned()))
        .expect("it is there");
    let chunk = format!("{large}; printf '%s' '{head}' \"$large\" '\\ud83d' '{tail}' >&3; echo >&3; {end}");
    let result = played(&Script::prompted().become_shell(&chunk)).await;
    assert_eq!((result.text().len(), result.text().ends_with("x\u{fffd}")), (300_003, true));
    // Its own id comes back to it, and it alone is more than may wait unread.
    let large = "large=$(head -c 5000000 /dev/zero | tr '\\0' x)";
    let question = r#"","method":"session/request_permission","params":{"sessionId":"the-session","toolCall":{"toolCallId":"t"},"options":[]}}"#;
    let ask = format!(
        "{large}; printf '%s' '{{\"jsonrpc\":\"2.0\",\"id\":\"' \"$large\" '{question}' >&3; echo >&3; \
         head -n 1 | head -c 100 >/dev/null; printf '%s\\n' '{}' >&3; {end}",
        said("answered", "")
    );
    let result = played(&Script::prompted().become_shell(&ask)).await;
    assert_eq!(result.text(), "answered", "{:?}", result.diagnostic);
}

#[tokio::test]
async fn the_environment_says_how_deep_the_agent_is() {
    let script = Script::prompted().become_shell(
        r#"printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"the-session","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"depth %s of %s, home %s"}}}}\n{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}\n' "$SUBAGENTS_DEPTH" "$SUBAGENTS_MAX_DEPTH" "${HOME:+there}" >&3; exec cat >/dev/null"#,
    );
    let service = SubagentService::builder()
        .provider("agent", script.acp())
        .root_depth(2)
        .max_depth(5)
        .build()
        .expect("a service");
    let root = service.root(std::env::temp_dir()).expect("a root");
    let result = within("a result", service.delegate("agent", StartRequest::new(&root, "x")))
        .await
        .expect("a clean one");
    assert_eq!(result.text(), "depth 3 of 5, home there");
    assert!(service.shutdown(Duration::from_secs(10)).await.is_clean());
}

#[tokio::test]
async fn f07_a_secret_that_the_agent_is_given_is_masked_wherever_it_says_it() {
    const SECRET: &str = "hunter2-hunter2-hunter2";
    let script = Script::prompted()
        .stderr(&format!("stderr {SECRET}"))
        .chunk("the key is hunter2-hun")
        .chunk("ter2-hunter2.")
        .fail(json!({"code": 1, "message": format!("bad key {SECRET}"), "data": {"key": SECRET}}));
    let host = Host::with(script.acp().env("AGENT_KEY", SECRET));
    let result = host.delegate("x").await;
    assert_eq!(result.text(), "the key is [AGENT_KEY].");
    let text = result.diagnostic.as_ref().expect("why").to_string();
    assert!(text.contains("bad key [AGENT_KEY]") && !text.contains(SECRET), "{text}");
    let told =
        format!("{result:?} {:?}", script.acp().env("AGENT_KEY", SECRET).permission(Permission::Allow));
    assert!(!told.contains(SECRET), "{told}");
    host.end().await;
}

#[tokio::test]
async fn f07_a_secret_is_masked_in_whatever_an_agent_names() {
    let secret = "sk-ant-0123456789-".repeat(8);
    let torn = format!("{}\u{1b}[0m{}", &secret[..20], &secret[20..]);
    let stop = json!({"stopReason": "end_turn"});
    let auth = json!([{"id": secret, "name": torn, "vars": [{"name": secret}]}]);
    let session = json!({"sessionId": SESSION, "modes": {"availableModes": [{"id": secret}]}});
    let asks = |name: &str| {
        let call = json!({"toolCallId": "t", "name": name});
        let params = json!({"sessionId": SESSION, "toolCall": call, "options": []});
        Script::prompted()
            .request(json!(0), "session/request_permission", params)
            .chunk("x")
            .say(json!({"jsonrpc": "2.0", "id": 3, "result": stop}))
    };
    for (script, mode) in [
        (Script::bare().expect("initialize").reply(json!({"protocolVersion": secret})), None),
        (
            Script::bare()
                .expect("initialize")
                .reply(json!({"protocolVersion": 1, "authMethods": auth}))
                .expect("session/new")
                .fail(json!({"code": -32000, "message": torn})),
            None,
        ),
        (Script::initialized().expect("session/new").reply(session), Some("zz")),
        (Script::bare().raw(&torn).expect("initialize").exit(1), None),
        (asks(&secret), None),
        (asks(&format!("{}{secret}", "x".repeat(83))), None),
        (asks(&torn), None),
        (Script::prompted().stop(&torn), None),
        (
            Script::prompted().fail(json!({"code": secret, "message": torn, "data": {torn.clone(): secret}})),
            None,
        ),
    ] {
        let acp = script.acp().env("AGENT_KEY", &secret);
        let host = Host::with(mode.map_or(acp.clone(), |mode| acp.mode(mode)));
        let told = format!("{:?}", within("an outcome", host.service.delegate("agent", host.ask("x"))).await);
        assert!(told.contains("[AGENT_KEY]") && !told.contains(&secret[..12]), "{told}");
        host.end().await;
    }
}

#[tokio::test]
async fn a_question_that_is_large_is_answered_by_the_policy_like_any_other() {
    // A shell makes it: no variable holds so much.
    let question = format!(
        r#"{{"jsonrpc":"2.0","id":9,"method":"session/request_permission","params":{{"sessionId":"{SESSION}","toolCall":{{"toolCallId":"t","kind":"edit","rawInput":"%s"}},"options":[{{"optionId":"yes","name":"y","kind":"allow_once"}}]}}}}\n"#
    );
    let end = r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"refusal"}}"#;
    let shell = format!(
        "x=$(head -c 1000000 /dev/zero | tr '\\0' x); printf '{question}' \"$x\" >&3; read a; case $a in *'\"yes\"'*) echo '{end}' >&3;; esac; exec cat >/dev/null"
    );
    for (permission, reason) in [
        (Permission::Allow, None),
        (Permission::Reject, Some("the permission policy is `reject`")),
        (
            Permission::ask(|_| async { Decision::Allow }),
            Some("what it asks is too large to be decided by a callback"),
        ),
    ] {
        let host = Host::with(Script::prompted().become_shell(&shell).acp().permission(permission));
        let result =
            host.delegated(host.ask("x").deadlines(Deadlines::new().total(Duration::from_secs(2)))).await;
        let denied: Vec<_> = result.details.denied_calls.iter().map(|denied| &*denied.reason).collect();
        assert_eq!(denied, reason.into_iter().collect::<Vec<_>>(), "{result:?}");
        let stop = if reason.is_none() { StopReason::Refusal } else { StopReason::TimedOut };
        assert_eq!(result.stop_reason, stop, "{result:?}");
        host.end().await;
    }
}
