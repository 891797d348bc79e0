//! `subagents mcp`: a host that writes lines and reads lines, and the real program.

use super::support::{Live, Run, Signal, configured, program, shell, subagents, wait};
use crate::acp::Script;
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::{ChildStdin, ChildStdout},
    thread,
    time::{Duration, Instant},
};

/// A host of the program.
struct Host {
    live: Live,
    write: Option<ChildStdin>,
    read: BufReader<ChildStdout>,
    next: u64,
}

impl Host {
    /// It has said hello.
    fn of(run: Run) -> Self {
        let mut live = run.start();
        let (write, read) = (live.child.stdin.take(), live.child.stdout.take().expect("its stdout"));
        let mut host = Self { live, write, read: BufReader::new(read), next: 0 };
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
        });
        let id = host.ask("initialize", &params);
        assert_eq!(host.answer(id)["result"]["serverInfo"]["name"], "subagents");
        host.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        host
    }

    fn say(&mut self, message: &Value) {
        let write = self.write.as_mut().expect("it is open");
        writeln!(write, "{message}").expect("it reads");
    }

    fn ask(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    fn call(&mut self, tool: &str, prompt: &str) -> u64 {
        let arguments = json!({"description": "a short task", "prompt": prompt});
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// The next answer, which has to be to this request.
    fn answer(&mut self, id: u64) -> Value {
        loop {
            let mut line = String::new();
            self.read.read_line(&mut line).expect("it can be read");
            let message: Value = serde_json::from_str(&line).expect("each line is a message");
            if message["id"] == id {
                return message;
            }
            assert!(message["id"].is_null(), "{message} is not the answer to {id}");
        }
    }

    /// What the model reads, and whether it is an error.
    fn outcome(&mut self, tool: &str, prompt: &str) -> (String, bool) {
        let id = self.call(tool, prompt);
        let answer = self.answer(id);
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| unreachable!("{answer}"));
        (text.to_owned(), result["isError"] == true)
    }

    fn tools(&mut self) -> Vec<String> {
        let id = self.ask("tools/list", &json!({}));
        let answer = self.answer(id);
        let tools = answer["result"]["tools"].as_array().expect("a list");
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Closes its end; gives the exit code, and what stderr had.
    fn go(mut self) -> (Option<i32>, String) {
        drop(self.write.take());
        self.ended()
    }

    fn ended(self) -> (Option<i32>, String) {
        // Its stdout is read to the end, so that nothing blocks on it.
        let mut read = self.read;
        let rest = thread::spawn(move || std::io::copy(&mut read, &mut std::io::sink()));
        let ended = self.live.end();
        rest.join().expect("it is read").expect("to its end");
        assert_eq!(ended.left, [""; 0]);
        (ended.code, ended.err)
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

const TWO: &str = "[providers.upper]\nkind = \"exec\"\ncommand = [\"tr\", \"a-z\", \"A-Z\"]\ndescription = \"shouts\\n at all\"\n\
                   [providers.\"a.b\"]\nkind = \"exec\"\ncommand = [\"cat\"]\n[providers.a_b]\nkind = \"exec\"\ncommand = [\"cat\"]\n\
                   [providers.missing]\nkind = \"exec\"\ncommand = [\"no-such-program\"]\n";

#[test]
fn each_provider_that_works_here_is_a_tool() {
    let folder = configured(TWO);
    let mut host = Host::of(subagents(["mcp"]).directory(folder.path()).env("PATH", "/usr/bin:/bin"));
    assert_eq!(host.tools(), ["subagent_upper", "subagent_a_b", "subagent_a_b_2", "subagent_output"]);
    let (text, failed) = host.outcome("subagent_upper", "hello");
    assert!(!failed && text.contains("\nHELLO\n"), "{text}");
    assert_eq!(host.go(), (Some(0), String::new()));
    // By name, without the others.
    let mut host = Host::of(subagents(["mcp", "-p", "upper"]).directory(folder.path()));
    assert_eq!(host.tools(), ["subagent", "subagent_output"]);
    assert_eq!(host.go().0, Some(0));
    let mut host =
        Host::of(subagents(["mcp", "-p", "upper", "-p", "a.b", "-p", "a_b"]).directory(folder.path()));
    assert_eq!(host.tools(), ["subagent_upper", "subagent_a_b", "subagent_a_b_2", "subagent_output"]);
    assert_eq!(host.go().0, Some(0));
}

#[test]
fn a10_with_nothing_to_delegate_to_there_is_no_tool_and_it_is_said_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut host = Host::of(subagents(["mcp"]).directory(folder.path()).env("PATH", "/no/such/folder"));
    assert_eq!(host.tools(), [""; 0]);
    let (code, told) = host.go();
    assert_eq!(code, Some(0));
    assert!(told.contains("no tool is offered") && told.contains("subagents providers"), "{told}");
}

#[test]
fn a04_each_way_not_to_start_is_told_by_its_code_and_the_others_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    for (name, text, mode) in
        [("no-mode", "#!/bin/sh\n", 0o644), ("no-interpreter", "#!/no/such/sh\n", 0o755)]
    {
        fs::write(path(name), text).expect("a file");
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).expect("its mode");
    }
    let provider = |name: &str, command: &str, more: &str| {
        format!(
            "[providers.{name}]\nkind = \"exec\"\ncommand = [\"{command}\"]\n{more}\n[tools.{name}]\nprovider = \"{name}\"\n"
        )
    };
    let text = [
        provider("absent", "/no/such/program", ""),
        provider("unknown", "no-such-program", ""),
        provider("mode", &path("no-mode"), ""),
        provider("interpreter", &path("no-interpreter"), ""),
        provider("folder", "cat", "cwd = \"/no/such/folder\""),
        provider("works", "cat", ""),
    ];
    fs::write(folder.path().join("subagents.toml"), text.concat()).expect("a file");
    let mut host = Host::of(subagents(["mcp"]).directory(folder.path()));
    let mut told = Vec::new();
    for (tool, code, part) in [
        ("absent", "PROGRAM_NOT_FOUND", "/no/such/program"),
        ("unknown", "NOT_ON_PATH", "no-such-program"),
        ("mode", "NOT_EXECUTABLE", "no-mode"),
        ("interpreter", "INTERPRETER_NOT_FOUND", "/no/such/sh"),
        ("folder", "CWD_NOT_USABLE", "/no/such/folder"),
    ] {
        let (text, failed) = host.outcome(tool, "x");
        assert!(
            failed && text.contains(&format!("was not started: {code}")) && text.contains(part),
            "{tool}: {text}"
        );
        told.push(text);
    }
    let (text, failed) = host.outcome("works", "still");
    assert!(!failed && text.contains("\nstill\n"), "{text}");
    assert_eq!(host.go().0, Some(0));
}

