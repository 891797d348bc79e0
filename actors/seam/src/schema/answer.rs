//! What of a child's words counts as its answer. Pure, and linear in their length.

use serde_json::Value;

/// The value that `text` answers with, or why it answers with none.
///
/// The rule is in the documentation of [`SchemaAsk`](super::SchemaAsk). What is wrong is told by place, never by content.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let whole = text.trim();
    if whole.is_empty() {
        return Err("the answer is empty".to_owned());
    }
    let error = match serde_json::from_str(whole) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let mut blocks = Blocks::new(whole);
    match (blocks.next(), blocks.next()) {
        (None, _) => Err(format!("the answer is no JSON: {}", reason(&error))),
        (Some(block), None) => serde_json::from_str(block)
            .map_err(|error| format!("the code block in the answer is no JSON: {}", reason(&error))),
        (Some(_), Some(_)) => {
            Err("the answer has more than one code block, so none of them counts".to_owned())
        }
    }
}

fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.starts_with("recursion limit exceeded") {
        // The parser's own limit. It is what keeps a nested answer from exhausting the stack.
        return format!("{text}: it is nested deeper than 127 levels, so use fewer");
    }
    text
}

/// The fenced code blocks of a text, as Markdown has them: from a line that begins with three or more of `` ` `` or `~` to
/// a line of at least as many of the same and nothing else. A block that is not closed is none.
struct Blocks<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Blocks<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    fn line(&mut self) -> Option<&'t str> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let line = rest.split_inclusive('\n').next()?;
        self.at += line.len();
        Some(line)
    }
}

impl<'t> Iterator for Blocks<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        loop {
            let Some((mark, least, info)) = fence(self.line()?) else { continue };
            // Words in backticks are no fence.
            if mark == '`' && info.contains('`') {
                continue;
            }
            let from = self.at;
            loop {
                let to = self.at;
                match fence(self.line()?) {
                    Some((end, count, "")) if end == mark && count >= least => {
                        return self.text.get(from..to);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The mark of a fence, how many there are of it, and what else stands on its line.
fn fence(line: &str) -> Option<(char, usize, &str)> {
    let line = line.trim();
    let mark = line.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let info = line.trim_start_matches(mark);
    let count = line.len() - info.len();
    (count >= 3).then_some((mark, count, info.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::read;
    use serde_json::{Value, json};

    #[test]
    fn g04_what_counts_as_the_answer_is_the_same_every_time() {
        let one = json!({"n": 1});
        for text in [
            r#"{"n": 1}"#,
            " \r\n{\"n\": 1}\n\n",
            "```json\n{\"n\": 1}\n```",
            "```\n{\"n\":\n1}\n```\n",
            "Here it is:\n\n  ~~~~ JSON\n{\"n\": 1}\r\n  ~~~~\nIs `n` right?",
            "Words in ```backticks``` are no block.\n```json\n{\"n\": 1}\n```",
            "````\n{\"n\": 1}\n`````",
        ] {
            assert_eq!(read(text), Ok(one.clone()), "{text}");
        }
        for (text, told) in [
            ("", "empty"),
            ("\u{2003}\n", "empty"),
            ("done", "no JSON: expected value at line 1 column 1"),
            (r#"The answer is {"n": 1}"#, "no JSON"),
            (r#"{"n": 1} {"n": 2}"#, "no JSON: trailing characters"),
            (r#"{"n": 1"#, "no JSON: EOF"),
            ("{'n': 1}", "no JSON: key must be a string"),
            ("```json\n{\"n\": 1", "no JSON"),
            ("```json\n{\"n\": 1}", "no JSON"),
            ("```json\n{\"n\": 1,\n```", "code block in the answer is no JSON"),
            ("````json\n{\"n\": 1}\n```", "no JSON"),
            ("```json\n{\"n\": 1}\n```\nor\n```json\n{\"n\": 2}\n```", "more than one"),
            ("```json\n{\"n\": 1}\n```\n~~~\nls\n~~~", "more than one"),
            ("{\"n\": 1e999}", "number out of range"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn g02_a_string_that_holds_json_stays_a_string() {
        assert_eq!(read(r#""{\"n\": 1}""#), Ok(Value::String(r#"{"n": 1}"#.to_owned())));
    }

    #[test]
    fn a_deep_answer_is_told_and_a_long_one_takes_linear_time() {
        let deep = "[".repeat(5_000_000);
        assert!(read(&deep).expect_err("too deep").contains("deeper than 127 levels"));
        assert!(read(&format!("```\n{deep}\n```")).expect_err("too deep").contains("deeper than 127 levels"));
        for piece in ["```\n", "~~~ x\n", "`", "{\"a\":", "````\n```\n", "\n", "\"\\u0000\","] {
            let long = piece.repeat(4_000_000 / piece.len());
            let begun = std::time::Instant::now();
            assert!(read(&long).is_err());
            assert!(begun.elapsed().as_secs() < 10, "{piece:?} took {:?}", begun.elapsed());
        }
    }
}
