//! What `subagents mcp` tells on stderr, and the log: whoever does not read it holds nothing up.

use std::{
    io::{self, Write},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    time::{Duration, Instant},
};

/// As many pieces wait to be written; what comes after that is left out, and it is said how much.
const WAITING: usize = 1024;
/// How long the last of them may take at the end.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How often is tried meanwhile.
const AGAIN: Duration = Duration::from_millis(5);

enum Piece {
    Text(Vec<u8>),
    /// Everything before it is written.
    End(Sender<()>),
}

static PIECES: OnceLock<SyncSender<Piece>> = OnceLock::new();
static LEFT_OUT: AtomicUsize = AtomicUsize::new(0);

/// Tells something; it does not wait.
pub(crate) fn tell(text: Vec<u8>) {
    let pieces = PIECES.get_or_init(|| {
        let (pieces, received) = sync_channel(WAITING);
        // Where there is no room for a thread, it is left out like the rest.
        let _ = std::thread::Builder::new().name("stderr".to_owned()).spawn(move || write(&received));
        pieces
    });
    if pieces.try_send(Piece::Text(text)).is_err() {
        LEFT_OUT.fetch_add(1, Relaxed);
    }
}

fn write(received: &Receiver<Piece>) {
    for piece in received {
        match piece {
            Piece::Text(text) => {
                let mut stderr = io::stderr().lock();
                // Nobody is left to tell where it cannot be written.
                let _ = stderr.write_all(&text);
                let left_out = LEFT_OUT.swap(0, Relaxed);
                if left_out > 0 {
                    let _ = writeln!(
                        stderr,
                        "subagents: stderr is not read fast enough; {left_out} lines left out"
                    );
                }
            }
            Piece::End(done) => {
                let _ = done.send(());
            }
        }
    }
}

/// Waits until what was told is written, but not for long.
pub(crate) fn finish() {
    let Some(pieces) = PIECES.get() else { return };
    let begun = Instant::now();
    let (done, ended) = channel();
    let mut end = Piece::End(done);
    while let Err(refused) = pieces.try_send(end) {
        if begun.elapsed() > LAST_WORDS {
            return;
        }
        end = match refused {
            std::sync::mpsc::TrySendError::Full(end) => end,
            std::sync::mpsc::TrySendError::Disconnected(_) => return,
        };
        std::thread::sleep(AGAIN);
    }
    let _ = ended.recv_timeout(LAST_WORDS.saturating_sub(begun.elapsed()));
}

/// For the log: each write is a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        tell(text.to_owned());
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
