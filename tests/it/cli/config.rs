//! `subagents.toml`, as the program reads it.

use super::support::{configured, subagents};
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt};

const ECHO: &str = "[providers.echo]\nkind = \"exec\"\ncommand = [\"cat\"]\n";

#[test]
fn a04_five_ways_not_to_start_are_five_codes_in_json() {
    let folder = configured(
        "[providers.absent]\nkind = \"exec\"\ncommand = [\"{}/absent\"]\n\
         [providers.nowhere]\nkind = \"exec\"\ncommand = [\"cat\"]\ncwd = \"nowhere\"\n\
         [providers.script]\nkind = \"exec\"\ncommand = [\"{}/script\"]\n\
         [providers.plain]\nkind = \"exec\"\ncommand = [\"{}/plain\"]\n\
         [providers.unknown]\nkind = \"exec\"\ncommand = [\"no-such-program-anywhere\"]\n\
         [providers.good]\nkind = \"exec\"\ncommand = [\"cat\"]\n",
    );
    let at = |name: &str| folder.path().join(name);
    fs::write(at("script"), "#!/no/such/interpreter\n").expect("it can be written");
    fs::set_permissions(at("script"), fs::Permissions::from_mode(0o755)).expect("it is ours");
    fs::write(at("plain"), "#!/bin/sh\n").expect("it can be written");
    for (name, code, path) in [
        ("absent", "PROGRAM_NOT_FOUND", "/absent"),
        ("nowhere", "CWD_NOT_USABLE", "/nowhere"),
        ("script", "INTERPRETER_NOT_FOUND", "/no/such/interpreter"),
        ("plain", "NOT_EXECUTABLE", "/plain"),
        ("unknown", "NOT_ON_PATH", "no-such-program-anywhere"),
    ] {
        let ended = subagents(["run", "x", "--json", "-p", name]).directory(folder.path()).end();
        assert_eq!((ended.code, &*ended.err), (Some(1), ""), "{name}: {ended:?}");
        let line = &ended.json()[0];
        assert_eq!((&line["type"], &line["provider"]), (&json!("start_error"), &json!(name)));
        assert_eq!(line["code"], code, "{line}");
        let message = line["message"].as_str().expect("a message");
        assert!(message.contains(path), "{message}");
        let told = subagents(["providers", "--json"]).directory(folder.path()).end();
        let provider = told.json().into_iter().find(|line| line["name"] == name).expect("each has a line");
        assert_eq!((&provider["code"], provider["message"].as_str()), (&json!(code), Some(message)));
    }
    let ended = subagents(["run", "x", "-p", "good"]).directory(folder.path()).end();
    assert_eq!((ended.code, &*ended.out, &*ended.err), (Some(0), "x\n", ""));
}

#[test]
fn n04_the_most_specific_time_limit_wins_and_partial_text_is_kept() {
    let script = "[\"sh\", \"-c\", \"echo part; sleep 600\"]";
    let folder = configured(&format!(
        "[defaults]\ntimeout = \"600ms\"\n\
         [providers.own]\nkind = \"exec\"\ncommand = {script}\ntimeout = \"400ms\"\n\
         [providers.long]\nkind = \"exec\"\ncommand = {script}\ntimeout = \"10m\"\nidle_timeout = \"300ms\"\n\
         [providers.none]\nkind = \"exec\"\ncommand = {script}\n"
    ));
    for (args, who, least) in [
        (&["-p", "own", "--timeout", "200ms"][..], "--timeout 200ms", 200),
        (&["-p", "own"], "timeout 400ms of provider own", 400),
        (&["-p", "long"], "idle_timeout 300ms of provider long", 300),
        (&["-p", "none"], "timeout 600ms of [defaults]", 600),
        (&["--", "sh", "-c", "echo part; sleep 600"], "timeout 600ms of [defaults]", 600),
    ] {
        let run = |more: &[&str]| {
            let args = ["run", "x"].iter().chain(more).chain(args);
            subagents(args).directory(folder.path()).end()
        };
        let ended = run(&["--json"]);
        assert_eq!((ended.code, &ended.left), (Some(1), &vec![]), "{args:?}: {ended:?}");
        let line = &ended.json()[0];
        assert_eq!((&line["stop_reason"], &line["output"]), (&json!("timed-out"), &json!("part\n")));
        let elapsed = line["elapsed_ms"].as_u64().expect("a time");
        assert!((least..least + 5_000).contains(&elapsed), "{args:?}: {line}");
        let told = run(&[]).err;
        assert!(told.contains(&format!("({who})")), "{args:?}: {told}");
    }
}