#[test]
fn a_tool_is_what_its_table_says() {
    let script = Script::prompted().chunk("{\"n\": 1}").stop("end_turn");
    let folder = configured(
        "[providers.agent]\nkind = \"acp\"\ncommand = [\"{}/agent\"]\npersona = true\n\
         [tools.research]\nprovider = \"agent\"\ndescription = \"looks things up\"\npersona = \"a librarian\"\n\
         schema = \"n.json\"\nmax_depth = \"provider-managed\"\n\
         [tools.short]\nprovider = \"agent\"\nmax_answer = 4\nread_only = true\n",
    );
    let agent = folder.path().join("agent");
    fs::write(&agent, script.program()).expect("a program");
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).expect("its mode");
    let schema = r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#;
    fs::write(folder.path().join("n.json"), schema).expect("a file");
    let mut host = Host::of(subagents(["mcp"]).directory(folder.path()));
    assert_eq!(host.tools(), ["research", "short", "subagent_output"]);
    let id = host.ask("tools/list", &json!({}));
    let tools = host.answer(id)["result"]["tools"].clone();
    assert!(tools[0]["description"].as_str().expect("a text").contains("(looks things up)"), "{tools}");
    assert_eq!(tools[0]["outputSchema"]["properties"]["structured"]["properties"]["n"]["type"], "integer");
    let reads: Vec<_> = (0..3).map(|n| tools[n]["annotations"]["readOnlyHint"].clone()).collect();
    assert_eq!(reads, [false, true, true]);
    let id = host.call("research", "x");
    assert_eq!(host.answer(id)["result"]["structuredContent"]["structured"], json!({"n": 1}));
    let id = host.call("short", "x");
    let answer = host.answer(id);
    let value = &answer["result"]["structuredContent"];
    assert_eq!(
        (&value["output"][0]["text"], &value["rest"]),
        (&json!("{\"n\""), &json!({"offset": 4, "totalBytes": 8}))
    );
    let id = host.ask(
        "tools/call",
        &json!({"name": "subagent_output", "arguments": {"run_id": value["runId"], "offset": 4}}),
    );
    let text = host.answer(id)["result"]["content"][0]["text"].as_str().expect("a text").to_owned();
    assert!(text.contains("\n: 1}\n") && text.ends_with("That is the end of it."), "{text}");
    assert_eq!(host.go().0, Some(0));
}

