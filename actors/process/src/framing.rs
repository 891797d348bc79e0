//! Bytes in any portions to lines of bounded length. Pure.

use crate::error::FrameError;

/// Capacity above this is given back once a long line is done with.
const KEPT_CAPACITY: usize = 64 * 1024;

/// Cuts a stream into lines, however its portions come. Holds at most one line and what came with its end.
///
/// [`Lines`](crate::Lines) does this with a child's stdout; this is for lines that come from elsewhere.
///
/// ```
/// use subagents_process::LineFramer;
///
/// let mut framer = LineFramer::new(100);
/// framer.push(b"one\ntw");
/// assert_eq!(framer.pop().transpose()?.as_deref(), Some("one"));
/// assert!(framer.pop().is_none());
/// framer.push(b"o");
/// assert!(framer.pop().is_none());
/// assert_eq!(framer.finish().transpose()?.as_deref(), Some("two"));
/// # Ok::<(), subagents_process::FrameError>(())
/// ```
#[derive(Debug)]
pub struct LineFramer {
    limit: usize,
    pending: Vec<u8>,
    /// Everything before this has been given out.
    start: usize,
    /// Everything before this holds no line end.
    scanned: usize,
    /// The current line was too long and reported; its rest is thrown away.
    skipping: bool,
    total: Option<Total>,
    lossy: bool,
}

/// How much may come in all.
#[derive(Debug, Clone, Copy)]
struct Total {
    limit: u64,
    left: u64,
    over: Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    No,
    /// More came, which is not told yet.
    Yes,
    Told,
}

impl LineFramer {
    /// For lines of at most `limit` bytes, without the `\n`; the `\r` of a `\r\n` counts.
    pub fn new(limit: usize) -> Self {
        Self { limit, pending: Vec::new(), start: 0, scanned: 0, skipping: false, total: None, lossy: false }
    }

    /// Lets everything together be of at most `limit` bytes, line ends included.
    #[must_use]
    pub fn max_total(mut self, limit: u64) -> Self {
        self.total = Some(Total { limit, left: limit, over: Over::No });
        self
    }

    /// Gives a line that is not UTF-8, too: what is none of it becomes U+FFFD.
    #[must_use]
    pub fn lossy(mut self) -> Self {
        self.lossy = true;
        self
    }

    /// Takes in the next portion. Call [`pop`](Self::pop) until it is empty before the next one.
    pub fn push(&mut self, mut portion: &[u8]) {
        if let Some(total) = &mut self.total {
            let fits = usize::try_from(total.left).unwrap_or(usize::MAX).min(portion.len());
            total.left -= fits as u64;
            if fits < portion.len() && total.over == Over::No {
                total.over = Over::Yes;
            }
            portion = &portion[..fits];
        }
        self.pending.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        if self.pending.is_empty() && self.pending.capacity() > KEPT_CAPACITY {
            self.pending.shrink_to(KEPT_CAPACITY);
        }
        self.pending.extend_from_slice(portion);
    }

    /// Whether more came than may come in all: nothing that follows is taken in.
    pub fn is_full(&self) -> bool {
        self.total.is_some_and(|total| total.over != Over::No)
    }

    /// The next line that is whole, without its `\n` or `\r\n`; `None` where more is needed.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLarge`] and [`FrameError::NotUtf8`], each for one line: call again for the one after it.
    pub fn pop(&mut self) -> Option<Result<String, FrameError>> {
        loop {
            let Some(offset) = memchr::memchr(b'\n', &self.pending[self.scanned..]) else {
                self.scanned = self.pending.len();
                let length = self.scanned - self.start;
                if self.skipping {
                    self.start = self.scanned;
                } else if length > self.limit {
                    self.start = self.scanned;
                    self.skipping = true;
                    return Some(Err(FrameError::TooLarge { limit: self.limit }));
                }
                return None;
            };
            let end = self.scanned + offset;
            let line = self.start..end;
            self.start = end + 1;
            self.scanned = self.start;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            return Some(self.line(&self.pending[line]));
        }
    }

    /// The last line, when it has no line end, once nothing follows; then `None`.
    ///
    /// # Errors
    ///
    /// As those of [`pop`](Self::pop), and [`FrameError::TotalTooLarge`], once, where more came than may come in all: a
    /// line that was cut off by that is not given.
    pub fn finish(&mut self) -> Option<Result<String, FrameError>> {
        let rest = self.start..self.pending.len();
        self.start = self.pending.len();
        self.scanned = self.start;
        let skipping = std::mem::take(&mut self.skipping);
        if let Some(total) = self.total.as_mut().filter(|total| total.over != Over::No) {
            let told = std::mem::replace(&mut total.over, Over::Told) == Over::Told;
            return (!told).then_some(Err(FrameError::TotalTooLarge { limit: total.limit }));
        }
        if skipping || rest.is_empty() {
            return None;
        }
        Some(self.line(&self.pending[rest]))
    }

