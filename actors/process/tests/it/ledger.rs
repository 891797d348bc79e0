//! What a dead host has left is known to the next one, told, and ended.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use subagents_process::{Command, Ladder, Ledger};

use crate::host::{host_with_ledger, pid};
use crate::support::{Marker, alive, alone, until};

fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            found.extend(files(&entry.path()).into_iter().map(|file| format!("{name}/{file}")));
        } else {
            found.push(name);
        }
    }
    found
}

#[tokio::test]
async fn c01_what_a_host_and_its_watchdog_could_not_end_is_ended_by_the_next_host_and_told() {
    if !alone("ledger::c01_what_a_host_and_its_watchdog_could_not_end_is_ended_by_the_next_host_and_told") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let (dead, living) = (Marker::fresh(), Marker::fresh());
    let (mut child, watchdog, _lines) = host_with_ledger("waits", &dead, Some(temp.path()));
    let (mut other, _, _other_lines) = host_with_ledger("waits", &living, Some(temp.path()));
    until("all are up", || dead.alive().len() >= 12 && living.alive().len() >= 12);
    let before = living.alive().len();
    // Nobody is left to end them: the host cannot start another watchdog.
    kill_process(pid(child.id()), Signal::STOP).unwrap();
    kill_process(pid(watchdog), Signal::KILL).unwrap();
    until("the watchdog is dead", || !alive(watchdog));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(dead.alive().len() >= 12);

    let ledger = Ledger::open(temp.path()).unwrap();
    let reaped = ledger.reap().await.unwrap();
    assert_eq!(dead.alive(), [""; 0]);
    assert!(reaped.ended >= 12 && reaped.alive.is_empty(), "{reaped:?}");
    let mut notes: Vec<_> = reaped.interrupted.iter().map(|left| left.note.clone().unwrap()).collect();
    notes.sort();
    assert_eq!(notes, ["number 0", "number 1", "number 2"]);
    for left in &reaped.interrupted {
        assert_eq!((left.host, left.program.rsplit('/').next()), (child.id(), Some("bash")));
        assert!(left.started.elapsed().unwrap() < Duration::from_mins(1), "{left:?}");
    }
    assert_eq!(living.alive().len(), before, "another host's are not touched");
    // Told once.
    assert_eq!(ledger.reap().await.unwrap(), subagents_process::Reaped::default());
    other.kill().unwrap();
    other.wait().unwrap();
    until("its watchdog has done its work", || living.alive().is_empty());
    assert_eq!(ledger.reap().await.unwrap().interrupted.len(), 3);
    drop(ledger);
    assert_eq!(files(temp.path()), [""; 0]);
}

#[tokio::test]
async fn a_child_is_recorded_until_it_is_gone_and_a_second_ledger_is_refused() {
    if !alone("ledger::a_child_is_recorded_until_it_is_gone_and_a_second_ledger_is_refused") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("a").join("b");
    let ledger = Ledger::open(&folder).unwrap();
    assert_eq!(Ledger::open(temp.path()).unwrap_err().code(), "LEDGER_ALREADY_OPEN");
    let mut process = Command::new("sleep", "/").arg("1000").note("for a test").spawn().unwrap();
    let dropped = Command::new("sleep", "/").arg("1000").spawn().unwrap();
    assert_eq!(files(&folder).len(), 3, "the host and two children: {:?}", files(&folder));
    process.terminate(Ladder::default()).await;
    assert_eq!(files(&folder).len(), 2);
    drop(dropped);
    until("it is gone", || files(&folder).len() == 1);
    assert!(ledger.fault().is_none());
    drop(ledger);
    // The thread that ended a dropped child may still have it in hand.
    until("nothing is left of it", || files(&folder).is_empty());
    drop(Ledger::open(&folder).unwrap());

    // Closed while a child is recorded, and opened again: it is the same one still.
    let ledger = Ledger::open(&folder).unwrap();
    let kept = Command::new("sleep", "/").arg("1000").spawn().unwrap();
    drop(ledger);
    assert_eq!(files(&folder).len(), 2, "its record stays");
    let unrecorded = Command::new("sleep", "/").arg("1000").spawn().unwrap();
    assert_eq!(files(&folder).len(), 2);
    let ledger = Ledger::open(&folder).unwrap();
    let recorded = Command::new("sleep", "/").arg("1000").spawn().unwrap();
    assert_eq!(files(&folder).len(), 3);
    // By another name, and after another folder.
    drop(ledger);
    let elsewhere = tempfile::tempdir().unwrap();
    drop(Ledger::open(elsewhere.path()).unwrap());
    let ledger = Ledger::open(folder.join("..").join("b")).unwrap();
    assert_eq!(files(&folder).len(), 3, "nothing was lost");
    drop((kept, unrecorded, recorded));
    until("they are gone", || files(&folder).len() == 1);
    drop(ledger);
    // The thread that ended a dropped child may still have it in hand.
    until("nothing is left of it", || files(&folder).is_empty());
}