#[test]
fn what_is_wrong_with_a_tool_is_told_with_its_place_when_it_is_loaded() {
    let with =
        |more: &str| format!("[providers.p]\nkind = \"exec\"\ncommand = [\"cat\"]\n[tools.t]\n{more}\n");
    for (more, told) in [
        ("provider = \"q\"", ":4:8: `tools.t.provider`: no provider is named `q`"),
        ("", ":4:8: `tools.t` has no `provider`; add one"),
        ("provider = \"p\"\nmax_depth = 2", "depth_limit"),
        (
            "provider = \"p\"\nmax_depth = -1",
            ":6:13: `tools.t.max_depth`: give a whole number from 0 on, or \"provider-managed\"",
        ),
        ("provider = \"p\"\nmax_depth = \"deep\"", "`tools.t.max_depth`: give a whole number"),
        ("provider = \"p\"\npersona = \"x\"", "needs `persona`, which its provider `p` cannot honour"),
        ("provider = \"p\"\nmodel = \"x\"", "needs `agentOptions.model`"),
        ("provider = \"p\"\nallow = []", ":4:8: `tools.t`: the tool filter of `t` is empty"),
        ("provider = \"p\"\nallow = [\"x\"]", "needs `toolFilter`"),
        ("provider = \"p\"\nschema = { type = \"object\" }", "needs `outputSchema`"),
        (
            "provider = \"p\"\nschema = \"/no/such/file\"",
            ":6:10: `tools.t.schema`: cannot read /no/such/file",
        ),
        ("provider = \"p\"\nprovder = \"p\"", "unknown key `tools.t.provder`; did you mean `provider`?"),
        ("provider = \"p\"\n[tools.t]\nprovider = \"p\"", ":6:8: duplicate key"),
        ("provider = \"p\"\n[tools.\"a b\"]\nprovider = \"p\"", "`a b` is no name of a tool"),
        ("provider = \"p\"\n[tools.subagent_output]\nprovider = \"p\"", "choose another name"),
    ] {
        let folder = configured(&with(more));
        for command in [&["mcp"][..], &["run", "x"], &["providers"]] {
            let ended = subagents(command).directory(folder.path()).end();
            assert_eq!(ended.code, Some(2), "{command:?} {more}: {ended:?}");
            assert!(
                ended.err.contains(told) && ended.err.contains("subagents.toml"),
                "{more}: {}",
                ended.err
            );
        }
    }
    for (args, told) in [
        (&["mcp", "-p", "nobody"][..], "no provider is named `nobody`"),
        (&["mcp", "-p", "p", "--permission", "allow"], "--permission is for agents that ask"),
        (&["mcp", "--cwd", "/no/such/folder"], "/no/such/folder cannot be used"),
        (&["mcp", "-j", "0"], "invalid value '0'"),
    ] {
        let folder = configured("[providers.p]\nkind = \"exec\"\ncommand = [\"cat\"]\n");
        let ended = subagents(args).directory(folder.path()).end();
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        assert!(ended.err.contains(told), "{args:?}: {}", ended.err);
    }
}

/// Each child has a grandchild in a session of its own.
const FAMILY: &str = "[providers.family]\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \"setsid sleep 1000 & trap '' TERM; while :; do sleep 1; done\"]\n";

