//! From a process to a session, and every way in which that fails.

use super::{
    Script,
    agent::SESSION,
    support::{Host, played, within},
};
use serde_json::{Value, json};
use std::{ffi::OsString, os::unix::ffi::OsStringExt, time::Duration};
use subagents::{
    Acp, AgentOptions, CancellationToken, Deadlines, Event, EventStream, StartError, StopReason,
    acp::{KnownAgent, McpServer, Permission},
};
use tokio::time::Instant;

fn lifecycle(events: &mut EventStream) -> usize {
    let mut count = 0;
    while let Some(event) = events.try_next() {
        count += usize::from(matches!(event.expect("nothing is lost"), Event::Started(_) | Event::Ended(_)));
    }
    count
}

#[tokio::test]
async fn spec_18_1_it_is_published_when_the_session_is_made() {
    // It makes the session late, and says then what it was asked until then.
    let script = Script::initialized()
        .expect("session/new")
        .sleep(Duration::from_millis(300))
        .reply(json!({"sessionId": SESSION}))
        .expect("session/prompt")
        .chunk("hi")
        .stop("end_turn");
    let host = Host::of(&script);
    let mut events = host.service.events();
    let starting = host.service.start("agent", host.ask("x"));
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(lifecycle(&mut events), 0);
    let run = within("a start", starting).await.expect("it starts");
    assert_eq!(within("a result", run.result()).await.expect("a value").text(), "hi");
    run.dispose().await.expect("nothing is left");
    assert_eq!(lifecycle(&mut events), 2);
    host.end().await;
}

#[tokio::test]
async fn spec_18_1_a_session_without_an_id_is_no_session() {
    for answer in [json!({}), json!({"sessionId": 7}), json!({"sessionId": ""}), json!(null), json!("s")] {
        let host = Host::of(&Script::initialized().expect("session/new").reply(answer.clone()));
        let error = host.refusal(host.ask("x")).await;
        assert_eq!(error.code(), "PROTOCOL_ERROR", "{answer}: {error}");
        assert!(error.to_string().contains("sessionId"), "{error}");
        assert_eq!(host.mark.alive(), [""; 0], "it is gone when the start is refused");
        host.end().await;
    }
}

#[tokio::test]
async fn spec_18_1_a_start_that_is_cancelled_before_spawns_nothing() {
    let temp = tempfile::tempdir().expect("a folder");
    let marker = temp.path().join("started");
    let host = Host::with(Acp::new("sh").args(["-c", &format!("touch {}", marker.display())]));
    let token = CancellationToken::new();
    token.cancel();
    assert_eq!(host.refusal(host.ask("x").token(token)).await.code(), "CANCELLED");
    assert!(!marker.exists());
    host.end().await;
}

#[tokio::test]
async fn spec_18_1_a_start_that_is_cancelled_on_its_way_leaves_nothing() {
    let host = Host::of(&Script::initialized().expect("session/new").become_shell("sleep 1000 & sleep 1000"));
    let token = CancellationToken::new();
    let starting = host.service.start("agent", host.ask("x").token(token.clone()));
    let task = async { within("a refusal", starting).await.expect_err("it is cancelled") };
    let cancel = async {
        while host.mark.alive().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        token.cancel();
    };
    let (error, ()) = tokio::join!(task, cancel);
    assert_eq!(error.code(), "CANCELLED");
    assert_eq!(host.mark.alive(), [""; 0]);
    host.end().await;
}

