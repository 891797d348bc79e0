//! Behaviour × way to die: whatever a program does, and however its run ends, nothing of it is alive afterwards.
//!
//! `MATRIX_REPEATS=200` repeats the cells in which something races. Who is alive is found by the name that each process of
//! a cell goes by, which nothing in the runtime looks at.

use super::support::{Host, PATIENCE, until, within};
use crate::processes::running as alive;
use std::{fmt::Write as _, fs, time::Duration};
use subagents::{CancelCause, Deadlines, Exec, StopReason};
use tokio::{sync::mpsc, task::JoinSet};

/// What each script begins with. `$0` is the name to go by, `$1` how it goes on once it is set up.
const PRELUDE: &str = r#"
    nap() { (exec -a "$0" sleep 300) & }
    go_on() {
      case $1 in
        finish) exit 0 ;;
        crash) kill -KILL $$ ;;
        *) nap; wait; wait ;;
      esac
    }
"#;

/// Behaviour, its script, and whether it races with whoever ends it.
const BEHAVIOURS: [(&str, &str, bool); 10] = [
    ("well-behaved", "echo up; go_on $1", false),
    ("ignores TERM", r#"trap "" TERM HUP INT; nap; echo up; go_on $1"#, false),
    (
        "own session",
        r#"setsid bash -c 'trap "" TERM HUP; (exec -a "$0" sleep 300) & wait' "$0" & echo up; go_on $1"#,
        true,
    ),
    (
        "double fork",
        r#"setsid bash -c 'env -i setsid bash -c "exec -a \"\$0\" sleep 300" "$0" & exit' "$0"; echo up; go_on $1"#,
        true,
    ),
    (
        "fork storm",
        r#"export CODE='[ "$1" = 0 ] && exec -a "$0" sleep 300; setsid bash -c "$CODE" "$0" $(($1 - 1)) & exit'
           for chain in 1 2 3; do setsid bash -c "$CODE" "$0" 40 & done; echo up; go_on $1"#,
        true,
    ),
    ("holds stdout open", "nap; echo up; go_on $1", false),
    ("never reads stdin", "exec 3<&0; echo up; go_on $1", false),
    (
        "floods stdout",
        r#"echo up; sleep 0.5; [ $1 = finish ] && { yes flood | head -c 3000000; exit 0; }
           (exec -a "$0" yes flood) & go_on $1"#,
        false,
    ),
    (
        "floods stderr",
        r#"echo up; sleep 0.5; [ $1 = finish ] && { yes flood | head -c 3000000 >&2; exit 0; }
           (exec -a "$0" yes flood >&2) & go_on $1"#,
        false,
    ),
    (
        "wrapper",
        r#"bash -c "$WRAPPED" "$0" $1; code=$?; [ $code -gt 128 ] && kill -KILL $$; exit $code"#,
        true,
    ),
];

/// What the wrapper wraps.
const WRAPPED: &str = r#"trap "" TERM HUP INT; bash -c "$INNER" "$0" $1; exit $?"#;
const INNER: &str = r#"case $1 in
    finish) echo up ;;
    crash) echo up; kill -KILL $$ ;;
    *) (exec -a "$0" sleep 300) & echo up; wait ;;
esac"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Finishes,
    Cancelled,
    TimedOut,
    Disposed,
    HostShutdown,
    Crash,
    RunActorKilled,
}

const WAYS: [(Way, &str); 7] = [
    (Way::Finishes, "finishes"),
    (Way::Cancelled, "cancelled"),
    (Way::TimedOut, "timed out"),
    (Way::Disposed, "disposed"),
    (Way::HostShutdown, "host shutdown"),
    (Way::Crash, "crash of the child"),
    (Way::RunActorKilled, "run actor killed"),
];

