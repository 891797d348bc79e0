//! The suite of real agents, without any of them: what it expects, what the README says of it, how it is started.
//! `tests/peers` plays it.

#[allow(dead_code, reason = "how an agent is started is for those who start it")]
#[path = "../peers/expectations.rs"]
mod expectations;

use super::{pins, real};
use expectations::{AGENTS, Agent, SCENARIOS, command_line, markdown, suite, table};
use real::arguments::{Arguments, Wish};
use std::fs;
use std::process::Command;

fn wish(arguments: &[&str]) -> Result<Wish, String> {
    command_line().read(arguments.iter().map(ToString::to_string))
}

#[test]
fn the_readme_has_the_table_of_peers() {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).expect("README.md");
    let wanted = markdown(&Agent::all());
    let between = readme
        .split_once("<!-- agents: printed by the peer suite -->\n")
        .and_then(|(_, rest)| rest.split_once("<!-- /agents -->"))
        .map(|(table, _)| table.trim());
    assert_eq!(between, Some(wanted.trim()), "the README needs this table:\n{wanted}");
}

#[test]
fn every_agent_is_pinned_to_what_the_table_says() {
    let folders = fs::read_dir(suite().join("agents")).expect("agents").flatten();
    let mut with_setup: Vec<_> = folders
        .filter(|folder| folder.path().join("agent.json").exists())
        .map(|folder| folder.file_name().to_string_lossy().into_owned())
        .collect();
    with_setup.sort();
    let mut known = AGENTS.map(str::to_owned);
    known.sort();
    assert_eq!(with_setup, known);
    for agent in Agent::all() {
        let pins = agent.pins();
        match pins::hold(&agent.name, &pins) {
            Some((manifest, _)) => {
                assert_eq!(manifest["dependencies"][&agent.package], agent.version, "{}", agent.name);
            }
            None => assert!(pins.contains(&format!("{}=={}\n", agent.package, agent.version)), "{pins}"),
        }
        // The model is the one on the loopback, and whoever has one is told where it is.
        let setup: String = agent.env.values().cloned().collect();
        let home = suite().join("agents").join(&agent.name).join("home");
        assert_eq!(agent.tool.is_some(), agent.name != "python", "{}", agent.name);
        assert!(agent.tool.is_none() || home.is_dir() || setup.contains("@BASE@"), "{}", agent.name);
        assert!(!agent.program.starts_with('/'), "{}", agent.name);
    }
}

#[test]
fn a_table_tells_what_was_not_as_expected() {
    let agents = Agent::all();
    let (agents, scenarios): (Vec<_>, Vec<_>) = (agents.iter().collect(), SCENARIOS.iter().collect());
    let played = table(&agents, &scenarios, |agent, scenario| {
        (agent.name != "gemini" || scenario.name != "crowd").then(|| agent.cell(scenario))
    });
    assert_eq!(played.matches('✗').count(), 1, "{played}");
    let row = played.lines().find(|line| line.contains("20 at once")).expect("a row");
    assert!(row.contains('✗'), "{played}");
}

#[test]
fn what_differs_is_told_with_its_reason_and_expected_so() {
    let agents = Agent::all();
    let [refused] = SCENARIOS.iter().filter(|scenario| scenario.name == "refused").collect::<Vec<_>>()[..]
    else {
        panic!("there is no such scenario");
    };
    let of = |name: &str| {
        let agent = agents.iter().find(|agent| agent.name == name).expect("an agent");
        let expected = agent.expected(refused);
        (agent.cell(refused), expected.stop.clone(), expected.category.clone(), expected.denied, expected)
    };
    let (cell, stop, category, denied, expected) = of("claude");
    assert_eq!((&*cell, &*stop, category, denied), ("✓", "completed", None, 1));
    assert!(expected.text_matches("After the tool.") && !expected.text_matches("After the tool. More."));
    let (cell, stop, category, denied, expected) = of("codex");
    assert_eq!((&*cell, &*stop, denied), ("aborted", "aborted", 1));
    assert_eq!(category.as_deref(), Some("permission-denied"));
    assert!(expected.text_matches("") && !expected.text_matches("After the tool."), "{:?}", expected.text());
    let stream = SCENARIOS.iter().find(|scenario| scenario.name == "cancel-stream").expect("a scenario");
    assert!(agents[0].expected(stream).text_matches("Word after word Word"));
    assert!(!agents[0].expected(stream).text_matches("Nothing"));
}

