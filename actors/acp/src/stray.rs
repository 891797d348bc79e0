//! What an agent writes to its stdout beside the protocol: banners, logs, credential notices. Pure.

use subagents_external::shown;
use subagents_process::Secrets;

/// As many lines are kept, to be told when something goes wrong.
const KEPT: usize = 3;
/// As much of each.
const KEPT_BYTES: usize = 200;
/// More than this is no banner: whoever writes it does not speak the protocol.
const MOST_BYTES: u64 = 8 * 1024 * 1024;

/// Counts the lines that are no messages, and keeps the first.
#[derive(Debug, Default)]
pub(crate) struct Stray {
    lines: u32,
    bytes: u64,
    first: Vec<String>,
}

impl Stray {
    /// Takes a line in.
    pub(crate) fn take(&mut self, line: &str, secrets: &Secrets) {
        self.lines = self.lines.saturating_add(1);
        // An empty line costs something as well.
        self.bytes = self.bytes.saturating_add(line.len() as u64 + 1);
        if self.first.len() < KEPT && !line.trim().is_empty() {
            let shown = shown(line, secrets, KEPT_BYTES);
            tracing::debug!(line = shown, "an agent wrote a line that is no message");
            self.first.push(shown);
        }
    }

    /// Whether this is more than can be forgiven.
    pub(crate) fn is_too_much(&self) -> bool {
        self.bytes > MOST_BYTES
    }

    /// How many lines.
    pub(crate) fn lines(&self) -> u32 {
        self.lines
    }

    /// The first of them, for people; none where there was none.
    pub(crate) fn told(&self) -> Option<String> {
        (!self.first.is_empty()).then(|| self.first.join(" | "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d07_stray_lines_are_counted_and_the_first_are_kept_clean() {
        let mut stray = Stray::default();
        let secrets = Secrets::of([("API_KEY".into(), "hunter2-hunter2".into())]);
        for line in ["", "\u{1b}[31mred\u{1b}[0m", "key hunter2-hunter2", "third", "fourth"] {
            stray.take(line, &secrets);
        }
        assert_eq!(stray.lines(), 5);
        assert_eq!(stray.told().as_deref(), Some("red | key [API_KEY] | third"));
        assert!(!stray.is_too_much());
    }

    #[test]
    fn endless_garbage_is_too_much() {
        let mut stray = Stray::default();
        stray.take(&"x".repeat(8 * 1024 * 1024), &Secrets::default());
        assert!(stray.is_too_much());
        let mut empty = Stray::default();
        for _ in 0..=MOST_BYTES {
            empty.take("", &Secrets::default());
        }
        assert!(empty.is_too_much());
    }
}
