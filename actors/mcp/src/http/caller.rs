//! Where in the tree a client over HTTP belongs: below the run whose child it is, if it is one, and as deep as it has been told.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ErrorCode, ErrorData, Extensions};
use subagents_process::{Descent, HandedDepth, Peer, peer};
use subagents_runtime::{SubagentService, WeakService};
use subagents_seam::{AgentId, CancellationToken, LocalAgent};
use subagents_tool::Toolbox;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;

use super::sessions::{REQUESTS, connection};
use crate::client::{Client, Place};
use crate::handler::Caller;
use crate::pipe::too_many;
use crate::server::McpError;

/// How long a look at who is at the other end may take.
const LOOK: Duration = Duration::from_secs(5);
/// As many are under way at once.
const LOOKS: usize = 4;
/// How long a child may call before its run knows of it.
const BEGINNING: Duration = Duration::from_secs(2);
/// How often it is looked again meanwhile.
const AGAIN: Duration = Duration::from_millis(20);

/// One connection, as its requests carry it.
pub(super) struct Connection {
    local: SocketAddr,
    remote: SocketAddr,
    /// Who speaks the protocol without sessions over it.
    visitor: OnceCell<Arc<Client>>,
}

impl Connection {
    pub(super) fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { local, remote, visitor: OnceCell::new() }
    }
}

/// What a client comes to.
pub(super) struct Entrance {
    pub(super) service: WeakService,
    pub(super) toolbox: Toolbox,
    pub(super) cwd: Arc<Path>,
    pub(super) stop: CancellationToken,
    pub(super) calls: TaskTracker,
    looks: Semaphore,
}

/// Why it is not known where a client belongs.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotPlaced {
    #[error(transparent)]
    Failed(#[from] McpError),
    #[error("it cannot be seen who calls: {0}; try again")]
    NotSeen(io::Error),
    #[error("this is a child of a run that is over, or has not begun; only while it runs may it delegate")]
    NoRun,
}

impl Entrance {
    pub(super) fn new(
        (service, toolbox, cwd): (WeakService, Toolbox, Arc<Path>),
        stop: CancellationToken,
        calls: TaskTracker,
    ) -> Self {
        Self { service, toolbox, cwd, stop, calls, looks: Semaphore::new(LOOKS) }
    }

    /// A client of a connection, in its place.
    pub(super) async fn enter(&self, connection: &Connection) -> Result<Arc<Client>, NotPlaced> {
        let begun = Instant::now();
        loop {
            let peer = self.look(connection).await.map_err(NotPlaced::NotSeen)?;
            match self.place(peer)? {
                Some(place) => return Ok(self.client(place)),
                None if begun.elapsed() > BEGINNING => return Err(NotPlaced::NoRun),
                None => sleep(AGAIN).await,
            }
        }
    }

    /// One with a root of its own.
    pub(super) fn outsider(&self) -> Result<Arc<Client>, McpError> {
        Ok(self.client(Place::root(&self.service()?, &self.cwd)?))
    }

    fn client(&self, place: Place) -> Arc<Client> {
        Arc::new(Client::enter(place, &self.toolbox, self.stop.child_token(), self.calls.clone()))
    }

    fn service(&self) -> Result<SubagentService, McpError> {
        self.service.upgrade().ok_or(McpError::ServiceGone)
    }

    /// Who is at the other end. Nobody's child where nothing can be seen at all.
    async fn look(&self, connection: &Connection) -> io::Result<Peer> {
        let (local, remote) = (connection.local, connection.remote);
        let look = async {
            // The semaphore is never closed.
            let _turn = self.looks.acquire().await;
            tokio::task::spawn_blocking(move || peer(local, remote)).await.map_err(io::Error::other)?
        };
        let seen = timeout(LOOK, look).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok(seen.unwrap_or_default())
    }

    /// The place of a client: that of the run whose child it is; or else a root, as deep as it has been told to be. None for
    /// a child without a run.
    fn place(&self, peer: Peer) -> Result<Option<Place>, McpError> {
        let service = self.service()?;
        match peer.descent {
            Descent::Child(child) => Ok(service.parent_of_process(child, &self.cwd)?.map(Place::Run)),
            Descent::None => Ok(Some(match peer.depth {
                Some(handed) => {
                    let (id, token) = (AgentId::new(), CancellationToken::new());
                    let deep = Deep { handed, id, cwd: self.cwd.clone(), token };
                    Place::Root(service.adopt(&deep)?)
                }
                None => Place::root(&service, &self.cwd)?,
            })),
            Descent::Unknown | _ => Ok(None),
        }
    }
}

/// Who speaks the protocol without sessions: one client, where it is nobody's child and has not been told how deep it is.
pub(crate) struct Visitors {
    entrance: Arc<Entrance>,
    requests: Arc<Semaphore>,
    shared: Arc<Client>,
}

impl Visitors {
    pub(super) fn new(entrance: Arc<Entrance>, requests: Arc<Semaphore>) -> Result<Self, McpError> {
        let shared = entrance.outsider()?;
        Ok(Self { entrance, requests, shared })
    }

    pub(super) fn leave(&self) {
        self.shared.leave();
    }

    /// Who has sent a message that no session has signed.
    pub(crate) async fn caller(&self, extensions: &Extensions) -> Result<Caller, ErrorData> {
        let place = self.requests.clone().try_acquire_owned().map_err(|_| too_many(REQUESTS))?;
        let Some(connection) = connection(extensions) else { return Ok(held(self.shared.clone(), place)) };
        let find = async || {
            let peer = self.entrance.look(connection).await.map_err(NotPlaced::NotSeen)?;
            if peer.descent == Descent::None && peer.depth.is_none() {
                return Ok(self.shared.clone());
            }
            self.entrance.enter(connection).await
        };
        let found: Result<_, NotPlaced> = connection.visitor.get_or_try_init(find).await;
        let client =
            found.map_err(|error| ErrorData::new(ErrorCode::INTERNAL_ERROR, error.to_string(), None))?;
        Ok(held(client.clone(), place))
    }
}

fn held(client: Arc<Client>, place: OwnedSemaphorePermit) -> Caller {
    Caller { client, _place: Some(place) }
}

/// A client that has been told how deep it is.
struct Deep {
    handed: HandedDepth,
    id: AgentId,
    cwd: Arc<Path>,
    token: CancellationToken,
}

impl LocalAgent for Deep {
    fn id(&self) -> AgentId {
        self.id
    }

    fn depth(&self) -> u32 {
        self.handed.depth
    }

    fn max_depth(&self) -> Option<u32> {
        self.handed.max_depth
    }

    fn cwd(&self) -> &Path {
        &self.cwd
    }

    fn token(&self) -> CancellationToken {
        self.token.clone()
    }
}
