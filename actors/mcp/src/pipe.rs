//! A client at the other end of two pipes: what the protocol's own transport leaves open is bounded here.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{ErrorCode, ErrorData, GetExtensions as _, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutWriter;
use tokio_util::sync::CancellationToken;

/// How long a client may leave a message unread before it is given up.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// As many requests of a client's may be open at once; the next is refused.
const REQUESTS: usize = 4096;
/// As many messages to it may wait; then nothing more is read of it until it has read some.
const WRITES: usize = 1024;
/// The longest message of a client's.
pub(crate) const LONGEST_MESSAGE: usize = 16 * 1024 * 1024;

/// The transport of one client.
pub(crate) struct Pipe<R: AsyncRead, W: AsyncWrite> {
    /// What it writes of its own accord has a deadline, too.
    inner: AsyncRwTransport<RoleServer, R, Pin<Box<TimeoutWriter<W>>>>,
    /// The answer to a request too many, until it is written.
    refusing: Option<BoxFuture<'static, std::io::Result<()>>>,
    open: Arc<Semaphore>,
    writes: Arc<Writes>,
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

/// Held for as long as a request is open.
#[derive(Clone)]
struct OpenRequest(#[expect(dead_code, reason = "it is held")] Arc<OwnedSemaphorePermit>);

impl<R, W> Pipe<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(crate) fn new(read: R, write: W, gone: CancellationToken) -> Self {
        let mut write = TimeoutWriter::new(write);
        write.set_timeout(Some(PATIENCE));
        Self {
            inner: AsyncRwTransport::new_server(read, Box::pin(write)).with_max_line_length(LONGEST_MESSAGE),
            refusing: None,
            open: Arc::new(Semaphore::new(REQUESTS)),
            writes: Arc::default(),
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
            let mut message = self.inner.receive().await?;
            let JsonRpcMessage::Request(request) = &mut message else { return Some(message) };
            if let Ok(permit) = self.open.clone().try_acquire_owned() {
                let open = OpenRequest(Arc::new(permit));
                request.request.extensions_mut().insert(open);
                return Some(message);
            }
            let refusal = self.send(refusal(REQUESTS, Some(request.id.clone())));
            self.refusing = Some(refusal.boxed());
        }
    }
}

/// The answer to one request more than `most`.
pub(crate) fn refusal(most: usize, id: Option<RequestId>) -> TxJsonRpcMessage<RoleServer> {
    let text = format!("{most} requests are open already; wait for some of their answers");
    JsonRpcMessage::error(ErrorData::new(ErrorCode::INTERNAL_ERROR, text, None), id)
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
                sent = timeout(PATIENCE, sending) => sent.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())),
                // What is being written when it goes may still arrive.
                () = async { gone.cancelled().await; tokio::time::sleep(LAST_WORDS).await } => {
                    Err(std::io::ErrorKind::BrokenPipe.into())
                }
            };
            if let Err(error) = &sent {
                tracing::debug!(%error, "a client cannot be written to and is given up");
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

/// How long what is on its way to a client that goes may take.
const LAST_WORDS: Duration = Duration::from_secs(1);
