//! The program is killed, and what it leaves behind: nothing alive, and a record for the next run.

use super::support::{Signal, subagents};
use crate::processes::Mark;
use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Each child has a grandchild in a session of its own, and hears nothing but `SIGKILL`.
const FAMILY: &str = r#"setsid sh -c 'trap "" TERM HUP; sleep 1000; :' &
    trap "" TERM HUP INT; while :; do sleep 1; done"#;

fn files(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.flatten().map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
}

fn until_nobody(mark: &Mark, within: Duration) {
    let begun = Instant::now();
    while !mark.alive().is_empty() {
        assert!(begun.elapsed() < within, "alive: {:?}", mark.alive());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn c01_a_program_that_is_killed_leaves_nothing_alive_and_the_next_run_tells_what_was_interrupted() {
    let state = tempfile::tempdir().unwrap();
    let with_ledger = |args: &[&str]| {
        let state = state.path().to_str().unwrap();
        subagents(args).env("XDG_STATE_HOME", state).env("SUBAGENTS__LEDGER", "true")
    };
    let each = ["run", "--each", "-", "-j", "3", "--label", "nightly", "--", "sh", "-c", FAMILY];
    let run = with_ledger(&each).input_kept("one\ntwo\nthree\n").start();
    // The program, and of each child itself, its sleep, its grandchild, and the sleep of that.
    run.until_alive(13);
    let (id, mark) = (run.child.id(), run.mark().clone());
    run.signal(Signal::KILL);
    let begun = Instant::now();
    until_nobody(&mark, Duration::from_secs(5));
    println!("nothing is alive {:?} after the SIGKILL", begun.elapsed());
    assert_eq!(run.end_unread().0, None, "it was killed");
    let ledger = state.path().join("subagents").join("ledger");
    assert_eq!(files(&ledger), 4, "the host and three children");

    let next = with_ledger(&["run", "x", "--", "echo", "fine"]).end();
    assert_eq!((next.code, &*next.out), (Some(0), "fine\n"));
    let told = format!("subagents: an earlier run (process {id}) was killed with 3 delegations under way:\n");
    assert!(next.err.starts_with(&told) && next.err.contains("  nightly"), "{}", next.err);
    assert_eq!(
        next.err.lines().filter(|line| line.contains(" of exec: ") && line.contains("/sh, started ")).count(),
        3
    );
    assert_eq!(files(&ledger), 0);
    let quiet = with_ledger(&["run", "x", "--", "echo", "fine"]).end();
    assert_eq!((quiet.code, &*quiet.err), (Some(0), ""), "told once");
}

#[test]
fn a_storm_that_outlives_the_program_is_chased_to_its_end() {
    // Each hop is a session of its own and ends at once; there are more of them than the test has patience for.
    let hop = r#"[ "$1" = 0 ] && exec sleep 1000; setsid bash -c "$HOP" bash $(($1 - 1)) & exit"#;
    let storm =
        r#"export HOP="$1"; for chain in 1 2 3; do setsid bash -c "$HOP" bash 20000 & done; sleep 1000"#;
    for _ in 0..3 {
        let run = subagents(["run", "x", "--", "bash", "-c", storm, "bash", hop]).start();
        run.until_alive(4);
        let mark = run.mark().clone();
        run.signal(Signal::KILL);
        // One look can miss who forks and ends right then.
        let (begun, mut quiet) = (Instant::now(), 0);
        while quiet < 20 {
            assert!(begun.elapsed() < Duration::from_secs(20), "alive: {:?}", mark.alive());
            quiet = if mark.alive().is_empty() { quiet + 1 } else { 0 };
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(run.end_unread().0, None);
    }
}

#[test]
fn a_ledger_that_was_asked_for_and_cannot_be_kept_is_a_clear_error_and_one_that_was_not_is_none() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("file");
    fs::write(&file, "").unwrap();
    let path = file.to_str().unwrap();
    let run = || subagents(["run", "x", "--", "echo", "fine"]);
    let ended = run().env("SUBAGENTS__LEDGER", path).end();
    let told = format!("error: LEDGER_UNUSABLE: the ledger in {path} cannot be kept: ");
    assert_eq!((ended.code, &*ended.out), (Some(2), ""));
    assert!(ended.err.starts_with(&told) && ended.err.contains("or is false"), "{}", ended.err);
    let ended = run().env("SUBAGENTS__LEDGER", "true").env("XDG_STATE_HOME", "").env("HOME", "").end();
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("neither XDG_STATE_HOME nor HOME names a folder"), "{}", ended.err);
    // Nobody asked, and nobody watches.
    for state in [path, ""] {
        let ended = run().unset("SUBAGENTS__LEDGER").env("XDG_STATE_HOME", state).env("HOME", state).end();
        assert_eq!((ended.code, &*ended.out, &*ended.err), (Some(0), "fine\n", ""));
    }
}

#[test]
fn a_second_signal_leaves_nobody_outside_the_group() {
    let run = subagents(["run", "x", "--", "sh", "-c", FAMILY]).start();
    run.until_alive(4);
    run.signal(Signal::TERM);
    thread::sleep(Duration::from_millis(100));
    run.signal(Signal::TERM);
    let ended = run.end();
    assert_eq!((ended.code, ended.left), (Some(143), vec![]));
}

#[test]
fn garbage_in_the_ledger_is_not_waited_for_and_steers_no_terminal() {
    let state = tempfile::tempdir().unwrap();
    let host = state.path().join("subagents").join("ledger").join("200000000068");
    fs::create_dir_all(&host).unwrap();
    fs::write(host.join("host.json"), r#"{"boot":"another","pid":7,"start":1,"ended":true}"#).unwrap();
    let child = r#"{"pid":1,"program":"/x/\u001b[31mred\nline","note":"run\u202e","started_ms":18446744073709551615}"#;
    fs::write(host.join("2000000000680000001.json"), child).unwrap();
    for file in [host.join("2000000000680000002.json"), host.join("stray")] {
        assert!(super::support::program("mkfifo").arg(file).status().unwrap().success());
    }
    let ended = subagents(["run", "x", "--", "echo", "fine"])
        .env("SUBAGENTS__LEDGER", "true")
        .env("XDG_STATE_HOME", state.path().to_str().unwrap())
        .end();
    assert_eq!((ended.code, &*ended.out), (Some(0), "fine\n"));
    assert!(
        ended.err.starts_with("subagents: an earlier run (process 7) could not end all of 1 delegation:\n")
    );
    assert!(ended.err.contains("  run: /x/red line") && !ended.err.contains('\u{1b}'), "{}", ended.err);
}

#[test]
fn where_a_file_may_not_grow_that_is_an_error_and_not_the_end() {
    let state = tempfile::tempdir().unwrap();
    let script = r#"ulimit -f 0; exec "$0" run x -- echo fine"#;
    let mut command = super::support::program("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_subagents")]).env("XDG_STATE_HOME", state.path());
    let output = super::support::wait(command.spawn().unwrap(), Vec::new());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "fine\n");
}

