//! A client at the other end of two pipes: what the protocol's own transport leaves open is bounded here.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{ErrorCode, ErrorData, GetExtensions as _, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite, Empty};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutWriter;
use tokio_util::sync::CancellationToken;

use crate::lines::{Lines, Parsed, parse};

/// How long a client may read nothing of what is there for it before it is given up.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// As many requests of a client's may be open at once; the next is refused.
const REQUESTS: usize = 4096;
/// As many messages to it may wait; then nothing more is read of it until it has read some.
const WRITES: usize = 64;
/// The longest id of a request: it stands in all that is said of it.
const LONGEST_ID: usize = 256;
/// The longest message of a client's.
pub(crate) const LONGEST_MESSAGE: usize = 16 * 1024 * 1024;
/// How long what is on its way to a client that goes may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The transport of one client.
pub(crate) struct Pipe<R, W: AsyncWrite> {
    lines: Lines<R>,
    /// The protocol's own, for what is written. Each write has a deadline.
    inner: AsyncRwTransport<RoleServer, Empty, Pin<Box<TimeoutWriter<W>>>>,
    open: OpenRequests,
    writes: Arc<Writes>,
    /// The answer to what is no request, until it is written.
    refusing: Option<BoxFuture<'static, std::io::Result<()>>>,
    /// Cancelled when the client is gone: what it owns is then ended, before the protocol has waited for anything.
    gone: CancellationToken,
}

/// What waits to be written.
#[derive(Default)]
struct Writes {
    waiting: AtomicUsize,
    fewer: Notify,
}

/// One message that waits to be written.
struct Write(Arc<Writes>);

impl Write {
    fn begin(writes: &Arc<Writes>) -> Self {
        writes.waiting.fetch_add(1, SeqCst);
        Self(writes.clone())
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, SeqCst);
        self.0.fewer.notify_one();
    }
}

/// The ids of a client's requests that are not answered yet.
#[derive(Clone, Default)]
pub(crate) struct OpenRequests(Arc<Mutex<HashSet<RequestId>>>);

impl OpenRequests {
    /// Opens one; an error where it may not be.
    pub(crate) fn begin(&self, id: &RequestId, most: usize) -> Result<OpenRequest, ErrorData> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let RequestId::String(id) = id
            && id.len() > LONGEST_ID
        {
            let why = format!("an id has {LONGEST_ID} bytes at most");
            return Err(ErrorData::new(ErrorCode::INVALID_REQUEST, why, None));
        }
        if open.len() >= most {
            return Err(too_many(most));
        }
        if !open.insert(id.clone()) {
            let why = "a request with this id is open already; give each its own";
            return Err(ErrorData::new(ErrorCode::INVALID_REQUEST, why, None));
        }
        Ok(OpenRequest(Arc::new(Opened { open: self.clone(), id: id.clone() })))
    }
}

/// The refusal of one more than may be open.
pub(crate) fn too_many(most: usize) -> ErrorData {
    let text = format!("{most} requests are open already; wait for some of their answers");
    ErrorData::new(ErrorCode::INTERNAL_ERROR, text, None)
}

/// Held for as long as a request is open.
#[derive(Clone)]
pub(crate) struct OpenRequest(#[expect(dead_code, reason = "it is held")] Arc<Opened>);

struct Opened {
    open: OpenRequests,
    id: RequestId,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.open.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

impl<R, W> Pipe<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(crate) fn new(read: R, write: W, gone: CancellationToken) -> Self {
        let mut write = TimeoutWriter::new(write);
        write.set_timeout(Some(PATIENCE));
        Self {
            lines: Lines::new(read, LONGEST_MESSAGE),
            inner: AsyncRwTransport::new_server(tokio::io::empty(), Box::pin(write)),
            open: OpenRequests::default(),
            writes: Arc::default(),
            refusing: None,
            gone,
        }
    }

    /// The client's next message, with a place for it where it is a request. Cancel-safe.
    async fn next(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(refusing) = &mut self.refusing {
                let refused = refusing.await;
                self.refusing = None;
                refused.ok()?;
            }
            // One that ends between the look and the wait leaves a permit.
            while self.writes.waiting.load(SeqCst) >= WRITES {
                self.writes.fewer.notified().await;
            }
            if !self.lines.advance().await.ok()? {
                return None;
            }
            let parsed = parse(&self.lines.line());
            self.lines.clear();
            let (id, error) = match parsed {
                Parsed::Nothing => {
                    tracing::debug!("a line of a client's is no message");
                    continue;
                }
                Parsed::Refused(id, error) => (id, error),
                Parsed::Message(mut message) => {
                    let JsonRpcMessage::Request(request) = &mut *message else { return Some(*message) };
                    match self.open.begin(&request.id, REQUESTS) {
                        Ok(open) => {
                            request.request.extensions_mut().insert(open);
                            return Some(*message);
                        }
                        Err(error) => (Some(request.id.clone()), error),
                    }
                }
            };
            self.refusing = Some(self.send(JsonRpcMessage::error(error, id)).boxed());
        }
    }
}

impl<R, W> Transport<RoleServer> for Pipe<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let write = Write::begin(&self.writes);
        let (gone, sending) = (self.gone.clone(), self.inner.send(message));
        async move {
            let _write = write;
            let sent = tokio::select! {
                biased;
                sent = sending => sent,
                // What is being written when it goes may still arrive.
                () = async { gone.cancelled().await; tokio::time::sleep(LAST_WORDS).await } => {
                    Err(std::io::ErrorKind::BrokenPipe.into())
                }
            };
            if let Err(error) = &sent
                && !gone.is_cancelled()
            {
                tracing::warn!(%error, "a client cannot be written to and is given up");
                gone.cancel();
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let gone = self.gone.clone();
        let message = tokio::select! {
            biased;
            () = gone.cancelled() => None,
            message = self.next() => message,
        };
        if message.is_none() {
            self.gone.cancel();
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.gone.cancel();
        timeout(LAST_WORDS, self.inner.close()).await.unwrap_or(Ok(()))
    }
}
