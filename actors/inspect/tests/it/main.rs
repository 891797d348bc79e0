//! A host, and whoever looks at it.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may spawn tasks of its own, and a panic is how it fails"
)]

use serde_json::Value;
use std::{
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    time::{Duration, Instant},
};
use subagents_inspect::{Change, Folder, HostSocket, Inspector, hosts};
use subagents_runtime::SubagentService;
use subagents_seam::{Phase, RunId, StartRequest, StopReason};
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
    let host = Host::of(Scripted::by(|_| Script::answer("a secret answer")));
    let root = host.service.root("/tmp").unwrap();
    let (seen, mut watch) = host.look_with(|socket| socket.watch(PATIENCE).unwrap()).await;
    assert_eq!(seen.tree.nodes.len(), 2);
    host.service.delegate("p", StartRequest::new(&root, "x")).await.unwrap();
    let told = tokio::task::spawn_blocking(move || {
        let mut told = Vec::new();
        loop {
            match watch.next().unwrap().expect("it lives") {
                Change::Event { event } => told.push(event),
                other => panic!("{other:?}"),
            }
            if told.last().unwrap()["event"] == "node-gone" {
                return told;
            }
        }
    });
    let told: Vec<Value> = tokio::time::timeout(PATIENCE, told).await.unwrap().unwrap();
    let kinds: Vec<_> = told.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"started") && kinds.contains(&"ended"), "{kinds:?}");
    assert!(!serde_json::to_string(&told).unwrap().contains("secret"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_ended_look_with() {
    let host = Host::of(works());
    let root = host.service.root("/tmp").unwrap();
    let run = host.service.start("p", StartRequest::new(&root, "x")).await.unwrap();
    let other = host.service.start("p", StartRequest::new(&root, "x")).await.unwrap();
    let id = run.id();
    assert_eq!(host.look_with(move |socket| socket.cancel(id, PATIENCE).unwrap()).await, Some(true));
    let result = run.result().await.unwrap();
    assert_eq!(result.stop_reason, StopReason::Aborted);
    assert!(result.diagnostic.as_ref().unwrap().text().contains("subagents kill"), "{result:?}");
    assert!(!other.watcher().is_settled());
    let nobody = RunId::new();
    assert_eq!(host.look_with(move |socket| socket.cancel(nobody, PATIENCE).unwrap()).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_goes_with_its_host_and_what_was_left_is_removed() {
    let host = Host::of(works());
    let path = host.inspector.path().to_owned();
    let mode = std::fs::metadata(host.folder.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // What a killed host leaves, and what is no socket of ours.
    let left = host.folder.path().join("1-0.sock");
    drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
    std::fs::write(host.folder.path().join("notes.txt"), "x").unwrap();
    std::fs::write(host.folder.path().join("x-0.sock"), "x").unwrap();
    let folder = host.folder.clone();
    let found = hosts(&folder).unwrap();
    assert_eq!(found.len(), 1);
    assert!(!left.exists() && path.exists());
    drop(host.inspector);
    assert!(!path.exists());
    assert!(hosts(&folder).unwrap().is_empty());
    assert!(hosts(&Folder::at("/no/such/folder")).unwrap().is_empty());
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
            stream.write_all(b"{\"ask\":\"everything\"}\n").unwrap();
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
