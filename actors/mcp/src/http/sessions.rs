//! The sessions of the clients over HTTP: each is a client of its own, and ends when it has been away for too long.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{Stream, StreamExt, stream};
use rmcp::model::{
    ClientJsonRpcMessage, JsonRpcMessage, ProtocolVersion, RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId, SessionManager};
use subagents_runtime::WeakService;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::presence::Presence;
use crate::client::Client;
use crate::pipe::{REQUESTS, refusal};

/// As many sessions may be open at once; the one that has been idle for longest makes room for the next.
const SESSIONS: usize = 256;

/// How long a session that is told to end may take to hear of it. What its client owned is ended before.
const ENDING: Duration = Duration::from_secs(5);

/// All sessions of a server.
pub(super) struct Sessions {
    local: LocalSessionManager,
    new: NewClient,
    guests: Mutex<HashMap<SessionId, Arc<Guest>>>,
}

/// What a client enters with.
pub(super) struct NewClient {
    pub(super) service: WeakService,
    pub(super) cwd: Arc<Path>,
    pub(super) stop: CancellationToken,
    pub(super) calls: TaskTracker,
}

impl NewClient {
    pub(super) fn enter(&self) -> Result<Arc<Client>, crate::McpError> {
        let (gone, calls) = (self.stop.child_token(), self.calls.clone());
        Client::enter(&self.service, &self.cwd, gone, calls).map(Arc::new)
    }
}

/// One session.
struct Guest {
    client: Arc<Client>,
    presence: Mutex<Presence>,
    /// The protocol's version, when it is agreed.
    version: Mutex<Option<ProtocolVersion>>,
}

impl Guest {
    fn presence(&self) -> MutexGuard<'_, Presence> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it knows events without a message, which say where to go on after a break.
    fn knows_priming(&self) -> bool {
        let version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        version.as_ref().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2025_11_25.as_str())
    }
}

/// Held for as long as a request is open.
#[derive(Clone)]
struct OpenRequest(#[expect(dead_code, reason = "it is held")] Arc<Open>);

struct Open(Arc<Guest>);

impl Open {
    /// None where too many are open already.
    fn begin(guest: &Arc<Guest>) -> Option<OpenRequest> {
        let mut presence = guest.presence();
        if presence.calls() >= REQUESTS {
            return None;
        }
        presence.call_begins();
        drop(presence);
        Some(OpenRequest(Arc::new(Self(guest.clone()))))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.presence().call_ends(Instant::now());
    }
}

/// Held by a stream to the client.
struct Listening(Arc<Guest>);

impl Listening {
    fn begin(guest: &Arc<Guest>) -> Self {
        guest.presence().stream_opens();
        Self(guest.clone())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.presence().stream_closes(Instant::now());
    }
}

impl Sessions {
    pub(super) fn new(new: NewClient) -> Self {
        let mut local = LocalSessionManager::default();
        // Who is gone is known better here.
        local.session_config.keep_alive = None;
        Self { local, new, guests: Mutex::default() }
    }

    fn guests(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Guest>>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn guest(&self, id: &SessionId) -> io::Result<Arc<Guest>> {
        self.guests().get(id).cloned().ok_or_else(|| io::Error::other("this session has ended"))
    }

    /// Ends those that have been away for too long.
    pub(super) async fn end_absent(&self) {
        let now = Instant::now();
        let gone: Vec<_> = self
            .guests()
            .iter()
            .filter(|(_, guest)| guest.presence().is_gone(now))
            .map(|(id, _)| id.clone())
            .collect();
        let ending = gone.iter().map(|id| {
            tracing::debug!("a client over HTTP is gone");
            timeout(ENDING, self.close_session(id))
        });
        join_all(ending).await;
    }

    /// Whose place the next can have, where all are taken. An error where nobody is idle.
    fn makes_room(&self) -> io::Result<Option<SessionId>> {
        let guests = self.guests();
        if guests.len() < SESSIONS {
            return Ok(None);
        }
        let idle = guests.iter().filter_map(|(id, guest)| Some((guest.presence().idle_since()?, id)));
        let longest = idle.min_by_key(|(since, _)| *since).map(|(_, id)| id.clone());
        longest
            .map(Some)
            .ok_or_else(|| io::Error::other(format!("{SESSIONS} sessions are busy; end one and try again")))
    }
}

impl SessionManager for Sessions {
    type Error = io::Error;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        if let Some(idle) = self.makes_room()? {
            let _ = timeout(ENDING, self.close_session(&idle)).await;
        }
        let client = self.new.enter().map_err(io::Error::other)?;
        let (id, transport) = self.local.create_session().await.map_err(io::Error::other)?;
        let guest =
            Guest { client, presence: Mutex::new(Presence::new(Instant::now())), version: Mutex::default() };
        self.guests().insert(id.clone(), Arc::new(guest));
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        let guest = self.guest(id)?;
        message.insert_extension(guest.client.clone());
        let answer = self.local.initialize_session(id, message).await.map_err(io::Error::other)?;
        if let JsonRpcMessage::Response(response) = &answer
            && let ServerResult::InitializeResult(result) = &response.result
        {
            let mut version = guest.version.lock().unwrap_or_else(PoisonError::into_inner);
            *version = Some(result.protocol_version.clone());
        }
        Ok(answer)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        let Ok(guest) = self.guest(id) else { return Ok(false) };
        guest.presence().seen(Instant::now());
        self.local.has_session(id).await.map_err(io::Error::other)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        let guest = self.guests().remove(id);
        // What it owns is ended before the protocol has waited for anything.
        if let Some(guest) = guest {
            guest.client.leave();
        }
        self.local.close_session(id).await.map_err(io::Error::other)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let guest = self.guest(id)?;
        let Some(open) = Open::begin(&guest) else {
            let refused = ServerSseMessage::from_message(refusal(request_id(&message)));
            return Ok(stream::once(std::future::ready(refused)).left_stream());
        };
        message.insert_extension(guest.client.clone());
        message.insert_extension(open);
        let (listening, primed) = (Listening::begin(&guest), guest.knows_priming());
        let answers = self.local.create_stream(id, message).await.map_err(io::Error::other)?;
        let answers = answers.filter(move |event| {
            let _listening = &listening;
            std::future::ready(primed || event.message.is_some())
        });
        Ok(answers.right_stream())
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        message.insert_extension(self.guest(id)?.client.clone());
        self.local.accept_message(id, message).await.map_err(io::Error::other)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let listening = Listening::begin(&self.guest(id)?);
        let events = self.local.create_standalone_stream(id).await.map_err(io::Error::other)?;
        Ok(events.inspect(move |_| {
            let _listening = &listening;
        }))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let listening = Listening::begin(&self.guest(id)?);
        let events = self.local.resume(id, last_event_id).await.map_err(io::Error::other)?;
        Ok(events.inspect(move |_| {
            let _listening = &listening;
        }))
    }
}

fn request_id(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    if let JsonRpcMessage::Request(request) = message { Some(request.id.clone()) } else { None }
}
