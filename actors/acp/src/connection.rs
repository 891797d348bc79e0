//! The agent's process and the lines between us: no task, no queue without a bound.
//!
//! Whoever waits for the agent's next line writes at the same time what is due to it, so that neither side can hold up the
//! other by not reading.

use std::fmt;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde::Serialize;
use serde_json::value::RawValue;
use subagents_external::{end, shown};
use subagents_process::{Exit, FrameError, Lines, Process, Secrets, Stdin, Teardown};
use tokio::io::AsyncWriteExt as _;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::question;
use crate::stray::Stray;
use crate::wire::{self, Incoming, Line};

/// The longest message of an agent's.
const LONGEST_LINE: usize = 16 * 1024 * 1024;
/// As many bytes of answers to an agent's questions may wait for it to read them.
const OUTBOX: usize = 4 * 1024 * 1024;
/// From so many written bytes on, the room of what is written is used again.
const COMPACT: usize = 64 * 1024;
/// As many lines are still taken of one whose time is over: of a pipe that is full, and no more of one that is kept full.
const LATE: u32 = 4096;
/// How long the exit and the last words of an agent that has closed its stdout are waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A connection to an agent. Dropping it kills the agent's process group.
pub(crate) struct Connection {
    process: Process,
    program: String,
    lines: Option<Lines>,
    stdin: Option<Stdin>,
    outbox: Outbox,
    requests: u64,
    stray: Stray,
    secrets: Secrets,
    /// When it is over, whatever still comes: its exit, or its stdin's end, has been seen.
    over: Option<(Instant, Over)>,
    /// As many lines were taken after that.
    late: u32,
}

/// Why a connection is over soon.
#[derive(Debug, Clone, Copy)]
enum Over {
    Exit,
    Stdin,
}

/// What waits to be written.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// As much of them is written.
    sent: usize,
    /// As much was put in for answers since nothing waited.
    owed: usize,
    /// In as many answers: one alone is as long as what it answers.
    answers: usize,
}

// Neither what is said nor what is asked.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("program", &self.program)
            .field("pid", &self.process.id())
            .field("requests", &self.requests)
            .finish_non_exhaustive()
    }
}

/// Why nothing more comes of a connection.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The agent closed its stdout, or is gone.
    Ended,
    /// It wrote too much that is no message.
    Garbage,
    /// It wrote more than it may in all.
    TooMuch { limit: u64 },
    /// It asks and does not read the answers.
    NotReading,
    /// It closed its stdin before it had read what it was sent.
    Deaf,
    /// One of its lines is longer than any may be.
    LineTooLong { limit: usize },
    /// It said the same again and again.
    Repeats { times: u32 },
    /// The system could not read the pipe.
    Unreadable(std::io::Error),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("closed its stdout"),
            Self::Garbage => f.write_str("wrote too much to its stdout that is no message of the protocol"),
            Self::TooMuch { limit } => write!(f, "wrote more than {limit} bytes in all"),
            Self::NotReading => f.write_str("asked much and did not read the answers"),
            Self::Deaf => f.write_str("closed its stdin before it had read all"),
            Self::LineTooLong { limit } => {
                write!(
                    f,
                    "wrote a line of more than {limit} bytes, which no message needs; see what it sends"
                )
            }
            Self::Repeats { times } => write!(f, "said the same {times} times in a row"),
            Self::Unreadable(error) => write!(f, "could not be read: {error}"),
        }
    }
}

/// How an agent ended, and what it said last.
#[derive(Debug)]
pub(crate) struct LastWords {
    pub(crate) exit: Option<Exit>,
    stderr: String,
    stray: Option<String>,
}

impl LastWords {
    pub(crate) fn is_empty(&self) -> bool {
        self.stray.is_none() && self.stderr.trim().is_empty()
    }
}

impl fmt::Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The end of stderr tells best, and comes last: it is cut at its beginning.
        if let Some(stray) = &self.stray {
            write!(f, "on its stdout: {stray}; ")?;
        }
        match self.stderr.trim() {
            "" => f.write_str("no stderr"),
            stderr => write!(f, "stderr: {stderr}"),
        }
    }
}

