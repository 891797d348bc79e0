//! The host dies, one way or another, and a watchdog does what it cannot do any more.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use subagents_process::{Command, Host, Ledger};

use crate::support::{Marker, PATIENCE, alive, alone, first_line, until};

/// Says to this test program that it is the host of another test.
const ROLE: &str = "HOST_OF_A_TEST";

/// Where that host is to keep a ledger.
const LEDGER: &str = "LEDGER_OF_A_TEST";

/// Three children, each with a grandchild of its own session, a daemon, and one without its environment.
const FAMILY: &str = r#"
    setsid sh -c 'trap "" TERM HUP; sleep 1000; :' "$0" &
    setsid sh -c 'setsid sh -c "sleep 1000; :" "$0" & exit 0' "$0"
    env -i setsid sh -c 'setsid sh -c "sleep 1000; :" "$0" & exit 0' "$0"
    trap "" TERM HUP; echo up; while :; do sleep 1; done"#;

/// Not a test by itself: what the others start and kill.
#[test]
fn a_host_for_the_others() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, text) = role.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let _ledger = std::env::var_os(LEDGER).map(|folder| Ledger::open(folder).unwrap());
        let host = Host::current().unwrap();
        let watchdog = || host.watchdog().unwrap();
        let mut family = Vec::new();
        for number in 0..3 {
            let command = Command::new("bash", "/").args(["-c", FAMILY, text]).stdin_piped();
            let command = command.note(format!("number {number}"));
            let mut process = command.spawn().unwrap();
            let (_, lines) = first_line(&mut process).await;
            family.push((process, lines));
        }
        if role == "disposes" {
            for (process, _) in &mut family {
                let short = Duration::from_millis(50);
                let teardown =
                    process.terminate(subagents_process::Ladder::new(short, short, PATIENCE)).await;
                assert!(!teardown.is_leaked(), "{teardown:?}");
            }
        }
        println!("\nready {}", watchdog());
        match role {
            "exits" => std::process::exit(0),
            "aborts" => std::process::abort(),
            "renews" => {
                let first = watchdog();
                kill_process(pid(first), Signal::KILL).unwrap();
                until("it is dead", || !alive(first));
                let _process = Command::new("sleep", "/").arg("1000").spawn().unwrap();
                println!("ready {}", watchdog());
                std::future::pending().await
            }
            _ => std::future::pending().await,
        }
    });
}

pub(crate) fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
}

/// This program again, as a host in this role; returns when all of it is up.
pub(crate) fn host(role: &str, marker: &Marker) -> (Child, u32, BufReader<std::process::ChildStdout>) {
    host_with_ledger(role, marker, None)
}

pub(crate) fn host_with_ledger(
    role: &str,
    marker: &Marker,
    ledger: Option<&Path>,
) -> (Child, u32, BufReader<std::process::ChildStdout>) {
    #[expect(clippy::disallowed_methods, reason = "a host is started by somebody else")]
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .envs(ledger.map(|folder| (LEDGER, folder)))
        .args(["--exact", "host::a_host_for_the_others", "--nocapture"])
        .env(ROLE, format!("{role} {}", marker.text()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let watchdog = ready(&mut lines);
    (child, watchdog, lines)
}

fn ready(lines: &mut impl BufRead) -> u32 {
    loop {
        let mut line = String::new();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the host ended");
        if let Some(watchdog) = line.strip_prefix("ready ") {
            return watchdog.trim().parse().unwrap();
        }
    }
}

#[test]
fn c01_a_host_that_is_killed_takes_every_descendant_with_it() {
    let marker = Marker::fresh();
    let (mut child, watchdog, _lines) = host("waits", &marker);
    until("all are up", || marker.alive().len() >= 12);
    let begun = Instant::now();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    until("nobody is left", || marker.alive().is_empty());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    until("the watchdog is gone", || !alive(watchdog));
}

#[test]
fn a_host_that_ends_by_itself_or_is_aborted_takes_them_too() {
    for role in ["exits", "aborts"] {
        let marker = Marker::fresh();
        let (mut child, watchdog, _lines) = host(role, &marker);
        child.wait().unwrap();
        until("nobody is left", || marker.alive().is_empty());
        until("the watchdog is gone", || !alive(watchdog));
    }
}

#[test]
fn a_watchdog_that_was_killed_is_replaced_with_the_next_child() {
    let marker = Marker::fresh();
    let (mut child, first, mut lines) = host("renews", &marker);
    let second = ready(&mut lines);
    assert!(first != second && alive(second));
    child.kill().unwrap();
    child.wait().unwrap();
    until("nobody is left", || marker.alive().is_empty());
    until("the watchdog is gone", || !alive(second));
}

#[test]
fn a_watchdog_that_was_killed_is_replaced_while_there_are_children() {
    let marker = Marker::fresh();
    let (mut child, first, _lines) = host("waits", &marker);
    kill_process(pid(first), Signal::KILL).unwrap();
    until("it is dead", || !alive(first));
    let command_line = |id: u32| std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let below = |id: u32| {
        std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| {
            stat.rsplit_once(") ")
                .is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some(&child.id().to_string()))
        })
    };
    until("another is there", || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let mut ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        ids.any(|id| id != first && below(id) && command_line(id).contains("subagents-watchdog"))
    });
    child.kill().unwrap();
    child.wait().unwrap();
    until("nobody is left", || marker.alive().is_empty());
}