#[test]
fn f07_a_secret_of_the_configuration_or_the_host_is_shown_nowhere() {
    let folder = configured(
        "[defaults]\njobs = 2\n\
         [providers.env]\nkind = \"exec\"\ncommand = [\"sh\", \"-c\", \"sleep 0.5; env; test $API_KEY = hunter2 && echo it has it\"]\n\
         pass_env = [\"LISTED_TOKEN\"]\nenv = { API_KEY = \"hunter2\", PLAIN = \"plain\" }\n\
         [providers.tells]\nkind = \"exec\"\nenv.API_KEY = \"hunter2\"\n\
         command = [\"sh\", \"-c\", \"echo with $API_KEY; sleep 0.5; echo by $API_KEY >&2; exit 3\"]\n\
         [providers.fails]\nkind = \"exec\"\ncommand = [\"no-such-program\"]\nenv.API_KEY = \"hunter2\"\n",
    );
    let run = |args: &[&str]| {
        let run = subagents(args).directory(folder.path());
        run.env("SECRET_X", "abc123").env("LISTED_TOKEN", "listed-one").end()
    };
    let child = run(&["run", "x", "-p", "env"]).out;
    for told in ["API_KEY=[API_KEY]\n", "LISTED_TOKEN=[LISTED_TOKEN]\n", "PLAIN=plain\n", "it has it\n"] {
        assert!(child.contains(told), "{told} is not in {child}");
    }
    assert!(!child.contains("SECRET_X") && !child.contains("abc123"), "{child}");

    let log = subagents(["run", "x", "-p", "fails"]).directory(folder.path()).env("SUBAGENTS_LOG", "trace");
    let mut shown = vec![log.end()];
    let tells = run(&["run", "x", "-p", "tells", "--tree", "--json"]);
    let line = &tells.json()[0];
    assert_eq!(
        (&line["output"], &line["diagnostic"]["text"]),
        (&json!("with [API_KEY]\n"), &json!("sh ended with exit code 3; stderr: by [API_KEY]"),)
    );
    shown.push(tells);
    for args in [
        &["providers"][..],
        &["run", "x", "-p", "tells"],
        &["providers", "--json"],
        &["run", "x", "-p", "fails"],
        &["run", "x", "-p", "fails", "--json"],
        &["run", "x", "-p", "evn"],
    ] {
        shown.push(run(args));
    }
    let tree = run(&["run", "x", "-p", "env", "--tree"]);
    assert!(tree.err.contains("env · running"), "{}", tree.err);
    shown.push(tree);
    let wrong = "env = { API_KEY = \"hunter2\", B = 5 }\ntimeout = \"x\"\n";
    for text in
        [wrong, "env = { API_KEY = hunter2 }\n", "env = { API_KEY = \"hunter2\n", "env = \"hunter2\"\n"]
    {
        fs::write(folder.path().join("bad.toml"), format!("{ECHO}{text}")).expect("it can be written");
        let ended = run(&["run", "x", "--config", "bad.toml"]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        shown.push(ended);
    }
    for ended in shown {
        let all = format!("{}{}", ended.out, ended.err);
        assert!(!all.is_empty() && !all.contains("hunter2"), "{all}");
        assert!(!all.contains("abc123") && !all.contains("listed-one"), "{all}");
    }
}

#[test]
fn the_provider_is_the_named_the_default_or_the_only_one() {
    let only = configured(ECHO);
    let ended = subagents(["run", "hi", "--json"]).directory(only.path()).end();
    assert_eq!((ended.code, &*ended.err), (Some(0), ""));
    assert_eq!((&ended.json()[0]["provider"], &ended.json()[0]["output"]), (&json!("echo"), &json!("hi")));

    let two = configured(&format!("{ECHO}[providers.wc]\nkind = \"exec\"\ncommand = [\"wc\", \"-w\"]\n"));
    let run = |args: &[&str]| subagents(["run", "a b"].iter().chain(args)).directory(two.path());
    assert_eq!(run(&["-p", "wc"]).end().out.trim(), "2");
    assert_eq!(
        run(&["-p", "wc"]).env("SUBAGENTS__PROVIDERS__WC__COMMAND", "[\"wc\", \"-c\"]").end().out.trim(),
        "3"
    );
    let by_default = run(&[]).env("SUBAGENTS__DEFAULT_PROVIDER", "wc").end();
    assert_eq!((by_default.code, by_default.out.trim(), &*by_default.err), (Some(0), "2", ""));
    assert_eq!(run(&["--", "wc", "-l"]).end().out.trim(), "0", "a command needs no provider");
    let file = two.path().join("subagents.toml");
    for (args, told) in [
        (
            &[][..],
            "no provider was named, and there is no default; name one of `echo`, `wc`, or set `default_provider`; on the command line it is -p NAME",
        ),
        (&["-p", "cw"], "no provider is named `cw`; did you mean `wc`? configured: `echo`, `wc`"),
    ] {
        let ended = run(args).end();
        assert_eq!((ended.code, &*ended.out), (Some(2), ""));
        let hint = "For more information, try 'subagents run --help'.";
        assert_eq!(ended.err, format!("error: {}: {told}\n\n{hint}\n", file.display()));
    }
    let none = configured("");
    let ended = subagents(["run", "x"]).directory(none.path()).env("PATH", "/usr/bin:/bin").end();
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("no provider is configured, and no known agent is on PATH"), "{}", ended.err);
}

