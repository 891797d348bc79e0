//! `subagents providers`: what is configured, and whether it can work.

use super::support::{Ended, configured};
use serde_json::{Value, json};
use std::ffi::OsStr;

const TWO: &str = "[defaults]\ntimeout = \"5m\"\n\
    [providers.wc]\nkind = \"exec\"\ncommand = [\"wc\", \"-w\", \"an argument\"]\ndescription = \"counts \\u001b[31mwords\"\n\
    max_concurrent = 8\nidle_timeout = \"1s\"\nenv = { NO_COLOR = \"1\" }\npass_env = [\"A_KEY_NOBODY_HAS\"]\n\
    [providers.touch]\nkind = \"exec\"\ncommand = [\"touch\", \"{}/started\"]\ncwd = \"/\"\n";

/// Where no agent is known to be: whoever runs the tests may have some.
fn subagents<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> super::support::Run {
    super::support::subagents(args).env("PATH", "/usr/bin:/bin")
}

fn providers(ended: &Ended) -> Vec<Value> {
    ended.json().into_iter().filter(|line| line["type"] == "provider").collect()
}

#[test]
fn each_provider_is_told_and_none_is_started() {
    let folder = configured(TWO);
    let ended = subagents(["providers"]).directory(folder.path()).end();
    assert_eq!((ended.code, &*ended.err), (Some(0), ""));
    let file = folder.path().join("subagents.toml");
    let (head, rest) = ended.out.split_once("\n\n").expect("the file, and the providers");
    assert_eq!(head, file.to_str().expect("a plain path"));
    let lines: Vec<_> = rest.lines().collect();
    assert_eq!(lines[..2], ["wc: counts words", "  kind      exec"]);
    assert!(lines[2].starts_with("  program   /") && lines[2].ends_with("/wc"), "{rest}");
    assert_eq!(
        lines[3..8],
        [
            "  can       prompts of text",
            "  limits    8 at once, timeout 300s, idle_timeout 1s",
            "  sets      NO_COLOR",
            "  passes    A_KEY_NOBODY_HAS (not set here)",
            "",
        ]
    );
    assert!(!rest.contains("an argument"), "{rest}");
    assert!(!folder.path().join("started").exists());
}

#[test]
fn a_line_of_json_for_each() {
    let folder = configured(TWO);
    let ended =
        subagents(["providers", "--json", "--config", "subagents.toml"]).directory(folder.path()).end();
    assert_eq!((ended.code, &*ended.err), (Some(0), ""));
    let lines = providers(&ended);
    assert_eq!(lines.len(), 2);
    let mut wc = lines[0].clone();
    assert!(wc["program"].take().as_str().is_some_and(|program| program.ends_with("/wc")), "{wc}");
    assert_eq!(
        wc,
        json!({
            "type": "provider", "name": "wc", "kind": "exec", "default": false,
            "description": "counts \u{1b}[31mwords", "source": "config", "works": true, "program": null, "code": null,
            "message": null, "agent": null, "install": null, "sign_in": null, "capabilities": [], "prompts": ["text"],
            "permission": null, "mode": null, "model": null, "max_concurrent": 8, "max_output": null, "max_total_output": null,
            "allow_empty": false,
            "timeout_ms": 300_000, "idle_timeout_ms": 1_000, "start_timeout_ms": null, "cwd": null,
            "env": ["NO_COLOR"], "pass_env": ["A_KEY_NOBODY_HAS"], "config": "subagents.toml",
        })
    );
    assert_eq!((&lines[1]["cwd"], &lines[1]["default"]), (&json!("/"), &json!(false)));
}

#[test]
fn one_that_cannot_work_says_why_and_the_exit_is_0() {
    let folder = configured("[providers.bad]\nkind = \"exec\"\ncommand = [\"/no/such/agent\"]\n");
    let ended = subagents(["providers"]).directory(folder.path()).end();
    assert_eq!(ended.code, Some(0));
    let told = "bad (default)\n  kind      exec\n  program   /no/such/agent\n  \
                fails     PROGRAM_NOT_FOUND: the program /no/such/agent does not exist; correct the path, or give";
    assert!(ended.out.contains(told), "{}", ended.out);
}

#[test]
fn nothing_configured_is_told_with_a_beginning_that_works() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ended = subagents(["providers"]).directory(folder.path()).end();
    assert_eq!((ended.code, &*ended.err), (Some(0), ""));
    assert!(
        ended.out.starts_with("No provider is configured: there is no subagents.toml here"),
        "{}",
        ended.out
    );
    let (beginning, known) = ended.out.split_once("Known, and not on PATH:").expect("agents to get");
    assert!(known.contains("npm install -g @google/gemini-cli"), "{known}");
    let example: Vec<_> = beginning.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let (command, toml) = example.split_last().expect("an example");
    std::fs::write(folder.path().join("subagents.toml"), toml.join("\n")).expect("it can be written");
    assert_eq!(*command, "subagents run -p wc 'three short words'");
    let ended = subagents(["run", "-p", "wc", "three short words"]).directory(folder.path()).end();
    assert_eq!((ended.code, ended.out.trim()), (Some(0), "3"));

    let ended = subagents(["providers", "--json"]).directory("/").end();
    assert_eq!(ended.code, Some(0));
    assert!(
        ended.json().iter().all(|line| line["type"] == "known_agent" && line["install"].is_string()),
        "{ended:?}"
    );
    assert!(ended.err.starts_with("No provider is configured"), "{}", ended.err);
}

#[test]
fn the_users_folder_counts_where_no_directory_has_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let users = folder.path().join("subagents");
    std::fs::create_dir(&users).expect("a folder");
    std::fs::write(users.join("subagents.toml"), TWO).expect("it can be written");
    let ended = subagents(["providers", "--json"]).directory("/").env("XDG_CONFIG_HOME", folder.path()).end();
    let lines = providers(&ended);
    assert_eq!(lines.len(), 2, "{ended:?}");
    assert_eq!(lines[0]["config"].as_str(), users.join("subagents.toml").to_str());
}
