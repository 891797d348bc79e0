//! A host, and whoever looks at it.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may spawn tasks of its own, and a panic is how it fails"
)]

mod fake;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    thread,
    time::{Duration, Instant},
};
use subagents_inspect::{CancelOutcome, Change, Folder, HostSocket, Inspector, hosts};
use subagents_runtime::SubagentService;
use subagents_seam::{Event, Phase, RunId, StartRequest, StopReason, Tree};
use subagents_testkit::{Script, Scripted};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

struct Host {
    service: SubagentService,
    inspector: Inspector,
    folder: Folder,
    _temp: TempDir,
}

impl Host {
    fn of(provider: Scripted) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let folder = Folder::at(temp.path().join("sockets"));
        let service = SubagentService::builder().provider("p", provider).build().unwrap();
        let inspector = Inspector::open(&service, "test\u{1b}[31m", &folder).unwrap();
        Self { service, inspector, folder, _temp: temp }
    }

    /// Looks from a thread, as another program would.
    async fn look_with<T: Send + 'static>(&self, look: impl FnOnce(HostSocket) -> T + Send + 'static) -> T {
        let folder = self.folder.clone();
        tokio::task::spawn_blocking(move || look(hosts(&folder).unwrap().remove(0))).await.unwrap()
    }
}

fn works() -> Scripted {
    Scripted::by(|prompt| Script::hang().tool("grep").say(prompt.to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n01_a_running_host_is_seen_look_with_while_it_works() {
    let host = Host::of(works());
    let root = host.service.root("/tmp").unwrap();
    let run =
        host.service.start("p", StartRequest::new(&root, "a secret prompt").label("review")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let seen = host.look_with(|socket| socket.look(PATIENCE).unwrap()).await;
    assert_eq!((&*seen.host.name, seen.host.pid), ("test", std::process::id()));
    let node = seen.tree.node(run.id()).unwrap();
    assert_eq!((node.phase, node.label.as_deref()), (Phase::Running, Some("review")));
    assert_eq!(node.wait.as_ref().unwrap().to_string(), "in tool grep");
    assert!(node.last_progress.is_some());
    // Neither what it was asked nor what it said.
    assert!(!serde_json::to_string(&seen).unwrap().contains("secret"));
    // Looking changes nothing, and whoever goes stops nothing.
    assert!(!run.watcher().is_settled());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n01_what_happens_is_followed_and_no_answer_is_shown() {
    let host = Host::of(Scripted::by(|prompt| match prompt {
        "hang" => Script::hang(),
        _ => Script::answer("a secret answer"),
    }));
    let root = host.service.root("/tmp").unwrap();
    let (seen, mut watch) = host.look_with(|socket| socket.watch(PATIENCE).unwrap()).await;
    assert_eq!(seen.tree.nodes.len(), 2);
    host.service.delegate("p", StartRequest::new(&root, "x")).await.unwrap();
    let stays = host.service.start("p", StartRequest::new(&root, "hang")).await.unwrap();
    let id = stays.id();
    let told = tokio::task::spawn_blocking(move || {
        let (mut tree, mut told, mut gone) = (seen.tree, Vec::new(), false);
        loop {
            let Change::Event { event } = watch.next().expect("it lives").unwrap() else { panic!() };
            tree.apply(&event);
            gone |= matches!(event, Event::NodeGone { .. });
            told.push(event);
            if gone && tree.node(id).is_some_and(|node| node.phase == Phase::Running) {
                return (tree, told);
            }
        }
    });
    let (tree, told) = tokio::time::timeout(PATIENCE, told).await.unwrap().unwrap();
    assert!(told.iter().any(|event| matches!(event, Event::Started(_))), "{told:?}");
    assert!(told.iter().any(|event| matches!(event, Event::Ended(_))), "{told:?}");
    assert!(!serde_json::to_string(&told).unwrap().contains("secret"));
    // What was seen and what was told since are what is seen now.
    let now = host.look_with(|socket| socket.look(PATIENCE).unwrap()).await.tree;
    assert_eq!(known(&tree), known(&now));
}

fn known(tree: &Tree) -> BTreeMap<String, (Phase, Option<String>)> {
    let parts = tree
        .nodes
        .iter()
        .map(|node| (node.id.to_string(), (node.phase, node.provider.as_ref().map(ToString::to_string))));
    parts.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_ended_look_with() {
    let host = Host::of(works());
    let root = host.service.root("/tmp").unwrap();
    let run = host.service.start("p", StartRequest::new(&root, "x")).await.unwrap();
    let other = host.service.start("p", StartRequest::new(&root, "x")).await.unwrap();
    let id = run.id();
    let outcome = host.look_with(move |socket| socket.cancel(id, PATIENCE).unwrap()).await;
    assert_eq!(outcome, CancelOutcome::Gone);
    let result = run.result().await.unwrap();
    assert_eq!(result.stop_reason, StopReason::Aborted);
    assert!(result.diagnostic.as_ref().unwrap().text().contains("subagents kill"), "{result:?}");
    assert!(!other.watcher().is_settled());
    let nobody = RunId::new();
    let outcome = host.look_with(move |socket| socket.cancel(nobody, PATIENCE).unwrap()).await;
    assert_eq!(outcome, CancelOutcome::NoSuchRun);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_be_left_of_a_run_is_told_to_whoever_ended_it() {
    let host = Host::of(Scripted::by(|_| Script::hang().close_leaks("a process\u{1b}[31m 42")));
    let root = host.service.root("/tmp").unwrap();
    let run = host.service.start("p", StartRequest::new(&root, "x")).await.unwrap();
    let id = run.id();
    let outcome = host.look_with(move |socket| socket.cancel(id, PATIENCE).unwrap()).await;
    let CancelOutcome::MayBeLeft { what } = outcome else { panic!("{outcome:?}") };
    assert!(what.contains("a process 42"), "{what:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_goes_with_its_host_and_what_was_left_is_removed() {
    let host = Host::of(works());
    let path = host.inspector.path().to_owned();
    let mode = std::fs::metadata(host.folder.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // What a killed host leaves, and what is no socket of ours.
    let left = fake::path(&host.folder, fake::NOBODY, 1);
    drop(UnixListener::bind(&left).unwrap());
    let file = fake::path(&host.folder, fake::NOBODY, 2);
    for file in [&file, &host.folder.path().join("notes.txt"), &host.folder.path().join("x-0.sock")] {
        std::fs::write(file, "x").unwrap();
    }
    let folder = host.folder.clone();
    let found = hosts(&folder).unwrap();
    assert_eq!(found.len(), 1);
    assert!(!left.exists() && path.exists() && file.exists());
    drop(host.inspector);
    assert!(!path.exists());
    assert!(hosts(&folder).unwrap().is_empty());
    assert!(hosts(&Folder::at("/no/such/folder")).unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_does_not_listen_yet_is_not_taken_for_a_killed_one() {
    let host = Host::of(works());
    let alive = std::process::id();
    // Bound, and not listened at: a host that is about to, of this program's version or another.
    let late = fake::path(&host.folder, alive, 1);
    let socket = fake::bind(&late);
    let binds = [(alive, 2, true), (fake::NOBODY, 3, true), (fake::NOBODY, 4, false)];
    let binds = binds.map(|(pid, number, stays)| {
        let path = fake::path(&host.folder, pid, number).with_extension("bind");
        fake::bind(&path);
        // One of another namespace looks as if its process were gone: it is given time.
        if number != 3 {
            fake::age(&path);
        }
        (path, stays)
    });
    assert_eq!(hosts(&host.folder).unwrap().len(), 1);
    assert!(late.exists());
    for (path, stays) in binds {
        assert_eq!(path.exists(), stays, "{}", path.display());
    }
    rustix::net::listen(&socket, 1).unwrap();
    assert_eq!(hosts(&host.folder).unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_opens_is_seen_whoever_looks_meanwhile() {
    let host = Host::of(works());
    let folder = host.folder.clone();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let looks = thread::spawn(move || {
        while stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
            assert!(!hosts(&folder).unwrap().is_empty());
        }
    });
    for _ in 0..200 {
        let other = Inspector::open(&host.service, "other", &host.folder).unwrap();
        assert!(other.path().exists());
        assert_eq!(hosts(&host.folder).unwrap().len(), 2);
    }
    drop(stop);
    looks.join().unwrap();
    // It had its name only when it listened: that which it was bound with is another.
    let peer = UnixStream::connect(host.inspector.path()).unwrap().peer_addr().unwrap();
    let bound = peer.as_pathname().unwrap().to_owned();
    assert_eq!(bound.extension().unwrap(), "bind");
    assert_eq!(bound.file_stem(), host.inspector.path().file_stem());
    let left: Vec<_> = std::fs::read_dir(host.folder.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_takes_the_socket_of_another_host() {
    let host = Host::of(works());
    // Hosts of another namespace, with the id of this process.
    let others = ["0", "1", "2"].map(|number| {
        let path = host.folder.path().join(format!("{}-{number}.sock", std::process::id()));
        (UnixListener::bind(&path).unwrap(), path)
    });
    let same = Inspector::open(&host.service, "same", &host.folder).unwrap();
    assert_ne!(same.path(), host.inspector.path());
    assert!(others.iter().all(|(_, path)| path.exists()));
    // What is in its place by now is somebody else's.
    let path = same.path().to_owned();
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(same);
    assert!(path.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_put_in_the_place_of_the_folder_is_left_alone() {
    let host = Host::of(works());
    let socket = hosts(&host.folder).unwrap().remove(0);
    let moved = host.folder.path().with_extension("moved");
    std::fs::rename(host.folder.path(), &moved).unwrap();
    assert_eq!(socket.look(PATIENCE).unwrap_err().code(), "INSPECT_ENDED");
    let other = Inspector::open(&host.service, "other", &host.folder).unwrap();
    let theirs = host.folder.path().join(host.inspector.path().file_name().unwrap());
    let _theirs = UnixListener::bind(&theirs).unwrap();
    let ours = moved.join(theirs.file_name().unwrap());
    assert!(ours.exists());
    drop(host.inspector);
    assert!(!ours.exists() && theirs.exists());
    drop(other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_places_of_those_who_watched_and_went_are_free() {
    let host = Host::of(works());
    // Nothing happens here that would tell the host that they are gone.
    for _ in 0..100 {
        let (_, watch) = host.look_with(|socket| watches(&socket)).await;
        drop(watch);
    }
    let seen = host.look_with(|socket| socket.look(Duration::from_secs(5)).unwrap()).await;
    assert_eq!(seen.tree.nodes.len(), 1);
}

/// The place of whoever has just gone is free in a moment.
fn watches(socket: &HostSocket) -> (subagents_inspect::Seen, subagents_inspect::Watch) {
    let begun = Instant::now();
    loop {
        match socket.watch(Duration::from_secs(5)) {
            Err(error) if error.code() == "INSPECT_REFUSED" && begun.elapsed() < PATIENCE => {
                thread::yield_now()
            }
            watched => return watched.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_watch_leave_places_for_those_who_look() {
    let host = Host::of(works());
    host.look_with(|socket| {
        let mut watched: Vec<_> = (0..24).map(|_| socket.watch(PATIENCE).unwrap().1).collect();
        let error = socket.watch(PATIENCE).unwrap_err();
        assert_eq!(error.code(), "INSPECT_REFUSED", "{error}");
        assert!(error.to_string().contains("24 watch it already"), "{error}");
        assert_eq!(socket.look(Duration::from_secs(5)).unwrap().tree.nodes.len(), 1);
        watched.pop();
        watched.push(watches(&socket).1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_with_another_word() {
    let host = Host::of(works());
    let path = host.inspector.path().to_owned();
    for more in [1, 10_000_000] {
        let path = path.clone();
        let ended = tokio::task::spawn_blocking(move || {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(b"{\"version\":1,\"ask\":\"watch\"}\n").unwrap();
            let mut line = String::new();
            let mut read = BufReader::new(stream.try_clone().unwrap());
            read.read_line(&mut line).unwrap();
            assert!(line.contains("\"seen\""), "{line}");
            // It is not read, however much it is.
            let _ = stream.write_all(&vec![b'x'; more]);
            let mut rest = Vec::new();
            let _ = read.read_to_end(&mut rest);
            rest.len()
        });
        assert_eq!(tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_is_stopped_from_another_thread_and_ends_with_the_service() {
    let Host { service, inspector, folder, _temp } = Host::of(works());
    let (watches, folder) = tokio::task::spawn_blocking(move || {
        let socket = hosts(&folder).unwrap().remove(0);
        ([(); 2].map(|()| socket.watch(PATIENCE).unwrap().1), folder)
    })
    .await
    .unwrap();
    let stopper = watches[0].stopper();
    let [stopped, ended] = watches.map(|mut watch| {
        tokio::task::spawn_blocking(move || (watch.next().is_none(), watch.next().is_none()))
    });
    stopper.stop();
    assert_eq!(tokio::time::timeout(PATIENCE, stopped).await.unwrap().unwrap(), (true, true));
    assert!(!ended.is_finished());
    stopper.stop();
    drop(service);
    assert_eq!(tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap(), (true, true));
    // The socket is there, and nothing to be seen.
    let looked = tokio::task::spawn_blocking(move || {
        let socket = hosts(&folder).unwrap().remove(0);
        let errors = [
            socket.look(PATIENCE).unwrap_err(),
            socket.watch(PATIENCE).unwrap_err(),
            socket.cancel(RunId::new(), PATIENCE).unwrap_err(),
        ];
        drop(inspector);
        (errors, socket.look(PATIENCE).unwrap_err())
    });
    let (errors, gone) = tokio::time::timeout(PATIENCE, looked).await.unwrap().unwrap();
    assert_eq!(errors.each_ref().map(|error| error.code()), ["INSPECT_ENDED"; 3]);
    assert_eq!(gone.code(), "INSPECT_ENDED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_reads_a_little_at_a_time_is_not_served_for_ever() {
    let host = Host::of(works());
    let root = host.service.root("/tmp").unwrap();
    let mut runs = Vec::new();
    for _ in 0..3000 {
        runs.push(host.service.start("p", StartRequest::new(&root, "x")).await.unwrap());
    }
    let path = host.inspector.path().to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(b"{\"version\":1,\"ask\":\"tree\"}\n").unwrap();
        let (mut all, mut portion, begun) = (0, vec![0; 16 * 1024], Instant::now());
        loop {
            let count = stream.read(&mut portion).unwrap_or(0);
            if count == 0 {
                return (all, begun.elapsed());
            }
            all += count;
            // Until the host is done with it; then all that is left at once.
            if begun.elapsed() < Duration::from_secs(11) {
                thread::sleep(Duration::from_millis(250));
            }
        }
    });
    let (all, _) = tokio::time::timeout(Duration::from_secs(30), read).await.unwrap().unwrap();
    let whole = host.look_with(|socket| socket.look(PATIENCE).unwrap()).await;
    let whole = serde_json::to_string(&whole).unwrap().len();
    assert!(all < whole, "it was given all {all} of {whole}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_who_asks_nonsense_or_does_not_read_holds_up_the_others() {
    let host = Host::of(works());
    let path = host.inspector.path().to_owned();
    let mut silent = Vec::new();
    // As many as may look at once, and none says anything.
    for _ in 0..31 {
        silent.push(UnixStream::connect(&path).unwrap());
    }
    let answered = {
        let path = path.clone();
        tokio::task::spawn_blocking(move || {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(b"{\"version\":1,\"ask\":\"everything\"}\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        })
    };
    let answered = tokio::time::timeout(PATIENCE, answered).await.unwrap().unwrap();
    assert!(answered.contains("refused"), "{answered}");
    let begun = Instant::now();
    // The places of the silent are free after a while.
    silent.push(UnixStream::connect(&path).unwrap());
    let seen = host.look_with(|socket| socket.look(PATIENCE).unwrap()).await;
    assert_eq!(seen.host.name, "test");
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
}
