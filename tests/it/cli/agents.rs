//! Agents by their name on `PATH`, by configuration, and by `--acp`.

use super::support::{Ended, Run, configured, subagents};
use crate::acp::Script;
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};
use tempfile::TempDir;

/// A folder with a program of this name in it that plays a script. It is the only one of its kind on the `PATH`.
struct Installed(TempDir);

impl Installed {
    fn agent(name: &str, script: &Script) -> Self {
        Self(tempfile::tempdir().expect("a folder")).and(name, script)
    }

    fn and(self, name: &str, script: &Script) -> Self {
        let path = self.0.path().join(name);
        fs::write(&path, script.program()).expect("a program");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
        self
    }

    /// `subagents` where this is installed and nothing is configured.
    fn subagents(&self, args: &[&str]) -> Run {
        let path = format!("{}:/usr/bin:/bin", self.0.path().display());
        subagents(args).env("PATH", path).directory(self.0.path())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

fn provider(ended: &Ended, name: &str) -> Value {
    let all = ended.json();
    all.into_iter()
        .find(|line| line["name"] == name)
        .unwrap_or_else(|| unreachable!("no {name} in {ended:?}"))
}

#[test]
fn an_installed_agent_needs_its_name_and_no_configuration() {
    let here = Installed::agent("gemini", &Script::prompted().chunk("you said $prompt").stop("end_turn"));
    let ended = here.subagents(&["run", "-p", "gemini", "hello"]).end();
    assert_eq!((ended.code, ended.out.trim(), &*ended.err), (Some(0), "you said hello", ""));
    // Not even its name, where it is the only one; then it is told which it is.
    let ended = here.subagents(&["run", "hello"]).end();
    assert_eq!((ended.code, ended.out.trim()), (Some(0), "you said hello"));
    assert_eq!(ended.err, "subagents: provider gemini, found on PATH\n");
    let ended = here.subagents(&["run", "-p", "qwen", "hello"]).end();
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("NOT_ON_PATH"), "{}", ended.err);
}

#[test]
fn the_variables_of_its_own_sign_in_reach_a_known_agent_and_no_other_secret_does() {
    let told = Script::prompted().become_shell(
        r#"printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"the-session","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%s %s"}}}}\n{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}\n' "${GEMINI_API_KEY:+its key}" "${OTHER_API_KEY:-and no other}" >&3; exec cat >/dev/null"#,
    );
    let here = Installed::agent("gemini", &told);
    let run = here.subagents(&["run", "-p", "gemini", "x"]);
    let ended = run.env("GEMINI_API_KEY", "a-key-of-gemini").env("OTHER_API_KEY", "another-key").end();
    assert_eq!((ended.code, ended.out.trim()), (Some(0), "its key and no other"), "{ended:?}");
}

#[test]
fn what_is_here_is_asked_who_it_is_and_what_is_not_is_told_how_to_get() {
    let wants_sign_in = Script::bare()
        .expect("initialize")
        .reply(json!({"protocolVersion": 1, "authMethods": [{"id": "browser", "name": "Log in"}]}))
        .expect("session/new")
        .fail(json!({"code": -32000, "message": "Authentication required"}));
    let here = Installed::agent("gemini", &Script::opened()).and("codex-acp", &wants_sign_in);
    let ended = here.subagents(&["providers"]).end();
    assert_eq!((ended.code, &*ended.err), (Some(0), ""));
    let (found, missing) = ended.out.split_once("Known, and not on PATH:").expect("some are not here");
    assert!(found.starts_with("Found on PATH:\n\ncodex-acp (default): Codex"), "{found}");
    for part in [
        "fails     AUTH_REQUIRED",
        "browser (Log in)",
        "browser (Log in); sign in with `codex login`",
        "agent     scripted 1.0",
        "can       prompts of text, outputSchema, agentOptions.model",
        "works by  permission reject",
    ] {
        assert!(found.contains(part), "{part:?} is not in {found}");
    }
    assert!(missing.contains("opencode") && missing.contains("npm install -g opencode-ai"), "{missing}");

    let ended = here.subagents(&["providers", "--json"]).end();
    let gemini = provider(&ended, "gemini");
    assert_eq!(gemini["agent"], json!({"name": "scripted", "version": "1.0"}));
    assert_eq!((&gemini["source"], &gemini["works"]), (&json!("path"), &json!(true)));
    let codex = provider(&ended, "codex-acp");
    assert_eq!((&codex["works"], &codex["code"]), (&json!(false), &json!("AUTH_REQUIRED")));
    assert_eq!(provider(&ended, "qwen")["type"], "known_agent");

    // Nothing is started where that is wanted.
    let ended = here.subagents(&["providers", "--json", "--no-start"]).end();
    assert_eq!(
        (&provider(&ended, "codex-acp")["works"], &provider(&ended, "gemini")["agent"]),
        (&json!(true), &json!(null))
    );
}

#[test]
fn what_is_configured_of_an_agent_is_in_what_is_said_of_it() {
    let wants_sign_in = Script::bare()
        .expect("initialize")
        .reply(json!({"protocolVersion": 1, "authMethods": [{"id": "browser", "name": "Log in"}]}))
        .expect("session/new")
        .fail(json!({"code": -32000, "message": "Authentication required"}));
    let here = Installed::agent("one", &wants_sign_in).and("two", &Script::opened());
    let text = "[providers.one]\nkind = \"acp\"\ncommand = [\"one\"]\nauth_method = \"browser\"\n\
                [providers.two]\nkind = \"acp\"\ncommand = [\"two\"]\n\
                [providers.two.mcp_servers.web]\nurl = \"http://127.0.0.1:1/mcp\"\n";
    fs::write(here.path().join("subagents.toml"), text).expect("a file");
    let ended = here.subagents(&["providers", "--json"]).end();
    // Nobody is asked to sign in, and that it cannot is not known.
    assert_eq!(provider(&ended, "one")["works"], true, "{ended:?}");
    // One of a name that it does not have cannot.
    let ended = here
        .subagents(&["providers", "--json"])
        .env("SUBAGENTS__PROVIDERS__ONE__AUTH_METHOD", "browsr")
        .end();
    assert_eq!(provider(&ended, "one")["code"], "AUTH_REQUIRED", "{ended:?}");
    let ended = here.subagents(&["providers", "--json"]).end();
    // What every delegation would say.
    let two = provider(&ended, "two");
    assert_eq!((&two["works"], &two["code"]), (&json!(false), &json!("PROVIDER_FAILED")));
    assert!(
        two["message"].as_str().is_some_and(|text| text.contains("cannot connect to the MCP server web")),
        "{two}"
    );
}

#[test]
fn a_known_agent_is_one_also_as_a_command() {
    let script = Script::initialized()
        .expect("session/new")
        .reply(
            json!({"sessionId": "the-session", "modes": {"availableModes": [{"id": "yolo"}, {"id": "default"}]}}),
        )
        .expect("session/set_mode")
        .reply(json!({}))
        .expect("session/prompt")
        .chunk("asks first")
        .stop("end_turn");
    let here = Installed::agent("gemini", &script);
    for args in [&["run", "x", "--acp", "--", "gemini", "--acp"][..], &["run", "x", "-p", "gemini"]] {
        let ended = here.subagents(args).end();
        assert_eq!((ended.code, ended.out.trim()), (Some(0), "asks first"), "{ended:?}");
    }
}

#[test]
fn a_command_may_be_an_agent() {
    let here = Installed::agent("mine", &Script::prompted().chunk("you said $prompt").stop("end_turn"));
    let ended = here.subagents(&["run", "hello", "--json", "--acp", "--", "mine", "--serve"]).end();
    let line = &ended.json()[0];
    assert_eq!((&line["output"], &line["provider"]), (&json!("you said hello"), &json!("acp")));
    let ended = here.subagents(&["run", "hello", "--acp"]).end();
    assert_eq!(ended.code, Some(2), "it is of use with a command only: {ended:?}");
    // Any program is no agent, which is told.
    let ended = here.subagents(&["run", "hello", "--acp", "--", "cat"]).end();
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.err.contains("PROTOCOL_ERROR") && ended.err.contains("repeats what it is sent"),
        "{}",
        ended.err
    );
}