#[test]
fn every_fault_is_told_with_its_place_and_ends_with_2() {
    let folder = configured(&format!("jbos = 1\n{ECHO}pas_env = []\ntimeout = 5\n"));
    let file = folder.path().join("subagents.toml");
    let file = file.display();
    let expected = format!(
        "error: {file}:1:1: unknown key `jbos`; known here: `default_provider`, `defaults`, `ledger`, `providers`, `tools`\n\
         error: {file}:5:1: unknown key `providers.echo.pas_env`; did you mean `pass_env`?\n\
         error: {file}:6:11: `providers.echo.timeout`: expected a duration in quotes, like \"30s\", found an integer\n"
    );
    for args in [
        &["run", "x", "-p", "echo"][..],
        &["run", "x", "--", "cat"],
        &["providers"],
        &["providers", "--json"],
    ] {
        let ended = subagents(args).directory(folder.path()).end();
        assert_eq!((ended.code, &*ended.out), (Some(2), ""), "{args:?}");
        assert!(ended.err.starts_with(&expected), "{}", ended.err);
    }
    let variable = subagents(["run", "x", "--", "cat"]).env("SUBAGENTS__DEFAULTS__TIMOUT", "5m").end();
    assert_eq!(variable.code, Some(2));
    let told = "error: SUBAGENTS__DEFAULTS__TIMOUT: unknown key `defaults.timout`; did you mean `timeout`?\n";
    assert!(variable.err.starts_with(told), "{}", variable.err);
}

#[test]
fn the_file_is_that_of_the_launch_directory_and_so_is_cwd() {
    let folder = configured(
        "[providers.pwd]\nkind = \"exec\"\ncommand = [\"pwd\", \"-P\"]\n\
         [providers.in]\nkind = \"exec\"\ncommand = [\"pwd\", \"-P\"]\ncwd = \"below\"\n",
    );
    let below = folder.path().join("a/below");
    fs::create_dir_all(&below).expect("a folder");
    let place = folder.path().join("a").canonicalize().expect("it is there");
    let run = |args: &[&str]| subagents(["run", "x"].iter().chain(args)).directory(&place).end();
    assert_eq!(run(&["-p", "pwd"]).out, format!("{}\n", place.display()));
    assert_eq!(run(&["-p", "pwd", "--cwd", "/"]).out, "/\n");
    assert_eq!(run(&["-p", "in", "--cwd", "/"]).out, format!("{}/below\n", place.display()), "SPEC 17.2");
}

#[test]
fn the_limit_of_a_provider_holds_and_the_rest_is_seen_to_wait() {
    let folder = configured(
        "[providers.one]\nkind = \"exec\"\nmax_concurrent = 1\n\
         command = [\"sh\", \"-c\", \"mkdir {}/busy && sleep 0.2 && rmdir {}/busy && cat\"]\n",
    );
    let run = |args: &[&str]| {
        let run = subagents(["run", "-p", "one", "--each", "-", "-j", "8"].iter().chain(args));
        run.directory(folder.path()).input("a\nb\nc\nd\ne\nf\ng\nh\n").end()
    };
    let ended = run(&["--tree"]);
    assert_eq!((ended.code, ended.out.lines().count()), (Some(0), 8), "{ended:?}");
    assert!(ended.err.contains("queued · place 1 · waits for a slot"), "{}", ended.err);
    assert!(ended.err.contains("8 delegations: 8 completed in"), "{}", ended.err);
    let quiet = run(&["--json"]);
    assert_eq!((quiet.code, &*quiet.err), (Some(0), ""), "nobody watches");
    assert!(quiet.json().iter().all(|line| line["provider"] == "one"));
}

#[test]
fn as_many_prompts_are_under_way_as_the_defaults_say() {
    let alone = "mkdir busy && sleep 0.1 && rmdir busy && cat";
    let folder = configured("defaults.jobs = 1\n");
    let run = |args: &[&str]| {
        let run = subagents(["run", "--each", "-"].iter().chain(args).chain(&["--", "sh", "-c", alone]));
        run.directory(folder.path()).input("a\nb\nc\nd\n").end()
    };
    assert_eq!(run(&[]).out, "a\nb\nc\nd\n");
    let both = run(&["-j", "4"]);
    assert_eq!((both.code, both.out.lines().count() < 4), (Some(1), true), "the command line wins: {both:?}");
}

#[test]
fn what_a_provider_says_of_its_answer_holds() {
    let folder = configured(
        "[providers.blank]\nkind = \"exec\"\ncommand = [\"true\"]\nallow_empty = true\n\
         [providers.long]\nkind = \"exec\"\ncommand = [\"cat\"]\nmax_output = 4\n",
    );
    let run =
        |name: &str| subagents(["run", "long text", "--json", "-p", name]).directory(folder.path()).end();
    assert_eq!(run("blank").json()[0]["stop_reason"], "completed");
    let cut: Value = run("long").json().remove(0);
    assert_eq!(
        (&cut["output"], &cut["details"]["truncated"]["kept_bytes"]),
        (&json!("long"), &json!(4)),
        "{cut}"
    );
}