impl Connection {
    /// Takes over the pipes of a process. `secrets` are masked in whatever is shown of it.
    pub(crate) fn new(mut process: Process, program: String, secrets: Secrets, max_total: u64) -> Self {
        let lines =
            process.take_stdout().map(|stdout| stdout.into_lines(LONGEST_LINE).max_total(max_total).lossy());
        let stdin = process.take_stdin();
        Self {
            process,
            program,
            lines,
            stdin,
            outbox: Outbox::default(),
            requests: 0,
            stray: Stray::default(),
            secrets,
            over: None,
            late: 0,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// How many lines were no messages.
    pub(crate) fn stray_lines(&self) -> u32 {
        self.stray.lines()
    }

    /// Puts a request among what is to be written; gives its id.
    pub(crate) fn request(&mut self, method: &str, params: impl Serialize) -> u64 {
        self.requests += 1;
        self.outbox.push(&wire::request(self.requests, method, params));
        self.requests
    }

    /// Puts a notification among what is to be written.
    pub(crate) fn notify(&mut self, method: &str, params: impl Serialize) {
        self.outbox.push(&wire::notification(method, params));
    }

    /// Puts an answer among what is to be written.
    pub(crate) fn reply(&mut self, id: &RawValue, result: impl Serialize) {
        self.outbox.owe(&wire::reply(id, result));
    }

    /// Puts a refusal among what is to be written.
    pub(crate) fn refuse(&mut self, id: &RawValue, code: i32, message: &str) {
        self.outbox.owe(&wire::refusal(id, code, message));
    }

    /// Refuses what no client capability of ours offers: files, terminals, extensions.
    pub(crate) fn refuse_unknown(&mut self, id: &RawValue, method: &str) {
        let method = shown(method, &self.secrets, 100);
        tracing::debug!(method, "an agent asked for what is not offered");
        self.refuse(id, wire::METHOD_NOT_FOUND, &format!("{method} is not offered by this client"));
    }

    /// The agent's next line, while what waits for it is written. One that is no message is to be
    /// [passed over](Self::pass_over).
    ///
    /// The end of its stdout is the end; so is, half a second later, its exit (a descendant may hold the pipe) or a write that
    /// fails (it may still have something to say).
    ///
    /// Cancel-safe: a dropped future has lost nothing of what is read and written.
    pub(crate) async fn next(&mut self) -> Result<Line, Broken> {
        loop {
            if self.outbox.owes() > OUTBOX && self.outbox.answers > 1 {
                return Err(Broken::NotReading);
            }
            let Some(lines) = &mut self.lines else { return Err(Broken::Ended) };
            let over = self.over;
            let soon = |why| Some((Instant::now() + LAST_WORDS, why));
            if let Some((_, why)) = over.filter(|(until, _)| *until <= Instant::now()) {
                // What lay in the pipe by then is not lost because nobody came to look in time.
                let late = if self.late < LATE { lines.next().now_or_never() } else { None };
                self.late += 1;
                return match (late.and_then(Result::transpose), why) {
                    (Some(line), _) => framed(line),
                    (None, Over::Stdin) => Err(Broken::Deaf),
                    (None, Over::Exit) => Err(Broken::Ended),
                };
            }
            // Its exit before its lines: a descendant may write them without end.
            let line = tokio::select! {
                biased;
                written = self.outbox.flush(&mut self.stdin), if !self.outbox.is_empty() => {
                    if !written && over.is_none() {
                        self.over = soon(Over::Stdin);
                    }
                    continue;
                }
                _ = self.process.wait(), if over.is_none_or(|(_, why)| !matches!(why, Over::Exit)) => {
                    self.over = soon(Over::Exit);
                    continue;
                }
                line = lines.next() => line,
                () = sleep_until(over.map_or_else(Instant::now, |(until, _)| until)), if over.is_some() => continue,
            };
            return framed(line.transpose().ok_or(Broken::Ended)?);
        }
    }

    /// The agent's next line where it is here already and nothing waits to be written; `None` where [`next`](Self::next)
    /// would do more than give it.
    pub(crate) fn ready(&mut self) -> Option<Result<Line, Broken>> {
        if !self.outbox.is_empty() || self.over.is_some() {
            return None;
        }
        Some(framed(self.lines.as_mut()?.try_next()?))
    }

    /// Takes note of a line that is no message.
    pub(crate) fn pass_over(&mut self, line: &Line) -> Result<(), Broken> {
        self.stray.take(line.text(), &self.secrets);
        self.bear()
    }

    fn bear(&self) -> Result<(), Broken> {
        if self.stray.is_too_much() { Err(Broken::Garbage) } else { Ok(()) }
    }

    /// Writes what waits, and reads on, until the request is answered, or the time is up. For the end of a conversation: what
    /// it asks is answered as of a turn that is cancelled, and whatever else comes is dropped.
    pub(crate) async fn drain(&mut self, until: Instant, request: u64) {
        let _ = timeout_at(until, async {
            while let Ok(line) = self.next().await {
                consume_budget().await;
                match line.read() {
                    Incoming::Response { id, .. } if id == request => return,
                    Incoming::Request { id, method, .. } if method == "session/request_permission" => {
                        self.reply(id, question::cancelled());
                    }
                    Incoming::Request { id, method, .. } => self.refuse_unknown(id, &method),
                    Incoming::Stray if self.pass_over(&line).is_err() => return,
                    Incoming::Chunk(_)
                    | Incoming::Response { .. }
                    | Incoming::Notification { .. }
                    | Incoming::Unasked
                    | Incoming::Stray => {}
                }
            }
        })
        .await;
    }

    /// Kills the agent's process group, at once.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// How the agent ended, and what it said last. Both are on their way when its stdout is closed, unless a descendant
    /// holds the pipe; of a connection that broke for another reason there is nothing to wait for.
    pub(crate) async fn last_words(&mut self, broken: &Broken) -> LastWords {
        match broken {
            Broken::Ended | Broken::Unreadable(_) => {
                let exit = timeout(LAST_WORDS, self.process.wait()).await.ok();
                self.words(exit).await
            }
            Broken::Garbage
            | Broken::TooMuch { .. }
            | Broken::NotReading
            | Broken::Deaf
            | Broken::LineTooLong { .. }
            | Broken::Repeats { .. } => self.words_so_far().await,
        }
    }

    /// What it has said so far, of one that is still there.
    pub(crate) async fn words_so_far(&mut self) -> LastWords {
        let exit = self.process.exit();
        self.words(exit).await
    }

    async fn words(&self, exit: Option<Exit>) -> LastWords {
        let stderr = self.process.stderr();
        if exit.is_some() {
            let _ = timeout(LAST_WORDS, stderr.finished()).await;
        }
        LastWords { exit, stderr: self.secrets.mask(&stderr.text()).into_owned(), stray: self.stray.told() }
    }

    /// Ends the agent and all that descends from it, by `deadline`.
    pub(crate) async fn end(mut self, deadline: Instant) -> Teardown {
        drop(self.stdin.take());
        let stdout = self.lines.take().map(Lines::into_stdout);
        end(&mut self.process, stdout, deadline).await
    }
}

fn framed(line: Result<String, FrameError>) -> Result<Line, Broken> {
    line.map(Line::new).map_err(|error| match error {
        FrameError::TooLarge { limit } => Broken::LineTooLong { limit },
        FrameError::TotalTooLarge { limit } => Broken::TooMuch { limit },
        FrameError::Io(error) => Broken::Unreadable(error),
        FrameError::NotUtf8 | _ => Broken::Garbage,
    })
}

impl Outbox {
    fn push(&mut self, line: &str) {
        self.bytes.extend_from_slice(line.as_bytes());
    }

    /// An answer, which the agent has asked for, so that it has to read it.
    fn owe(&mut self, line: &str) {
        self.owed += line.len();
        self.answers += 1;
        self.push(line);
    }

    /// As much of what waits are answers: at most, since what was put in first is written first.
    fn owes(&self) -> usize {
        self.owed.min(self.bytes.len() - self.sent)
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Writes until nothing waits. Where nothing can be written any more, what waits is dropped, and it says no.
    ///
    /// Cancel-safe.
    async fn flush(&mut self, stdin: &mut Option<Stdin>) -> bool {
        while let Some(pipe) = stdin.as_mut().filter(|_| self.sent < self.bytes.len()) {
            match pipe.write(&self.bytes[self.sent..]).await {
                Ok(written) if written > 0 => self.wrote(written),
                Ok(_) | Err(_) => *stdin = None,
            }
        }
        let written = self.sent == self.bytes.len();
        // A prompt may have been large.
        *self = Self::default();
        written
    }

    fn wrote(&mut self, bytes: usize) {
        self.sent += bytes;
        // An agent that reads what is written meanwhile would make it grow without end.
        if self.sent > COMPACT && self.sent * 2 > self.bytes.len() {
            self.bytes.drain(..self.sent);
            self.owed = self.owed.saturating_sub(self.sent);
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected(script: &str) -> Connection {
        let command = subagents_process::Command::new("/bin/sh", "/").arg("-c").arg(script).stdin_piped();
        let process = command.spawn().expect("there is a shell");
        Connection::new(process, "sh".to_owned(), Secrets::default(), u64::MAX)
    }

    #[tokio::test]
    async fn d06_what_it_said_before_its_exit_is_not_lost_where_nobody_came_to_look_in_time() {
        let mut connection =
            connected("echo one; head -c 30000 /dev/zero | tr '\\0' x; echo; echo two; exit 0");
        connection.process.wait().await;
        assert_eq!(connection.next().await.expect("a line").text(), "one");
        // As a host does that blocks its only thread.
        std::thread::sleep(LAST_WORDS + Duration::from_millis(100));
        assert_eq!(connection.next().await.expect("the next").text().len(), 30_000);
        assert_eq!(connection.next().await.expect("the last").text(), "two");
        assert!(matches!(connection.next().await, Err(Broken::Ended)));
    }

    #[tokio::test]
    async fn d06_a_descendant_that_writes_on_does_not_hold_the_end_up() {
        let mut connection = connected("yes noise & exit 0");
        let begun = Instant::now();
        let mut lines = 0_u32;
        while connection.next().await.is_ok() {
            lines += 1;
            assert!(lines < 50_000_000 && begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        }
        connection.kill();
    }
}
