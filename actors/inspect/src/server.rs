//! The side of the host.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use subagents_runtime::{SubagentService, WeakService};
use subagents_seam::{CancelCause, Event, RunId, bounded, sanitised};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::folder::Folder;
use crate::wire::{Answer, Change, HostInfo, LONGEST_QUESTION, Question, Seen};

/// As many may look at once; the next waits.
const LOOKERS: usize = 32;
/// How long a question, or the reading of an answer, may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the end of a run is waited for.
const END: Duration = Duration::from_secs(20);
/// After a failure of the system to take a connection, this long nothing is tried.
const PAUSE: Duration = Duration::from_millis(100);

/// Lets programs of the same user look at a service, and end its runs. It does not keep the service.
///
/// **Dropping** it closes the socket and removes it.
#[derive(Debug)]
#[must_use = "dropping it closes the socket"]
pub struct Inspector {
    path: PathBuf,
    task: AbortHandle,
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
    #[error("the socket {} cannot be made: {source}", path.display())]
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
    /// # Errors
    /// Where the folder is not the user's own, or has no room.
    pub fn open(service: &SubagentService, name: &str, folder: &Folder) -> Result<Self, OpenError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let runtime = Handle::try_current().map_err(|_| OpenError::NoRuntime)?;
        folder.make().map_err(|source| OpenError::Folder { path: folder.path().to_owned(), source })?;
        let pid = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
        let path = folder.path().join(format!("{pid}-{}.sock", COUNT.fetch_add(1, Relaxed)));
        let failed = |source| OpenError::Socket { path: path.clone(), source };
        // One of an earlier process of this id is nobody's.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let host = HostInfo {
            name: bounded(&sanitised(name).replace(['\n', '\t'], " "), 80),
            pid,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let serving = Serving { service: service.downgrade(), host };
        let task = runtime.spawn(async move { serving.serve(&listener).await }).abort_handle();
        Ok(Self { path, task })
    }

    /// The socket.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }
}

impl Drop for Inspector {
    fn drop(&mut self) {
        self.task.abort();
        // Where it is gone already, that is fine.
        let _ = fs::remove_file(&self.path);
    }
}

struct Serving {
    service: WeakService,
    host: HostInfo,
}

impl Serving {
    /// All connections live in this one task.
    async fn serve(&self, listener: &UnixListener) {
        let mut lookers = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = listener.accept(), if lookers.len() < LOOKERS => match accepted {
                    Ok((stream, _)) => lookers.push(self.look(stream)),
                    Err(error) => {
                        tracing::debug!(%error, "a connection could not be taken");
                        sleep(PAUSE).await;
                    }
                },
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
        let (read, write) = stream.into_split();
        let mut line = String::new();
        let mut read = BufReader::new(read.take(LONGEST_QUESTION as u64));
        timeout(PATIENCE, read.read_line(&mut line)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        let mut out = Out(write);
        let Some(service) = self.service.upgrade() else {
            return out.refuse("the service has ended").await;
        };
        match serde_json::from_str(&line) {
            Ok(Question::Tree) => {
                let tree = service.tree();
                drop(service);
                out.say(&Answer::Seen(Box::new(Seen { host: self.host.clone(), tree }))).await
            }
            Ok(Question::Watch) => self.watch(service, &mut out).await,
            Ok(Question::Cancel { run }) => out.say(&cancel(service, run).await).await,
            Err(_) => out.refuse("it asks for nothing that is known here").await,
        }
    }

    async fn watch(&self, service: SubagentService, out: &mut Out) -> io::Result<()> {
        let (tree, mut events) = service.watch();
        drop(service);
        out.say(&Answer::Seen(Box::new(Seen { host: self.host.clone(), tree }))).await?;
        while let Some(event) = events.next().await {
            let change = match event {
                // What a child said is nobody's business here.
                Ok(Event::Ended(mut ended)) => {
                    ended.last_assistant_message = None;
                    told(&Event::Ended(ended))
                }
                Ok(event) => told(&event),
                // Too much at once: the whole again.
                Err(_) => {
                    let Some(service) = self.service.upgrade() else { return Ok(()) };
                    let (tree, again) = service.watch();
                    events = again;
                    Change::Tree { tree }
                }
            };
            out.say(&Answer::Change(Box::new(change))).await?;
        }
        Ok(())
    }
}

fn told(event: &Event) -> Change {
    Change::Event { event: serde_json::to_value(event).unwrap_or_default() }
}

/// Ends a run and waits for it to be gone.
async fn cancel(service: SubagentService, run: RunId) -> Answer {
    let Some(watcher) = service.watcher(run) else { return Answer::NoSuchRun };
    drop(service);
    watcher.cancel(CancelCause::requested("`subagents kill`"));
    let gone = timeout(END, watcher.dispose()).await;
    Answer::Cancelled { gone: matches!(gone, Ok(Ok(()))) }
}

struct Out(tokio::net::unix::OwnedWriteHalf);

impl Out {
    /// Whoever does not read for a while is not served any more.
    async fn say(&mut self, answer: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_string(answer)?;
        line.push('\n');
        for piece in line.as_bytes().chunks(64 * 1024) {
            timeout(PATIENCE, self.0.write_all(piece)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        }
        Ok(())
    }

    async fn refuse(&mut self, why: &str) -> io::Result<()> {
        self.say(&Answer::Refused { why: why.to_owned() }).await
    }
}
