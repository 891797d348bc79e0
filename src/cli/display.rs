//! What is shown on stderr while it happens: a bar, or the tree.

use crate::cli::{plan::Show, tally::Tally, voices::Voices};
use console::{Term, truncate_str};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::{
    fmt::{self, Write as _},
    io::{self, Write as _},
    sync::{Arc, OnceLock},
    time::Duration,
};
use subagents::{Node, NodeId, NodeKind, Phase, SubagentService, Tree, sanitised};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// How often what is drawn in place is drawn again.
const REDRAW: Duration = Duration::from_millis(125);
/// How often a tree is printed line by line, at most.
const REPRINT: Duration = Duration::from_secs(2);
/// The most lines of such a tree.
const LOGGED_LINES: usize = 200;

/// A bar has at least so many columns, with what is around it.
const BAR_LEAST: usize = 12;

/// How things stand, on one line.
#[derive(Clone, Debug)]
struct Status {
    done: u64,
    total: Option<u64>,
    running: usize,
    waiting: usize,
    failed: u64,
    elapsed: Duration,
}

impl Status {
    /// It as text of so many columns at most, and the total where there is room for a bar beside it.
    fn fit(&self, columns: usize) -> (String, Option<u64>) {
        let facts = self.to_string();
        let left = self.left().map(|left| format!("{facts}, about {}s left", left.as_secs() + 1));
        // Of one prompt a bar would say nothing.
        let total = self.total.filter(|total| *total > 1);
        let room = |text: &String| text.chars().count() + BAR_LEAST <= columns;
        match left.filter(room) {
            Some(text) => (text, total),
            None if room(&facts) => (facts, total),
            None => (truncate_str(&facts, columns, "…").into_owned(), None),
        }
    }

    /// How long it still takes, once enough of it is done to say so.
    fn left(&self) -> Option<Duration> {
        let left = self.total?.checked_sub(self.done).filter(|left| *left > 0)?;
        let enough = self.done >= 10 && self.done.saturating_mul(4) >= left;
        let millis = enough.then(|| self.elapsed.as_millis() * u128::from(left) / u128::from(self.done))?;
        u64::try_from(millis).ok().map(Duration::from_millis)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, running, waiting, failed, .. } = self;
        let total = self.total.map(|total| format!("/{}", total.max(*done))).unwrap_or_default();
        write!(f, "{done}{total} done, {running} running, ")?;
        if *waiting > 0 {
            write!(f, "{waiting} waiting, ")?;
        }
        write!(f, "{failed} failed, {}s", self.elapsed.as_secs())
    }
}

/// The display, driven by [`due`](Self::due) and [`update`](Self::update).
#[derive(Debug)]
pub(crate) struct Display {
    show: Show,
    watched: bool,
    ticks: Interval,
    bar: ProgressBar,
    /// How many there will be, once that is known.
    expected: Arc<OnceLock<u64>>,
    /// What the children say.
    voices: Voices,
    /// The nodes that were printed last, each with its revision.
    printed: Vec<(NodeId, u64)>,
}

impl Display {
    pub(crate) fn new(show: Show, watched: bool) -> Self {
        let period = if show == Show::TreeLog { REPRINT } else { REDRAW };
        let mut ticks = interval_at(Instant::now() + REDRAW, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let bar = match show {
            Show::Nothing | Show::TreeLog => ProgressBar::hidden(),
            Show::Bar | Show::LiveTree => {
                ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style("{msg}"))
            }
        };
        Self {
            show,
            watched,
            ticks,
            bar,
            expected: Arc::default(),
            voices: Voices::default(),
            printed: Vec::new(),
        }
    }

    /// Whether somebody wants to know how it went, also where it went well.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched || self.show == Show::TreeLog
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
    pub(crate) fn update(&mut self, tally: &Tally, running: usize, service: &SubagentService, tree: &Tree) {
        let (rows, columns) = Term::stderr().size();
        // The last column stays free: some terminals break the line there.
        let columns = usize::from(columns).max(2) - 1;
        match self.show {
            Show::Nothing => {}
            Show::Bar => {
                let status = self.status(tally, running, tree);
                self.draw(String::new(), &status, columns);
            }
            Show::LiveTree => {
                let rows = usize::from(rows).saturating_sub(3);
                self.voices.listen(service, tree, rows);
                let drawn = bounded(&tree.drawn_with(|node| self.voices.last_line(node.id)), rows);
                let lines: Vec<_> = drawn.lines().map(|line| truncate_str(line, columns, "…")).collect();
                let status = self.status(tally, running, tree);
                self.draw(lines.join("\n"), &status, columns);
            }
            Show::TreeLog => {
                let nodes = revisions(tree);
                // A tree without a run says nothing.
                let runs = tree.nodes.iter().any(|node| node.kind == NodeKind::Run);
                if runs && nodes != self.printed {
                    self.printed = nodes;
                    self.note(&bounded(&tree.to_string(), LOGGED_LINES));
                }
            }
        }
    }

