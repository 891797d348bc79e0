//! The text of an agent's answer, gathered from its chunks. Pure.

use std::borrow::Cow;
use std::fmt;

use subagents_process::{Masker, Secrets};
use subagents_seam::{Progress, Truncation};

/// Between two messages of one answer.
const BETWEEN: &str = "\n\n";

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
        }
    }

    /// Takes a chunk. Another message begins where its id is another one, or, where ids are not told, after a tool.
    pub(crate) fn chunk(&mut self, text: &str, message_id: Option<&str>, show: &mut Show<'_>) {
        if text.is_empty() {
            return show(Progress::Alive);
        }
        let another = match (message_id, self.message_id.as_deref()) {
            (Some(new), Some(old)) => new != old,
            // The agent tells ids, and what it said before was without one.
            (Some(_), None) => true,
            (None, _) => self.broken,
        };
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

    /// A tool ends a message, where ids do not tell.
    pub(crate) fn interrupt(&mut self) {
        self.broken = true;
    }

    fn begin(&mut self, show: &mut Show<'_>) {
        self.settle(show);
        self.messages = self.messages.saturating_add(1);
        show(Progress::Message);
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.keep(BETWEEN, show);
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