#[tokio::test]
async fn a01_a_program_that_does_not_speak_the_protocol_is_told_with_its_command_and_its_stderr() {
    for (command, stderr) in [
        (&["sh", "-c", "sleep 1000; true"][..], "no stderr"),
        (&["sh", "-c", "echo 'which login?' >&2; exec sleep 1000"], "which login?"),
    ] {
        let host = Host::with(Acp::new(command[0]).args(&command[1..]));
        let begun = Instant::now();
        let request = host.ask("x").deadlines(Deadlines::new().start(Duration::from_millis(500)));
        let error = host.refusal(request).await;
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        assert_eq!(error.code(), "START_TIMEOUT");
        let text = error.to_string();
        for part in ["in 500ms", "no answer to initialize", &command.join(" "), stderr] {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
        assert_eq!(host.mark.alive(), [""; 0]);
        host.end().await;
    }
    // Its echo of our own words is no answer.
    let host = Host::with(Acp::new("cat"));
    let error = host.refusal(host.ask("x")).await;
    assert_eq!(error.code(), "PROTOCOL_ERROR");
    assert!(error.to_string().contains("cat repeats what it is sent"), "{error}");
    host.end().await;
}

#[tokio::test]
async fn a02_a_version_of_the_wrong_kind_is_read_or_refused_with_its_code() {
    let with = |version: Option<Value>| {
        let mut answer = json!({});
        if let Some(version) = version {
            answer["protocolVersion"] = version;
        }
        Script::bare().expect("initialize").reply(answer)
    };
    let host = Host::of(
        &with(Some(json!("1")))
            .expect("session/new")
            .reply(json!({"sessionId": SESSION}))
            .expect("session/prompt")
            .chunk("hi")
            .stop("end_turn"),
    );
    assert_eq!(host.delegate("x").await.text(), "hi");
    host.end().await;
    for (version, told) in [
        (Some(json!(99)), "version 99"),
        (Some(json!("two")), "version \"two\""),
        (Some(json!(null)), "no version"),
        (None, "no version"),
    ] {
        let host = Host::of(&with(version));
        let error = host.refusal(host.ask("x")).await;
        assert_eq!(error.code(), "UNSUPPORTED_PROTOCOL_VERSION", "{error}");
        assert!(error.to_string().contains(told), "{error}");
        host.end().await;
    }
}

#[tokio::test]
async fn a05_a_missing_interpreter_is_told_with_its_words_and_the_path() {
    let host = Host::with(
        Acp::new("/bin/sh")
            .args(["-c", "echo 'env: node: No such file' >&2; exit 127"])
            .env("PATH", "/nowhere/bin"),
    );
    let begun = Instant::now();
    let error = host.refusal(host.ask("x")).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(error.code(), "EXITED_BEFORE_READY");
    for part in ["exit code 127", "before it answered initialize", "/nowhere/bin", "env: node: No such file"]
    {
        assert!(error.to_string().contains(part), "{part:?} is not in: {error}");
    }
    host.end().await;
}

#[tokio::test]
async fn a08_an_exit_during_initialize_fails_at_once_and_leaves_nothing() {
    let host = Host::of(&Script::bare().expect("initialize").stderr("no such session").exit(1));
    let mut quickest = Duration::MAX;
    for _ in 0..20 {
        let begun = Instant::now();
        let error = host.refusal(host.ask("x")).await;
        quickest = quickest.min(begun.elapsed());
        assert_eq!(error.code(), "EXITED_BEFORE_READY");
        assert!(error.to_string().contains("no such session"), "{error}");
    }
    // A busy machine may take its time now and then; it never waits for a deadline.
    assert!(quickest < Duration::from_millis(200), "{quickest:?}");
    assert_eq!(host.mark.alive(), [""; 0]);
    host.end().await;
}

#[tokio::test]
async fn spec_18_1_a_clean_exit_is_no_start() {
    for script in [Script::bare().exit(0), Script::initialized().exit(0)] {
        let host = Host::of(&script);
        let error = host.refusal(host.ask("x")).await;
        assert_eq!(error.code(), "EXITED_BEFORE_READY", "{error}");
        assert!(error.to_string().contains("exit code 0"), "{error}");
        host.end().await;
    }
}

#[tokio::test]
async fn a_stdout_that_is_closed_is_told_from_an_exit() {
    let host = Host::of(&Script::bare().expect("initialize").become_shell("exec 3>&-; exec sleep 1000"));
    let error = host.refusal(host.ask("x")).await;
    assert_eq!(error.code(), "PROTOCOL_ERROR");
    assert!(error.to_string().contains("closed its stdout"), "{error}");
    assert_eq!(host.mark.alive(), [""; 0]);
    host.end().await;
}

/// An agent that wants a sign-in before it makes a session.
fn wants_sign_in(methods: &Value) -> Script {
    let error = json!({"code": -32000, "message": "Authentication required"});
    Script::bare()
        .expect("initialize")
        .reply(json!({"protocolVersion": 1, "authMethods": methods}))
        .expect("session/new")
        .fail(error)
}

#[tokio::test]
async fn a07_a_sign_in_that_the_environment_satisfies_is_done_once() {
    let methods = json!([
        {"id": "browser", "name": "Log in"},
        {"id": "key", "name": "API key", "type": "env_var", "vars": [{"name": "SCRIPTED_KEY"}]},
    ]);
    let signed_in = wants_sign_in(&methods)
        .expect("authenticate")
        .reply(json!({}))
        .expect("session/new")
        .reply(json!({"sessionId": SESSION}))
        .expect("session/prompt")
        .chunk("in")
        .stop("end_turn");
    let host = Host::with(signed_in.acp().env("SCRIPTED_KEY", "a key of the agent"));
    assert_eq!(host.delegate("x").await.text(), "in");
    host.end().await;

    // By configuration, where nothing tells what satisfies it.
    let host = Host::with(signed_in.acp().auth_method("browser"));
    assert_eq!(host.delegate("x").await.text(), "in");
    host.end().await;

    // Nothing satisfies it: the ways are named, and nothing hangs.
    let host = Host::of(&signed_in);
    let error = host.refusal(host.ask("x")).await;
    assert_eq!(error.code(), "AUTH_REQUIRED");
    for part in ["browser (Log in)", "key (API key, by SCRIPTED_KEY)", "pass_env"] {
        assert!(error.to_string().contains(part), "{part:?} is not in: {error}");
    }
    assert_eq!(host.mark.alive(), [""; 0]);
    host.end().await;

    // Once is enough.
    let never = wants_sign_in(&methods)
        .expect("authenticate")
        .reply(json!({}))
        .expect("session/new")
        .fail(json!({"code": -32000, "message": "still not"}));
    let host = Host::with(never.acp().env("SCRIPTED_KEY", "a key of the agent"));
    let error = host.refusal(host.ask("x")).await;
    assert_eq!(error.code(), "AUTH_REQUIRED");
    assert!(error.to_string().contains("still not"), "{error}");
    host.end().await;
}

#[tokio::test]
async fn an_error_of_the_session_is_the_error_of_the_start() {
    let script =
        Script::initialized().expect("session/new").fail(json!({"code": -32603, "message": "no disk"}));
    let host = Host::of(&script);
    let error = host.refusal(host.ask("x")).await;
    assert_eq!(error.code(), "PROVIDER_FAILED");
    assert!(error.to_string().contains("sh refused session/new: no disk (code -32603)"), "{error}");
    host.end().await;
}

/// An agent with two modes and two models that tells what it was set to.
fn choosy() -> Script {
    Script::initialized().expect("session/new").reply(json!({
        "sessionId": SESSION,
        "modes": {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "plan", "name": "Plan"}]},
        "configOptions": [{"id": "llm", "category": "model", "type": "select", "options": [{"value": "small"}, {"value": "large"}]}],
    }))
}