async fn cell(behaviour: usize, way: Way, repeat: usize) {
    let (what, script, _) = BEHAVIOURS[behaviour];
    let name = format!("cell-{}-{behaviour}-{}-{repeat}-", std::process::id(), way as usize);
    let then = match way {
        Way::Finishes => "finish",
        Way::Crash => "crash",
        Way::Cancelled | Way::TimedOut | Way::Disposed | Way::HostShutdown | Way::RunActorKilled => "stay",
    };
    let exec = Exec::new("bash").args(["-c", &format!("{PRELUDE}{script}"), &name, then]);
    let exec = exec.env("WRAPPED", WRAPPED).env("INNER", INNER);
    let host = Host::with(exec.max_total_output(u64::MAX));
    let mut deadlines = Deadlines::new().dispose(Duration::from_secs(5));
    if way == Way::TimedOut {
        deadlines = deadlines.total(Duration::from_millis(800));
    }
    let prompt = if what == "never reads stdin" { "x".repeat(1 << 20) } else { "x".to_owned() };
    let context = format!("{what} × {way:?}, repeat {repeat}");
    let start = host.service.start("sh", host.ask(&prompt).deadlines(deadlines));
    let run = within(&context, start).await.expect("it starts");
    if then == "stay" && way != Way::TimedOut {
        super::support::said(&mut run.progress(), "up").await;
    }
    let wanted = match way {
        Way::Finishes => StopReason::Completed,
        Way::TimedOut => StopReason::TimedOut,
        Way::Crash | Way::RunActorKilled => StopReason::Error,
        Way::Cancelled | Way::Disposed | Way::HostShutdown => StopReason::Aborted,
    };
    match way {
        Way::Cancelled => run.cancel(CancelCause::requested("a test")),
        Way::RunActorKilled => run.watcher().inject_kill(),
        Way::HostShutdown => {
            let report = within(&context, host.service.shutdown(PATIENCE)).await;
            assert!(report.is_clean(), "{context}: {report:?}");
            assert_eq!(alive(&name), [""; 0], "{context}");
        }
        Way::Finishes | Way::TimedOut | Way::Disposed | Way::Crash => {}
    }
    if way != Way::Disposed {
        let result = within(&context, run.result()).await.expect("a result");
        assert_eq!(result.stop_reason, wanted, "{context}: {result:?}");
    }
    let disposed = within(&context, run.dispose()).await;
    if way == Way::RunActorKilled {
        // Nobody saw its teardown end; it goes on all the same. A look can miss who forks and ends right then.
        let mut quiet = 0;
        until(&context, || {
            quiet = if alive(&name).is_empty() { quiet + 1 } else { 0 };
            quiet >= 10
        })
        .await;
    } else {
        assert!(disposed.is_ok(), "{context}: {disposed:?}");
        assert_eq!(alive(&name), [""; 0], "{context}");
    }
    if way == Way::Disposed {
        assert_eq!(within(&context, run.result()).await.expect("a result").stop_reason, wanted, "{context}");
    }
    host.end().await;
    assert_eq!(alive(&name), [""; 0], "{context}");
}

fn repeats() -> usize {
    std::env::var("MATRIX_REPEATS").map_or(1, |repeats| repeats.parse().expect("a number of repeats"))
}

/// As the README has it.
fn table() -> String {
    let mut table = String::from("| nothing is left alive when it |");
    for (_, way) in WAYS {
        let _ = write!(table, " {way} |");
    }
    table.push_str("\n|---|");
    table.push_str(&":-:|".repeat(WAYS.len()));
    for (what, _, races) in BEHAVIOURS {
        let _ = write!(table, "\n| {what} |");
        table.push_str(&if races { " ✓✓ |" } else { " ✓ |" }.repeat(WAYS.len()));
    }
    table
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_behaviour_in_every_way_to_die_leaves_nothing_alive() {
    let (cells, mut next) = mpsc::channel(1);
    let feed = async move {
        for repeat in 0..repeats() {
            for (behaviour, (_, _, races)) in BEHAVIOURS.iter().enumerate() {
                for (way, _) in WAYS {
                    if repeat == 0 || *races {
                        cells.send((behaviour, way, repeat)).await.expect("somebody takes it");
                    }
                }
            }
        }
    };
    let mut running = JoinSet::new();
    let mut done = 0;
    let drive = async {
        loop {
            tokio::select! {
                cell_of = next.recv(), if running.len() < 8 => match cell_of {
                    Some((behaviour, way, repeat)) => drop(running.spawn(cell(behaviour, way, repeat))),
                    None => break,
                },
                Some(ended) = running.join_next() => {
                    ended.expect("a cell holds");
                    done += 1;
                }
            }
        }
        while let Some(ended) = running.join_next().await {
            ended.expect("a cell holds");
            done += 1;
        }
    };
    tokio::join!(feed, drive);
    // A storm that was missed by every look has come to its end by now, which stays.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(alive(&format!("cell-{}-", std::process::id())), [""; 0]);
    let racing = BEHAVIOURS.iter().filter(|(_, _, races)| *races).count();
    assert_eq!(done, (BEHAVIOURS.len() + racing * (repeats() - 1)) * WAYS.len());
    println!("{}\n{done} runs", table());
}

#[test]
fn the_readme_has_the_matrix() {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).expect("README.md");
    assert!(readme.contains(&table()), "the README needs this table:\n{}", table());
}
