//! Writing to a child.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe::Sender;
use tokio::time::Instant;

use crate::error::StdinError;

/// The child's stdin. Dropping it closes the pipe: the child reads the end of its input.
///
/// [`Process::terminate`](crate::Process::terminate) and the drop of the process close it too, wherever it is;
/// a write that waits then ends with [`StdinError::Closed`].
#[derive(Debug)]
pub struct Stdin {
    pipe: SharedPipe,
}

impl Stdin {
    pub(crate) fn new(pipe: SharedPipe) -> Self {
        Self { pipe }
    }

    /// Writes all of `bytes`, waiting while the child does not read.
    ///
    /// Not cancel-safe: when the future is dropped, an unknown part of `bytes` has been written.
    ///
    /// # Errors
    ///
    /// [`StdinError::Closed`] when the child has closed its stdin or is gone (`EPIPE`), never a panic or a signal.
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<(), StdinError> {
        match AsyncWriteExt::write_all(self, bytes).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(StdinError::Closed),
            Err(error) => Err(StdinError::Io(error)),
        }
    }
}

impl AsyncWrite for Stdin {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.pipe.poll(cx, |pipe, cx| pipe.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe.poll(cx, Sender::poll_flush)
    }

    /// Closes the pipe, as a drop does.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pipe.close();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.pipe.close();
    }
}

/// The pipe, shared with the process so that its teardown can close it while somebody else writes.
#[derive(Debug, Clone)]
pub(crate) struct SharedPipe(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    pipe: Option<Sender>,
    /// Since when the child could read the end of its input; none where there never was a pipe.
    closed: Option<Instant>,
    /// Of a write that waits: when the pipe is taken away, nothing else would wake it.
    waiting: Option<Waker>,
}

impl SharedPipe {
    pub(crate) fn new(pipe: Option<Sender>) -> Self {
        Self(Arc::new(Mutex::new(State { pipe, closed: None, waiting: None })))
    }

    /// Closes the pipe; says since when it is closed, and none where there never was one.
    pub(crate) fn close(&self) -> Option<Instant> {
        let mut state = self.lock();
        let (pipe, waiting) = (state.pipe.take(), state.waiting.take());
        if pipe.is_some() {
            state.closed = Some(Instant::now());
        }
        let closed = state.closed;
        // Foreign code runs in a waker: not under the lock.
        drop(state);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
        closed
    }

    fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut Sender>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut state = self.lock();
        let Some(pipe) = &mut state.pipe else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        let polled = poll(Pin::new(pipe), cx);
        state.waiting = polled.is_pending().then(|| cx.waker().clone());
        polled
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
