//! How long programs live: as long as their run, whatever they do about it.

use super::support::{Host, until, within};
use crate::processes::{alone, is_our_zombie, running};
use std::{fs, time::Duration};
use subagents::{Deadlines, Exec, StopReason};
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b11_a_deadline_that_meets_the_end_gives_one_outcome_and_keeps_finished_siblings() {
    let host = Host::with(Exec::new("sh").args(["-c", "echo part; sleep \"$1\"; echo done", "sh", "{}"]));
    // Who stops waiting ends nothing.
    let run = within("a start", host.service.start("sh", host.ask("0.3"))).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(100), run.result()).await.is_err());
    assert_eq!(within("its result", run.result()).await.unwrap().text(), "part\ndone\n");
    within("the disposal", run.dispose()).await.unwrap();

    let (mut completed, mut timed_out) = (0, 0);
    for round in 0..25_u64 {
        // Around what the program takes itself, to the millisecond.
        let slow = (0..8).map(|step| {
            let deadlines = Deadlines::new().total(Duration::from_millis(90 + 3 * step + round % 3));
            host.service.delegate("sh", host.ask("0.1").deadlines(deadlines))
        });
        let sibling = within("a sibling", host.service.delegate("sh", host.ask("0")));
        let (slow, sibling) = tokio::join!(futures_util::future::join_all(slow), sibling);
        assert!(sibling.unwrap().stop_reason.is_success());
        for slow in slow {
            let slow = slow.unwrap();
            if slow.stop_reason.is_success() {
                completed += 1;
                assert_eq!((slow.text(), &slow.diagnostic), ("part\ndone\n".to_owned(), &None));
            } else {
                timed_out += 1;
                assert_eq!(slow.stop_reason, StopReason::TimedOut);
                assert!(["", "part\n", "part\ndone\n"].contains(&&*slow.text()), "{:?}", slow.text());
                assert_eq!(slow.diagnostic.as_ref().unwrap().category(), "timed-out");
            }
        }
    }
    assert_eq!(completed + timed_out, 200);
    assert!(timed_out > 0, "the deadline was never first");
    host.end().await;
}

#[tokio::test]
async fn b13_the_next_delegation_has_a_program_of_its_own() {
    let host = Host::of("echo $$; read x; exit 0");
    let ask =
        async || within("an answer", host.service.delegate("sh", host.ask("x\n"))).await.unwrap().text();
    let first = ask().await;
    let killed = within("a start", host.service.start("sh", host.ask("wait"))).await.unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(host.processes()[0]).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let result = within("its result", killed.result()).await.unwrap();
    assert!(result.diagnostic.as_ref().unwrap().text().contains("SIGKILL"), "{result:?}");
    within("the disposal", killed.dispose()).await.unwrap();
    let (second, third) = (ask().await, ask().await);
    assert!(first != second && second != third);
    host.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b23_signs_of_life_hold_off_the_idle_limit_and_the_outcome_says_which_limit_it_was() {
    let host = Host::of("for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.15; done; sleep 1000");
    let idle = host.ask("x").deadlines(Deadlines::new().idle(Duration::from_millis(700)));
    let begun = Instant::now();
    let result = within("the idle limit", host.service.delegate("sh", idle)).await.unwrap();
    assert!(
        begun.elapsed() > Duration::from_millis(1_500),
        "it was cut while it spoke: {:?}",
        begun.elapsed()
    );
    assert_eq!(result.text(), "1\n2\n3\n4\n5\n6\n7\n8\n");
    assert!(result.diagnostic.as_ref().unwrap().text().contains("idle"), "{result:?}");

    let total = Deadlines::new().idle(Duration::from_millis(700)).total(Duration::from_millis(500));
    let total = host.ask("x").deadlines(total);
    let result = within("the total limit", host.service.delegate("sh", total)).await.unwrap();
    assert_eq!(result.stop_reason, StopReason::TimedOut);
    assert!(result.diagnostic.as_ref().unwrap().text().contains("total"), "{result:?}");
    assert!(result.text().starts_with("1\n"), "the partial text is kept: {result:?}");
    host.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c02_fifty_programs_that_never_end_by_themselves_are_gone_one_by_one() {
    if !alone("exec::lifetimes::c02_fifty_programs_that_never_end_by_themselves_are_gone_one_by_one") {
        return;
    }
    let host = Host::of("echo $$; trap '' HUP; while :; do sleep 0.05; done");
    let idle = Deadlines::new().idle(Duration::from_millis(60)).dispose(Duration::from_millis(500));
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let mut baseline = 0;
    for round in 0..50 {
        let request = host.ask("x").deadlines(idle.clone());
        let result = within("the idle limit", host.service.delegate("sh", request)).await.unwrap();
        assert_eq!(result.stop_reason, StopReason::TimedOut);
        let pid = result.text().trim().parse().unwrap();
        assert!(!is_our_zombie(pid), "round {round}");
        assert_eq!(host.mark.alive(), [""; 0], "round {round}");
        if round == 0 {
            baseline = descriptors();
        }
    }
    until("the descriptors are given back", || descriptors() <= baseline).await;
    host.end().await;
}

#[tokio::test]
async fn c17_a_wrapper_that_hides_the_real_program_goes_with_it() {
    let temp = tempfile::tempdir().unwrap();
    let inner = temp.path().join("inner.sh");
    fs::write(&inner, "trap '' TERM HUP INT; echo up; while :; do sleep 0.05; done\n").unwrap();
    for wrapper in ["bash \"$1\"; :", "setsid bash \"$1\"; :", "env -i bash \"$1\" & wait; :"] {
        let mut exec = Exec::new("bash").args(["-c", wrapper, "bash"]).arg(&inner);
        exec = exec.env("PATH", "/usr/bin:/bin");
        let host = Host::with(exec);
        let own = rustix::process::getpgrp();
        let run = host.up().await;
        let marker = inner.to_string_lossy().into_owned();
        assert!(!running(&marker).is_empty());
        within("the disposal", run.dispose()).await.unwrap();
        assert_eq!(running(&marker), [""; 0], "{wrapper}");
        assert_eq!(rustix::process::getpgrp(), own);
        host.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c18_each_step_of_the_ladder_gives_time_and_all_together_keep_the_limit() {
    let temp = tempfile::tempdir().unwrap();
    let file = |name: &str| temp.path().join(name);
    for (name, script, written, least, most) in [
        ("a", "echo up; cat > /dev/null; sleep 0.2; echo eof > \"$0\"", "eof\n", 0, 3_000),
        (
            "b",
            "trap 'echo term > \"$0\"; exit 0' TERM; echo up; while :; do sleep 0.05; done",
            "term\n",
            900,
            2_500,
        ),
        ("c", "trap '' TERM; echo up; while :; do sleep 0.05; done", "", 2_900, 12_000),
    ] {
        let host = Host::with(Exec::new("sh").args(["-c", script]).arg(file(name)));
        // So much that its stdin is still open when it is cancelled.
        let run = within("a start", host.service.start("sh", host.ask(&"x".repeat(1 << 20)))).await.unwrap();
        super::support::said(&mut run.progress(), "up").await;
        let begun = Instant::now();
        within("the disposal", run.dispose()).await.unwrap();
        let took = begun.elapsed();
        assert_eq!(fs::read_to_string(file(name)).unwrap_or_default(), written, "{name}");
        assert!((least..most).contains(&took.as_millis()), "{name} took {took:?}");
        host.end().await;
    }
}
