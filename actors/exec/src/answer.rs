//! What a program says on stdout, as text of bounded length. Pure.

use std::fmt;

use subagents_process::{Exit, Masker, Secrets};
use subagents_seam::{Details, Diagnostic, StopReason, SubagentResult, Truncation};

/// Gathers the answer. A character that is cut in two by the portions is put together again; bytes that are no
/// UTF-8 become U+FFFD.
pub(crate) struct Answer {
    limit: usize,
    /// The most that may come in all.
    max_total: u64,
    text: String,
    masker: Masker,
    /// The beginning of a character that is not whole yet: three bytes at most.
    torn: Vec<u8>,
    total: u64,
    full: bool,
}

// The answer itself may be long, and is nobody's business in a log.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("kept", &self.text.len())
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// Keeps at most `limit` bytes of text and counts the rest, up to `max_total`. Masks secrets.
    pub(crate) fn new(limit: usize, max_total: u64, secrets: &Secrets) -> Self {
        Self {
            limit,
            max_total,
            text: String::new(),
            masker: secrets.masker(),
            torn: Vec::new(),
            total: 0,
            full: false,
        }
    }

    /// Whether more came than may come in all.
    pub(crate) fn is_over(&self) -> bool {
        self.total > self.max_total
    }

    /// Takes the next portion; gives the text that came of it and is kept, which may be none.
    pub(crate) fn push(&mut self, portion: &[u8]) -> &str {
        let start = self.text.len();
        self.total += portion.len() as u64;
        if !self.full {
            // Before it is decoded or cut: a secret is known as a whole only.
            let masked = self.masker.push(portion);
            self.take(&masked);
        }
        &self.text[start..]
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.torn.is_empty() {
            self.decode(bytes);
        } else {
            let mut whole = std::mem::take(&mut self.torn);
            whole.extend_from_slice(bytes);
            self.decode(&whole);
        }
    }

    fn decode(&mut self, mut bytes: &[u8]) {
        loop {
            match std::str::from_utf8(bytes) {
                Ok(text) => return self.keep(text),
                Err(error) => {
                    let (valid, rest) = bytes.split_at(error.valid_up_to());
                    self.keep(&String::from_utf8_lossy(valid));
                    let Some(length) = error.error_len() else {
                        self.torn = rest.to_vec();
                        return;
                    };
                    self.keep("\u{fffd}");
                    bytes = &rest[length..];
                }
            }
        }
    }

    /// Adds what fits, on a character boundary. Once something did not fit, nothing after it is kept: an answer
    /// has an end, no holes.
    fn keep(&mut self, text: &str) {
        if self.full {
            return;
        }
        let room = self.limit - self.text.len();
        let fits = if text.len() <= room {
            text
        } else {
            self.full = true;
            let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            &text[..end]
        };
        self.text.push_str(fits);
    }

    /// The result of a program that wrote too much, and is to be ended for it.
    pub(crate) fn too_much(self, program: &str) -> SubagentResult {
        let (program, limit) = (subagents_seam::bounded(program, 200), self.max_total);
        let text = format!(
            "{program} wrote more than {limit} bytes in all; raise max_total_output, or see what it does"
        );
        self.into_result(StopReason::Error).with_diagnostic(Diagnostic::new("output-limit", &text))
    }

    /// The result of a program that ended with `exit`.
    pub(crate) fn ended(self, program: &str, exit: Exit, stderr: &LastWords) -> SubagentResult {
        if exit.success() {
            return self.into_result(StopReason::Completed);
        }
        let diagnostic = failure(program, exit, stderr);
        self.into_result(StopReason::Error).with_diagnostic(diagnostic)
    }

    /// The result of a program that was cancelled.
    pub(crate) fn aborted(self) -> SubagentResult {
        self.into_result(StopReason::Aborted)
    }

    fn into_result(mut self, stop_reason: StopReason) -> SubagentResult {
        let waiting = self.masker.finish();
        self.take(&waiting);
        if !std::mem::take(&mut self.torn).is_empty() {
            self.keep("\u{fffd}");
        }
        let mut details = Details::default();
        details.truncated = self.full.then(|| Truncation::new(self.text.len() as u64, self.total));
        SubagentResult::new(stop_reason, self.text).with_details(details)
    }
}

/// The end of what a program wrote to stderr.
#[derive(Debug, Default)]
pub(crate) struct LastWords {
    /// All that is kept.
    pub(crate) all: String,
    /// What came after the last output, which tells best why it ended.
    pub(crate) late: String,
}

impl fmt::Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.late.trim(), self.all.trim()) {
            ("", "") => f.write_str("no stderr"),
            ("", all) => write!(f, "no stderr after the last output; before it: {all}"),
            (late, _) => write!(f, "stderr: {late}"),
        }
    }
}