#[tokio::test]
async fn mode_and_model_are_set_before_the_first_prompt_or_fail_the_start() {
    let script = choosy()
        .expect("session/set_mode")
        .reply(json!({}))
        .expect("session/set_config_option")
        .reply(json!({"configOptions": []}))
        .expect("session/prompt")
        .chunk("$all")
        .stop("end_turn");
    let host = Host::with(script.acp().mode("plan").model("small"));
    let told = host.delegate("x").await.text();
    for part in ["'modeId':'plan'", "'configId':'llm'", "'value':'small'"] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    // A request may ask for another model.
    let large = host.ask("x").agent_options(AgentOptions::new().model("large"));
    let told = host.delegated(large).await.text();
    assert!(told.contains("'value':'large'") && !told.contains("'value':'small'"), "{told}");
    let none = host.ask("x").agent_options(AgentOptions::new().model("huge"));
    let error = host.refusal(none).await;
    assert_eq!(error.code(), "PROVIDER_FAILED");
    assert!(error.to_string().contains("sh has no model `huge`; it has small, large"), "{error}");
    // What it cannot honour is refused before there is an agent.
    let effort = host.ask("x").agent_options(AgentOptions::new().effort("high"));
    assert_eq!(host.refusal(effort).await.code(), "UNSUPPORTED_CAPABILITY");
    host.end().await;

    let host = Host::with(choosy().acp().mode("yolo"));
    let error = host.refusal(host.ask("x")).await;
    assert!(error.to_string().contains("sh has no mode `yolo`; it has ask, plan"), "{error}");
    host.end().await;
}

#[tokio::test]
async fn a_known_agent_asks_before_it_acts_unless_another_mode_is_set() {
    let codex = KnownAgent::named("codex-acp").expect("it is known");
    let session = |modes: Value| {
        let session = json!({"sessionId": SESSION, "modes": {"availableModes": modes}});
        Script::initialized().expect("session/new").reply(session)
    };
    let modes = json!([{"id": "auto"}, {"id": "read-only"}]);
    let prompted = |script: Script| script.expect("session/prompt").chunk("$all").stop("end_turn");
    let careful = prompted(session(modes).expect("session/set_mode").reply(json!({})));
    // A mode that is set holds, and an agent that has none of that name has its own ways.
    for (acp, mode) in [
        (careful.acp().known(codex), Some("read-only")),
        (careful.acp().known(codex).mode("auto"), Some("auto")),
        // Where everything is allowed, too: in other modes Codex has a model decide.
        (careful.acp().known(codex).permission(Permission::Allow), Some("read-only")),
        (prompted(session(json!([{"id": "other"}]))).acp().known(codex), None),
    ] {
        let host = Host::with(acp);
        let told = host.delegate("x").await.text();
        assert_eq!(told.contains("modeId"), mode.is_some(), "{told}");
        assert!(mode.is_none_or(|mode| told.contains(&format!("'modeId':'{mode}'"))), "{told}");
        host.end().await;
    }
}