    fn status(&self, tally: &Tally, under_way: usize, tree: &Tree) -> Status {
        let waits = |node: &&Node| node.kind == NodeKind::Run && node.phase == Phase::Queued;
        let waiting = tree.nodes.iter().filter(waits).count();
        Status {
            done: tally.total(),
            total: self.expected.get().copied(),
            running: under_way.saturating_sub(waiting),
            waiting,
            failed: tally.unsuccessful(),
            elapsed: self.bar.elapsed(),
        }
    }

    /// Draws the bar, below what is `above` it.
    fn draw(&self, above: String, status: &Status, columns: usize) {
        // What the terminal echoes of a Ctrl-C stands behind it, and must not go on to the next line.
        let columns = columns.saturating_sub(2);
        let (text, total) = status.fit(columns);
        let above = if above.is_empty() { above } else { above + "\n" };
        let bar = match total {
            Some(_) => format!("[{{bar:{}}}] ", columns.saturating_sub(text.chars().count() + 3)),
            None => String::new(),
        };
        // The text goes with the style, so that all of it is drawn at once.
        let style = style(&format!("{{above}}{bar}{{status}}"))
            .with_key("above", shows(above))
            .with_key("status", shows(text));
        self.bar.set_style(style);
        self.bar.update(|state| {
            state.set_len(total.map_or(1, |total| total.max(status.done)));
            state.set_pos(status.done);
        });
    }

    /// Says something between what is drawn.
    pub(crate) fn note(&self, message: &str) {
        self.bar.suspend(|| {
            // Without a stderr there is nobody to tell.
            let _ = writeln!(io::stderr(), "{}", sanitised(message.trim_end()));
        });
    }

    /// Takes away what is drawn in place; prints the last tree.
    pub(crate) fn finish(&mut self, tally: &Tally, service: &SubagentService, tree: &Tree) {
        self.bar.finish_and_clear();
        if self.show == Show::TreeLog {
            self.update(tally, 0, service, tree);
        }
    }
}

/// A part of what is drawn.
fn shows(text: String) -> impl Fn(&ProgressState, &mut dyn fmt::Write) + Clone + Send + Sync + 'static {
    move |_, out| {
        let _ = out.write_str(&text);
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
    use super::{Status, bounded};
    use std::time::Duration;

    #[test]
    fn the_status_says_how_long_it_takes_once_it_can_know() {
        let seconds = Duration::from_secs;
        let mut status =
            Status { done: 3, total: None, running: 2, waiting: 0, failed: 1, elapsed: seconds(6) };
        assert_eq!(status.to_string(), "3 done, 2 running, 1 failed, 6s");
        (status.total, status.waiting) = (Some(8), 5);
        assert_eq!(status.to_string(), "3/8 done, 2 running, 5 waiting, 1 failed, 6s");
        for (done, total, left) in [
            (9, 20, None),
            (10, 20, Some(seconds(6))),
            (10, 51, None),
            (20, 100, Some(seconds(24))),
            (20, 20, None),
            (21, 20, None),
        ] {
            (status.done, status.total) = (done, Some(total));
            assert_eq!(status.left(), left, "{done}/{total}");
        }
        (status.done, status.total, status.waiting) = (20, Some(100), 0);
        for (columns, text, bar) in [
            (79, "20/100 done, 2 running, 1 failed, 6s, about 25s left", true),
            (64, "20/100 done, 2 running, 1 failed, 6s, about 25s left", true),
            (63, "20/100 done, 2 running, 1 failed, 6s", true),
            (48, "20/100 done, 2 running, 1 failed, 6s", true),
            (47, "20/100 done, 2 running, 1 failed, 6s", false),
            (19, "20/100 done, 2 run…", false),
            (1, "…", false),
        ] {
            assert_eq!(status.fit(columns), (text.to_owned(), bar.then_some(100)), "{columns}");
        }
        status.total = Some(1);
        assert_eq!(status.fit(79).1, None);
    }

    #[test]
    fn a_long_tree_is_cut_visibly() {
        assert_eq!(bounded("a\nb\nc\n", 3), "a\nb\nc\n");
        assert_eq!(bounded("a\nb\nc\nd\n", 3), "a\nb\n… 2 more lines\n");
        assert_eq!(bounded("a\nb\n", 0), "… 2 more lines\n");
    }
}