#[test]
fn what_an_agent_may_do_is_said_by_an_option_or_the_configuration() {
    let options = [("once", "allow_once"), ("no", "reject_once")];
    let here = Installed::agent(
        "gemini",
        &Script::prompted().ask(json!(0), &options).chunk("$outcome").stop("end_turn"),
    );
    let outcome = |run: Run| {
        let ended = run.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let allowed = ended.json()[0]["output"].as_str().expect("a text").contains("once");
        let denied = ended.json()[0]["details"]["denied_calls"].as_array().map_or(0, Vec::len);
        assert_eq!(denied, usize::from(!allowed), "{ended:?}");
        allowed
    };
    let run = |more: &[&str]| here.subagents(&[&["run", "-p", "gemini", "x", "--json"][..], more].concat());
    assert!(!outcome(run(&[])));
    assert!(outcome(run(&["--permission", "allow"])));
    assert!(outcome(
        run(&[])
            .env("SUBAGENTS__PROVIDERS__GEMINI__KIND", "acp")
            .env("SUBAGENTS__PROVIDERS__GEMINI__PERMISSION", "allow")
    ));
    fs::write(
        here.path().join("subagents.toml"),
        "[providers.gemini]\nkind = \"acp\"\npermission = \"allow\"\n",
    )
    .expect("a file");
    assert!(outcome(run(&[])));
    assert!(!outcome(run(&["--permission", "reject"])));
    for (args, told) in [
        (&["run", "x", "--permission", "maybe", "--", "cat"][..], "it is one of `reject`, `allow`"),
        (&["run", "x", "--permission", "allow", "--", "cat"], "--permission is for agents that ask"),
    ] {
        let ended = here.subagents(args).end();
        assert_eq!(ended.code, Some(2), "{args:?}");
        assert!(ended.err.contains(told), "{}", ended.err);
    }
}

