//! Where a check plays: a service of its own with the provider under test, and what is looked at after every check.

use super::Scenario;
use std::{
    future::IntoFuture,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use subagents_runtime::{EventStream, Root, RunWatcher, SubagentRun, SubagentService};
use subagents_seam::{
    AgentId, Deadlines, DynProvider, Event, NodeKind, Phase, RunEndInfo, RunId, StartError, StartRequest,
    SubagentResult, Tree,
};
use tokio::time::{sleep, timeout};

/// What came of a check: nothing, or why it did not hold.
pub(super) type Verdict = Result<(), String>;

macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}
pub(super) use ensure;

/// The provider's name in every service here.
pub(super) const NAME: &str = "subject";
/// How long nothing must happen to be taken for nothing.
pub(super) const BEAT: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) patience: Duration,
    pub(super) grace: Duration,
    pub(super) cwd: PathBuf,
    pub(super) leftovers: Option<Arc<dyn Fn() -> usize + Send + Sync>>,
}

pub(super) struct Stage {
    pub(super) scenario: Scenario,
    pub(super) settings: Settings,
    pub(super) provider: DynProvider,
    pub(super) service: SubagentService,
    pub(super) root: Root,
    seen: Mutex<Seen>,
}

struct Seen {
    events: EventStream,
    lifecycle: Vec<Event>,
}

/// A published run, and the word of its prompt.
pub(super) struct Live {
    pub(super) word: String,
    pub(super) run: SubagentRun,
}

impl Stage {
    pub(super) fn open(
        scenario: Scenario,
        provider: &DynProvider,
        settings: &Settings,
    ) -> Result<Self, String> {
        let service = SubagentService::builder()
            .provider(NAME, provider.clone())
            .deadlines(
                Deadlines::new()
                    .start(settings.patience / 2)
                    .cancel_grace(settings.grace)
                    .dispose(settings.patience / 2),
            )
            .build()
            .map_err(|error| format!("no service: {error}"))?;
        let root = service.root(&settings.cwd).map_err(|error| format!("no root: {error}"))?;
        let seen = Mutex::new(Seen { events: service.events(), lifecycle: Vec::new() });
        Ok(Self { scenario, settings: settings.clone(), provider: provider.clone(), service, root, seen })
    }

    /// A second one beside it.
    pub(super) fn another(&self) -> Result<Self, String> {
        Self::open(self.scenario, &self.provider, &self.settings)
    }

    // ---- asking

    /// A word that stands in one prompt only.
    pub(super) fn word() -> String {
        format!("ok-{}", AgentId::new())
    }

    pub(super) fn request(&self, word: &str) -> StartRequest {
        StartRequest::new(&self.root, format!("Answer with the word {word} and nothing else."))
    }

    /// A run, published.
    pub(super) async fn begin(&self) -> Result<Live, String> {
        let word = Self::word();
        let run = self.begin_with(self.request(&word)).await?;
        Ok(Live { word, run })
    }

    pub(super) async fn begin_with(&self, request: StartRequest) -> Result<SubagentRun, String> {
        self.within("the start", self.service.start(NAME, request))
            .await?
            .map_err(|error| format!("the start failed: {}: {error}", error.code()))
    }

    // ---- waiting

    /// Waits for something that must come, with the deadline of every wait here.
    pub(super) async fn within<T>(&self, what: &str, wait: impl IntoFuture<Output = T>) -> Result<T, String> {
        let patience = self.settings.patience;
        timeout(patience, wait).await.map_err(|_| format!("{what}: nothing came of it in {patience:?}"))
    }

    pub(super) async fn result(&self, run: &RunWatcher) -> Result<Arc<SubagentResult>, String> {
        self.within("the result", run.result())
            .await?
            .map_err(|error| format!("a published run has a result, not an error: {}: {error}", error.code()))
    }

    /// The result of a run that was just cancelled: it settles within the grace, give or take a busy machine.
    pub(super) async fn result_in_grace(&self, run: &RunWatcher) -> Result<Arc<SubagentResult>, String> {
        let limit = self.settings.grace + self.settings.patience / 2;
        match timeout(limit, self.result(run)).await {
            Ok(result) => result,
            Err(_) => Err(format!("a cancelled run settles within its grace; it had not after {limit:?}")),
        }
    }

    pub(super) async fn dispose(&self, run: &RunWatcher) -> Verdict {
        self.within("the disposal", run.dispose()).await?.map_err(|error| error.to_string())
    }

