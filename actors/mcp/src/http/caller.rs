//! Where in the tree a client over HTTP belongs: below the run whose child it is, if it is one, and as deep as it has been told.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use subagents_process::{HandedDepth, Peer, peer};
use subagents_runtime::SubagentService;
use subagents_seam::{AgentId, CancellationToken, LocalAgent};
use tokio::sync::OnceCell;

use crate::client::{Client, Place};
use crate::server::McpError;

/// One connection, as its requests carry it.
pub(super) struct Connection {
    local: SocketAddr,
    remote: SocketAddr,
    peer: OnceCell<Peer>,
    /// Who speaks the protocol without sessions over it, where that is a child of ours.
    pub(super) visitor: OnceCell<Arc<Client>>,
}

impl Connection {
    pub(super) fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self { local, remote, peer: OnceCell::new(), visitor: OnceCell::new() }
    }

    /// Who is at the other end. It is looked for once.
    pub(super) async fn peer(&self) -> Peer {
        let look = || async {
            let (local, remote) = (self.local, self.remote);
            // Where nothing can be seen, it is nobody's child.
            let seen = tokio::task::spawn_blocking(move || peer(local, remote)).await;
            seen.ok().and_then(Result::ok).flatten().unwrap_or_default()
        };
        *self.peer.get_or_init(look).await
    }
}

/// Its place: that of the run whose child it is; or else a root, as deep as it has been told to be.
pub(super) fn place(service: &SubagentService, cwd: &Path, peer: Peer) -> Result<Place, McpError> {
    if let Some(child) = peer.child
        && let Some(parent) = service.parent_of_process(child, cwd)?
    {
        return Ok(Place::Run(parent));
    }
    match peer.depth {
        Some(handed) => {
            let token = CancellationToken::new();
            let deep = Deep { handed, id: AgentId::new(), cwd: cwd.into(), token };
            Ok(Place::Root(service.adopt(&deep)?))
        }
        None => Place::root(service, cwd),
    }
}

/// A client that has been told how deep it is.
struct Deep {
    handed: HandedDepth,
    id: AgentId,
    cwd: Box<Path>,
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