#[test]
fn a_value_is_asked_of_an_agent_and_its_attempts_are_seen() {
    let script = Script::opened()
        .expect("session/prompt")
        .chunk("three")
        .stop("end_turn")
        .expect("session/prompt")
        .chunk(r#"{"n": 3}"#)
        .stop("end_turn");
    let here = Installed::agent("gemini", &script);
    let schema = here.path().join("n.json");
    fs::write(&schema, r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#)
        .expect("a file");
    let ended = here.subagents(&["run", "-p", "gemini", "how many?", "--schema", "n.json"]).end();
    assert_eq!((ended.code, ended.out.trim()), (Some(0), r#"{"n":3}"#), "{ended:?}");
    let ended = here.subagents(&["run", "-p", "gemini", "how many?", "--schema", "n.json", "--json"]).end();
    let line = &ended.json()[0];
    assert_eq!(
        (&line["structured"], line["details"]["schema_attempts"].as_array().map_or(0, Vec::len)),
        (&json!({"n": 3}), 2)
    );
}

#[test]
fn persona_mode_and_model_are_set_as_they_are_configured() {
    let script = Script::initialized()
        .expect("session/new")
        .reply(json!({
            "sessionId": "the-session",
            "modes": {"availableModes": [{"id": "plan"}]},
            "models": {"availableModels": [{"modelId": "small"}, {"modelId": "large"}]},
        }))
        .expect("session/set_mode")
        .reply(json!({}))
        .expect("session/set_model")
        .reply(json!({}))
        .expect("session/prompt")
        .chunk("$prompt")
        .stop("end_turn");
    let here = Installed::agent("mine", &script);
    let text = "[providers.it]\nkind = \"acp\"\ncommand = [\"mine\"]\nmode = \"plan\"\nmodel = \"small\"\npersona = true\n";
    fs::write(here.path().join("subagents.toml"), text).expect("a file");
    let ended = here.subagents(&["run", "the task", "--persona", "You are a cat."]).end();
    assert_eq!((ended.code, ended.out.trim()), (Some(0), "You are a cat.|the task"), "{ended:?}");
    let ended = here.subagents(&["run", "the task", "--model", "huge"]).end();
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("mine has no model `huge`; it has small, large"), "{}", ended.err);
    // Without its being configured a persona is refused, and who could is named.
    let ended = here.subagents(&["run", "x", "--persona", "y", "--acp", "--", "mine"]).end();
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("UNSUPPORTED_CAPABILITY") && ended.err.contains("`it` can"), "{}", ended.err);
}

#[test]
fn the_keys_of_an_agent_are_read_or_refused_with_their_place() {
    let text = |more: &str| format!("[providers.a]\nkind = \"acp\"\ncommand = [\"a\", \"--acp\"]\n{more}\n");
    for (more, told) in [
        ("permission = \"alow\"", "4:14: `providers.a.permission`: did you mean `allow`?"),
        ("persona = \"yes\"", "`providers.a.persona`: expected true or false"),
        ("schema_attempts = 0", "`providers.a.schema_attempts`: give a whole number from 1 to 100"),
        ("mode = \"\"", "`providers.a.mode`: it is empty"),
        ("permision = \"allow\"", "unknown key `providers.a.permision`; did you mean `permission`?"),
        ("[providers.a.mcp_servers.x]", "`providers.a.mcp_servers.x` has neither a `command` nor a `url`"),
        (
            "[providers.a.mcp_servers.x]\nurl = \"http://127.0.0.1\"\ncommand = [\"y\"]",
            "both a `command` and a `url`",
        ),
        (
            "[providers.a.mcp_servers.x]\ncommand = [\"y\"]\nheaders = { A = \"b\" }",
            "unknown key `providers.a.mcp_servers.x.headers`",
        ),
    ] {
        let folder = configured(&text(more));
        let ended = subagents(["run", "x"]).directory(folder.path()).end();
        assert_eq!(ended.code, Some(2), "{more}");
        assert!(ended.err.contains(told), "{more}: {}", ended.err);
    }
    // Of another kind they are not known, and without a command only who is known by name is one.
    let folder = configured(
        "[providers.a]\nkind = \"exec\"\ncommand = [\"a\"]\npermission = \"allow\"\n[providers.b]\nkind = \"acp\"\n",
    );
    let ended = subagents(["providers"]).directory(folder.path()).end();
    assert!(ended.err.contains("unknown key `providers.a.permission`"), "{}", ended.err);
    assert!(
        ended
            .err
            .contains("`providers.b` has no `command`; add one, like command = [\"some-agent\", \"--acp\"]"),
        "{}",
        ended.err
    );
}

#[test]
fn a_variable_that_is_withheld_is_told_and_can_be_passed_on() {
    let told = Script::prompted().become_shell(
        r#"if [ -n "$MY_API_KEY" ]; then r='"result":{"stopReason":"refusal"}'; else r='"error":{"code":1,"message":"MY_API_KEY is not set"}'; fi; printf '{"jsonrpc":"2.0","id":3,%s}\n' "$r" >&3; exec cat >/dev/null"#,
    );
    let here = Installed::agent("mine", &told);
    let run = |more: &[&str]| {
        let args = [&["run", "x", "--json"][..], more, &["--acp", "--", "mine"]].concat();
        here.subagents(&args).env("MY_API_KEY", "a-key-of-mine").end()
    };
    let ended = run(&[]);
    let text = ended.json()[0]["diagnostic"]["text"].as_str().expect("why").to_owned();
    assert!(text.contains("MY_API_KEY is set here and withheld from it"), "{text}");
    assert_eq!(run(&["--pass-env", "MY_API_KEY"]).json()[0]["stop_reason"], "refusal");
    // A provider is of its own kind.
    let ended = here.subagents(&["run", "x", "-p", "gemini", "--acp"]).end();
    assert_eq!(ended.code, Some(2), "{ended:?}");
}

#[test]
fn a_known_agent_needs_no_more_than_what_is_to_be_different() {
    let here = Installed::agent("gemini", &Script::prompted().chunk("you said $prompt").stop("end_turn"));
    fs::write(here.path().join("subagents.toml"), "[providers.gemini]\npersona = true\n").expect("a file");
    let ended = here.subagents(&["run", "hello", "--persona", "a cat"]).end();
    assert_eq!((ended.code, ended.out.trim()), (Some(0), "you said a cat|hello"), "{ended:?}");
    // The same by a variable, and of a name that no variable can have.
    fs::remove_file(here.path().join("subagents.toml")).expect("it was there");
    let script = Script::prompted().chunk("you said $prompt").stop("end_turn");
    let here = here.and("codex-acp", &script);
    for (agent, variable) in [("gemini", "GEMINI"), ("codex-acp", "CODEX_ACP")] {
        let run = here.subagents(&["run", "-p", agent, "hello", "--persona", "a cat"]);
        let ended = run.env(&format!("SUBAGENTS__PROVIDERS__{variable}__PERSONA"), "true").end();
        assert_eq!((ended.code, ended.out.trim()), (Some(0), "you said a cat|hello"), "{ended:?}");
    }
}

#[test]
fn who_is_meant_is_said_of_a_name_that_nobody_has() {
    for (name, near) in [
        ("qwen-code", "qwen"),
        ("gemini-cli", "gemini"),
        ("claude-code", "claude-agent-acp"),
        ("claude", "claude-agent-acp"),
        ("opencod", "opencode"),
        ("codex", "codex-acp"),
    ] {
        let ended = subagents(["run", "-p", name, "x"]).directory("/").end();
        assert_eq!(ended.code, Some(2));
        assert!(ended.err.contains(&format!("did you mean `{near}`?")), "{name}: {}", ended.err);
    }
    let two = "[providers.my-reviewer]\nkind = \"exec\"\ncommand = [\"x\"]\n[providers.my-writer]\nkind = \"exec\"\ncommand = [\"x\"]\n";
    let ended = subagents(["run", "-p", "my-writter", "x"]).directory(configured(two).path()).end();
    assert!(ended.err.contains("did you mean `my-writer`?"), "{}", ended.err);
    let with = |text: &str| subagents(["run", "x"]).directory(configured(text).path()).end().err;
    let told = with("[providers.gemni]\nkind = \"acp\"\n");
    assert!(told.contains("or did you mean `gemini`, which needs none?"), "{told}");
    let told = with("[providers.reviewer]\nkind = \"acp\"\n");
    assert!(told.contains("tables named `claude-agent-acp`, `codex-acp`, `gemini`"), "{told}");
}

#[test]
fn a_known_agent_that_is_started_otherwise_is_told_how() {
    let here = Installed::agent("gemini", &Script::bare().exit(41));
    let ended = here.subagents(&["run", "x", "--acp", "--", "gemini"]).end();
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("gemini speaks the protocol as `gemini --acp`"), "{}", ended.err);
    let ended = here.subagents(&["run", "x", "-p", "gemini"]).end();
    assert!(!ended.err.contains("speaks the protocol as"), "{}", ended.err);
}

#[test]
fn what_went_wrong_is_told_with_what_may_help() {
    let here = Installed::agent(
        "gemini",
        &Script::prompted().chunk("no network\n").become_shell("exec cat >/dev/null"),
    );
    let ended = here.subagents(&["run", "-p", "gemini", "x", "--timeout", "500ms"]).end();
    assert!(ended.err.contains("(--timeout 500ms); it said last: no network"), "{}", ended.err);
    let wants = Script::prompted().fail(json!({"code": -32000, "message": "Authentication required"}));
    let here = Installed::agent("gemini", &wants);
    let ended = here.subagents(&["run", "-p", "gemini", "x"]).end();
    assert!(
        ended.err.contains("[auth-required]") && ended.err.contains("name another with -p"),
        "{}",
        ended.err
    );
}