#[test]
fn nothing_that_is_told_of_a_configuration_steers_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    for text in [
        "ledger = \"/proc/\\u001b[31mX\\u202e\"\n",
        "[providers.\"a\\nb\\u001b[31m\"]\nkind = \"exec\"\ncommand = [\"x\"]\n",
        "\"\\u001b[31m\\u202ekey\" = 1\n",
    ] {
        fs::write(folder.path().join("subagents.toml"), text).unwrap();
        let mut run = subagents(["run", "x", "--", "echo", "fine"]).directory(folder.path());
        run = run.unset("SUBAGENTS__LEDGER");
        let ended = run.end();
        assert_eq!(ended.code, Some(2), "{text}: {ended:?}");
        assert!(!ended.err.contains(['\u{1b}', '\u{202e}']), "{}", ended.err);
        assert_eq!(ended.err.matches("error: ").count(), 1, "{}", ended.err);
    }
    for args in [
        &["run", "--each", "/no/\u{1b}[31m", "--", "x"][..],
        &["run", "x", "--cwd", "/no/\u{1b}[31m", "--", "x"],
    ] {
        let ended = subagents(args).end();
        assert!(ended.code == Some(2) && !ended.err.contains('\u{1b}'), "{ended:?}");
    }
    let ended = subagents(["ru\u{202e}n"]).end();
    assert!(ended.code == Some(2) && !ended.err.contains('\u{202e}'), "{ended:?}");
}
