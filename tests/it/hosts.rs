//! The suite of MCP hosts, without any of them: what it expects, and what the README says of it. `tests/hosts` plays it.

use super::{pins, real};

#[allow(dead_code, reason = "how a host is started is for those who start it")]
#[path = "../hosts/expectations.rs"]
mod expectations;

use expectations::{HOSTS, Host, SCENARIOS, command_line, markdown, suite, table};
use real::arguments::{Arguments, Wish};
use serde_json::Value;
use std::fs;

fn readme() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).expect("README.md")
}

#[test]
fn the_readme_has_the_table_of_hosts() {
    let (readme, wanted) = (readme(), markdown(&Host::all()));
    let between = readme
        .split_once("<!-- hosts: printed by the host suite -->\n")
        .and_then(|(_, rest)| rest.split_once("<!-- /hosts -->"))
        .map(|(table, _)| table.trim());
    assert_eq!(between, Some(wanted.trim()), "the README needs this table:\n{wanted}");
}

#[test]
fn each_host_is_told_of_the_server_by_the_readmes_line() {
    let (readme, mut told) = (readme(), 0);
    for host in Host::all() {
        let Some(add) = &host.add else { continue };
        let program = if host.name == "claude" { "claude" } else { &*host.name };
        let line = format!("\n{program} {}", add.join(" "));
        let next = readme.split_once(&line).map(|(_, rest)| rest.trim_start_matches(' '));
        assert!(next.is_some_and(|rest| rest.starts_with(['#', '\n'])), "the README does not say:{line}");
        told += 1;
    }
    assert_eq!(told, 3);
    // The same over HTTP, where the host takes the token from the environment.
    for name in ["claude", "codex"] {
        let host = Host::all().into_iter().find(|host| host.name == name).expect("a host");
        let add = host.told["http"].add.as_ref().expect("a line").iter();
        let quoted = add.map(|word| if word.contains(' ') { format!("'{word}'") } else { word.clone() });
        let line = quoted.collect::<Vec<_>>().join(" ").replace("@URL@", "http://127.0.0.1:8765/mcp");
        assert!(readme.contains(&format!("\n{name} {line}\n")), "the README does not say: {line}");
    }
    let opencode = Host::all().into_iter().find(|host| host.name == "opencode").and_then(|host| host.home());
    let config = fs::read_to_string(opencode.expect("its home").join("opencode.json")).expect("a file");
    let config: Value = serde_json::from_str(&config).expect("JSON");
    let told = readme.split_once("`\"mcp\": ").and_then(|(_, rest)| rest.split_once('`'));
    let told: Value = serde_json::from_str(told.expect("the README says it").0).expect("JSON");
    assert_eq!(config["mcp"], told);
}

#[test]
fn every_host_is_pinned_to_what_the_table_says() {
    let folders = fs::read_dir(suite()).expect("hosts").flatten();
    let mut with_setup: Vec<_> = folders
        .filter(|folder| folder.path().join("host.json").exists())
        .map(|folder| folder.file_name().to_string_lossy().into_owned())
        .collect();
    with_setup.sort();
    let mut known = HOSTS.map(str::to_owned);
    known.sort();
    assert_eq!(with_setup, known);
    for host in Host::all() {
        let pins = host.pins();
        if let Some((_, lock)) = pins::hold(&host.name, &pins) {
            let package = &lock["packages"][host.package()]["version"];
            let version = package.as_str().unwrap_or_else(|| panic!("{}: {package}", host.name));
            // Claude Code is in a package that counts for itself, up to the last number.
            let last = |version: &str| version.rsplit('.').next().map(str::to_owned);
            let same =
                host.version() == version || host.name == "claude" && last(host.version()) == last(version);
            assert!(same, "{}: {version}", host.name);
        } else {
            assert!(pins.contains(&format!("{}=={}\n", host.package(), host.version())), "{pins}");
        }
    }
}

#[test]
fn a_host_plays_what_it_can_and_what_differs_is_told_with_its_reason() {
    let hosts = Host::all();
    let scenario = |name: &str| SCENARIOS.iter().find(|scenario| scenario.name == name).expect("a scenario");
    let host = |name: &str| hosts.iter().find(|host| host.name == name).expect("a host");
    for host in hosts.iter().filter(|host| host.tool.is_some()) {
        let played = SCENARIOS.iter().filter(|scenario| host.plays(scenario)).count();
        assert!(played >= 8, "{}: {played}", host.name);
    }
    assert_eq!(host("gemini").expected(scenario("five")), "side by side");
    assert_eq!(host("codex").expected(scenario("five")), "one by one");
    assert_eq!(host("codex").cell(scenario("five")), "one by one");
    assert_eq!(host("inspector").cell(scenario("five")), "–");
    let (hosts, scenarios): (Vec<_>, Vec<_>) = (hosts.iter().collect(), SCENARIOS.iter().collect());
    let played = table(&hosts, &scenarios, |host, scenario| {
        (host.name != "gemini" || scenario.name != "killed").then(|| host.cell(scenario))
    });
    assert_eq!(played.matches('✗').count(), 1, "{played}");
    assert!(played.lines().any(|line| line.contains("host killed") && line.contains('✗')), "{played}");
}

#[test]
fn the_command_line_of_the_hosts_is_read() {
    let wish = |arguments: &[&str]| command_line().read(arguments.iter().map(ToString::to_string));
    let read = Arguments {
        only: vec!["codex".to_owned(), "gemini".to_owned()],
        require: vec!["gemini".to_owned()],
        scenarios: vec!["five".to_owned()],
        record: None,
    };
    assert_eq!(wish(&["--only", "codex", "--require", "gemini", "--scenario", "five"]), Ok(Wish::Play(read)));
    assert_eq!(wish(&["--markdown"]), Ok(Wish::Markdown));
    assert_eq!(wish(&["--record", "there"]), Err("unknown option --record".to_owned()));
    assert!(wish(&["--only", "x"]).expect_err("it is wrong").starts_with("no `x`; known: claude, codex"));
    let usage = command_line().usage();
    assert!(usage.contains("--test hosts") && !usage.contains("--record"), "{usage}");
}
