//! Counting what a provider's children do and what is left of them.

use std::sync::Arc;
use tokio::sync::watch;

/// What was counted, of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// How often a start was asked for.
    pub starts: usize,
    /// Starts that are under way now.
    pub starting: usize,
    /// Children that exist now: started, and not dropped yet.
    pub alive: usize,
    /// How often a child was run.
    pub runs: usize,
    /// Runs that are under way now.
    pub running: usize,
    /// How often a child was closed.
    pub closes: usize,
}

impl Counts {
    /// Whether nothing is left: no start and no run under way, no child alive.
    pub fn is_quiet(&self) -> bool {
        self.starting == 0 && self.alive == 0 && self.running == 0
    }
}

/// Counts the starts, children, runs and closes of whatever shares it, so that a test can assert that nothing is left.
///
/// Clone shares it. Dropping it does nothing.
#[derive(Clone, Debug)]
pub struct Probe {
    counts: Arc<watch::Sender<Counts>>,
}

impl Default for Probe {
    fn default() -> Self {
        Self { counts: Arc::new(watch::Sender::new(Counts::default())) }
    }
}

impl Probe {
    /// A probe that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// All counts, of one moment.
    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// How often a start was asked for.
    pub fn starts(&self) -> usize {
        self.counts().starts
    }

    /// How many children exist now.
    pub fn alive(&self) -> usize {
        self.counts().alive
    }

    /// How often a child was run.
    pub fn runs(&self) -> usize {
        self.counts().runs
    }

    /// How often a child was closed.
    pub fn closes(&self) -> usize {
        self.counts().closes
    }

    /// Waits until the counts are so: `probe.until(|counts| counts.running == 3)`. Give it a deadline.
    ///
    /// Cancel-safe.
    pub async fn until(&self, mut so: impl FnMut(&Counts) -> bool) {
        // An error would say that the sender is gone, and this probe holds it.
        let _ = self.counts.subscribe().wait_for(|counts| so(counts)).await;
    }

    fn change(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }

    pub(crate) fn start(&self) -> Counted {
        self.change(|counts| counts.starts += 1);
        Counted::new(self, |counts| &mut counts.starting)
    }

    pub(crate) fn birth(&self) -> Counted {
        Counted::new(self, |counts| &mut counts.alive)
    }

    pub(crate) fn run(&self) -> Counted {
        self.change(|counts| counts.runs += 1);
        Counted::new(self, |counts| &mut counts.running)
    }

    pub(crate) fn close(&self) {
        self.change(|counts| counts.closes += 1);
    }
}

/// Counts as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted {
    probe: Probe,
    which: fn(&mut Counts) -> &mut usize,
}

impl Counted {
    fn new(probe: &Probe, which: fn(&mut Counts) -> &mut usize) -> Self {
        probe.change(|counts| *which(counts) += 1);
        Self { probe: probe.clone(), which }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.probe.change(|counts| *(self.which)(counts) -= 1);
    }
}