#[tokio::test]
async fn mcp_servers_are_handed_over_where_the_agent_can_use_them() {
    let script = Script::prompted().chunk("$all").stop("end_turn");
    let files = McpServer::stdio("files", "/bin/files", ["--ro"]).with("ROOT", "/srv");
    let host = Host::with(script.acp().mcp_server(files));
    let told = host.delegate("x").await.text();
    for part in [
        "'name':'files'",
        "'command':'/bin/files'",
        "'args':['--ro']",
        "{'name':'ROOT','value':'/srv'}",
        "{'name':'SUBAGENTS_DEPTH','value':'1'}",
    ] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    host.end().await;
    let host = Host::with(Script::prompted().acp().mcp_server(McpServer::http("web", "http://127.0.0.1:9")));
    let error = host.refusal(host.ask("x")).await;
    assert!(error.to_string().contains("cannot connect to the MCP server web"), "{error}");
    host.end().await;
}

#[tokio::test]
async fn a_directory_that_the_protocol_cannot_name_is_refused_before_there_is_an_agent() {
    let temp = tempfile::tempdir().expect("a folder");
    let odd = temp.path().join(OsString::from_vec(b"caf\xe9".to_vec()));
    std::fs::create_dir(&odd).expect("it can be made");
    let host = Host::with(Script::prompted().acp().cwd(&odd));
    let error = host.refusal(host.ask("x")).await;
    assert_eq!(error.code(), "CWD_NOT_USABLE");
    assert!(error.to_string().contains("not UTF-8"), "{error}");
    host.end().await;
}

#[tokio::test]
async fn a_start_that_is_cut_short_is_undone_within_a_short_grace_and_says_why() {
    let stubborn = "trap '' TERM; while :; do sleep 0.05; done";
    let host = Host::of(&Script::initialized().expect("session/new").become_shell(stubborn));
    let deadlines =
        Deadlines::new().start(Duration::from_millis(400)).cancel_grace(Duration::from_millis(300));
    let error = host.refusal(host.ask("x").deadlines(deadlines)).await;
    assert_eq!(error.code(), "START_TIMEOUT");
    assert!(error.to_string().contains("no answer to session/new"), "{error}");
    assert_eq!(host.mark.alive(), [""; 0], "it is gone when the start is refused");
    host.end().await;
}

#[tokio::test]
async fn the_end_of_a_long_stderr_is_told() {
    let words = format!("{}the cause", "a line of a stack trace\n".repeat(400));
    let host = Host::of(&Script::bare().raw("Welcome!").expect("initialize").stderr(&words).exit(1));
    let error = host.refusal(host.ask("x")).await.to_string();
    assert!(error.contains("Welcome!") && error.contains("the cause"), "{error}");
    host.end().await;
}

#[tokio::test]
async fn a07_a_sign_in_that_is_wanted_with_the_first_prompt_is_done_once() {
    let methods =
        json!([{"id": "key", "name": "API key", "type": "env_var", "vars": [{"name": "SCRIPTED_KEY"}]}]);
    let wanted = |message: &str| json!({"code": -32000, "message": message});
    let late = Script::bare()
        .expect("initialize")
        .reply(json!({"protocolVersion": 1, "authMethods": methods}))
        .expect("session/new")
        .reply(json!({"sessionId": SESSION}))
        .expect("session/prompt")
        .fail(wanted("Please run /login"));
    let tried = late.clone().expect("authenticate").reply(json!({})).expect("session/prompt");
    let key = |script: &Script| script.acp().env("SCRIPTED_KEY", "a key of the agent");

    let host = Host::with(key(&tried.clone().chunk("in: $prompt").stop("end_turn")));
    assert_eq!(host.delegate("hello").await.text(), "in: hello");
    host.end().await;
    for acp in [late.acp(), key(&tried.fail(wanted("still")))] {
        let host = Host::with(acp);
        let result = host.delegate("x").await;
        let diagnostic = result.diagnostic.clone().expect("why");
        assert_eq!(diagnostic.category(), "auth-required");
        assert!(diagnostic.text().contains("key (API key, by SCRIPTED_KEY)"), "{diagnostic}");
        host.end().await;
    }
}

