//! The server: clients that come.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rmcp::service::{QuitReason, ServerInitializeError, serve_server};
use subagents_runtime::{SubagentService, WeakService};
use subagents_seam::RootError;
use subagents_tool::Toolbox;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::{Client, Place};
use crate::handler::{From, Handler};
use crate::pipe::Pipe;

/// How long the calls of a client that is gone may take to end: the grace of a cancel, and a teardown.
const AFTERMATH: Duration = Duration::from_secs(20);

/// An MCP server. Clone shares it; it does not keep the service.
#[derive(Clone, Debug)]
pub struct McpServer {
    pub(crate) service: WeakService,
    pub(crate) toolbox: Toolbox,
    pub(crate) cwd: Arc<Path>,
}

/// Why a client was not served to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// There is no place in the tree for it.
    #[error(transparent)]
    Root(#[from] RootError),
    /// It did not begin as the protocol wants it.
    #[error(
        "the client did not begin with `initialize`, as the Model Context Protocol wants it: {0}; see that an MCP host starts this"
    )]
    Handshake(Box<str>),
    /// A listener that other machines reach.
    #[cfg(feature = "http")]
    #[error("{0} is no address of the loopback; bind to 127.0.0.1 or [::1]")]
    NotLoopback(std::net::SocketAddr),
    /// A listener that is none.
    #[cfg(feature = "http")]
    #[error("the listener has no address: {0}")]
    Listener(#[source] std::io::Error),
    /// The service is gone.
    #[error("the service is gone; build a new one")]
    ServiceGone,
    /// The server's own task failed.
    #[error("the server failed: {0}")]
    Failed(#[source] tokio::task::JoinError),
}

impl McpError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Root(error) => error.code(),
            Self::Handshake(_) => "MCP_HANDSHAKE",
            #[cfg(feature = "http")]
            Self::NotLoopback(_) => "MCP_NOT_LOOPBACK",
            #[cfg(feature = "http")]
            Self::Listener(_) => "MCP_LISTENER",
            Self::ServiceGone => "SERVICE_GONE",
            Self::Failed(_) => "MCP_FAILED",
        }
    }
}

impl McpServer {
    /// A server of these tools, whose delegations work in `cwd` (absolute).
    pub fn new(service: &SubagentService, toolbox: Toolbox, cwd: impl Into<PathBuf>) -> Self {
        let cwd: PathBuf = cwd.into();
        Self { service: service.downgrade(), toolbox, cwd: cwd.into() }
    }

    /// Serves one client over its pipes until it goes: the end of `read`, or a message that it does not read for
    /// [`PATIENCE`](crate::PATIENCE). What it owned is cancelled then, and disposed when this returns, in some seconds.
    ///
    /// # Cancellation safety
    /// Dropping the future cancels what the client owned; the teardown goes on in the background.
    ///
    /// # Errors
    /// Where it could not begin. A client that goes is no error.
    pub async fn serve(
        &self,
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<(), McpError> {
        let (gone, calls) = (CancellationToken::new(), TaskTracker::new());
        let service = self.service.upgrade().ok_or(McpError::ServiceGone)?;
        let place = Place::root(&service, &self.cwd)?;
        drop(service);
        let client = Client::enter(place, &self.toolbox, gone.clone(), calls.clone());
        let client = Leaving(Arc::new(client));
        let (toolbox, owner) = (self.toolbox.clone(), client.0.clone());
        let handler = Handler { toolbox, from: From::Client(owner) };
        let served = async {
            let running = serve_server(handler, Pipe::new(read, write, gone.clone())).await;
            match running.map_err(|error| handshake(&error))?.waiting().await {
                Ok(QuitReason::JoinError(error)) | Err(error) => Err(McpError::Failed(error)),
                Ok(_) => Ok(()),
            }
        };
        let served = served.await;
        drop(client);
        ended(&calls).await;
        match served {
            Err(McpError::Handshake(why)) if why.is_empty() => Ok(()),
            served => served,
        }
    }

    /// Serves whoever comes to a listener on the loopback, over the protocol's streamable HTTP, and shows the token, as
    /// `Authorization: Bearer TOKEN` at `/mcp`, or at `/TOKEN/mcp`: until `shutdown` completes, or the service has ended.
    ///
    /// A request of a browser's page (it has an `Origin`) is refused unless the page is of the loopback, and any whose `Host` is
    /// another name than this machine's own: a name that only points here. No page is told more than that by CORS.
    ///
    /// Each session is a client of its own, up to 256 of them. One that has calls under way and has not listened for
    /// 30 seconds, or has nothing under way and has not spoken for an hour, is gone, and what it owned is ended; where all
    /// places are taken, the one that has been idle for longest gives way. A client whose connection breaks hears the rest when
    /// it comes back within these 30 seconds, the answer too, with the id of the last event that it has heard. From the
    /// protocol's version 2025-11-25 on there is one from the beginning, before it from the first message on.
    ///
    /// In version 2026-07-28 there are no sessions: a call is cancelled by leaving it, and all who speak it are one client. It
    /// gets no sign of life before the first message, so whoever waits for long asks for progress.
    ///
    /// A client that is, or descends from, a child of this process is below that child's run in the tree: as deep, in its
    /// slots, cancelled with it. (On Linux; elsewhere it is a client like any other.)
    ///
    /// # Cancellation safety
    /// Dropping the future closes the connections and cancels what the clients owned; the teardown goes on in the
    /// background. After `shutdown` it is over when this returns, in some seconds.
    ///
    /// # Errors
    /// A listener on another address than the loopback; a service that has ended.
    #[cfg(feature = "http")]
    pub async fn serve_http(
        &self,
        listener: tokio::net::TcpListener,
        token: crate::HttpToken,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), McpError> {
        crate::http::serve(self, listener, token, shutdown).await
    }
}

/// A client that leaves when this is dropped.
struct Leaving(Arc<Client>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Waits until what clients had under way is over.
pub(crate) async fn ended(calls: &TaskTracker) {
    calls.close();
    if timeout(AFTERMATH, calls.wait()).await.is_err() {
        tracing::warn!("calls of a client that is gone do not end");
    }
}

fn handshake(error: &ServerInitializeError) -> McpError {
    // It went before it had said anything: a host that only looked whether it starts.
    let why = match error {
        ServerInitializeError::ConnectionClosed(_) => return McpError::Handshake("".into()),
        ServerInitializeError::ExpectedInitializeRequest(_) => "its first message is another".into(),
        ServerInitializeError::TransportError { error, .. } => {
            format!("its answer cannot be written: {}", error.error)
        }
        ServerInitializeError::UnexpectedInitializeResponse(_)
        | ServerInitializeError::InitializeFailed(_)
        | ServerInitializeError::Cancelled
        | _ => error.to_string(),
    };
    McpError::Handshake(subagents_seam::bounded(&subagents_seam::sanitised(&why), 200).into())
}