#[test]
fn nothing_is_left_of_a_host_that_goes_is_killed_or_is_told_to_go() {
    for how in ["goes", "is killed", "terminates"] {
        let folder = configured(FAMILY);
        let mut host = Host::of(subagents(["mcp"]).directory(folder.path()));
        for _ in 0..3 {
            host.call("subagent_family", "x");
        }
        // The program, and of each child itself, its sleep and its grandchild.
        host.live.until_alive(10);
        let mark = host.live.mark().clone();
        let begun = Instant::now();
        match how {
            "goes" => assert_eq!(host.go().0, Some(0)),
            "is killed" => {
                host.live.signal(Signal::KILL);
                until("an end", || mark.alive().is_empty());
            }
            _ => {
                host.live.signal(Signal::TERM);
                let (code, told) = host.ended();
                assert_eq!(code, Some(143));
                assert!(told.contains("asked to terminate"), "{told}");
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{how}: {:?}", begun.elapsed());
        assert_eq!(mark.alive(), [""; 0], "{how}");
    }
}

#[test]
fn n05_a_child_that_is_a_host_itself_begins_at_the_depth_of_its_environment() {
    let folder = configured(
        "[providers.tells]\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \"echo depth $SUBAGENTS_DEPTH of $SUBAGENTS_MAX_DEPTH\"]\n",
    );
    let run = |depth: &str| {
        subagents(["mcp"])
            .directory(folder.path())
            .env("SUBAGENTS_DEPTH", depth)
            .env("SUBAGENTS_MAX_DEPTH", "3")
    };
    let mut host = Host::of(run("2"));
    let (text, failed) = host.outcome("subagent_tells", "x");
    assert!(!failed && text.contains("\ndepth 3 of 3\n"), "{text}");
    assert_eq!(host.go().0, Some(0));
    // SPEC 5.4: it stays visible at the cap, and says why it does not work.
    let mut host = Host::of(run("3"));
    assert_eq!(host.tools(), ["subagent_tells", "subagent_output"]);
    let (text, failed) = host.outcome("subagent_tells", "x");
    assert!(failed && text.contains("DEPTH_EXCEEDED: depth 4 is over the limit of 3"), "{text}");
    assert_eq!(host.go().0, Some(0));
}

#[test]
fn n05_a_host_that_clears_the_environment_does_not_begin_anew() {
    let folder = configured(
        "[providers.tells]\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \"echo depth $SUBAGENTS_DEPTH of $SUBAGENTS_MAX_DEPTH\"]\n",
    );
    let cleared = "env -u SUBAGENTS_DEPTH -u SUBAGENTS_MAX_DEPTH \"$0\" \"$@\" || exit";
    let run = |depth: &str, args: &[&str]| {
        shell(cleared, args)
            .directory(folder.path())
            .env("SUBAGENTS_DEPTH", depth)
            .env("SUBAGENTS_MAX_DEPTH", "3")
    };
    let mut host = Host::of(run("2", &["mcp"]));
    let (text, failed) = host.outcome("subagent_tells", "x");
    assert!(!failed && text.contains("\ndepth 3 of 3\n"), "{text}");
    assert_eq!(host.go().0, Some(0));
    let ended = run("3", &["run", "-p", "tells", "x"]).end();
    assert!(ended.code == Some(1) && ended.err.contains("DEPTH_EXCEEDED"), "{ended:?}");
    // What the user has said for the outermost holds, too.
    let capped = shell(cleared, &["run", "-p", "tells", "x"]).directory(folder.path());
    assert_eq!(capped.env("SUBAGENTS_MAX_DEPTH", "3").end().out, "depth 1 of 3\n");
    // What is said for this one holds over what was said further out.
    let inner = "SUBAGENTS_DEPTH=1 \"$0\" \"$@\" || exit";
    let run = shell(inner, &["run", "-p", "tells", "x"]).directory(folder.path()).env("SUBAGENTS_DEPTH", "7");
    assert_eq!(run.env("SUBAGENTS_MAX_DEPTH", "3").end().out, "depth 2 of 3\n");
}

/// Posts over a connection of its own; gives the status, and all of the body that comes within it.
fn post(url: &str, headers: &str, body: &Value) -> (u16, String) {
    let rest = url.trim().strip_prefix("http://").expect("HTTP");
    let (address, path) = rest.split_once('/').expect("a path");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    let body = body.to_string();
    let head = format!(
        "POST /{path} HTTP/1.1\r\nhost: {address}\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer)
}

/// A call of the version without sessions.
fn modern(tool: &str, prompt: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": tool,
        "arguments": {"description": "a short task", "prompt": prompt},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }})
}

const MODERN: &str =
    "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: subagent_upper\r\n";