fn failure(program: &str, exit: Exit, stderr: &LastWords) -> Diagnostic {
    let category = match exit {
        Exit::Code(_) => "exit-code",
        Exit::Signal(_) => "signal",
        Exit::Unknown | _ => "exit-unknown",
    };
    // A path can be long, and what stands behind it matters more.
    let program = subagents_seam::bounded(program, 200);
    Diagnostic::new(category, &format!("{program} ended with {exit}; {stderr}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(limit: usize, portions: &[&[u8]]) -> (Vec<String>, SubagentResult) {
        let mut answer = Answer::new(limit, u64::MAX, &Secrets::default());
        let streamed = portions.iter().map(|portion| answer.push(portion).to_owned()).collect();
        (streamed, answer.aborted())
    }

    #[test]
    fn a_torn_character_is_put_together() {
        let (streamed, result) = answer(100, &[b"a\xe6", b"\xbc", b"\xa2b", b"\xff\xe6"]);
        assert_eq!(streamed, ["a", "", "漢b", "\u{fffd}"]);
        assert_eq!(result.text(), "a漢b\u{fffd}\u{fffd}");
        assert_eq!(result.details.truncated, None);
    }

    #[test]
    fn a_long_answer_is_cut_on_a_boundary_and_says_so() {
        let (streamed, result) = answer(4, &["aé漢".as_bytes(), b"zz", b"z"]);
        assert_eq!(streamed, ["aé", "", ""]);
        assert_eq!(result.text(), "aé");
        assert_eq!(result.details.truncated, Some(Truncation::new(3, 9)));
        assert_eq!(answer(4, &[b"four"]).1.details.truncated, None);
    }

    #[test]
    fn an_exit_becomes_a_stop_reason_and_a_diagnostic() {
        let ended = |exit, stderr: &str| {
            let stderr = LastWords { all: format!("old\n{stderr}"), late: stderr.to_owned() };
            let stderr = if stderr.late.trim().is_empty() { LastWords::default() } else { stderr };
            let mut answer = Answer::new(10, u64::MAX, &Secrets::default());
            answer.push(b"part");
            answer.ended("prog", exit, &stderr)
        };
        let completed = ended(Exit::Code(0), "a warning");
        assert!(completed.stop_reason.is_success() && completed.diagnostic.is_none());
        let cases = [
            (Exit::Code(3), "  why\n", "exit-code: prog ended with exit code 3; stderr: why"),
            (Exit::Code(1), "\n", "exit-code: prog ended with exit code 1; no stderr"),
            (Exit::Signal(9), "", "signal: prog ended with signal SIGKILL; no stderr"),
            (Exit::Unknown, "", "exit-unknown: prog ended with unknown exit; no stderr"),
        ];
        for (exit, stderr, wanted) in cases {
            let result = ended(exit, stderr);
            assert_eq!(result.stop_reason, StopReason::Error);
            assert_eq!(result.text(), "part");
            assert_eq!(result.diagnostic.unwrap().to_string(), wanted);
        }
    }

    #[test]
    fn stderr_from_before_the_last_output_is_told_as_such() {
        let words = LastWords { all: "old warning\n".to_owned(), late: String::new() };
        assert_eq!(words.to_string(), "no stderr after the last output; before it: old warning");
    }

    #[test]
    fn too_much_in_all_is_an_error_that_keeps_what_was_kept() {
        let mut answer = Answer::new(4, 6, &Secrets::default());
        answer.push(b"123456");
        assert!(!answer.is_over());
        answer.push(b"7");
        assert!(answer.is_over());
        let result = answer.too_much("prog");
        assert_eq!((result.stop_reason.clone(), result.text()), (StopReason::Error, "1234".to_owned()));
        assert_eq!(result.details.truncated, Some(Truncation::new(4, 7)));
        let diagnostic = result.diagnostic.unwrap();
        assert_eq!(diagnostic.category(), "output-limit");
        assert!(diagnostic.text().contains("more than 6 bytes in all; raise max_total_output"));
    }

    proptest! {
        #[test]
        fn any_portions_give_the_text_that_the_whole_gives(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'a'), Just(0xc3), Just(0xa9)], 0..60),
            cut in 1usize..7, limit in 0usize..80,
        ) {
            let portions: Vec<_> = bytes.chunks(cut).collect();
            let (streamed, result) = answer(limit, &portions);
            let (_, whole) = answer(limit, &[&bytes]);
            prop_assert_eq!(&result.text(), &whole.text());
            prop_assert!(result.text().len() <= limit);
            prop_assert!(result.text().starts_with(&streamed.concat()));
            if limit >= bytes.len() * 3 {
                prop_assert_eq!(result.text(), String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    }
}
