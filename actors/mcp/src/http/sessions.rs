//! The sessions of the clients over HTTP: each is a client of its own, and ends when it has been away for too long.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{Stream, StreamExt, stream};
use hyper::http::request::Parts;
use rmcp::model::{
    ClientJsonRpcMessage, Extensions, GetExtensions, JsonRpcMessage, ProtocolVersion, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{
    EventStream, ServerSseMessage, SessionId, SessionManager, StreamId,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::caller::{Connection, Entrance};
use super::presence::{ABSENCE, Presence};
use super::replay::Replay;
use crate::client::Client;
use crate::pipe::{OpenRequest, OpenRequests, too_many};

/// As many sessions may be open at once; the one that has been idle for longest makes room for the next.
const SESSIONS: usize = 256;
/// As many requests, of all of them together; the next is refused. Fewer than connections: a cancel has to come through.
pub(super) const REQUESTS: usize = 1024;
/// How long a session that is told to end may take to hear of it. What its client owned is ended before.
const ENDING: Duration = Duration::from_secs(5);

/// All sessions of a server.
pub(super) struct Sessions {
    entrance: Arc<Entrance>,
    requests: Arc<Semaphore>,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    open: HashMap<SessionId, Arc<Session>>,
    /// Those that are on their way in.
    entering: usize,
}

type Entry = (SessionId, Arc<Session>);

/// A place for a session that is on its way in.
struct Reservation<'a>(&'a Sessions);

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.0.book().entering -= 1;
    }
}

/// One session. The protocol's part of it is a manager of its own, of one session.
struct Session {
    local: LocalSessionManager,
    replay: Arc<Replay>,
    presence: Mutex<Presence>,
    requests: OpenRequests,
    /// When it has said hello.
    client: OnceLock<Arc<Client>>,
    version: OnceLock<ProtocolVersion>,
}

impl Session {
    fn new() -> Self {
        let replay = Arc::<Replay>::default();
        let mut local = LocalSessionManager::default().with_event_store(replay.clone());
        // Who is gone is known better here.
        local.session_config.keep_alive = None;
        Self {
            local,
            replay,
            presence: Mutex::new(Presence::new(Instant::now())),
            requests: OpenRequests::default(),
            client: OnceLock::new(),
            version: OnceLock::new(),
        }
    }

    fn presence(&self) -> MutexGuard<'_, Presence> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a message as its client's.
    fn sign(&self, message: &mut ClientJsonRpcMessage) {
        if let Some(client) = self.client.get() {
            message.insert_extension(client.clone());
        }
    }

    /// Whether it knows events without a message, which say where to go on after a break.
    fn knows_priming(&self) -> bool {
        let since = ProtocolVersion::V_2025_11_25;
        self.version.get().is_some_and(|version| version.as_str() >= since.as_str())
    }
}

/// Held for as long as a request of a session is under way.
#[derive(Clone)]
struct UnderWay(Arc<Held>);

struct Held {
    session: Arc<Session>,
    /// The stream of its answer, once that is known.
    stream: OnceLock<StreamId>,
    _place: OwnedSemaphorePermit,
    _open: OpenRequest,
}

impl UnderWay {
    fn begin(session: &Arc<Session>, place: OwnedSemaphorePermit, open: OpenRequest) -> Self {
        session.presence().call_begins();
        Self(Arc::new(Held { session: session.clone(), stream: OnceLock::new(), _place: place, _open: open }))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Cancelled, it has no answer.
        if let Some(stream) = self.stream.get() {
            self.session.replay.is_over(stream);
        }
        self.session.presence().call_ends(Instant::now());
    }
}

/// Held by a stream to the client.
struct Listening(Arc<Session>);

impl Listening {
    fn begin(session: &Arc<Session>) -> Self {
        session.presence().stream_opens();
        Self(session.clone())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.presence().stream_closes(Instant::now());
    }
}