#[test]
fn over_http_the_address_is_the_one_line_on_stdout_and_hosts_come_and_go() {
    let folder = configured(TWO);
    let serve = |token: Option<&str>| {
        let run = subagents(["mcp", "--http"]).directory(folder.path());
        let mut live = match token {
            Some(token) => run.env("SUBAGENTS_MCP_TOKEN", token),
            None => run,
        }
        .start();
        let mut url = String::new();
        let mut out = BufReader::new(live.child.stdout.take().expect("its stdout"));
        out.read_line(&mut url).expect("a line");
        (live, url.trim().to_owned(), out)
    };
    let gone = |live: Live, mut out: BufReader<std::process::ChildStdout>| {
        live.signal(Signal::TERM);
        let mut rest = String::new();
        out.read_to_string(&mut rest).expect("its end");
        let ended = live.end();
        assert_eq!((&*rest, ended.code, ended.left), ("", Some(143), Vec::<String>::new()));
        ended.err
    };
    // The token that was made is in the address.
    let (live, url, out) = serve(None);
    assert!(url.starts_with("http://127.0.0.1:") && url.ends_with("/mcp"), "{url}");
    for n in 0..3 {
        let (status, answer) = post(&url, MODERN, &modern("subagent_upper", &format!("word {n}")));
        assert!(status == 200 && answer.contains(&format!("WORD {n}")), "{answer}");
    }
    let bare = url.rsplit_once('/').and_then(|(rest, _)| rest.rsplit_once('/')).expect("a token").0;
    assert_eq!(post(&format!("{bare}/mcp"), MODERN, &modern("subagent_upper", "x")).0, 401);
    let told = gone(live, out);
    assert!(told.contains("SUBAGENTS_MCP_TOKEN sets one that stays"), "{told}");
    // One that was given is not.
    let token = "a-token-of-my-own-0";
    let (live, url, out) = serve(Some(token));
    assert!(!url.contains(token), "{url}");
    let shown = format!("{MODERN}authorization: Bearer {token}\r\n");
    assert_eq!(post(&url, MODERN, &modern("subagent_upper", "x")).0, 401);
    assert!(post(&url, &shown, &modern("subagent_upper", "x")).1.contains("\\nX\\n"));
    assert!(!gone(live, out).contains(token));
}

/// A child that calls the server that it is a child of, or says where it is.
const CALLS_BACK: &str = r#"
[providers.nests]
kind = "exec"
command = ["bash", "-c", '''
read -r prompt
if [ "$prompt" != outer ]; then echo "inner at $SUBAGENTS_DEPTH"; exit; fi
exec 3<>/dev/tcp/127.0.0.1/$(cat port)
body=$(cat body)
printf 'POST %s HTTP/1.1\r\n' "$(cat path)" >&3
printf '%s\r\n' 'host: localhost' 'accept: application/json, text/event-stream' 'content-type: application/json' \
  'mcp-protocol-version: 2026-07-28' 'mcp-method: tools/call' 'mcp-name: subagent_nests' 'connection: close' \
  "content-length: ${#body}" '' >&3
printf '%s' "$body" >&3
echo "outer at $SUBAGENTS_DEPTH"
cat <&3
''']
"#;

#[test]
fn n05_a_child_that_calls_its_own_server_over_http_is_below_its_run() {
    let folder = configured(CALLS_BACK);
    // With one slot it would wait for ever for its parent's, if that did not lend it.
    let run = subagents(["mcp", "-j", "1", "--http"]).directory(folder.path());
    let mut live = run.env("SUBAGENTS_MAX_DEPTH", "2").start();
    let mut url = String::new();
    let mut out = BufReader::new(live.child.stdout.take().expect("its stdout"));
    out.read_line(&mut url).expect("a line");
    let (port, path) =
        url.trim().rsplit_once(':').and_then(|(_, rest)| rest.split_once('/')).expect("an address");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("room");
    write("port", port);
    write("path", &format!("/{path}"));
    let call = || post(&url, &MODERN.replace("upper", "nests"), &modern("subagent_nests", "outer"));
    write("body", &modern("subagent_nests", "inner").to_string());
    let (status, answer) = call();
    assert_eq!(status, 200);
    assert!(answer.contains("outer at 1") && answer.contains("inner at 2"), "{answer}");
    // One deeper is over the limit of the whole tree.
    write("body", &modern("subagent_nests", "outer").to_string());
    let (_, answer) = call();
    assert!(answer.contains("outer at 2") && answer.contains("DEPTH_EXCEEDED"), "{answer}");
    live.signal(Signal::TERM);
    let ended = live.end();
    assert_eq!((ended.code, ended.left), (Some(143), Vec::<String>::new()), "{}", ended.err);
}