#[test]
fn signals_of_a_terminal_do_not_end_the_watchdog() {
    let marker = Marker::fresh();
    let (mut child, watchdog, _lines) = host("waits", &marker);
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        kill_process(pid(watchdog), signal).unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    until("nobody is left", || marker.alive().is_empty());
}

#[tokio::test]
async fn the_watchdog_goes_with_the_last_who_needs_it_and_leaves_no_zombie() {
    if !alone("host::the_watchdog_goes_with_the_last_who_needs_it_and_leaves_no_zombie") {
        return;
    }
    // What a host was given, and whatever it starts inherits.
    let given = tempfile::tempfile().unwrap();
    rustix::io::fcntl_setfd(&given, rustix::io::FdFlags::empty()).unwrap();
    let host = Host::current().unwrap();
    assert_eq!(host.watchdog(), None);
    let mut process = Command::new("sleep", "/").arg("1000").spawn().unwrap();
    let watchdog = host.watchdog().unwrap();
    // Nothing of the host's; a shell has a copy of its own while it begins.
    until("it has its stdio alone", || {
        let open = std::fs::read_dir(format!("/proc/{watchdog}/fd")).unwrap().flatten();
        open.map(|entry| entry.file_name().into_string().unwrap()).all(|fd| ["0", "1", "2"].contains(&&*fd))
    });
    process.terminate(subagents_process::Ladder::default()).await;
    drop(process);
    assert!(alive(watchdog), "the host is still held");
    let again = Command::new("sleep", "/").arg("1000").spawn().unwrap();
    assert_eq!(host.watchdog(), Some(watchdog));
    drop(host);
    assert!(alive(watchdog), "a child is there");
    drop(again);
    until("it is reaped", || crate::support::state(watchdog).is_none());
}

/// This test program as a child of ours that is a host itself.
async fn nested_host(role: &str, marker: &Marker) -> (subagents_process::Process, subagents_process::Lines) {
    let mut process = Command::new(std::env::current_exe().unwrap(), "/")
        .args(["--exact", "host::a_host_for_the_others", "--nocapture"])
        .env(ROLE, format!("{role} {}", marker.text()))
        .stdin_piped()
        .spawn()
        .unwrap();
    let mut lines = process.take_stdout().unwrap().into_lines(10_000);
    while !lines.next().await.unwrap().unwrap().starts_with("ready ") {}
    (process, lines)
}

#[tokio::test]
async fn a_nested_host_is_ended_with_all_that_it_started() {
    let marker = Marker::fresh();
    let (mut process, _lines) = nested_host("waits", &marker).await;
    until("all are up", || marker.alive().len() >= 12);
    let short = Duration::from_millis(50);
    let teardown = process.terminate(subagents_process::Ladder::new(short, short, PATIENCE)).await;
    assert!(!teardown.is_leaked(), "{teardown:?}");
    assert_eq!(marker.alive(), [""; 0]);
}

#[tokio::test]
async fn a_nested_host_that_is_killed_leaves_to_its_watchdog_what_has_its_variable_and_to_us_the_rest() {
    let marker = Marker::fresh();
    let (mut process, _lines) = nested_host("waits", &marker).await;
    until("all are up", || marker.alive().len() >= 12);
    process.kill();
    process.wait().await;
    // Those without their environment bear our tag only.
    let washed = |line: &String| !line.contains("trap") && line.contains("sleep");
    until("its watchdog has done what it can", || marker.alive().iter().all(washed));
    assert!(!process.terminate(subagents_process::Ladder::default()).await.is_leaked());
    assert_eq!(marker.alive(), [""; 0]);
}

#[tokio::test]
async fn a_nested_host_ends_what_it_started_without_those_above() {
    let marker = Marker::fresh();
    let (mut process, _lines) = nested_host("disposes", &marker).await;
    // It is there still, and of its families nobody is, with or without an environment.
    assert!(alive(process.id()));
    assert_eq!(marker.alive(), [""; 0]);
    assert!(!process.terminate(subagents_process::Ladder::default()).await.is_leaked());
}
