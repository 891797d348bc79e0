//! The end of what a child wrote to stderr.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::secrets::Masker;

/// Gives the last lines that a child wrote to stderr: bounded, cleaned, always up to date.
///
/// Cheap to clone, and readable after the [`Process`](crate::Process) is gone. Reading of the pipe goes on whether
/// or not anybody looks, so a child that floods stderr never blocks.
#[derive(Debug, Clone)]
pub struct StderrTail {
    tail: Arc<Mutex<Tail>>,
    done: watch::Receiver<bool>,
}

impl StderrTail {
    /// A handle, and the work that fills it until the pipe ends, to be driven by whoever owns the process.
    pub(crate) fn new(
        mut pipe: impl AsyncRead + Unpin + Send,
        limit: usize,
        mut masker: Masker,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let tail = Arc::new(Mutex::new(Tail::new(limit)));
        let (finished, done) = watch::channel(false);
        let handle = Self { tail: Arc::clone(&tail), done };
        let work = async move {
            let mut portion = vec![0; 16 * 1024];
            // A pipe that cannot be read has ended, for us.
            while let Ok(length @ 1..) = pipe.read(&mut portion).await {
                // Before anything is cut or cleaned: a secret is known as a whole only.
                let masked = masker.push(&portion[..length]);
                lock(&tail).push(&masked, length);
            }
            lock(&tail).push(&masker.finish(), 0);
            finished.send_replace(true);
        };
        (handle, work)
    }

    /// The last whole lines within the limit, without control characters and escape sequences; empty when there
    /// were none. A last line that is not ended yet is included. Print it as it is: it cannot move a cursor.
    pub fn text(&self) -> String {
        lock(&self.tail).text()
    }

    /// As [`text`](Self::text), of what has come since then only, as far as that is told apart: by the last 64 times that
    /// something came.
    pub fn text_since(&self, since: Instant) -> String {
        lock(&self.tail).text_since(since)
    }

    /// How many bytes the child has written to stderr in all.
    pub fn total_bytes(&self) -> u64 {
        lock(&self.tail).written
    }

    /// Returns when the pipe has ended, that is, when nobody holds its other end any more, or the process was
    /// dropped. A descendant that lives on may hold it for ever: wrap it in a timeout. Cancel-safe.
    pub async fn finished(&self) {
        // An error says that the work was dropped, which is an end as well.
        let _ = self.done.clone().wait_for(|done| *done).await;
    }
}

fn lock(tail: &Mutex<Tail>) -> MutexGuard<'_, Tail> {
    tail.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last bytes, uncleaned. Pure.
#[derive(Debug)]
struct Tail {
    limit: usize,
    bytes: VecDeque<u8>,
    /// All that was kept or let go.
    total: u64,
    /// What the child has written, before anything of it was masked.
    written: u64,
    /// When something came, and how much there was before it.
    times: VecDeque<(Instant, u64)>,
}

/// How many times are kept.
const TIMES: usize = 64;

impl Tail {
    fn new(limit: usize) -> Self {
        Self { limit, bytes: VecDeque::new(), total: 0, written: 0, times: VecDeque::new() }
    }

    /// Takes in what came, as `portion`, of what were `length` bytes.
    fn push(&mut self, portion: &[u8], length: usize) {
        self.written += length as u64;
        if portion.is_empty() {
            return;
        }
        if self.times.len() == TIMES {
            self.times.pop_front();
        }
        self.times.push_back((Instant::now(), self.total));
        self.total += portion.len() as u64;
        let kept = &portion[portion.len().saturating_sub(self.limit)..];
        let surplus = (self.bytes.len() + kept.len()).saturating_sub(self.limit);
        self.bytes.drain(..surplus);
        self.bytes.extend(kept);
    }

    fn text_since(&self, since: Instant) -> String {
        let Some((_, before)) = self.times.iter().find(|(time, _)| *time >= since) else {
            return String::new();
        };
        // What has been let go needs not be skipped.
        let skipped = before.saturating_sub(self.total - self.bytes.len() as u64);
        if skipped == 0 {
            return self.text();
        }
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let bytes: Vec<u8> = self.bytes.iter().skip(skipped).copied().collect();
        clean(&String::from_utf8_lossy(&bytes))
    }