    /// The refusal or failure of a start, after which nothing of it is left.
    pub(super) async fn refusal(
        &self,
        start: impl IntoFuture<Output = Result<SubagentRun, StartError>>,
        id: RunId,
    ) -> Result<StartError, String> {
        match self.within("the start", start).await? {
            Err(error) => {
                self.ensure_absent(id)?;
                self.ensure_unstarted(id)?;
                Ok(error)
            }
            Ok(run) => {
                let watcher = run.watcher();
                drop(run);
                self.dispose(&watcher).await?;
                Err("the start was to be rejected and gave a run".into())
            }
        }
    }

    // ---- looking

    /// `Started` and `Ended` so far.
    pub(super) fn lifecycle(&self) -> Result<Vec<Event>, String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(event) = seen.events.try_next() {
            let event = event.map_err(|lagged| lagged.to_string())?;
            if matches!(event, Event::Started(_) | Event::Ended(_)) {
                seen.lifecycle.push(event);
            }
        }
        Ok(seen.lifecycle.clone())
    }

    pub(super) fn ensure_unstarted(&self, id: RunId) -> Verdict {
        let started = self.lifecycle()?.iter().any(|event| run_of(event) == Some(id));
        ensure!(!started, "a rejected start has no lifecycle event, and there was one");
        Ok(())
    }

    pub(super) fn ensure_absent(&self, id: RunId) -> Verdict {
        let tree = self.service.tree();
        let node = tree.nodes.iter().find(|node| node.id == id.into());
        ensure!(node.is_none(), "run {id} is still in the tree:\n{tree}");
        Ok(())
    }

    pub(super) fn ensure_running(run: &RunWatcher, when: &str) -> Verdict {
        let phase = run.phase();
        ensure!(phase == Phase::Running, "{when} the run was to go on, and it is {phase}");
        Ok(())
    }

    /// Lets a moment pass in which nothing is to happen.
    pub(super) async fn beat(&self) {
        sleep(BEAT).await;
    }

    // ---- the end of a check

    /// What must hold after every check: nothing below the root, nothing leaked, each `Started` with its one `Ended`.
    pub(super) async fn audit(&self) -> Verdict {
        self.within("the end of every run", self.root.idle()).await?;
        let tree = self.service.tree();
        ensure!(busy(&tree) == 0, "after the end of every run the tree still has some:\n{tree}");
        if let Some((node, what)) = tree.gone.iter().find_map(|node| node.leaked().map(|what| (node, what))) {
            return Err(format!("run {} left something behind: {what}", node.id));
        }
        paired(&self.lifecycle()?)?;
        let report = self.service.shutdown(self.settings.patience).await;
        ensure!(report.is_clean(), "the shutdown was not clean: {report:?}");
        self.ensure_nothing_left().await
    }

    async fn ensure_nothing_left(&self) -> Verdict {
        let Some(leftovers) = &self.settings.leftovers else { return Ok(()) };
        let gone = async {
            while leftovers() > 0 {
                sleep(BEAT / 10).await;
            }
        };
        match timeout(self.settings.patience / 2, gone).await {
            Ok(()) => Ok(()),
            Err(_) => Err(format!("{} of the provider's own count are left", leftovers())),
        }
    }

    /// Ends it, also where the check left it half-way.
    pub(super) async fn end(self) {
        let _ = self.service.shutdown(self.settings.grace + self.settings.patience / 2).await;
    }
}

fn busy(tree: &Tree) -> usize {
    tree.nodes.iter().filter(|node| matches!(node.kind, NodeKind::Run | NodeKind::Process)).count()
}

/// Whose lifecycle event it is.
fn run_of(event: &Event) -> Option<RunId> {
    if let Event::Started(run) | Event::Ended(RunEndInfo { run, .. }) = event {
        Some(run.run_id)
    } else {
        None
    }
}

/// Each `Started` has exactly one `Ended`, after it and of the same run, provider and child (SPEC 2.9).
fn paired(lifecycle: &[Event]) -> Verdict {
    let mut open = Vec::new();
    let mut all = Vec::new();
    for event in lifecycle {
        if let Event::Started(run) = event {
            ensure!(!all.contains(&run.run_id), "run {} started twice", run.run_id);
            all.push(run.run_id);
            open.push(run);
        } else if let Event::Ended(end) = event {
            let Some(index) = open.iter().position(|run| **run == end.run) else {
                return Err(format!("run {} ended twice, or without a start", end.run.run_id));
            };
            open.swap_remove(index);
        }
    }
    ensure!(open.is_empty(), "run {} has started and never ended", open[0].run_id);
    Ok(())
}
