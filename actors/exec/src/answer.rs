//! What a program says on stdout, as text of bounded length. Pure.

use std::fmt;

use subagents_process::Exit;
use subagents_seam::{Details, Diagnostic, StopReason, SubagentResult, Truncation};

/// Gathers the answer. A character that is cut in two by the portions is put together again; bytes that are no
/// UTF-8 become U+FFFD.
pub(crate) struct Answer {
    limit: usize,
    text: String,
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
    /// Keeps at most `limit` bytes of text and counts the rest.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, text: String::new(), torn: Vec::new(), total: 0, full: false }
    }

    /// Takes the next portion; gives the text that came of it and is kept, which may be none.
    pub(crate) fn push(&mut self, portion: &[u8]) -> &str {
        let start = self.text.len();
        self.total += portion.len() as u64;
        if !self.full {
            if self.torn.is_empty() {
                self.decode(portion);
            } else {
                let mut bytes = std::mem::take(&mut self.torn);
                bytes.extend_from_slice(portion);
                self.decode(&bytes);
            }
        }
        &self.text[start..]
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

    /// The result of a program that ended with `exit`. `stderr` is the end of what it wrote there.
    pub(crate) fn ended(self, program: &str, exit: Exit, stderr: &str) -> SubagentResult {
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
        if !std::mem::take(&mut self.torn).is_empty() {
            self.keep("\u{fffd}");
        }
        let mut details = Details::default();
        details.truncated = self.full.then(|| Truncation::new(self.text.len() as u64, self.total));
        SubagentResult::new(stop_reason, self.text).with_details(details)
    }
}

fn failure(program: &str, exit: Exit, stderr: &str) -> Diagnostic {
    let category = match exit {
        Exit::Code(_) => "exit-code",
        Exit::Signal(_) => "signal",
        Exit::Unknown | _ => "exit-unknown",
    };
    // A path can be long, and what stands behind it matters more.
    let program = subagents_seam::bounded(program, 200);
    let stderr = stderr.trim();
    let said = if stderr.is_empty() { "no stderr".to_owned() } else { format!("stderr: {stderr}") };
    Diagnostic::new(category, &format!("{program} ended with {exit}; {said}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(limit: usize, portions: &[&[u8]]) -> (Vec<String>, SubagentResult) {
        let mut answer = Answer::new(limit);
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
            let mut answer = Answer::new(10);
            answer.push(b"part");
            answer.ended("prog", exit, stderr)
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
