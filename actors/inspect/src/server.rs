//! The side of the host.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use rustix::fs::Stat;
use serde::Serialize;
use subagents_runtime::{SubagentService, WeakService};
use subagents_seam::{CancelCause, DisposeError, Event, RunId};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Take};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::folder::{Folder, OpenFolder, is_same};
use crate::name;
use crate::wire::{
    Answer, CancelOutcome, Change, HostInfo, LONGEST_QUESTION, Question, Seen, Unread, VERSION, line, read,
};

/// As many may look at once; the next waits.
const LOOKERS: usize = 32;
/// As many of them may stay to watch: there is always a place for whoever looks and goes.
const WATCHERS: usize = 24;
/// How long a question, or the reading of an answer, may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the end of a run is waited for.
const END: Duration = Duration::from_secs(20);
/// After a failure of the system to take a connection, this long nothing is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// Lets programs of the same user look at a service, and end its runs. It does not keep the service: once that has ended,
/// whoever looks is told so.
///
/// **Dropping** it closes the socket, and every connection, and removes it from the folder; it does not wait. Of a run that
/// somebody has just asked to be cancelled the cancellation goes on.
#[derive(Debug)]
#[must_use = "dropping it closes the socket"]
pub struct Inspector {
    path: PathBuf,
    task: AbortHandle,
    _own: OwnSocket,
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The folder cannot be used.
    #[error("the folder {} of sockets cannot be used: {source}; remove it, or choose another", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The socket cannot be made.
    #[error("the socket {} cannot be made: {source}; choose a folder that has room for it, with a short path", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no tokio runtime to live on.
    #[error("no tokio runtime is running here; open it inside one")]
    NoRuntime,
}

impl OpenError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "INSPECT_FOLDER",
            Self::Socket { .. } => "INSPECT_SOCKET",
            Self::NoRuntime => "NO_RUNTIME",
        }
    }
}