#[test]
fn n05_whoever_has_been_told_how_deep_it_is_is_no_less_deep_over_http() {
    let folder = configured(CALLS_BACK);
    let mut live = subagents(["mcp", "--http"]).directory(folder.path()).start();
    let mut url = String::new();
    let mut out = BufReader::new(live.child.stdout.take().expect("its stdout"));
    out.read_line(&mut url).expect("a line");
    let (port, path) =
        url.trim().rsplit_once(':').and_then(|(_, rest)| rest.split_once('/')).expect("an address");
    for (name, text) in [
        ("port", port),
        ("path", &format!("/{path}")),
        ("body", &modern("subagent_nests", "inner").to_string()),
    ] {
        fs::write(folder.path().join(name), text).expect("room");
    }
    // The same program as a client of its own, which another host has started.
    let script = toml_script(CALLS_BACK);
    for (depth, told) in [("4", "inner at 5"), ("0", "inner at 1")] {
        let mut client = program("bash");
        client.args(["-c", &script]).current_dir(folder.path()).env("SUBAGENTS_DEPTH", depth);
        let output = wait(client.spawn().expect("it starts"), b"outer\n".to_vec());
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(answer.contains(told), "{answer}");
    }
    live.signal(Signal::TERM);
    assert_eq!(live.end().code, Some(143));
}

/// The script in the configuration.
fn toml_script(text: &str) -> String {
    text.split("'''").nth(1).expect("a script").to_owned()
}

#[test]
fn what_is_wrong_with_http_is_told_before_anything_starts() {
    let folder = configured(TWO);
    let run = |args: &[&str]| subagents(args.iter().copied()).directory(folder.path());
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let ended = run(&["mcp", "--http", &address]).end();
    assert!(
        ended.code == Some(2) && ended.err.contains(&address) && ended.err.contains("in use"),
        "{ended:?}"
    );
    let ended = run(&["mcp", "--http", "0.0.0.0:0"]).end();
    assert!(ended.code == Some(2) && ended.err.contains("only this machine is served"), "{ended:?}");
    let ended = run(&["mcp", "--http"]).env("SUBAGENTS_MCP_TOKEN", "hunter2").end();
    assert!(
        ended.code == Some(2) && ended.err.contains("16 to 256") && !ended.err.contains("hunter2"),
        "{ended:?}"
    );
}

#[test]
fn a_log_that_nobody_reads_keeps_no_signal_from_being_heard() {
    let folder = configured(TWO);
    let mut host = Host::of(subagents(["mcp"]).directory(folder.path()).env("SUBAGENTS_LOG", "trace"));
    // More than a pipe holds, and than may wait.
    for _ in 0..2_000 {
        let id = host.ask("ping", &json!({}));
        host.answer(id);
    }
    host.live.signal(Signal::TERM);
    let begun = Instant::now();
    while host.live.child.try_wait().expect("it can be asked").is_none() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it does not end");
        thread::sleep(Duration::from_millis(10));
    }
    let (code, told) = host.ended();
    assert_eq!(code, Some(143));
    assert!(told.len() >= 60_000, "{} bytes", told.len());
}

#[test]
fn more_calls_than_may_work_at_once_wait() {
    let folder =
        configured("[providers.slow]\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \"sleep 0.4; cat\"]\n");
    let mut host = Host::of(subagents(["mcp", "-j", "2"]).directory(folder.path()));
    let begun = Instant::now();
    let ids: Vec<_> = (0..4).map(|n| host.call("subagent_slow", &n.to_string())).collect();
    let mut answered = Vec::new();
    for _ in &ids {
        let mut line = String::new();
        host.read.read_line(&mut line).expect("it can be read");
        let message: Value = serde_json::from_str(&line).expect("a message");
        assert_eq!(message["result"]["isError"], false, "{message}");
        answered.push(message["id"].as_u64().expect("an id"));
    }
    assert!(begun.elapsed() >= Duration::from_millis(800), "{:?}", begun.elapsed());
    answered.sort_unstable();
    assert_eq!(answered, ids);
    assert_eq!(host.go().0, Some(0));
}
