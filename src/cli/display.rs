//! What is shown on stderr while it happens: a bar, or the tree.

use crate::cli::{plan::Show, tally::Tally};
use console::{Term, truncate_str};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    fmt::Write as _,
    io::{self, Write as _},
    sync::{Arc, OnceLock},
    time::Duration,
};
use subagents::{NodeId, Tree};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// How often what is drawn in place is drawn again.
const REDRAW: Duration = Duration::from_millis(125);
/// How often a tree is printed line by line, at most.
const REPRINT: Duration = Duration::from_secs(2);
/// The most lines of such a tree.
const LOGGED_LINES: usize = 200;

/// The display, driven by [`due`](Self::due) and [`update`](Self::update).
#[derive(Debug)]
pub(crate) struct Display {
    show: Show,
    ticks: Interval,
    bar: ProgressBar,
    /// How many there will be, once that is known.
    expected: Arc<OnceLock<u64>>,
    /// The nodes that were printed last, each with its revision.
    printed: Vec<(NodeId, u64)>,
}

impl Display {
    pub(crate) fn new(show: Show) -> Self {
        let period = if show == Show::TreeLog { REPRINT } else { REDRAW };
        let mut ticks = interval_at(Instant::now() + REDRAW, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let bar = match show {
            Show::Nothing | Show::TreeLog => ProgressBar::hidden(),
            Show::Bar | Show::LiveTree => {
                ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style("{msg}"))
            }
        };
        Self { show, ticks, bar, expected: Arc::default(), printed: Vec::new() }
    }

    /// The bar to write around.
    pub(crate) fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }

    /// Where the total goes once it is known.
    pub(crate) fn expected(&self) -> Arc<OnceLock<u64>> {
        self.expected.clone()
    }

    /// Completes when there may be something new to show; never where nothing is shown. Cancel-safe.
    pub(crate) async fn due(&mut self) {
        if self.show == Show::Nothing {
            std::future::pending::<()>().await;
        } else {
            self.ticks.tick().await;
        }
    }

    /// Shows how things stand.
    pub(crate) fn update(&mut self, tally: &Tally, running: usize, tree: impl FnOnce() -> Tree) {
        match self.show {
            Show::Nothing => {}
            Show::Bar => {
                if let Some(total) = self.expected.get()
                    && self.bar.length().is_none()
                {
                    self.bar.set_style(style("{wide_bar} {msg}"));
                    self.bar.set_length(*total);
                }
                self.bar.set_position(tally.total());
                self.bar.set_message(self.status(tally, running));
                self.bar.tick();
            }
            Show::LiveTree => {
                let (rows, columns) = Term::stderr().size();
                let drawn = bounded(&tree().to_string(), usize::from(rows).saturating_sub(3));
                let mut message = String::new();
                for line in drawn.lines() {
                    let _ = writeln!(message, "{}", truncate_str(line, usize::from(columns).max(2) - 1, "…"));
                }
                message.push_str(&self.status(tally, running));
                self.bar.set_message(message);
                self.bar.tick();
            }
            Show::TreeLog => {
                let tree = tree();
                let nodes = revisions(&tree);
                if nodes != self.printed {
                    self.printed = nodes;
                    self.note(&bounded(&tree.to_string(), LOGGED_LINES));
                }
            }
        }
    }

    fn status(&self, tally: &Tally, running: usize) -> String {
        let done = tally.total();
        let total = self.expected.get().map(|total| format!("/{}", total.max(&done))).unwrap_or_default();
        let seconds = self.bar.elapsed().as_secs();
        format!("{done}{total} done, {running} running, {} failed, {seconds}s", tally.unsuccessful())
    }

    /// Says something between what is drawn.
    pub(crate) fn note(&self, message: &str) {
        self.bar.suspend(|| {
            // Without a stderr there is nobody to tell.
            let _ = writeln!(io::stderr(), "{}", message.trim_end());
        });
    }

    /// Takes away what is drawn in place; prints the last tree.
    pub(crate) fn finish(&mut self, tally: &Tally, tree: impl FnOnce() -> Tree) {
        self.bar.finish_and_clear();
        if self.show == Show::TreeLog {
            self.update(tally, 0, tree);
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .progress_chars("=> ")
}

/// Which nodes there are, in which state: the passing of time alone is no change.
fn revisions(tree: &Tree) -> Vec<(NodeId, u64)> {
    let mut nodes: Vec<_> = tree.nodes.iter().map(|node| (node.id, node.revision)).collect();
    nodes.sort_unstable();
    nodes
}

/// At most `most` lines; the last one says what is left out.
fn bounded(text: &str, most: usize) -> String {
    let count = text.lines().count();
    if count <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let mut cut = String::new();
    for line in text.lines().take(kept) {
        let _ = writeln!(cut, "{line}");
    }
    let _ = writeln!(cut, "… {} more lines", count - kept);
    cut
}

#[cfg(test)]
mod tests {
    use super::bounded;

    #[test]
    fn a_long_tree_is_cut_visibly() {
        assert_eq!(bounded("a\nb\nc\n", 3), "a\nb\nc\n");
        assert_eq!(bounded("a\nb\nc\nd\n", 3), "a\nb\n… 2 more lines\n");
        assert_eq!(bounded("a\nb\n", 0), "… 2 more lines\n");
    }
}
