//! The text of an agent's answer, gathered from its chunks. Pure.

use std::borrow::Cow;
use std::fmt;

use subagents_process::{Masker, Secrets};
use subagents_seam::{Progress, Truncation};

/// Between two messages of one answer.
const BETWEEN: &str = "\n\n";

/// The same message so many times in a row is no answer any more,
const MOST_REPEATS: u32 = 200;
/// nor is the same piece of one message, where a table may well have equal rows,
const MOST_ROWS: u32 = 5_000;
/// where it is so long: a word may be said again and again.
const LONG_ENOUGH: std::ops::RangeInclusive<usize> = 8..=4096;

/// Where the signs of life go.
pub(crate) type Show<'a> = dyn FnMut(Progress<'_>) + 'a;

/// Gathers one answer: all its messages (`SPEC 18.2`), a blank line between them, up to a bound. Masks secrets.
pub(crate) struct Answer {
    limit: usize,
    text: String,
    /// Where the last message begins in `text`.
    last: usize,
    masker: Masker,
    total: u64,
    full: bool,
    messages: u32,
    message_id: Option<String>,
    /// Something came since the last chunk that ends a message.
    broken: bool,
    /// Where the last chunk stands in `text`, and how long it is.
    chunk: (usize, usize),
    /// How often the same chunk came again, in a row.
    repeats: u32,
    /// Each time as a message of its own.
    separate: bool,
}

