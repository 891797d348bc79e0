//! What a drop does: it kills the group, anywhere, and leaves no zombie.

use subagents_process::Process;

use crate::support::{alive, alone, first_line, group_gone, sh, state, until};

/// A child with a grandchild in its group, both deaf to everything that can be ignored.
async fn family() -> (Process, u32) {
    let script = "trap '' TERM HUP INT; sh -c 'echo $$; while :; do sleep 1; done' & wait";
    let mut process = sh(script).spawn().unwrap();
    let (grandchild, lines) = first_line(&mut process).await;
    drop(lines);
    (process, grandchild.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_kills_the_whole_group_and_it_is_reaped() {
    let (process, grandchild) = family().await;
    let id = process.id();
    assert!(alive(id) && alive(grandchild));
    drop(process);
    // The runtime's driver must turn for the reaping.
    until("child and grandchild are dead", || !alive(id) && !alive(grandchild));
    let end = tokio::time::Instant::now() + crate::support::PATIENCE;
    while state(id).is_some() {
        assert!(tokio::time::Instant::now() < end, "the child stays a zombie");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn what_was_dropped_is_gone_when_the_host_is_idle() {
    if !alone("drops::what_was_dropped_is_gone_when_the_host_is_idle") {
        return;
    }
    let host = subagents_process::Host::current().unwrap();
    let (process, grandchild) = family().await;
    let id = process.id();
    drop(process);
    assert!(tokio::time::timeout(crate::support::PATIENCE, host.idle()).await.unwrap());
    assert!(state(id).is_none() && !alive(grandchild));
}

#[test]
fn a_drop_outside_any_runtime_kills_the_whole_group() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (process, grandchild) = runtime.block_on(family());
    let id = process.id();
    drop(process);
    until("child and grandchild are dead", || !alive(id) && !alive(grandchild));
}

#[test]
fn a_drop_after_the_runtime_kills_the_whole_group() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (process, grandchild) = runtime.block_on(family());
    let id = process.id();
    drop(runtime);
    assert!(alive(id));
    std::thread::spawn(move || drop(process)).join().unwrap();
    until("child and grandchild are dead", || !alive(id) && !alive(grandchild));
}

/// Many at once, and no child ends later whose `SIGCHLD` would have one more look taken at those before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn children_that_die_while_they_are_dropped_are_all_reaped() {
    for _ in 0..100 {
        let mut ids = Vec::new();
        let mut drops = tokio::task::JoinSet::new();
        for _ in 0..2 {
            let process = sh("while :; do sleep 1; done").spawn().unwrap();
            ids.push(process.id());
            drops.spawn(async move { drop(process) });
        }
        drops.join_all().await;
        let end = tokio::time::Instant::now() + crate::support::PATIENCE;
        while let Some(id) = ids.iter().find(|id| state(**id).is_some()) {
            assert!(tokio::time::Instant::now() < end, "{id} stays {:?}", state(*id));
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    }
}

#[tokio::test]
async fn a_drop_of_an_exited_child_still_kills_what_it_left() {
    let mut process = sh("sh -c 'echo $$; while :; do sleep 1; done' & exit 0").spawn().unwrap();
    let (grandchild, _lines) = first_line(&mut process).await;
    let grandchild = grandchild.parse().unwrap();
    process.wait().await;
    assert!(alive(grandchild));
    drop(process);
    until("the grandchild is dead", || !alive(grandchild));
}

#[tokio::test]
async fn short_children_leave_no_zombie() {
    let mut ids = Vec::new();
    for round in 0..50 {
        let mut process = sh("exit 0").spawn().unwrap();
        ids.push(process.id());
        process.wait().await;
        if round % 2 == 0 {
            process.terminate(subagents_process::Ladder::default()).await;
        }
    }
    for id in ids {
        assert!(state(id).is_none() && group_gone(id), "{id} is {:?}", state(id));
    }
}