    fn line(&self, line: &[u8]) -> Result<String, FrameError> {
        if line.len() > self.limit {
            return Err(FrameError::TooLarge { limit: self.limit });
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match std::str::from_utf8(line) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) if self.lossy => Ok(String::from_utf8_lossy(line).into_owned()),
            Err(_) => Err(FrameError::NotUtf8),
        }
    }

    #[cfg(test)]
    fn held(&self) -> usize {
        self.pending.capacity()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_that_is_not_utf_8_is_given_where_that_is_wanted() {
        let mut framer = LineFramer::new(100).lossy();
        framer.push(b"caf\xe9 au lait\nfine\n\xff");
        assert_eq!(framer.pop().unwrap().unwrap(), "caf\u{fffd} au lait");
        assert_eq!(framer.pop().unwrap().unwrap(), "fine");
        assert_eq!(framer.finish().unwrap().unwrap(), "\u{fffd}");
    }

    /// Frames as text that can be compared, since I/O errors cannot.
    fn frames<'a>(
        limit: usize,
        total: Option<u64>,
        portions: impl IntoIterator<Item = &'a [u8]>,
    ) -> Vec<Result<String, String>> {
        let mut framer = LineFramer::new(limit);
        if let Some(total) = total {
            framer = framer.max_total(total);
        }
        let mut frames = Vec::new();
        for portion in portions {
            framer.push(portion);
            while let Some(frame) = framer.pop() {
                frames.push(frame.map_err(|error| error.to_string()));
            }
        }
        frames.extend(framer.finish().map(|frame| frame.map_err(|error| error.to_string())));
        assert!(framer.finish().is_none(), "the end is told once");
        frames
    }

    /// The rule, said in the plainest way.
    fn expected(limit: usize, total: Option<u64>, bytes: &[u8]) -> Vec<Result<String, String>> {
        if let Some(total) = total.filter(|total| bytes.len() as u64 > *total) {
            let kept = &bytes[..usize::try_from(total).unwrap()];
            let end = kept.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let mut frames = expected(limit, None, &kept[..end]);
            // A line that is too long is told as soon as it is.
            if kept.len() - end > limit {
                frames.push(Err(FrameError::TooLarge { limit }.to_string()));
            }
            frames.push(Err(FrameError::TotalTooLarge { limit: total }.to_string()));
            return frames;
        }
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        if lines.last().is_some_and(|last| last.is_empty()) {
            lines.pop();
        }
        lines
            .into_iter()
            .map(|line| {
                if line.len() > limit {
                    return Err(FrameError::TooLarge { limit }.to_string());
                }
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                String::from_utf8(line.to_vec()).map_err(|_| FrameError::NotUtf8.to_string())
            })
            .collect()
    }

    fn output() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            4 => "[a-zé漢🦀]{0,6}".prop_map(String::into_bytes),
            3 => Just(b"\n".to_vec()),
            1 => Just(b"\r\n".to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..4),
        ];
        prop::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_frames(
            bytes in output(), cuts in prop::collection::vec(1usize..9, 1..40), limit in 0usize..20,
            total in prop::option::of(0u64..60),
        ) {
            let mut portions = Vec::new();
            let mut rest = bytes.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (portion, left) = rest.split_at((*cut).min(rest.len()));
                portions.push(portion);
                rest = left;
            }
            let wanted = expected(limit, total, &bytes);
            prop_assert_eq!(&frames(limit, total, portions), &wanted);
            prop_assert_eq!(&frames(limit, total, [bytes.as_slice()]), &wanted);
        }
    }

    #[test]
    fn an_endless_line_is_reported_once_in_flat_memory() {
        let mut framer = LineFramer::new(1000);
        let mut errors = 0;
        for _ in 0..10_000 {
            framer.push(&[b'x'; 4096]);
            while let Some(frame) = framer.pop() {
                assert!(matches!(frame, Err(FrameError::TooLarge { limit: 1000 })));
                errors += 1;
            }
            assert!(framer.held() <= 16 * 1024);
        }
        framer.push(b"\nnext\n");
        assert_eq!(errors, 1);
        assert_eq!(framer.pop().unwrap().unwrap(), "next");
    }
}