impl Sessions {
    pub(super) fn new(entrance: Arc<Entrance>, requests: Arc<Semaphore>) -> Self {
        Self { entrance, requests, book: Mutex::default() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self, id: &SessionId) -> io::Result<Arc<Session>> {
        self.book().open.get(id).cloned().ok_or_else(|| io::Error::other("this session has ended"))
    }

    /// Ends those that have been away for too long, and forgets what nobody comes back for.
    pub(super) async fn end_absent(&self) {
        let now = Instant::now();
        let mut gone = Vec::new();
        self.book().open.retain(|id, session| {
            session.replay.forget(ABSENCE);
            let stays = !session.presence().is_gone(now);
            if !stays {
                gone.push((id.clone(), session.clone()));
            }
            stays
        });
        let ending = gone.into_iter().map(|(id, session)| async move {
            tracing::debug!("a client over HTTP is gone");
            end(&id, &session).await;
        });
        join_all(ending).await;
    }

    /// Whether another could come in.
    pub(super) fn has_room(&self) -> bool {
        let book = self.book();
        let now = Instant::now();
        book.open.len() + book.entering < SESSIONS
            || book.open.values().any(|session| session.presence().idle_since(now).is_some())
    }

    /// A place for a request, or the answer to one that cannot have one.
    fn begin(
        &self,
        session: &Arc<Session>,
        message: &ClientJsonRpcMessage,
    ) -> Result<UnderWay, ServerSseMessage> {
        let id = if let JsonRpcMessage::Request(request) = message { Some(request.id.clone()) } else { None };
        let place = self.requests.clone().try_acquire_owned().map_err(|_| too_many(REQUESTS));
        let begun = place.and_then(|place| {
            let open = session.requests.begin(id.as_ref().unwrap_or(&RequestId::Number(0)), REQUESTS)?;
            Ok(UnderWay::begin(session, place, open))
        });
        begun.map_err(|error| ServerSseMessage::from_message(JsonRpcMessage::error(error, id)))
    }

    /// A place for the next. Where all are taken, the one that has been idle for longest gives way, if any has been for a
    /// while.
    fn reserve(&self) -> io::Result<(Reservation<'_>, Option<Entry>)> {
        let mut book = self.book();
        let mut ended = None;
        if book.open.len() + book.entering >= SESSIONS {
            let now = Instant::now();
            let idle = |(id, session): (&SessionId, &Arc<Session>)| {
                session.presence().idle_since(now).map(|since| (since, id.clone()))
            };
            let longest = book.open.iter().filter_map(idle).min_by_key(|(since, _)| *since);
            ended = longest.and_then(|(_, id)| book.open.remove_entry(&id));
            if ended.is_none() {
                return Err(io::Error::other(format!(
                    "{SESSIONS} sessions are in use; end one, or try again in some seconds"
                )));
            }
        }
        book.entering += 1;
        Ok((Reservation(self), ended))
    }
}

/// Ends a session that is in no list any more. What it owns is ended before the protocol has waited for anything.
async fn end(id: &SessionId, session: &Session) {
    if let Some(client) = session.client.get() {
        client.leave();
    }
    let _ = timeout(ENDING, session.local.close_session(id)).await;
    session.replay.close();
}

/// The connection that a message came over.
pub(super) fn connection(extensions: &Extensions) -> Option<&Arc<Connection>> {
    extensions.get::<Parts>()?.extensions.get::<Arc<Connection>>()
}

impl SessionManager for Sessions {
    type Error = io::Error;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (reservation, ended) = self.reserve()?;
        if let Some((id, session)) = ended {
            end(&id, &session).await;
        }
        let session = Session::new();
        let (id, transport) = session.local.create_session().await.map_err(io::Error::other)?;
        self.book().open.insert(id.clone(), Arc::new(session));
        drop(reservation);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        let session = self.session(id)?;
        let connection = if let JsonRpcMessage::Request(request) = &message {
            connection(request.request.extensions()).cloned()
        } else {
            None
        };
        let connection = connection.ok_or_else(|| io::Error::other("it came over no connection"))?;
        let client = self.entrance.enter(&connection).await.map_err(io::Error::other)?;
        message.insert_extension(session.client.get_or_init(|| client).clone());
        let answer = session.local.initialize_session(id, message).await.map_err(io::Error::other)?;
        if let JsonRpcMessage::Response(response) = &answer
            && let ServerResult::InitializeResult(result) = &response.result
        {
            let _ = session.version.set(result.protocol_version.clone());
        }
        Ok(answer)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        let Ok(session) = self.session(id) else { return Ok(false) };
        session.presence().seen(Instant::now());
        session.local.has_session(id).await.map_err(io::Error::other)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        let session = self.book().open.remove(id);
        if let Some(session) = session {
            end(id, &session).await;
        }
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let session = self.session(id)?;
        let under_way = match self.begin(&session, &message) {
            Ok(under_way) => under_way,
            Err(refused) => {
                let refused: EventStream = Box::pin(stream::once(std::future::ready(refused)));
                return Ok(refused);
            }
        };
        session.sign(&mut message);
        let held = Arc::downgrade(&under_way.0);
        message.insert_extension(under_way);
        let (listening, primed) = (Listening::begin(&session), session.knows_priming());
        let answers = session.local.create_stream(id, message).await.map_err(io::Error::other)?;
        let answers = answers.inspect(move |event| {
            // The first says how the stream is called.
            if let (Some(held), Some(id)) = (held.upgrade(), &event.event_id)
                && let Some((stream, _)) = id.rsplit_once('/')
            {
                held.stream.get_or_init(|| stream.to_owned());
            }
        });
        let answers = answers.filter(move |event| std::future::ready(primed || event.message.is_some()));
        Ok(listened(answers, listening))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        mut message: ClientJsonRpcMessage,
    ) -> Result<(), Self::Error> {
        let session = self.session(id)?;
        session.sign(&mut message);
        session.local.accept_message(id, message).await.map_err(io::Error::other)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let session = self.session(id)?;
        let listening = Listening::begin(&session);
        let events = session.local.create_standalone_stream(id).await.map_err(io::Error::other)?;
        Ok(listened(events, listening))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let session = self.session(id)?;
        let listening = Listening::begin(&session);
        let events = session.local.resume(id, last_event_id).await.map_err(io::Error::other)?;
        Ok(listened(events, listening))
    }
}

/// Events that somebody listens to. Boxed: they borrow nothing of the session.
fn listened(
    events: impl Stream<Item = ServerSseMessage> + Send + Sync + 'static,
    listening: Listening,
) -> EventStream {
    Box::pin(events.inspect(move |_| {
        let _listening = &listening;
    }))
}
