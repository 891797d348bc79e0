//! Reading from a child, in portions or in lines.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::unix::pipe::Receiver;

use crate::error::FrameError;
use crate::framing::LineFramer;

/// The most bytes of one portion: as much as a pipe holds, so that each wake of a child that waits for room is worth it.
const PORTION: usize = 64 * 1024;

/// The child's stdout. Whoever takes it reads it to its end, or drops it: a child that writes more than a pipe
/// holds (64 KiB on Linux) waits for a reader. Dropping it makes the child's next write fail (`SIGPIPE`).
pub struct Stdout {
    pipe: Receiver,
    portion: Box<[u8]>,
}

impl fmt::Debug for Stdout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdout").finish_non_exhaustive()
    }
}

impl Stdout {
    pub(crate) fn new(pipe: Receiver) -> Self {
        Self { pipe, portion: vec![0; PORTION].into_boxed_slice() }
    }

    /// The next bytes, at most 64 KiB, as they come; a character may be cut in two. `None` is the end, which
    /// comes when *nobody* holds the pipe any more: a descendant may outlive the child and keep it open.
    ///
    /// Cancel-safe: a dropped future has taken nothing.
    ///
    /// # Errors
    ///
    /// What the system says when the pipe cannot be read.
    pub async fn read_chunk(&mut self) -> io::Result<Option<&[u8]>> {
        let length = self.pipe.read(&mut self.portion).await?;
        Ok((length > 0).then(|| &self.portion[..length]))
    }

    /// Reads lines of at most `max_line` bytes (without the line end) instead.
    pub fn into_lines(self, max_line: usize) -> Lines {
        Lines { stdout: self, framer: LineFramer::new(max_line), ended: false }
    }
}

impl AsyncRead for Stdout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipe).poll_read(cx, buffer)
    }
}

/// The child's stdout as lines. Holds one line at most, whatever the child writes.
#[derive(Debug)]
pub struct Lines {
    stdout: Stdout,
    framer: LineFramer,
    ended: bool,
}

impl Lines {
    /// Lets all lines together be of at most `bytes`, line ends included. Whole lines within them are given; then comes
    /// [`FrameError::TotalTooLarge`].
    #[must_use]
    pub fn max_total(mut self, bytes: u64) -> Self {
        self.framer = self.framer.max_total(bytes);
        self
    }

    /// Gives a line that is not UTF-8, too: what is none of it becomes U+FFFD.
    #[must_use]
    pub fn lossy(mut self) -> Self {
        self.framer = self.framer.lossy();
        self
    }

    /// The stdout again, for [`Process::give_back_stdout`](crate::Process::give_back_stdout). What was read and not given out
    /// as a line is gone.
    pub fn into_stdout(self) -> Stdout {
        self.stdout
    }

    /// A line that is here already, as [`next`](Self::next) would give it; `None` where it would have to be waited for, and at
    /// the end.
    ///
    /// # Errors
    ///
    /// Those of [`next`](Self::next) that speak of one line.
    pub fn try_next(&mut self) -> Option<Result<String, FrameError>> {
        self.framer.pop()
    }

    /// The next line, without its `\n` or `\r\n`; a last line needs no line end. `None` is the end.
    ///
    /// Cancel-safe: what was read stays here for the next call.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLarge`] and [`FrameError::NotUtf8`] speak of one line: the next call gives the one after
    /// it. After [`FrameError::TotalTooLarge`] and [`FrameError::Io`] the lines are at their end.
    pub async fn next(&mut self) -> Result<Option<String>, FrameError> {
        loop {
            if let Some(line) = self.framer.pop() {
                return line.map(Some);
            }
            if self.ended || self.framer.is_full() {
                return self.framer.finish().transpose();
            }
            match self.stdout.read_chunk().await {
                Ok(Some(portion)) => self.framer.push(portion),
                Ok(None) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    return Err(FrameError::Io(error));
                }
            }
        }
    }
}
