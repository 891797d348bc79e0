//! The thread that writes. A reader that pauses must not keep a signal from being heard, and a read end that is closed
//! must be noticed.

use crate::cli::output::Lines;
use indicatif::ProgressBar;
use std::io::{self, IsTerminal, Write};
use tokio::sync::{mpsc, oneshot};

/// Where finished lines go: in order, a few at a time.
#[derive(Debug)]
pub(crate) struct Writer {
    lines: mpsc::Sender<Lines>,
    ended: oneshot::Receiver<io::Result<()>>,
}

impl Writer {
    /// Starts the thread. Lines for a terminal are written around `bar`.
    pub(crate) fn start(bar: ProgressBar) -> io::Result<Self> {
        let (lines, receiver) = mpsc::channel(4);
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            // An error says that nobody waits for the end any more.
            let _ = end.send(write_all(receiver, &bar));
        })?;
        Ok(Self { lines, ended })
    }

    /// Hands over what is waiting, when there is room. Cancel-safe: it is handed over or still waiting.
    pub(crate) async fn accept(&self, waiting: &mut Option<Lines>) {
        if let Ok(permit) = self.lines.reserve().await
            && let Some(lines) = waiting.take()
        {
            permit.send(lines);
        }
    }

    /// Completes when nothing can be written any more.
    pub(crate) async fn broken(&self) {
        self.lines.closed().await;
    }

    /// Writes what is left, and says how it went.
    pub(crate) async fn finish(self) -> io::Result<()> {
        drop(self.lines);
        self.ended.await.unwrap_or_else(|_| Err(io::Error::other("the writing thread ended early")))
    }
}

fn write_all(mut lines: mpsc::Receiver<Lines>, bar: &ProgressBar) -> io::Result<()> {
    let terminal = io::stdout().is_terminal();
    while let Some(lines) = lines.blocking_recv() {
        if terminal || !lines.err.is_empty() {
            bar.suspend(|| write(&lines))?;
        } else {
            write(&lines)?;
        }
    }
    Ok(())
}

fn write(lines: &Lines) -> io::Result<()> {
    if !lines.err.is_empty() {
        // Without a stderr there is nobody to tell.
        let _ = io::stderr().write_all(lines.err.as_bytes());
    }
    if lines.out.is_empty() {
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(lines.out.as_bytes())?;
    stdout.flush()
}