#[tokio::test]
async fn a07_a_sign_in_that_is_cancelled_or_fails_sends_no_second_prompt() {
    let temp = tempfile::tempdir().expect("a folder");
    let log = temp.path().join("log");
    let methods =
        json!([{"id": "key", "name": "API key", "type": "env_var", "vars": [{"name": "SCRIPTED_KEY"}]}]);
    let late = Script::bare()
        .expect("initialize")
        .reply(json!({"protocolVersion": 1, "authMethods": methods}))
        .expect("session/new")
        .reply(json!({"sessionId": SESSION}))
        .expect("session/prompt");
    let wanted = json!({"code": -32000, "message": "Please run /login"});
    let key = |script: &Script| script.acp().env("SCRIPTED_KEY", "a key of the agent");

    // It answers the sign-in when the run is cancelled, and tells what it is sent then.
    let slow = late
        .clone()
        .fail(wanted.clone())
        .expect("authenticate")
        .run(&format!("touch {}.asked", log.display()));
    let slow = slow
        .sleep(Duration::from_millis(500))
        .reply(json!({}))
        .become_shell(&format!("exec cat > {}", log.display()));
    let host = Host::with(key(&slow));
    let run = host.start().await;
    within("the sign-in", async {
        while !temp.path().join("log.asked").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    run.cancel(subagents::CancelCause::REQUESTED);
    assert_eq!(within("a result", run.result()).await.expect("a value").stop_reason, StopReason::Aborted);
    run.dispose().await.expect("nothing is left");
    assert!(!std::fs::read_to_string(&log).unwrap_or_default().contains("session/prompt"));
    host.end().await;

    // What it did would be done twice.
    let worked = late.clone().tool("t", "completed").fail(wanted.clone());
    let invalid = late.fail(wanted).expect("authenticate").fail(json!({"code": 1, "message": "invalid key"}));
    for (script, category, part) in
        [(worked, "auth-required", "Please run /login"), (invalid, "agent-error", "invalid key")]
    {
        let host = Host::with(key(&script));
        let diagnostic = host.delegate("x").await.diagnostic.clone().expect("why");
        assert_eq!(diagnostic.category(), category, "{diagnostic}");
        assert!(diagnostic.text().contains(part), "{diagnostic}");
        host.end().await;
    }
}

#[tokio::test]
async fn an_agent_is_asked_who_it_is() {
    let long = Duration::from_secs(10);
    // It is handed no servers, and its session is closed where it offers that.
    let temp = tempfile::tempdir().expect("a folder");
    let marker = temp.path().join("closed");
    let script = Script::bare()
        .expect("initialize")
        .reply(json!({
            "protocolVersion": 1,
            "agentInfo": {"name": "scripted", "version": "1.0"},
            "agentCapabilities": {"sessionCapabilities": {"close": {}}},
        }))
        .expect("session/new")
        .reply(json!({"sessionId": SESSION}))
        .expect("session/close")
        .run(&format!("touch {}", marker.display()))
        .reply(json!({}));
    let acp = script.acp().mcp_server(McpServer::stdio("files", "/no/such/server", [""; 0]));
    let agent = within("an answer", acp.probe(&std::env::temp_dir(), long)).await.expect("it works");
    assert_eq!((agent.to_string().as_str(), agent.version()), ("scripted 1.0", Some("1.0")));
    assert!(marker.exists());
    let fails = async |acp: Acp, patience| {
        within("an answer", acp.probe(&std::env::temp_dir(), patience)).await.expect_err("it does not work")
    };
    let broken = fails(Script::bare().expect("initialize").exit(3).acp(), long).await;
    assert_eq!(broken.code().as_str(), "EXITED_BEFORE_READY");
    assert_eq!(fails(Acp::new("no-such-agent"), long).await.code().as_str(), "NOT_ON_PATH");
    let slow = Acp::new("sh").args(["-c", "echo wait >&2; exec sleep 1000"]);
    let slow = fails(slow, Duration::from_millis(300)).await.to_string();
    assert!(slow.contains("no answer to initialize") && slow.contains("wait"), "{slow}");
}

#[tokio::test]
async fn a_start_error_names_the_place_that_is_not_usable() {
    let host = Host::with(Script::prompted().acp().cwd("/no/such/folder"));
    let error: StartError = host.refusal(host.ask("x")).await;
    assert_eq!(error.code(), "CWD_NOT_USABLE");
    host.end().await;
    let blank = played(&Script::prompted().stop("end_turn")).await;
    assert_eq!(blank.stop_reason, StopReason::Error, "a blank answer is none");
}