impl Inspector {
    /// Opens a socket for this service; `name` is what the host calls itself.
    ///
    /// It is seen once it can be connected to.
    ///
    /// # Errors
    /// Where the folder is not the user's own, is another one meanwhile, or has no room, and outside a tokio runtime. Nobody
    /// is seen then.
    ///
    /// # Panics
    /// In a tokio runtime without I/O.
    pub fn open(service: &SubagentService, name: &str, folder: &Folder) -> Result<Self, OpenError> {
        let runtime = Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        let folder =
            folder.make().map_err(|source| OpenError::Folder { path: folder.path().to_owned(), source })?;
        let (listener, own) = bind(folder, pid)?;
        let path = own.folder.path().join(&own.name);
        let host = HostInfo::new(name, pid, env!("CARGO_PKG_VERSION"));
        let serving = Serving { service: service.downgrade(), host, watchers: Semaphore::new(WATCHERS) };
        let task = runtime.spawn(async move { serving.serve(&listener).await }).abort_handle();
        Ok(Self { path, task, _own: own })
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Inspector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Between being bound and being listened at a socket refuses, as that of a killed host does. So it has its name, by which it
/// is looked for, only afterwards.
fn bind(folder: OpenFolder, pid: u32) -> Result<(UnixListener, OwnSocket), OpenError> {
    let name = name::fresh(pid);
    let (binds, listens) = (format!("{name}{}", name::BINDS), format!("{name}{}", name::LISTENS));
    let (path, socket) = (folder.path().to_owned(), folder.path().join(&listens));
    let of_folder = |source| OpenError::Folder { path: path.clone(), source };
    let of_socket = |source| OpenError::Socket { path: socket.clone(), source };
    let listener = UnixListener::bind(path.join(&binds)).map_err(of_socket)?;
    // Where another folder was put in its place, the socket is in that one: it is left there, and nobody listens.
    folder.stands().map_err(of_folder)?;
    let mut own = OwnSocket::of(folder, binds).map_err(of_folder)?;
    own.rename(listens).map_err(of_socket)?;
    Ok((listener, own))
}

/// A socket that was bound here. **Dropping** it removes it from the folder, where it is still the same.
#[derive(Debug)]
struct OwnSocket {
    folder: OpenFolder,
    name: String,
    data: Stat,
}

impl OwnSocket {
    fn of(folder: OpenFolder, name: String) -> io::Result<Self> {
        let data = folder.socket(&name)?;
        Ok(Self { folder, name, data })
    }

    fn rename(&mut self, name: String) -> io::Result<()> {
        self.folder.rename(&self.name, &name)?;
        self.name = name;
        Ok(())
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        // Where it is gone already, that is fine.
        if self.folder.socket(&self.name).is_ok_and(|data| is_same(&data, &self.data)) {
            let _ = self.folder.remove(&self.name);
        }
    }
}

struct Serving {
    service: WeakService,
    host: HostInfo,
    watchers: Semaphore,
}

impl Serving {
    /// All connections live in this one task.
    async fn serve(&self, listener: &UnixListener) {
        let mut lookers = FuturesUnordered::new();
        loop {
            tokio::select! {
                stream = accept(listener), if lookers.len() < LOOKERS => lookers.push(self.look(stream)),
                Some(looked) = lookers.next() => {
                    if let Err(error) = looked {
                        tracing::debug!(%error, "somebody who looked went");
                    }
                }
            }
        }
    }

    async fn look(&self, stream: UnixStream) -> io::Result<()> {
        let us = rustix::process::geteuid().as_raw();
        if stream.peer_cred()?.uid() != us {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (from, to) = stream.into_split();
        let mut from = BufReader::new(from.take(LONGEST_QUESTION));
        let mut out = Out(to);
        let mut asked = Vec::new();
        timeout(PATIENCE, from.read_until(b'\n', &mut asked))
            .await
            .map_err(|_| io::ErrorKind::TimedOut)??;
        if asked.is_empty() {
            // It only wanted to know whether somebody listens.
            return Ok(());
        }
        let question = match read(&asked) {
            Ok(question) => question,
            Err(Unread::Version(theirs)) => {
                return out.refuse(&format!("it is asked in version {theirs}, and speaks {VERSION}")).await;
            }
            Err(Unread::Unknown(_)) => return out.refuse("it is asked for nothing that it knows").await,
        };
        let Some(service) = self.service.upgrade() else { return out.say(&Answer::Ended).await };
        match question {
            Question::Tree => {
                let tree = service.tree();
                drop(service);
                out.say(&Answer::Seen(Box::new(Seen { host: self.host.clone(), tree }))).await
            }
            Question::Watch => self.watch(service, &mut from, &mut out).await,
            Question::Cancel { run } => out.say(&Answer::Cancelled(cancel(service, run).await)).await,
        }
    }

    /// Goes on until the service has ended, or whoever watches says another word or closes its side.
    async fn watch(&self, service: SubagentService, from: &mut From, out: &mut Out) -> io::Result<()> {
        let Ok(_place) = self.watchers.try_acquire() else {
            return out.refuse(&format!("{WATCHERS} watch it already; end one of them")).await;
        };
        let (tree, mut events) = service.watch();
        drop(service);
        out.say(&Answer::Seen(Box::new(Seen { host: self.host.clone(), tree }))).await?;
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                // Also where nothing happens here, a place that nobody needs is free.
                _ = from.fill_buf() => return Ok(()),
            };
            let change = match event {
                // What a child said is nobody's business here.
                Some(Ok(Event::Ended(mut ended))) => {
                    ended.last_assistant_message = None;
                    Change::Event { event: Event::Ended(ended) }
                }
                Some(Ok(event)) => Change::Event { event },
                // Too much at once: the whole again.
                Some(Err(_)) => {
                    let Some(service) = self.service.upgrade() else { return out.say(&Answer::Ended).await };
                    let (tree, again) = service.watch();
                    events = again;
                    Change::Tree { tree }
                }
                None => return out.say(&Answer::Ended).await,
            };
            out.say(&Answer::Change(Box::new(change))).await?;
        }
    }
}

/// The next connection. Where the system has none to give, those that are there go on meanwhile.
async fn accept(listener: &UnixListener) -> UnixStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::debug!(%error, "a connection could not be taken");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Ends a run and waits for it to be gone.
async fn cancel(service: SubagentService, run: RunId) -> CancelOutcome {
    let Some(watcher) = service.watcher(run) else { return CancelOutcome::NoSuchRun };
    drop(service);
    watcher.cancel(CancelCause::requested("`subagents kill`"));
    match timeout(END, watcher.dispose()).await {
        Ok(Ok(())) => CancelOutcome::Gone,
        Ok(Err(DisposeError::Leaked { what, .. })) => CancelOutcome::MayBeLeft { what: what.to_string() },
        Ok(Err(error)) => CancelOutcome::MayBeLeft { what: error.to_string() },
        Err(_) => CancelOutcome::Ending,
    }
}

type From = BufReader<Take<OwnedReadHalf>>;

struct Out(OwnedWriteHalf);

impl Out {
    /// Whoever has not read it all by then is not served any more.
    async fn say(&mut self, answer: &impl Serialize) -> io::Result<()> {
        let line = line(answer)?;
        timeout(PATIENCE, self.0.write_all(line.as_bytes())).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    async fn refuse(&mut self, why: &str) -> io::Result<()> {
        self.say(&Answer::Refused { why: why.to_owned() }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_folder_that_is_put_in_the_place_of_the_one_that_was_opened_is_noticed() {
        let temp = tempfile::tempdir().expect("a folder");
        let folder = Folder::at(temp.path().join("sockets"));
        let open = folder.make().expect("it is made");
        std::fs::rename(folder.path(), temp.path().join("moved")).expect("it is moved");
        folder.make().expect("another");
        let error = bind(open, 1).expect_err("it is noticed");
        assert_eq!(error.code(), "INSPECT_FOLDER", "{error}");
        assert!(error.to_string().contains("another one was put in its place"), "{error}");
        let listens = |path: &Path| path.extension().is_some_and(|ending| ending == "sock");
        let names = std::fs::read_dir(folder.path()).expect("a folder").flatten();
        assert_eq!(names.filter(|entry| listens(&entry.path())).count(), 0);
    }
}
