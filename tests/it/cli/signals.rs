//! Being told to end, by a signal or by a reader that goes away.

use super::support::{Signal, program, read_until, subagents, wait};
use std::{
    io::Write,
    time::{Duration, Instant},
};

/// A shell that ignores the polite request, with a child of its own.
const STUBBORN: [&str; 3] = ["sh", "-c", "trap '' TERM; sleep 600 & while :; do sleep 600; done"];

#[test]
fn a_signal_cancels_everything_and_leaves_nothing() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut live =
            subagents(["run", "--each", "-", "-j", "3", "--json", "--", "sh", "-c", "sleep 600 & sleep 600"])
                .start();
        let mut stdin = live.child.stdin.take().expect("a pipe");
        stdin.write_all(b"a\nb\nc\nd\n").expect("it reads");
        // The program, three shells, and two children each.
        live.until_alive(10);
        live.signal(signal);
        let ended = live.end();
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert_eq!(ended.left, Vec::<String>::new());
        let lines = ended.json();
        assert!(lines.len() >= 3, "{lines:?}");
        assert_eq!(lines.iter().filter(|line| line["stop_reason"] == "aborted").count(), 3, "{lines:?}");
    }
}

#[test]
fn a_second_signal_kills_what_does_not_want_to_go() {
    let mut live =
        subagents(["run", "--each", "-", "-j", "12", "--json", "--"].iter().chain(&STUBBORN)).start();
    let mut stdin = live.child.stdin.take().expect("a pipe");
    stdin.write_all("a prompt\n".repeat(12).as_bytes()).expect("it reads");
    live.until_alive(1 + 12 * 3);
    let mut stderr = live.child.stderr.take().expect("a pipe");
    let begun = Instant::now();
    live.signal(Signal::INT);
    read_until(&mut stderr, "once more kills");
    live.signal(Signal::INT);
    let ended = live.end();
    assert_eq!((ended.code, &*ended.left), (Some(130), &[][..]));
    assert_eq!(ended.json().len(), 12, "each has its line: {}", ended.out);
    // What was killed is seen to be gone.
    assert!(!ended.out.contains("leaked"), "{}", ended.out);
    // Without the second one it is asked first for one second and then for two.
    assert!(begun.elapsed() < Duration::from_millis(2_500), "{:?}", begun.elapsed());
}

#[test]
fn one_signal_is_enough_for_what_does_not_want_to_go() {
    let live = subagents(["run", "x", "--"].iter().chain(&STUBBORN)).start();
    live.until_alive(4);
    live.signal(Signal::INT);
    let ended = live.end();
    assert_eq!((ended.code, ended.left), (Some(130), vec![]));
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let mut live = subagents(["run", "--each", "-", "-j", "4", "--", "sh", "-c", "cat; sleep 0.05"]).start();
    let mut stdin = live.child.stdin.take().expect("a pipe");
    let feed = std::thread::spawn(move || while stdin.write_all(b"a prompt\n").is_ok() {});
    let mut stdout = live.child.stdout.take().expect("a pipe");
    assert_eq!(read_until(&mut stdout, "\n"), "a prompt\n");
    drop(stdout);
    let ended = live.end();
    assert_eq!((ended.code, &*ended.err), (Some(141), ""));
    assert_eq!(ended.left, Vec::<String>::new());
    feed.join().expect("nobody reads any more");
}

#[test]
fn a_signal_is_heard_while_nobody_reads() {
    let mut live =
        subagents(["run", "--each", "-", "--", "sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x"]).start();
    let mut stdin = live.child.stdin.take().expect("a pipe");
    let feed = std::thread::spawn(move || while stdin.write_all(b"a prompt\n").is_ok() {});
    live.until_alive(2);
    let mut stderr = live.child.stderr.take().expect("a pipe");
    // Kept open and never read: the pipe is full soon.
    let _stdout = live.child.stdout.take().expect("a pipe");
    live.signal(Signal::INT);
    read_until(&mut stderr, "once more kills");
    live.signal(Signal::INT);
    assert_eq!(live.end_unread(), (Some(130), vec![]));
    feed.join().expect("nobody reads any more");
}

#[test]
fn what_was_killed_is_told_and_what_was_never_started_is_counted() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), "a prompt\n".repeat(20)).expect("it can be written");
    let path = file.path().to_str().expect("a plain path");
    let mut live = subagents(["run", "--each", path, "-j", "2", "--"].iter().chain(&STUBBORN)).start();
    live.until_alive(1 + 2 * 3);
    let mut stderr = live.child.stderr.take().expect("a pipe");
    live.signal(Signal::INT);
    read_until(&mut stderr, "once more kills");
    live.signal(Signal::INT);
    let told = read_until(&mut stderr, "18 of ");
    assert!(told.contains("(line 1): aborted") && told.contains("; killed\n"), "{told}");
    assert!(!told.contains("LEAKED") && told.contains("2 delegations: 0 completed, 2 cancelled"), "{told}");
    assert_eq!(live.end().left, Vec::<String>::new());
}

#[test]
fn how_a_child_ended_is_known_where_the_program_was_started_deaf_to_it() {
    let script = r#"trap "" CHLD; exec "$0" run x -- sh -c "echo part; exit 3""#;
    let mut command = program("bash");
    command.args(["-c", script, env!("CARGO_BIN_EXE_subagents")]).env("SUBAGENTS__LEDGER", "false");
    let output = wait(command.spawn().expect("it starts"), Vec::new());
    let told = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1));
    assert!(told.contains("ended with exit code 3"), "{told}");
}
