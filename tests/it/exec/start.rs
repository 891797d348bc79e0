//! What a program is given, and what is said of one that cannot be started.

use super::support::{Host, STUBBORN, lifecycle, within};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};
use subagents::{Exec, NodeKind, Phase, StartRequest, SubagentService};

#[tokio::test]
async fn the_prompt_stands_in_place_of_the_braces_and_stdin_is_empty_then() {
    let prompt = "-n $(id) `id` \"'漢字\n";
    let cases = [
        // Without braces the prompt is on stdin, and what follows `--` is the arguments.
        (&["-c", "cat; printf '[%s]' \"$@\"", "sh", "a b"][..], format!("{prompt}[a b]")),
        (&["-c", "cat; printf '[%s]' \"$@\"", "sh", "<{}>", "{}"], format!("[<{prompt}>][{prompt}]")),
    ];
    for (arguments, wanted) in cases {
        let host = Host::with(Exec::new("sh").args(arguments));
        let result = within("an answer", host.service.delegate("sh", host.ask(prompt))).await.unwrap();
        assert_eq!(result.text(), wanted);
        host.end().await;
    }
}

#[tokio::test]
async fn the_environment_is_scrubbed_and_says_how_deep_the_child_is() {
    let exec = Exec::new("env").env("GIVEN_TOKEN", "given").env("SUBAGENTS_DEPTH", "99");
    let service =
        SubagentService::builder().provider("env", exec).root_depth(2).max_depth(5).build().unwrap();
    let root = service.root("/").unwrap();
    let result = within("an answer", service.delegate("env", StartRequest::new(&root, "x"))).await.unwrap();
    let text = result.text();
    let variables: Vec<_> = text.lines().filter_map(|line| line.split_once('=')).collect();
    for wanted in [("GIVEN_TOKEN", "given"), ("SUBAGENTS_DEPTH", "3"), ("SUBAGENTS_MAX_DEPTH", "5")] {
        assert!(variables.contains(&wanted), "{wanted:?} is not in\n{text}");
    }
    for (name, _) in variables {
        let ours =
            ["GIVEN_TOKEN", "SUBAGENTS_DEPTH", "SUBAGENTS_MAX_DEPTH", "SUBAGENTS_SCOPE"].contains(&name);
        let secret = ["KEY", "PASSWORD", "SECRET", "TOKEN", "SUBAGENTS_"];
        assert!(ours || !secret.iter().any(|part| name.to_uppercase().contains(part)), "{name} came through");
    }
}

fn file(directory: &Path, name: &str, text: &str, mode: u32) -> String {
    let path = directory.join(name);
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
    path.into_os_string().into_string().expect("a plain path")
}

#[tokio::test]
async fn a04_five_ways_not_to_start_are_five_codes_and_leave_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let absent = temp.path().join("absent").into_os_string().into_string().unwrap();
    let plain = file(temp.path(), "plain", "#!/bin/sh\n", 0o644);
    let script = file(temp.path(), "script", "#!/no/such/interpreter\n", 0o755);
    let cases = [
        (Exec::new(&absent), "PROGRAM_NOT_FOUND", &*absent),
        (Exec::new("no-such-program"), "NOT_ON_PATH", "no-such-program"),
        (Exec::new(&plain), "NOT_EXECUTABLE", &plain),
        (Exec::new(&script), "INTERPRETER_NOT_FOUND", "/no/such/interpreter"),
        (Exec::new("sh").cwd(&absent), "CWD_NOT_USABLE", &absent),
    ];
    for (exec, code, path) in cases {
        let host = Host::with(exec);
        let mut events = host.service.events();
        let _other = host.service.register("cat", Exec::new("cat")).unwrap();
        let starting = host.service.start("sh", host.ask("x"));
        let id = starting.id();
        let error = within("the refusal", starting).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(path), "{error} does not name {path}");
        assert_eq!(lifecycle(&mut events), (0, 0), "{code}");
        assert!(host.service.tree().nodes.iter().all(|node| node.id != id.into()), "{code}");
        assert!(host.processes().is_empty() && host.mark.alive().is_empty(), "{code}");
        // Others still work.
        let fine = within("an answer", host.service.delegate("cat", host.ask("fine"))).await.unwrap();
        assert_eq!(fine.text(), "fine");
        host.end().await;
    }
}

#[tokio::test]
async fn the_process_is_in_the_tree_below_its_run() {
    let host = Host::of("echo $$; echo up; exec sleep 1000");
    let run = host.up().await;
    let tree = host.service.tree();
    let process = tree.nodes.iter().find(|node| node.kind == NodeKind::Process).expect("a process");
    assert_eq!((process.parent, process.label.as_deref()), (Some(run.id().into()), Some("sh")));
    let pid = process.pid.expect("its id");
    assert!(tree.to_string().contains(&format!("process {pid} sh")), "{tree}");
    assert_eq!(tree.node(run.id()).map(|node| node.phase), Some(Phase::Running));
    within("the disposal", run.dispose()).await.unwrap();
    // What it said of itself is its partial answer.
    assert_eq!(run.result().await.unwrap().text(), format!("{pid}\nup\n"));
    assert!(host.processes().is_empty());
    host.end().await;
}

#[tokio::test]
async fn two_services_in_one_process_do_not_touch_each_others_children() {
    let (one, two) = (Host::of(STUBBORN), Host::of(STUBBORN));
    let (first, second) = (one.up().await, two.up().await);
    let report = within("the shutdown", one.service.shutdown(super::support::PATIENCE)).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(one.mark.alive(), [""; 0]);
    assert!(!first.result().await.unwrap().stop_reason.is_success());
    assert_eq!(second.watcher().phase(), Phase::Running);
    assert!(!two.mark.alive().is_empty());
    within("the disposal", second.dispose()).await.unwrap();
    two.end().await;
}