    fn text(&self) -> String {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        let cut = self.total > bytes.len() as u64;
        // The first line is torn where older bytes were let go, unless it is the only one.
        let whole = match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) if cut && end + 1 < bytes.len() => &bytes[end + 1..],
            _ => &bytes[..],
        };
        clean(&String::from_utf8_lossy(whole))
    }
}

/// Text without anything that a terminal would act on; line ends and tabs stay.
fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' => skip_escape(&mut chars),
            '\n' | '\t' => cleaned.push(char),
            // A progress bar overwrites itself; each state is a line here.
            '\r' => {
                if chars.peek() != Some(&'\n') {
                    cleaned.push('\n');
                }
            }
            // Marks that reorder the text around them: what is read must be what was written.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            _ if char.is_control() => {}
            _ => cleaned.push(char),
        }
    }
    cleaned.trim_matches('\n').to_owned()
}

/// Skips the rest of an escape sequence: up to the final byte of a control sequence, the end of a string, or one
/// character.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => {
            while chars.next_if(|char| ('\u{20}'..='\u{3f}').contains(char)).is_some() {}
            chars.next_if(|char| ('\u{40}'..='\u{7e}').contains(char));
        }
        Some(']' | 'P' | '_' | '^' | 'X') => {
            // A line end bounds a string whose end was cut off.
            while let Some(char) = chars.next_if(|char| *char != '\n') {
                match char {
                    '\u{7}' => break,
                    '\u{1b}' => {
                        chars.next_if_eq(&'\\');
                        break;
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(tail: &mut Tail, portion: &[u8]) {
        tail.push(portion, portion.len());
    }

    fn text(limit: usize, portions: &[&str]) -> String {
        let mut tail = Tail::new(limit);
        for portion in portions {
            push(&mut tail, portion.as_bytes());
            assert!(tail.bytes.len() <= limit);
        }
        tail.text()
    }

    #[test]
    fn the_last_whole_lines_stay() {
        let cases: &[(usize, &[&str], &str)] = &[
            (100, &[], ""),
            (100, &["one\n", "two\n"], "one\ntwo"),
            (100, &["one\ntw", "o"], "one\ntwo"),
            (9, &["one\ntwo\nthree\n"], "three"),
            (9, &["one\ntwo\nth", "ree\n"], "three"),
            (4, &["a single long line"], "line"),
            (4, &["a single long line\n"], "ine"),
            (0, &["nothing is kept\n"], ""),
            (4, &["éé漢漢"], "\u{fffd}漢"),
        ];
        for (limit, portions, wanted) in cases {
            assert_eq!(text(*limit, portions), *wanted, "{limit} {portions:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_since_is_told_apart() {
        let mut tail = Tail::new(20);
        let second = std::time::Duration::from_secs(1);
        let begun = Instant::now();
        push(&mut tail, b"old\n");
        tokio::time::advance(second).await;
        push(&mut tail, b"newer\n");
        push(&mut tail, b"newest");
        assert_eq!(tail.text_since(begun), "old\nnewer\nnewest");
        assert_eq!(tail.text_since(begun + second), "newer\nnewest");
        assert_eq!(tail.text_since(begun + second * 2), "");
        tokio::time::advance(second).await;
        push(&mut tail, b" of all\nlast\n");
        assert_eq!(tail.text_since(begun), "newest of all\nlast", "what was let go is no more");
        for _ in 0..1000 {
            push(&mut tail, b"x");
        }
        assert_eq!(tail.times.len(), TIMES);
    }

    #[test]
    fn nothing_in_it_acts_on_a_terminal() {
        let cases = [
            ("\u{1b}[1;31merror\u{1b}[0m: no", "error: no"),
            ("\u{1b}]0;title\u{7}text\u{1b}]8;;http://x\u{1b}\\link", "textlink"),
            ("10%\r20%\r\ndone\u{8}\u{0}", "10%\n20%\ndone"),
            ("a\tb\u{9b}31mc", "a\tb31mc"),
            ("x\u{202e}evil\u{2069}", "xevil"),
            ("\u{1b}", ""),
            ("\u{1b}[", ""),
            ("\u{1b}]cut off\nnext", "next"),
        ];
        for (raw, wanted) in cases {
            assert_eq!(clean(raw), wanted, "{raw:?}");
        }
    }
}
