//! `subagents tree` and `subagents kill`: one program looks at another.

use super::support::{Live, Run, Signal, shell, subagents};
use serde_json::Value;
use std::{
    fs::Permissions,
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Programs that see each other and nobody else.
struct Room(TempDir);

impl Room {
    fn new() -> Self {
        let temp = tempfile::tempdir().expect("a folder");
        // As the folder of a user at run time has to be, whatever the mask says.
        let own = Permissions::from_mode(0o700);
        std::fs::set_permissions(temp.path(), own).expect("its mode");
        Self(temp)
    }

    fn subagents(&self, args: &[&str]) -> Run {
        subagents(args).env("XDG_RUNTIME_DIR", self.0.path())
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    /// One delegation that goes on until it is ended, and the end of its id.
    fn works(&self, label: &str) -> (Live, String) {
        let live = self.subagents(&["run", "x", "--label", label, "--", "sh", "-c", "sleep 1000"]).start();
        let pid = live.child.id();
        let begun = Instant::now();
        loop {
            let ended = self.subagents(&["tree", "--json"]).end();
            assert_eq!(ended.code, Some(0), "{ended:?}");
            let host = ended.json().into_iter().find(|line| line["host"]["pid"] == pid);
            let nodes = host.map_or(Value::Null, |host| host["tree"]["nodes"].clone());
            let run = nodes
                .as_array()
                .into_iter()
                .flatten()
                .find(|node| node["kind"] == "run" && node["phase"] == "running");
            if let Some(id) = run.and_then(|run| run["id"].as_str()) {
                return (live, id[id.len() - 8..].to_owned());
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "it is not seen: {ended:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn n01_what_runs_is_seen_from_another_program_and_can_be_ended() {
    let room = Room::new();
    let (one, first) = room.works("the first");
    let (other, second) = room.works("the second");
    let ended = room.subagents(&["tree"]).end();
    assert_eq!((ended.code, &*ended.err), (Some(0), ""));
    for part in [
        format!("subagents run (process {})\nservice\n└─ parent ", one.child.id()),
        format!("└─ exec the first 0 [{first}] · running · waits for its child for "),
        format!("└─ exec the second 0 [{second}] · running"),
        "   └─ process ".to_owned(),
    ] {
        assert!(ended.out.contains(&part), "{part:?} is not in {}", ended.out);
    }
    let ended = room.subagents(&["tree", "--pid", &one.child.id().to_string()]).end();
    assert!(ended.out.contains("the first") && !ended.out.contains("the second"), "{}", ended.out);

    let killed = room.subagents(&["kill", &first]).end();
    assert_eq!((killed.code, &*killed.out, &*killed.err), (Some(0), "", ""));
    let ended = one.end();
    assert_eq!((ended.code, ended.left.len()), (Some(1), 0));
    assert!(ended.err.contains("`subagents kill`"), "{}", ended.err);
    // The other goes on, and goes with its own program.
    let ended = room.subagents(&["tree"]).end();
    assert!(ended.out.contains("the second") && !ended.out.contains("the first"), "{}", ended.out);
    other.signal(Signal::INT);
    assert_eq!(other.end().code, Some(130));
    let ended = room.subagents(&["tree"]).end();
    assert_eq!(ended.code, Some(0));
    assert!(ended.out.starts_with("nothing of subagents runs here"), "{}", ended.out);
}

/// As Codex does with the servers that it starts.
#[test]
fn what_a_host_that_clears_the_environment_has_started_is_seen() {
    let room = Room::new();
    let cleared = "env -u XDG_RUNTIME_DIR \"$0\" \"$@\" || exit";
    let run = ["run", "x", "--label", "hidden", "--", "sh", "-c", "sleep 1000"];
    let live = shell(cleared, &run).env("XDG_RUNTIME_DIR", room.folder()).start();
    let begun = Instant::now();
    while !room.subagents(&["tree"]).end().out.contains("hidden") {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is not seen");
        thread::sleep(Duration::from_millis(20));
    }
    // Nor is whoever looks from there blind.
    let ended = shell(cleared, &["tree"]).env("XDG_RUNTIME_DIR", room.folder()).end();
    let run = ended.out.split_once("hidden 0 [").and_then(|(_, rest)| rest.split_once(']'));
    let (run, _) = run.unwrap_or_else(|| unreachable!("{ended:?}"));
    assert_eq!(room.subagents(&["kill", run]).end().code, Some(0));
    let (code, left) = live.end_unread();
    assert_eq!((code, &*left), (Some(1), &[][..]));
}

#[test]
fn what_cannot_be_ended_is_told_with_what_can() {
    let room = Room::new();
    let (live, run) = room.works("it");
    for (args, code, told) in [
        (&["kill", "zzzzzzzz"][..], 2, "is no run"),
        (&["kill", "abc"], 2, "of 4 digits at least"),
        (&["kill", "0000000000000000"], 1, "no run that is alive"),
        (&["kill", &run, "--pid", "1"], 2, "process 1 is no host of subagents"),
        (&["tree", "--pid", "1"], 2, "process 1 is no host of subagents"),
    ] {
        let ended = room.subagents(args).end();
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        assert!(ended.err.contains(told), "{args:?}: {}", ended.err);
    }
    live.signal(Signal::KILL);
    assert_eq!(live.end_unread().0, None);
    // What a killed program leaves of its socket is removed by whoever looks.
    let ended = room.subagents(&["tree"]).end();
    assert!(ended.out.starts_with("nothing of subagents runs here"), "{}", ended.out);
    let sockets = std::fs::read_dir(room.folder().join("subagents")).expect("the folder").count();
    assert_eq!(sockets, 0);
}

#[test]
fn a_watch_in_a_pipe_tells_what_changes() {
    let room = Room::new();
    let mut watch = room.subagents(&["tree", "--watch"]).start();
    let lines = BufReader::new(watch.child.stdout.take().expect("its stdout")).lines();
    let (sender, told) = mpsc::channel();
    let reads = thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let until = |part: &str| {
        let begun = Instant::now();
        loop {
            let line = told.recv_timeout(Duration::from_secs(30)).expect("it goes on");
            if line.contains(part) {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "waited in vain for {part}");
        }
    };
    until("nothing of subagents runs here");
    let (live, run) = room.works("it");
    until(&format!("exec it 0 [{run}] · running"));
    assert_eq!(room.subagents(&["kill", &run]).end().code, Some(0));
    live.end();
    until("nothing of subagents runs here");
    // Not Ctrl-C: whoever runs the tests may have it ignored.
    watch.signal(Signal::TERM);
    assert_eq!(watch.end_unread().0, None, "a signal ends it");
    reads.join().expect("it is read").expect("to its end");
}

#[test]
fn a_folder_that_others_may_enter_is_not_trusted() {
    let room = Room::new();
    let sockets = room.folder().join("subagents");
    std::fs::create_dir(&sockets).expect("a folder");
    std::fs::set_permissions(&sockets, Permissions::from_mode(0o777)).expect("its mode");
    let ended = room.subagents(&["tree"]).end();
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("INSPECT_FOLDER") && ended.err.contains("0700"), "{}", ended.err);
    // Nobody is kept from working.
    let ended = room.subagents(&["run", "x", "--", "echo", "fine"]).end();
    assert_eq!((ended.code, &*ended.out), (Some(0), "fine\n"));
}

/// A host that says this to whoever asks, as often as it is asked, and how its process is named.
fn says(room: &Room, number: u64, answer: &'static str) -> String {
    let sockets = room.folder().join("subagents");
    let _ = std::fs::create_dir(&sockets);
    std::fs::set_permissions(&sockets, Permissions::from_mode(0o700)).expect("its mode");
    let pid = std::process::id();
    let listener = UnixListener::bind(sockets.join(format!("{pid}-{number:016x}.sock"))).expect("a socket");
    // It ends with the tests.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("somebody");
            let mut question = String::new();
            let _ = BufReader::new(&stream).read_line(&mut question);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    pid.to_string()
}

#[test]
fn a_host_that_cannot_be_looked_at_is_told_and_one_that_has_ended_is_none() {
    for (answer, code, told) in [
        ("{\"version\":2,\"answer\":\"seen\"}\n", 1, "INSPECT_VERSION"),
        ("{\"version\":1,\"answer\":\"refused\",\"why\":\"\\u001b[31mno\"}\n", 1, "INSPECT_REFUSED"),
        ("{\"version\":1,\"answer\":\"se", 1, "INSPECT_SILENT"),
        ("hello\n", 1, "INSPECT_UNKNOWN"),
        ("{\"version\":1,\"answer\":\"ended\"}\n", 0, ""),
    ] {
        let room = Room::new();
        let pid = says(&room, 1, answer);
        let ended = room.subagents(&["tree"]).end();
        assert_eq!(ended.code, Some(code), "{answer}: {ended:?}");
        // Of one that cannot be asked nobody knows what runs there.
        assert_eq!(ended.out.starts_with("nothing of subagents runs here"), code == 0, "{}", ended.out);
        assert!(ended.err.contains(told) && !ended.err.contains('\u{1b}'), "{answer}: {}", ended.err);
        assert_eq!(ended.err.is_empty(), code == 0, "{answer}: {}", ended.err);
        let ended = room.subagents(&["tree", "--pid", &pid]).end();
        assert_eq!(ended.code, Some(code), "{answer}: {ended:?}");
        let ended = room.subagents(&["kill", "00000000"]).end();
        assert_eq!(ended.code, Some(1), "{answer}: {ended:?}");
        assert!(
            ended.err.contains("no run that is alive") && ended.err.contains(told),
            "{answer}: {}",
            ended.err
        );
    }
}

#[test]
fn whoever_hangs_does_not_hide_the_others() {
    let room = Room::new();
    let (live, run) = room.works("it");
    // It takes whoever comes, and says nothing.
    let path = room.folder().join("subagents").join(format!("{}-0123456789abcdef.sock", std::process::id()));
    let _hangs = UnixListener::bind(path).expect("a socket");
    let begun = Instant::now();
    let ended = room.subagents(&["tree"]).end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("INSPECT_SILENT") && ended.out.contains(&run), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let ended = room.subagents(&["kill", &run]).end();
    assert!(ended.err.contains("INSPECT_SILENT"), "{ended:?}");
    assert_eq!(live.end().code, Some(1));
}

#[test]
fn a_folder_of_the_user_that_others_can_write_in_is_not_used() {
    let room = Room::new();
    std::fs::set_permissions(room.folder(), Permissions::from_mode(0o777)).expect("its mode");
    let temporary = tempfile::tempdir().expect("a folder");
    let args = ["run", "x", "--", "sh", "-c", "test -e \"$0\"/subagents-* && echo there"];
    let run = room.subagents(&[&args[..], &[temporary.path().to_str().expect("plain")]].concat());
    let ended = run.env("TMPDIR", temporary.path()).end();
    assert_eq!((ended.code, ended.err.contains("INSPECT")), (Some(0), false), "{ended:?}");
    assert!(!room.folder().join("subagents").exists());
    let names: Vec<_> = std::fs::read_dir(temporary.path()).expect("a folder").flatten().collect();
    assert!(
        names.iter().any(|name| name.file_name().to_string_lossy().starts_with("subagents-")),
        "{names:?}"
    );
}
