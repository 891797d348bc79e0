//! The last line that each child said, of those that can be seen.

use std::{collections::HashMap, fmt};
use subagents::{Node, NodeId, NodeKind, Phase, ProgressStream, SubagentService, Tree, sanitised};

/// As much of what a child said is looked at; no terminal is as wide.
const TAIL_BYTES: usize = 4096;

/// Ears for the runs that are drawn.
#[derive(Default)]
pub(crate) struct Voices(HashMap<NodeId, Voice>);

struct Voice {
    progress: ProgressStream,
    tail: String,
}

impl fmt::Debug for Voices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl Voices {
    /// Hears what is new of the first `most` runs of the tree, and forgets the others.
    pub(crate) fn listen(&mut self, service: &SubagentService, tree: &Tree, most: usize) {
        let runs =
            tree.nodes.iter().filter(|node| node.kind == NodeKind::Run && node.phase == Phase::Running);
        let mut runs: Vec<&Node> = runs.collect();
        // As they are drawn.
        runs.sort_unstable_by_key(|node| (node.created, node.id));
        let mut heard = HashMap::new();
        for node in runs.into_iter().take(most) {
            let voice = self.0.remove(&node.id).or_else(|| {
                let progress = service.watcher((*node.id.as_uuid()).into())?.progress();
                Some(Voice { progress, tail: String::new() })
            });
            let Some(mut voice) = voice else { continue };
            if let Some(update) = voice.progress.try_next() {
                append(&mut voice.tail, &update.text);
            }
            heard.insert(node.id, voice);
        }
        self.0 = heard;
    }

    /// The row below a run.
    pub(crate) fn last_line(&self, run: NodeId) -> Option<String> {
        last_line(&self.0.get(&run)?.tail).map(|line| format!("says: {line}"))
    }
}

fn append(tail: &mut String, text: &str) {
    tail.push_str(&text[text.ceil_char_boundary(text.len().saturating_sub(TAIL_BYTES))..]);
    tail.drain(..tail.ceil_char_boundary(tail.len().saturating_sub(TAIL_BYTES)));
}

/// The last line with something on it. A child that draws a bar of its own goes back to the start of the line for it.
fn last_line(said: &str) -> Option<String> {
    let clean = sanitised(&said.replace('\r', "\n"));
    let lines = clean.lines().rev().map(|line| line.replace('\t', " ").trim().to_owned());
    lines.into_iter().find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{TAIL_BYTES, append, last_line};

    #[test]
    fn the_last_line_is_clean_and_never_blank() {
        for (said, line) in [
            ("", None),
            ("\n \r\n\t\n", None),
            ("one\ntwo", Some("two")),
            ("one\ntwo\n\n", Some("two")),
            ("10%\r20%\r30%", Some("30%")),
            ("\u{1b}[31mred\u{1b}[0m\u{1b}[2J\n", Some("red")),
            ("a\u{202e}b\u{200b}\u{7}c", Some("abc")),
            ("\u{1b}]0;title\u{7}", None),
            ("a\tb", Some("a b")),
        ] {
            assert_eq!(last_line(said).as_deref(), line, "{said:?}");
        }
    }

    #[test]
    fn the_tail_is_bounded_and_whole_characters() {
        let mut tail = String::new();
        for (text, last) in
            [("日本".repeat(TAIL_BYTES), '本'), ("é".to_owned(), 'é'), ("x".repeat(TAIL_BYTES - 1), 'x')]
        {
            append(&mut tail, &text);
            assert!(tail.len() <= TAIL_BYTES && tail.ends_with(last), "{}", tail.len());
        }
        append(&mut tail, "y");
        assert_eq!(tail.len(), TAIL_BYTES);
    }
}
