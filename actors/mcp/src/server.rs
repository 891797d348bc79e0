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

use crate::client::Client;
use crate::pipe::Pipe;
use crate::session::Session;

/// How long the calls of a client that is gone may take to end: the grace of a cancel, and a teardown.
const AFTERMATH: Duration = Duration::from_secs(20);

/// An MCP server. Clone shares it; it does not keep the service.
#[derive(Clone, Debug)]
pub struct McpServer {
    service: WeakService,
    toolbox: Toolbox,
    cwd: Arc<Path>,
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
    /// The service is gone.
    #[error("the service is gone; build a new one")]
    ServiceGone,
    /// The server's own task failed.
    #[error("the server failed: {0}")]
    Failed(Box<str>),
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
        let client = Client::enter(&self.service, &self.cwd, gone.clone(), calls.clone())?;
        let client = Leaving(Arc::new(client));
        let session = Session { toolbox: self.toolbox.clone(), client: client.0.clone() };
        let served = async {
            let running = serve_server(session, Pipe::new(read, write, gone.clone())).await;
            match running.map_err(|error| handshake(&error))?.waiting().await {
                Ok(QuitReason::JoinError(error)) | Err(error) => {
                    Err(McpError::Failed(error.to_string().into()))
                }
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

    /// Serves whoever comes to a listener on the loopback, over the protocol's streamable HTTP, and shows the token: as
    /// `Authorization: Bearer TOKEN` at `/mcp`, or at `/TOKEN/mcp`. A page in a browser is let in where it comes from the
    /// loopback itself; a name that only points here is not. Each session is a client of its own, up to 256; one that has
    /// calls under way and has not listened for 30 seconds, or has nothing under way and has not spoken for an hour, is gone,
    /// and what it owned is ended. A break in between is none: the client comes back and hears the rest. Whoever speaks the
    /// protocol without sessions, its version 2026-07-28, has a call cancelled by leaving.
    ///
    /// It ends with the service, in a second, and with an error only.
    ///
    /// # Cancellation safety
    /// Dropping the future closes the connections and cancels what the clients owned; the teardown goes on in the
    /// background.
    ///
    /// # Errors
    /// A listener on another address than the loopback; a service that is gone.
    #[cfg(feature = "http")]
    pub async fn serve_http(
        &self,
        listener: tokio::net::TcpListener,
        token: crate::HttpToken,
    ) -> Result<std::convert::Infallible, McpError> {
        let ours = (self.service.clone(), self.toolbox.clone(), self.cwd.clone());
        crate::http::serve(ours, listener, token).await
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
async fn ended(calls: &TaskTracker) {
    calls.close();
    if timeout(AFTERMATH, calls.wait()).await.is_err() {
        tracing::warn!("calls of a client that is gone do not end");
    }
}

fn handshake(error: &ServerInitializeError) -> McpError {
    // It went before it had said anything: a host that only looked whether it starts.
    if let ServerInitializeError::ConnectionClosed(_) = error {
        return McpError::Handshake("".into());
    }
    McpError::Handshake(subagents_seam::bounded(&subagents_seam::sanitised(&error.to_string()), 200).into())
}