#[test]
fn the_command_line_of_the_suite_is_read_and_other_tests_names_are_none_of_its() {
    assert_eq!(wish(&[]), Ok(Wish::Play(Arguments::default())));
    let all = ["--only", "codex", "--require", "gemini", "--scenario", "answer", "--record", "there"];
    let read = Arguments {
        only: vec!["codex".to_owned(), "gemini".to_owned()],
        require: vec!["gemini".to_owned()],
        scenarios: vec!["answer".to_owned()],
        record: Some("there".into()),
    };
    assert_eq!(wish(&all), Ok(Wish::Play(read)));
    assert_eq!(wish(&["--markdown"]), Ok(Wish::Markdown));
    assert_eq!(wish(&["-h"]), Ok(Wish::Help));
    for others in [&["matrix"][..], &["--exact", "a::b", "--nocapture"], &["--list", "--format", "terse"]] {
        assert_eq!(wish(others), Ok(Wish::Nothing), "{others:?}");
    }
    for harmless in [&["--nocapture"][..], &["--test-threads", "2"], &["--test-threads=2", "-q"]] {
        assert_eq!(wish(harmless), Ok(Wish::Play(Arguments::default())), "{harmless:?}");
    }
    for (wrong, told) in [
        (&["--only"][..], "--only needs a value"),
        (&["--only", "x"], "no `x`; known: claude, codex"),
        (&["--scenario", "x"], "no `x`; known: answer, refused"),
        (&["--frobnicate"], "unknown option --frobnicate"),
    ] {
        let error = wish(wrong).expect_err("it is wrong");
        assert!(error.starts_with(told), "{error}");
        assert!(command_line().usage().contains("--require"));
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a script is started as people do")]
fn the_installer_says_what_it_does_not_know_and_what_it_lacks() {
    let folder = tempfile::tempdir().expect("a folder");
    let install = |arguments: &[&str], path: Option<&str>| {
        let mut command = Command::new("bash");
        command.arg(suite().join("install.sh")).args(arguments).env_remove("SUBAGENTS_PEERS");
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let output = command.output().expect("bash runs");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), told + &String::from_utf8_lossy(&output.stderr))
    };
    for (arguments, wanted) in [
        (&["--only", "nobody"][..], "there is no agent 'nobody'"),
        (&["--only", "../agents"], "there is no agent '../agents'"),
        (&["--only"], "--only needs a NAME"),
        (&["--frobnicate"], "unknown option '--frobnicate'"),
        (&["a", "b"], "one DIR is enough"),
    ] {
        let (status, told) = install(arguments, None);
        assert_eq!(status, Some(2), "{told}");
        assert!(told.contains(wanted) && told.contains("gemini"), "{told}");
    }
    let (status, told) = install(&["--help"], None);
    // Those of the suite of hosts among them.
    let mut names = AGENTS.iter().chain(&["inspector", "mcp-python", "conformance"]);
    assert!(status == Some(0) && names.all(|name| told.contains(name)), "{told}");
    // What it needs itself, and neither node nor python.
    let tools = folder.path().join("tools");
    fs::create_dir(&tools).expect("a folder");
    for tool in ["cat", "cmp", "dirname", "mkdir", "paste", "rm", "sed", "tail"] {
        let found = ["/bin", "/usr/bin"].map(|folder| format!("{folder}/{tool}"));
        let found = found.iter().find(|path| fs::exists(path).unwrap_or(false)).expect("it is on any system");
        std::os::unix::fs::symlink(found, tools.join(tool)).expect("a link");
    }
    let bash = ["/bin/bash", "/usr/bin/bash"].into_iter().find(|path| fs::exists(path).unwrap_or(false));
    std::os::unix::fs::symlink(bash.expect("a bash"), tools.join("bash")).expect("a link");
    let there = folder.path().join("there");
    let arguments = ["--only", "gemini", "--only", "python", there.to_str().expect("a name")];
    let (status, told) = install(&arguments, tools.to_str());
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("needs node (20 or newer), which is not on PATH"), "{told}");
    assert!(told.contains("needs python3 (3.10 or newer), which is not on PATH"), "{told}");
    assert!(told.ends_with("not installed: gemini python\n"), "{told}");
}
