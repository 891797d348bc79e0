//! Who has left the group is found and ended all the same, and nobody else is touched.

use std::time::Duration;

use subagents_process::{Command, Ladder, Process, Stage, Teardown};
use tokio::time::timeout;

use crate::support::{Marker, PATIENCE, alone, first_line, sh, until};

const SHORT: Duration = Duration::from_millis(50);

/// Each leaves somebody outside the group who hears nothing but `SIGKILL`, says so, and waits for its input to end.
/// `$0` marks whoever it concerns.
const ESCAPES: &[(&str, &str)] = &[
    ("a session of its own", r#"setsid sh -c 'trap "" TERM HUP; sleep 1000 & wait' "$0" & echo up; read x"#),
    (
        "a daemon, forked twice",
        r#"setsid sh -c 'setsid sh -c "sleep 1000; :" "$0" & exit 0' "$0"; echo up; read x"#,
    ),
    ("without its environment", r#"env -i setsid sh -c 'sleep 1000; :' "$0" & echo up; read x"#),
    (
        "a daemon without its environment",
        r#"env -i setsid sh -c 'setsid sh -c "sleep 1000; :" "$0" & exit 0' "$0"; echo up; read x"#,
    ),
    (
        "with one limit changed",
        r#"ulimit -m unlimited; env -i setsid sh -c 'setsid sh -c "sleep 1000; :" "$0" & exit 0' "$0"; echo up; read x"#,
    ),
    (
        "with the variable only",
        r#"ulimit -m unlimited; ulimit -x unlimited 2>/dev/null; setsid sh -c 'setsid sh -c "sleep 1000; :" "$0" & exit 0' "$0"; echo up; read x"#,
    ),
    (
        "with a tag of somebody else's in one limit",
        r#"prlimit --rss=2000000000680000000:unlimited setsid sh -c 'setsid sh -c "sleep 1000; :" "$0" & exit 0' "$0"; echo up; read x"#,
    ),
    ("whose parent is gone", r#"(setsid sh -c 'sleep 1000; :' "$0" &) ; echo up; read x"#),
];

async fn started(script: &str, marker: &Marker) -> Process {
    let mut process =
        Command::new("bash", "/").args(["-c", script]).arg(marker.text()).stdin_piped().spawn().unwrap();
    let (line, _lines) = first_line(&mut process).await;
    assert_eq!(line, "up");
    process
}

#[tokio::test]
async fn spec_17_7_whoever_has_left_the_group_is_ended_with_it() {
    for (what, script) in ESCAPES {
        let marker = Marker::fresh();
        let mut process = started(script, &marker).await;
        until(what, || !marker.outside(process.id()).is_empty());
        let teardown = process.terminate(Ladder::new(PATIENCE, PATIENCE, PATIENCE)).await;
        assert_eq!(marker.alive(), [""; 0], "{what}: {teardown:?}");
        let Teardown::Gone { stage, escaped, .. } = teardown else { panic!("{what}: {teardown:?}") };
        assert!(stage == Stage::Eof && escaped >= 1, "{what}: {stage:?} {escaped}");
    }
}

#[tokio::test]
async fn a_drop_ends_them_too() {
    for (what, script) in ESCAPES {
        let marker = Marker::fresh();
        let process = started(script, &marker).await;
        until(what, || !marker.outside(process.id()).is_empty());
        drop(process);
        until(what, || marker.alive().is_empty());
    }
}

#[test]
fn a_drop_after_the_runtime_ends_them_too() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let marker = Marker::fresh();
    let process = runtime.block_on(started(ESCAPES[1].1, &marker));
    until("it has escaped", || !marker.outside(process.id()).is_empty());
    drop(runtime);
    drop(process);
    until("nobody is left", || marker.alive().is_empty());
}

#[tokio::test]
async fn neither_siblings_nor_strangers_are_touched() {
    if !alone("descendants::neither_siblings_nor_strangers_are_touched") {
        return;
    }
    let (ours, siblings, strangers) = (Marker::fresh(), Marker::fresh(), Marker::fresh());
    let mut process = started(ESCAPES[1].1, &ours).await;
    let mut sibling = started(ESCAPES[1].1, &siblings).await;
    #[expect(clippy::disallowed_methods, reason = "a stranger is started by somebody else")]
    let mut stranger = std::process::Command::new("setsid")
        .args(["sh", "-c", "sleep 1000; :", strangers.text()])
        .spawn()
        .unwrap();
    until("the stranger runs", || strangers.alive().len() == 2);
    let host = subagents_process::Host::current().unwrap();
    let (before, watchdog) = (siblings.alive(), host.watchdog());
    assert!(before.len() >= 2 && watchdog.is_some());
    assert!(!process.terminate(Ladder::default()).await.is_leaked());
    assert_eq!(ours.alive(), [""; 0]);
    assert_eq!((siblings.alive(), host.watchdog()), (before, watchdog));
    assert_eq!(strangers.alive().len(), 2, "{:?}", strangers.alive());
    sibling.terminate(Ladder::default()).await;
    // Its pid leads a group, in which the sleep is.
    let group = rustix::process::Pid::from_child(&stranger);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn a_storm_of_daemons_is_ended() {
    // Each hop is a new session whose parent ends at once: by the time a hop is seen it may be gone.
    let chain = r#"hop() { [ "$1" -gt 0 ] && setsid bash -c "$CODE" "$0" "$(($1 - 1))" & }; hop "$1"; [ "$1" -gt 0 ] || sleep 1000"#;
    for _ in 0..10 {
        let marker = Marker::fresh();
        let mut process = Command::new("bash", "/")
            .args(["-c", r#"for i in 1 2 3 4 5; do setsid bash -c "$CODE" "$0" 40 & done; echo up; read x"#])
            .arg(marker.text())
            .env("CODE", chain)
            .stdin_piped()
            .spawn()
            .unwrap();
        let (_, _lines) = first_line(&mut process).await;
        let teardown =
            timeout(PATIENCE, process.terminate(Ladder::new(SHORT, SHORT, PATIENCE))).await.unwrap();
        assert!(!teardown.is_leaked(), "{teardown:?}");
        assert_eq!(marker.alive(), [""; 0]);
    }
}

#[tokio::test]
async fn a_child_without_descendants_is_gone_at_once_and_nobody_has_escaped() {
    let mut process = sh("exit 0").spawn().unwrap();
    process.wait().await;
    let Teardown::Gone { escaped, .. } = process.terminate(Ladder::default()).await else { panic!() };
    assert_eq!(escaped, 0);
}

#[tokio::test]
async fn the_tag_is_in_the_limits_and_in_the_environment() {
    let mut process = Command::new("bash", "/")
        .args(["-c", "ulimit -Sm; grep 'file locks' /proc/self/limits; echo $SUBAGENTS_SCOPE"])
        .spawn()
        .unwrap();
    let text = String::from_utf8(crate::support::read_all(&mut process).await).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let tag: u64 = lines[2].parse().unwrap();
    assert!(tag >= 1 << 60, "{text}");
    // Bash counts in KiB.
    assert_eq!(lines[0], (tag / 1024).to_string());
    assert_eq!(lines[1].split_whitespace().nth(3), Some(lines[2]));
}

/// Ends its first thread and goes on in another: a zombie to look at.
const HEADLESS: &str = r#"
    #define _GNU_SOURCE
    #include <pthread.h>
    #include <stdio.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static void *nap(void *unused) { sleep(300); return unused; }
    int main(void) {
        pthread_t thread;
        setsid();
        pthread_create(&thread, 0, nap, 0);
        printf("%d\n", getpid());
        fflush(stdout);
        syscall(SYS_exit, 0);
    }"#;

/// Compiled by what Rust links with.
fn headless(folder: &std::path::Path) -> std::path::PathBuf {
    let (source, program) = (folder.join("headless.c"), folder.join("headless"));
    std::fs::write(&source, HEADLESS).unwrap();
    #[expect(clippy::disallowed_methods, reason = "it makes what is tested")]
    let made = std::process::Command::new("cc").arg("-pthread").arg("-o").arg(&program).arg(&source).status();
    assert!(made.unwrap().success());
    program
}

#[tokio::test]
async fn a_descendant_whose_first_thread_has_ended_is_none_the_less_alive_and_ended() {
    let temp = tempfile::tempdir().unwrap();
    let program = headless(temp.path());
    let threads = |id: &str| {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
        threads.map_or(0, |threads| threads.trim().parse::<u32>().unwrap())
    };
    let start = async || {
        let mut process = Command::new("sh", "/")
            .args(["-c", "\"$0\" & read x"])
            .arg(&program)
            .stdin_piped()
            .spawn()
            .unwrap();
        let (id, _lines) = first_line(&mut process).await;
        until("its first thread has ended", || crate::support::state(id.parse().unwrap()) == Some('Z'));
        assert_eq!(threads(&id), 2);
        (process, id)
    };
    let (mut process, id) = start().await;
    let Teardown::Gone { escaped, .. } = process.terminate(Ladder::default()).await else { panic!() };
    assert_eq!(escaped, 1);
    assert!(threads(&id) < 2, "it goes on");
    let (process, id) = start().await;
    drop(process);
    until("it is ended", || threads(&id) < 2);
}

#[tokio::test]
async fn a_host_that_takes_in_orphans_keeps_no_zombie_of_them() {
    if !alone("descendants::a_host_that_takes_in_orphans_keeps_no_zombie_of_them") {
        return;
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    // Somebody else's zombie, which is not ours to reap.
    #[expect(clippy::disallowed_methods, reason = "a stranger is started by somebody else")]
    let mut other = std::process::Command::new("true").spawn().unwrap();
    until("it has ended", || crate::support::state(other.id()) == Some('Z'));
    for (what, script) in ESCAPES {
        let marker = Marker::fresh();
        let mut process = started(script, &marker).await;
        until(what, || !marker.outside(process.id()).is_empty());
        let teardown = process.terminate(Ladder::default()).await;
        assert!(!teardown.is_leaked(), "{what}: {teardown:?}");
        until("no orphan is a zombie", || zombies() == [other.id()]);
    }
    assert!(other.wait().unwrap().success());
}

/// Children of this process that nobody has waited for.
fn zombies() -> Vec<u32> {
    let me = std::process::id().to_string();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(&format!("Z {me} ")))
    })
    .collect()
}

#[tokio::test]
async fn who_cannot_look_does_not_say_that_nobody_is_left() {
    if !alone("descendants::who_cannot_look_does_not_say_that_nobody_is_left") {
        return;
    }
    let marker = Marker::fresh();
    let mut process = started(ESCAPES[1].1, &marker).await;
    until("it has escaped", || !marker.outside(process.id()).is_empty());
    // No descriptor is left to read the table with, nor one in reserve.
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let before = limit;
    limit.current = Some(0);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let teardown = process.terminate(Ladder::new(SHORT, SHORT, Duration::from_millis(300))).await;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, before).unwrap();
    assert!(teardown.is_leaked(), "{teardown:?}");
    assert!(!marker.alive().is_empty());
    assert!(!process.terminate(Ladder::default()).await.is_leaked());
    assert_eq!(marker.alive(), [""; 0]);
}

#[tokio::test]
async fn in_the_table_of_another_namespace_nobody_is_touched_and_nobody_is_said_to_be_gone() {
    const TEST: &str =
        "descendants::in_the_table_of_another_namespace_nobody_is_touched_and_nobody_is_said_to_be_gone";
    let marker = if let Ok(text) = std::env::var("IN_A_NAMESPACE") {
        Marker::of(text)
    } else {
        let marker = Marker::fresh();
        // Without a /proc of its own. Only the superuser may, and not everywhere.
        #[expect(clippy::disallowed_methods, reason = "it is this test program")]
        let output = std::process::Command::new("unshare")
            .args(["--pid", "--fork"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env("IN_A_NAMESPACE", marker.text())
            .output()
            .unwrap();
        let told =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(told.contains("1 passed") || told.contains("unshare failed"), "{told}");
        until("the namespace took them along", || marker.alive().is_empty());
        return;
    };
    let mut process = started(ESCAPES[1].1, &marker).await;
    let teardown = process.terminate(Ladder::new(SHORT, SHORT, Duration::from_millis(300))).await;
    assert!(teardown.is_leaked(), "{teardown:?}");
}

#[tokio::test]
async fn where_exits_are_taken_away_the_tag_is_left_to_go_by() {
    const TEST: &str = "descendants::where_exits_are_taken_away_the_tag_is_left_to_go_by";
    if std::env::var_os("DEAF_TO_EXITS").is_none() {
        #[expect(clippy::disallowed_methods, reason = "it is this test program")]
        let output = std::process::Command::new("bash")
            .args(["-c", "trap '' CHLD; exec \"$0\" --exact \"$1\" --nocapture"])
            .arg(std::env::current_exe().unwrap())
            .arg(TEST)
            .env("DEAF_TO_EXITS", "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(told.contains("1 passed"), "{told}{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let marker = Marker::fresh();
    let script = r#"sh -c 'trap "" TERM; sleep 1000; :' "$0" & echo up; exit 0"#;
    let mut process = started(script, &marker).await;
    assert_eq!(process.wait().await, subagents_process::Exit::Unknown);
    assert!(!marker.alive().is_empty());
    let Teardown::Gone { exit, .. } = process.terminate(Ladder::default()).await else { panic!() };
    assert_eq!(exit, subagents_process::Exit::Unknown);
    assert_eq!(marker.alive(), [""; 0]);
}
