//! A service with one shell in it, whose processes are found again.

use crate::processes::{Mark, VARIABLE};
use std::time::Duration;
use subagents::{Event, EventStream, Exec, ProgressStream, Root, StartRequest, SubagentRun, SubagentService};
use tokio::time::{Instant, sleep, timeout};

/// Nothing here takes that long; what does has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Says that it is set up, and then hears nothing but `SIGKILL`.
pub(crate) const STUBBORN: &str = "trap '' TERM INT HUP; echo up; while :; do sleep 0.05; done";

pub(crate) struct Host {
    pub(crate) service: SubagentService,
    pub(crate) root: Root,
    pub(crate) mark: Mark,
}

impl Host {
    /// With the provider `sh`, which runs a script of its own.
    pub(crate) fn of(script: &str) -> Self {
        Self::with(Exec::new("sh").args(["-c", script]))
    }

    pub(crate) fn with(exec: Exec) -> Self {
        let mark = Mark::fresh();
        let exec = exec.env(VARIABLE, mark.value());
        let service = SubagentService::builder().provider("sh", exec).build().expect("a service");
        let root = service.root("/").expect("a root");
        Self { service, root, mark }
    }

    pub(crate) fn ask(&self, prompt: &str) -> StartRequest {
        StartRequest::new(&self.root, prompt)
    }

    /// A run whose program has said that it is set up.
    pub(crate) async fn up(&self) -> SubagentRun {
        let run = within("a start", self.service.start("sh", self.ask("x"))).await.expect("it starts");
        said(&mut run.progress(), "up\n").await;
        run
    }

    /// The process ids below a run, as the tree shows them.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.service.tree().nodes.iter().filter_map(|node| node.pid).collect()
    }

    /// Shuts down, and says that nothing is left.
    pub(crate) async fn end(self) {
        let report = within("the shutdown", self.service.shutdown(PATIENCE)).await;
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(self.mark.alive(), [""; 0]);
    }
}

/// Waits until a run has shown this text.
pub(crate) async fn said(progress: &mut ProgressStream, text: &str) {
    let mut all = String::new();
    while !all.contains(text) {
        let update = within("its words", progress.next()).await;
        all += &update.expect("it ended without a word").text;
    }
}

/// Waits for what must come.
pub(crate) async fn within<T>(what: &str, wait: impl IntoFuture<Output = T>) -> T {
    timeout(PATIENCE, wait).await.map_err(|_| format!("waited in vain for {what}")).expect("it comes in time")
}

/// Asks until it holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// How many runs have started and ended by now.
pub(crate) fn lifecycle(events: &mut EventStream) -> (usize, usize) {
    let (mut started, mut ended) = (0, 0);
    while let Some(event) = events.try_next() {
        let event = event.expect("nothing was lost");
        started += usize::from(matches!(event, Event::Started(_)));
        ended += usize::from(matches!(event, Event::Ended(_)));
    }
    (started, ended)
}
