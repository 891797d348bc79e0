//! Hosts that do what no host should.

use std::{
    fs::Permissions,
    io::{BufRead, BufReader, Write},
    os::{
        fd::OwnedFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{AtFlags, CWD, Timespec, Timestamps, utimensat},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
};
use subagents_inspect::{Folder, HostSocket, hosts};
use tempfile::TempDir;

/// No system has as many processes.
pub(crate) const NOBODY: u32 = i32::MAX as u32;

pub(crate) fn path(folder: &Folder, pid: u32, number: u64) -> PathBuf {
    folder.path().join(format!("{pid}-{number:016x}.sock"))
}

/// A socket that nobody listens at.
pub(crate) fn bind(path: &Path) -> OwnedFd {
    let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

/// Lets it be two minutes old.
pub(crate) fn age(path: &Path) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let time = Timespec { tv_sec: now.as_secs() as i64 - 120, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

struct Fake {
    _temp: TempDir,
    folder: Folder,
    listener: Option<UnixListener>,
}

impl Fake {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        std::fs::set_permissions(temp.path(), Permissions::from_mode(0o700)).unwrap();
        let folder = Folder::at(temp.path());
        let listener = UnixListener::bind(path(&folder, std::process::id(), 1)).unwrap();
        Self { _temp: temp, folder, listener: Some(listener) }
    }

    /// Hands over the first who asks anything, and the question.
    fn serves<T: Send + 'static>(
        &mut self,
        serve: impl FnOnce(UnixStream, String) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let listener = self.listener.take().unwrap();
        thread::spawn(move || {
            loop {
                let (stream, _) = listener.accept().unwrap();
                let mut question = String::new();
                BufReader::new(&stream).read_line(&mut question).unwrap();
                if !question.is_empty() {
                    return serve(stream, question);
                }
            }
        })
    }

    fn socket(&self) -> HostSocket {
        hosts(&self.folder).unwrap().remove(0)
    }
}

const SEEN: &str = "{\"version\":1,\"answer\":\"seen\",\"host\":{\"name\":\"a\\u001b[31m\\nb\",\"pid\":1,\"version\":\"\\u202e0\"},\
    \"tree\":{\"taken_at\":0,\"nodes\":[],\"gone\":[],\"forgotten\":0}}\n";

#[test]
fn one_that_takes_nobody_is_seen_and_silent_at_once() {
    let fake = Fake::new();
    rustix::net::listen(fake.listener.as_ref().unwrap(), 0).unwrap();
    // Nobody is taken: after some the next would wait for ever.
    let socket = fake.socket();
    let begun = Instant::now();
    let waiting: Vec<_> = (0..3).map(|_| socket.look(Duration::from_millis(100)).unwrap_err()).collect();
    assert!(waiting.iter().all(|error| error.code() == "INSPECT_SILENT"), "{waiting:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(hosts(&fake.folder).unwrap(), [socket]);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn one_that_answers_byte_by_byte_is_not_waited_for() {
    let mut fake = Fake::new();
    let serving = fake.serves(|mut stream, _| {
        while stream.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let begun = Instant::now();
    let error = fake.socket().look(Duration::from_millis(500)).unwrap_err();
    assert_eq!(error.code(), "INSPECT_SILENT", "{error}");
    assert!((500..5000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    serving.join().unwrap();
}

#[test]
fn a_change_that_comes_byte_by_byte_is_not_waited_for() {
    let mut fake = Fake::new();
    let serving = fake.serves(|mut stream, _| {
        stream.write_all(SEEN.as_bytes()).unwrap();
        // Longer than a change may take: until it begins there is no hurry.
        thread::sleep(Duration::from_secs(1));
        while stream.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let (seen, mut watch) = fake.socket().watch(Duration::from_millis(500)).unwrap();
    // Its words are safe to show.
    assert_eq!((&*seen.host.name, &*seen.host.version), ("a b", "0"));
    let begun = Instant::now();
    let error = watch.next().unwrap().unwrap_err();
    assert_eq!(error.code(), "INSPECT_SILENT", "{error}");
    assert!((1000..6000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    assert!(watch.next().is_none(), "after an error there is nothing more");
    drop(watch);
    serving.join().unwrap();
}

#[test]
fn one_that_answers_without_end_is_not_read_without_end() {
    let mut fake = Fake::new();
    let serving = fake.serves(|mut stream, _| {
        let portion = vec![b' '; 1024 * 1024];
        let mut written: u64 = 0;
        while stream.write_all(&portion).is_ok() {
            written += portion.len() as u64;
        }
        written
    });
    let error = fake.socket().look(Duration::from_secs(60)).unwrap_err();
    assert_eq!(error.code(), "INSPECT_TOO_LONG", "{error}");
    let written = serving.join().unwrap();
    assert!(written < 300 * 1024 * 1024, "{written}");
}

#[test]
fn what_it_says_is_told_as_what_it_is() {
    let half = &SEEN[..SEEN.len() - 1];
    for (said, code, told) in [
        ("", "INSPECT_SILENT", "end of file"),
        ("{\"version\":1,\"answer\":\"se", "INSPECT_SILENT", "end of file"),
        // Whole but for its end: that it is, nobody can know.
        (half, "INSPECT_SILENT", "end of file"),
        ("{\"version\":1,\"answer\":\"ended\"}\n", "INSPECT_ENDED", "has ended"),
        (
            "{\"version\":1,\"answer\":\"refused\",\"why\":\"no\\u001b[31m\\nno\"}\n",
            "INSPECT_REFUSED",
            "refuses: no no",
        ),
        (
            "{\"version\":2,\"answer\":\"refused\",\"why\":\"x\"}\n",
            "INSPECT_VERSION",
            "speaks version 2, and this is 1",
        ),
        ("{\"version\":2,\"says\":\"x\"}\n", "INSPECT_VERSION", "speaks version 2"),
        ("{\"answer\":\"seen\"}\n", "INSPECT_VERSION", "speaks version 0"),
        ("{\"version\":1,\"answer\":\"more\"}\n", "INSPECT_UNKNOWN", "`more`"),
        (
            "{\"version\":1,\"answer\":\"cancelled\",\"outcome\":\"gone\"}\n",
            "INSPECT_UNKNOWN",
            "another question",
        ),
        ("HTTP/1.1 400 Bad Request\r\n", "INSPECT_UNKNOWN", "expected value"),
        ("\u{ff}\n", "INSPECT_UNKNOWN", "expected value"),
    ] {
        let mut fake = Fake::new();
        let serving = fake.serves(move |mut stream, question| {
            stream.write_all(said.as_bytes()).unwrap();
            question
        });
        let error = fake.socket().look(Duration::from_secs(20)).unwrap_err();
        assert_eq!(error.code(), code, "{said}: {error}");
        assert!(error.to_string().contains(told), "{said}: {error}");
        assert_eq!(serving.join().unwrap(), "{\"version\":1,\"ask\":\"tree\"}\n");
    }
}

#[test]
fn any_patience_will_do() {
    let mut fake = Fake::new();
    let error = fake.socket().look(Duration::ZERO).unwrap_err();
    assert_eq!(error.code(), "INSPECT_SILENT", "{error}");
    let serving = fake.serves(|mut stream, _| stream.write_all(SEEN.as_bytes()).unwrap());
    assert!(fake.socket().look(Duration::MAX).unwrap().tree.nodes.is_empty());
    serving.join().unwrap();
}