#[tokio::test]
async fn one_dead_host_whose_folder_cannot_be_removed_keeps_no_other_from_being_told() {
    if !alone("ledger::one_dead_host_whose_folder_cannot_be_removed_keeps_no_other_from_being_told") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    for host in ["200000000068", "200000000169"] {
        let old = temp.path().join(host);
        // In the way of the removal, as a file that a network file system keeps would be.
        fs::create_dir_all(old.join("stray")).unwrap();
        fs::write(old.join("host.json"), r#"{"boot":"another","pid":1,"start":1}"#).unwrap();
        let child = r#"{"pid":1,"program":"/bin/x","note":null,"started_ms":1000}"#;
        fs::write(old.join(format!("{host}0000001.json")), child).unwrap();
    }
    let ledger = Ledger::open(temp.path()).unwrap();
    let reaped = ledger.reap().await.unwrap();
    assert_eq!((reaped.interrupted.len(), reaped.faults.len()), (2, 2), "{reaped:?}");
    assert!(reaped.faults[0].contains("cannot be removed"), "{reaped:?}");
}

#[tokio::test]
async fn an_unwritable_ledger_is_a_clear_error_and_the_children_run_all_the_same() {
    if !alone("ledger::an_unwritable_ledger_is_a_clear_error_and_the_children_run_all_the_same") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Ledger::open(&file).unwrap_err();
    assert_eq!(error.code(), "LEDGER_UNUSABLE");
    let text = error.to_string();
    assert!(text.contains(file.to_str().unwrap()) && text.contains("name a folder"), "{text}");

    let ledger = Ledger::open(temp.path()).unwrap();
    let own = fs::read_dir(temp.path()).unwrap().flatten().find(|entry| entry.path().is_dir()).unwrap();
    fs::remove_dir_all(own.path()).unwrap();
    let mut process = Command::new("true", "/").spawn().unwrap();
    assert!(process.wait().await.success());
    process.terminate(Ladder::default()).await;
    let fault = ledger.fault().unwrap();
    assert_eq!(fault.code(), "LEDGER_NOT_RECORDED");
    assert!(fault.to_string().contains("make room"), "{fault}");
}

#[tokio::test]
async fn records_of_another_boot_and_torn_ones_are_told_and_nobody_is_signalled() {
    if !alone("ledger::records_of_another_boot_and_torn_ones_are_told_and_nobody_is_signalled") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    // A process whose number stands in the records, and is none of theirs.
    let mut innocent = Command::new("sleep", "/").arg("1000").spawn().unwrap();
    let old = temp.path().join("200000000068");
    fs::create_dir(&old).unwrap();
    let host = r#"{"boot":"of another boot","pid":PID,"start":1}"#.replace("PID", &innocent.id().to_string());
    fs::write(old.join("host.json"), host).unwrap();
    let child = r#"{"pid":PID,"program":"/bin/x","note":null,"started_ms":1000}"#;
    fs::write(old.join("2000000000680000000.json"), child.replace("PID", &innocent.id().to_string()))
        .unwrap();
    fs::write(old.join("2000000000680000001.json"), &child[..20]).unwrap();
    // Nothing that a ledger has written, whatever it is called: not to be waited for, followed, or removed.
    let strange = temp.path().join("200000000270");
    fs::create_dir(&strange).unwrap();
    #[expect(clippy::disallowed_methods, reason = "a tool of the system")]
    let made = std::process::Command::new("mkfifo").arg(strange.join("host.json")).status().unwrap();
    assert!(made.success());
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("host.json"), r#"{"boot":"x","pid":1,"start":1}"#).unwrap();
    fs::write(elsewhere.path().join("package.json"), "{}").unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), temp.path().join("200000000371")).unwrap();
    // Not ours to remove.
    fs::create_dir(temp.path().join("else")).unwrap();
    fs::write(temp.path().join("else").join("host.json"), "{}").unwrap();

    let ledger = Ledger::open(temp.path()).unwrap();
    let reaped = ledger.reap().await.unwrap();
    let mut programs: Vec<_> = reaped.interrupted.iter().map(|left| &*left.program).collect();
    programs.sort_unstable();
    assert_eq!((programs, reaped.ended), (vec!["", "/bin/x"], 0));
    assert!(alive(innocent.id()));
    drop(ledger);
    innocent.terminate(Ladder::default()).await;
    assert_eq!(files(elsewhere.path()).len(), 2);
    fs::remove_file(temp.path().join("200000000371")).unwrap();
    let mut left = files(temp.path());
    left.sort();
    assert_eq!(left, ["200000000270/host.json", "else/host.json"]);
}