// It may be long, and is nobody's business in a log.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("kept", &self.text.len())
            .field("total", &self.total)
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// Keeps at most `limit` bytes, and counts the rest.
    pub(crate) fn new(limit: usize, secrets: &Secrets) -> Self {
        Self {
            limit,
            text: String::new(),
            last: 0,
            masker: secrets.masker(),
            total: 0,
            full: false,
            messages: 0,
            message_id: None,
            broken: false,
            chunk: (0, 0),
            repeats: 0,
            separate: false,
        }
    }

    /// Takes a chunk. Another message begins where its id is another one, or, where ids are not told, after an
    /// [interruption](Self::interrupt).
    pub(crate) fn chunk(&mut self, text: &str, message_id: Option<&str>, show: &mut Show<'_>) {
        if text.is_empty() {
            return show(Progress::Alive);
        }
        self.compare(text);
        let another = match (message_id, self.message_id.as_deref()) {
            (Some(new), Some(old)) => new != old,
            // The agent tells ids, and what it said before was without one.
            (Some(_), None) => true,
            (None, _) => self.broken,
        };
        self.separate = self.repeats > 0 && another && (self.separate || self.repeats == 1);
        self.broken = false;
        if message_id.is_some_and(|new| self.message_id.as_deref() != Some(new)) {
            self.message_id = message_id.map(str::to_owned);
        }
        if self.messages == 0 || another {
            self.begin(show);
        }
        self.total += text.len() as u64;
        if self.full {
            return show(Progress::Alive);
        }
        match self.masker.push(text.as_bytes()) {
            // It is as it came.
            Cow::Borrowed(_) => self.keep(text, show),
            Cow::Owned(masked) => self.keep(&String::from_utf8_lossy(&masked), show),
        }
    }

    /// Compares a chunk with the one before, which stands where it was kept.
    fn compare(&mut self, text: &str) {
        let (start, length) = self.chunk;
        let same = LONG_ENOUGH.contains(&text.len()) && self.text.get(start..start + length) == Some(text);
        // A line that is drawn is no repetition.
        let drawn = || text.chars().all(|c| text.starts_with(c));
        self.repeats = if same && !drawn() { self.repeats.saturating_add(1) } else { 0 };
    }

    /// How often the same came in a row, where that is more than anybody says it on purpose. opencode sends its model's broken
    /// answer again with every new attempt, without end.
    pub(crate) fn repeats(&self) -> Option<u32> {
        let most = if self.separate { MOST_REPEATS } else { MOST_ROWS };
        Some(self.repeats).filter(|times| *times >= most)
    }

    /// A tool, a question or a thought ends a message, where ids do not tell.
    pub(crate) fn interrupt(&mut self) {
        self.broken = true;
    }

    fn begin(&mut self, show: &mut Show<'_>) {
        self.settle(show);
        self.messages = self.messages.saturating_add(1);
        show(Progress::Message);
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            let chunk = self.chunk;
            self.keep(BETWEEN, show);
            self.chunk = chunk;
        }
        self.last = self.text.len();
    }

    /// What might have been the beginning of a secret is none when its message is over.
    fn settle(&mut self, show: &mut Show<'_>) {
        let waiting = self.masker.finish();
        if !waiting.is_empty() {
            self.keep(&String::from_utf8_lossy(&waiting), show);
        }
    }

    /// Adds what fits, on a character boundary. Once something did not fit, nothing after it is kept: an answer has an
    /// end, no holes.
    fn keep(&mut self, text: &str, show: &mut Show<'_>) {
        if self.full || text.is_empty() {
            return show(Progress::Alive);
        }
        let room = self.limit - self.text.len();
        let fits = if text.len() <= room {
            text
        } else {
            self.full = true;
            &text[..text.floor_char_boundary(room)]
        };
        self.chunk = (self.text.len(), fits.len());
        self.text.push_str(fits);
        show(Progress::Text(fits));
    }

    /// Nothing follows.
    pub(crate) fn finish(&mut self, show: &mut Show<'_>) {
        self.settle(show);
    }

    /// All that was said.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The last message alone.
    pub(crate) fn last_message(&self) -> &str {
        &self.text[self.last..]
    }

    /// How much is missing, if something is.
    pub(crate) fn truncation(&self) -> Option<Truncation> {
        self.full.then(|| Truncation::new(self.text.len() as u64, self.total))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gathered(limit: usize, chunks: &[(&str, Option<&str>)]) -> (Answer, String, u32) {
        let secrets = Secrets::of([("MY_TOKEN".into(), "s3cret-s3cret".into())]);
        let mut answer = Answer::new(limit, &secrets);
        let (mut shown, mut messages) = (String::new(), 0);
        let mut show = |progress: Progress<'_>| match progress {
            Progress::Text(text) => shown.push_str(text),
            Progress::Message => messages += 1,
            Progress::Alive | _ => {}
        };
        for (text, id) in chunks {
            if *text == "<tool>" {
                answer.interrupt();
            } else {
                answer.chunk(text, *id, &mut show);
            }
        }
        answer.finish(&mut show);
        (answer, shown, messages)
    }

    #[test]
    fn b16_all_messages_are_the_answer_and_are_counted() {
        let (answer, shown, messages) = gathered(
            100,
            &[("long ", None), ("report", None), ("<tool>", None), ("", None), ("see above", None)],
        );
        assert_eq!(answer.text(), "long report\n\nsee above");
        assert_eq!((answer.last_message(), answer.messages, messages), ("see above", 2, 2));
        assert_eq!(shown, answer.text());
    }

    #[test]
    fn an_id_tells_a_message_better_than_a_tool_does() {
        let a = Some("a");
        let chunks = [("Warning\n", None), ("one ", a), ("<tool>", None), ("two", a), ("three", Some("b"))];
        let (answer, ..) = gathered(100, &chunks);
        assert_eq!(answer.text(), "Warning\none two\n\nthree");
        assert_eq!((answer.last_message(), answer.messages), ("three", 3));
    }

    #[test]
    fn f07_a_secret_in_pieces_is_masked() {
        let (answer, shown, _) = gathered(100, &[("a s3cr", None), ("et-s3c", None), ("ret b s3cr", None)]);
        assert_eq!(answer.text(), "a [MY_TOKEN] b s3cr");
        assert_eq!(shown, answer.text());
    }

    #[test]
    fn the_same_again_and_again_is_seen_and_a_table_a_drawn_line_or_a_word_is_not() {
        let repeats = |text: &'static str, times: usize, id: fn(usize) -> Option<&'static str>| {
            let chunks: Vec<_> = (0..=times).map(|n| (text, id(n))).collect();
            gathered(1_000_000, &chunks).0.repeats()
        };
        let in_turn = |n: usize| Some(if n.is_multiple_of(2) { "a" } else { "b" });
        assert_eq!(repeats("this text ne", 200, in_turn), Some(200));
        assert_eq!(repeats("| 0 | 0 | 0 |\n", 4_999, |_| None), None);
        assert_eq!(repeats("| 0 | 0 | 0 |\n", 5_000, |_| Some("a")), Some(5_000));
        for harmless in ["no ", "----------", "|", ""] {
            assert_eq!(repeats(harmless, 6_000, in_turn), None, "{harmless}");
        }
        let chunks = ["one and two ", "three, four "].repeat(5_000);
        let chunks: Vec<_> = chunks.iter().map(|text| (*text, None)).collect();
        assert_eq!(gathered(1_000_000, &chunks).0.repeats(), None);
    }

    #[test]
    fn a_long_answer_is_cut_on_a_boundary_and_says_so() {
        let (answer, shown, _) = gathered(4, &[("aé漢", None), ("zz", None), ("z", None)]);
        assert_eq!((answer.text(), &*shown), ("aé", "aé"));
        assert_eq!(answer.truncation(), Some(Truncation::new(3, 9)));
        assert_eq!(gathered(4, &[("four", None)]).0.truncation(), None);
    }

    proptest! {
        #[test]
        fn what_is_shown_is_what_is_kept(
            chunks in prop::collection::vec(("[a-c漢 \n]{0,5}|<tool>", prop::option::of("[ab]")), 0..20),
            limit in 0usize..40,
        ) {
            let chunks: Vec<_> = chunks.iter().map(|(text, id)| (&**text, id.as_deref())).collect();
            let (answer, shown, messages) = gathered(limit, &chunks);
            prop_assert_eq!(answer.text(), &*shown);
            prop_assert_eq!(answer.messages, messages);
            prop_assert!(answer.text().len() <= limit);
            prop_assert!(answer.text().ends_with(answer.last_message()));
            if answer.truncation().is_none() {
                let all: String = chunks.iter().map(|(text, _)| *text).filter(|text| *text != "<tool>").collect();
                prop_assert_eq!(answer.text().replace(BETWEEN, "").replace('\n', ""), all.replace('\n', ""));
            }
        }
    }
}
